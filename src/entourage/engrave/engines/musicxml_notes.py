"""Reading onsets and pitches straight from MusicXML, without any engraver."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction

from lxml import etree

from entourage.io.safe_xml import parse_xml

_STEPS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


def note_ids(text: str) -> dict[tuple[float, int | None], list[str]]:
    """The ids of the notes of a score by onset in quarters, rounded to four digits, and MIDI number."""
    root = parse_xml(text.encode())
    parts = [_read_part(part) for part in root.iterchildren("part")]
    starts = [Fraction(0)]
    for lengths in zip(*(measures for measures, _ in parts), strict=False):
        starts.append(starts[-1] + max(lengths))  # a measure lasts as long as in the part where it is longest
    found: dict[tuple[float, int | None], list[str]] = defaultdict(list)
    for _, notes in parts:
        for measure, onset, midi, identity in notes:
            if measure < len(starts):
                found[round(float(starts[measure] + onset), 4), midi].append(identity)
    return dict(found)


def _read_part(part: etree._Element) -> tuple[list[Fraction], list[tuple[int, Fraction, int | None, str]]]:
    """How long each measure is, and of each note the measure, the onset in it, the pitch and the id."""
    divisions = 1
    lengths, notes = [], []
    for number, measure in enumerate(part.iterchildren("measure")):
        now = previous = longest = Fraction(0)
        for element in measure:
            if element.tag == "attributes" and element.findtext("divisions"):
                divisions = int(element.findtext("divisions"))
            length = Fraction(int(float(element.findtext("duration") or 0)), divisions)
            if element.tag == "note":
                onset = previous if element.find("chord") is not None else now
                notes.append((number, onset, _midi(element), element.get("id", "")))
                if element.find("chord") is None:
                    previous, now = now, now + (length if element.find("grace") is None else 0)
            elif element.tag in ("forward", "backup"):
                now += length if element.tag == "forward" else -length
            longest = max(longest, now)
        lengths.append(longest)
    return lengths, notes


def _midi(note: etree._Element) -> int | None:
    pitch = note.find("pitch")
    if pitch is None:
        return None
    alter = int(float(pitch.findtext("alter") or 0))
    return 12 * (int(pitch.findtext("octave")) + 1) + _STEPS[pitch.findtext("step")] + alter
