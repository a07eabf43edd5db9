"""Text of a page by its place: title, authors, names of parts, lyrics, and words such as tempo marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from entourage.detect.options import INTERLINE
from entourage.read.layout.systems import Mask
from entourage.read.places import locate, staff_for
from entourage.read.score import Chord, Direction
from entourage.read.text.lyrics import Row, attach_lyrics, is_lyrics, to_rows
from entourage.read.text.recognition import TextLine

if TYPE_CHECKING:
    from entourage.read.assemble import SystemReading

_HEADING = 5.0 * INTERLINE  # text at least as far above the first staff is a title or an author
_MAX_DEPTH = 20.0 * INTERLINE  # of lyrics below their staff
_MAX_WORDS = 8.0 * INTERLINE  # of words above or below a system
_ROW_GAP = 3.0 * INTERLINE  # between the rows of two verses
_SIDE = 0.3  # of the width of a page: authors are within this distance of its left or right end
_SHIFT = 0.6 * INTERLINE  # words begin at the left end of a notehead
_SIGNS = {"p", "pp", "ppp", "f", "ff", "fff", "mp", "mf", "sf", "sfz", "fz", "fp", "rf", "rfz", "sfp", "ped", "tr"}
_MIN_LETTERS = 3


@dataclass
class Headings:
    """Text that belongs to a page as a whole.

    Attributes:
        title: title of the piece, or "".
        authors: "composer" or "lyricist", and the name.
        names: names of the parts of the first system, "" where none is printed.
    """

    title: str = ""
    authors: list[tuple[str, str]] = field(default_factory=list)
    names: list[str] = field(default_factory=list)


def attach_text(readings: Sequence[SystemReading], lines: Sequence[TextLine], ink: Mask) -> Headings:
    """Add lyrics and words to the chords and measures of a page.

    Args:
        readings: its systems from top to bottom; chords and measures are changed in place.
        lines: its text.
        ink: ink of the page, shape (h, w).

    Returns:
        Title, authors and names of parts.
    """
    first = readings[0].system
    top = first.staves[0].top((first.left + first.right) / 2)
    headings = _headings([line for line in lines if line.box[3] < top - _HEADING], first.left, first.right)
    rest = [line for line in lines if line.box[3] >= top - _HEADING]
    headings.names = _names(readings[0], rest)
    rest = [line for line in rest if not any(_is_before(reading, line) for reading in readings)]
    rest = _attach_all_lyrics(readings, [line for line in rest if line.text.lower() not in _SIGNS], ink)
    for line in rest:
        _attach_words(readings, line)
    return headings


def _headings(lines: Sequence[TextLine], left: float, right: float) -> Headings:
    """Return title and authors: the largest line, and the others at the left or right."""
    found = Headings()
    named = [line for line in lines if sum(c.isalpha() for c in line.text) >= _MIN_LETTERS]
    if not named:
        return found
    title = max(named, key=lambda line: line.height)
    found.title = title.text
    for line in named:
        middle = ((line.box[0] + line.box[2]) / 2 - left) / (right - left)
        if line is not title and middle > 1 - _SIDE:
            found.authors.append(("composer", line.text))
        elif line is not title and middle < _SIDE:
            found.authors.append(("lyricist", line.text))
    return found


def _is_before(reading: SystemReading, line: TextLine) -> bool:
    """Return whether a line is to the left of the staves of a system."""
    system = reading.system
    return system.distance(system.left, line.y) < INTERLINE and line.box[2] < system.left + INTERLINE


def _names(reading: SystemReading, lines: Sequence[TextLine]) -> list[str]:
    """Return the name to the left of each part of a system, or ""."""
    before = [line for line in lines if _is_before(reading, line)]
    names: list[list[str]] = [[] for _ in reading.system.groups]
    for line in before:
        if sum(c.isalpha() for c in line.text) < _MIN_LETTERS:
            continue
        middles = [
            sum(reading.system.staves[k].middle[0] for k in group) / len(group) for group in reading.system.groups
        ]
        nearest = min(range(len(middles)), key=lambda k: abs(middles[k] - line.y))
        names[nearest].append(line.text)
    return [" ".join(row) for row in names]


def _attach_all_lyrics(readings: Sequence[SystemReading], lines: Sequence[TextLine], ink: Mask) -> list[TextLine]:
    """Attach the lyrics of all systems and return the remaining lines."""
    below: dict[tuple[int, int], list[tuple[float, TextLine]]] = {}
    for line in lines:
        if (place := _staff_above(readings, line)) is not None:
            number, staff, depth = place
            below.setdefault((number, staff), []).append((depth, line))
    rows = {key: to_rows(found) for key, found in below.items()}
    known: dict[int, list[float]] = {}
    for (number, staff), found in rows.items():
        sure = [row for row in found if is_lyrics(row, [x for x, _ in _sung(readings[number], staff)], ())]
        known.setdefault(staff, []).extend(row.depth for row in sure)
    used: set[int] = set()
    within_word: dict[tuple[int, int], bool] = {}
    for (number, staff), found in sorted(rows.items()):
        chords = _sung(readings[number], staff)
        verses = _verses(found, [x for x, _ in chords], known.get(staff, []))
        for verse, row in enumerate(verses, start=1):
            continued = within_word.get((staff, verse), False)
            within_word[staff, verse] = attach_lyrics(
                row, chords, verse, continued, (ink, readings[number].system.right)
            )
            used |= {id(line) for line in row.lines}
    return [line for line in lines if id(line) not in used]


def _verses(rows: Sequence[Row], places: Sequence[float], known: Sequence[float]) -> list[Row]:
    """Return the rows of lyrics, as long as they follow each other closely."""
    found: list[Row] = []
    for row in rows:
        if found and row.depth - found[-1].depth > _ROW_GAP:
            break
        if is_lyrics(row, places, known):
            found.append(row)
    return found


def _staff_above(readings: Sequence[SystemReading], line: TextLine) -> tuple[int, int, float] | None:
    """Return system, staff and distance of the staff that a line is below, if the staff is a part of its own."""
    x = (line.box[0] + line.box[2]) / 2
    best: tuple[int, int, float] | None = None
    for number, reading in enumerate(readings):
        for k, staff in enumerate(reading.system.staves):
            depth = line.y - staff.bottom(x)
            if 0 < depth < _MAX_DEPTH and (best is None or depth < best[2]):
                best = (number, k, depth)
    if best is None or (best[1],) not in readings[best[0]].system.groups:
        return None
    return best


def _sung(reading: SystemReading, staff: int) -> list[tuple[float, Chord]]:
    """Return places and chords of a staff at which a syllable may begin, from left to right."""
    chords = [
        (event.x, chord)
        for event, chord, _, _ in reading.chords
        if event.staff == staff and not chord.is_rest and not chord.grace and not all(n.tied_from for n in chord.notes)
    ]
    chords.sort(key=lambda item: (item[0], item[1].voice))
    found: list[tuple[float, Chord]] = []
    for x, chord in chords:
        if not found or x - found[-1][0] > INTERLINE / 2:
            found.append((x, chord))
    return found


def _attach_words(readings: Sequence[SystemReading], line: TextLine) -> None:
    """Add a line to the measure above or below which it is printed, unless it is a sign, a number or far away."""
    words = list(line.words)
    while words and words[0].text.lower().strip(".") in _SIGNS:
        del words[0]
    while words and (words[-1].text.lower().strip(".") in _SIGNS or not any(c.isalpha() for c in words[-1].text)):
        del words[-1]
    text = " ".join(word.text for word in words)
    if sum(c.isalpha() for c in text) < _MIN_LETTERS:
        return
    x = words[0].x0
    reading = min(readings, key=lambda one: one.system.distance(x, line.y))
    if reading.system.distance(x, line.y) > _MAX_WORDS:
        return
    staff, placement = staff_for(line.y, x, reading)
    if located := locate(x + _SHIFT, staff, reading):
        measure, local, onset = located
        measure.directions.append(Direction("words", text, onset, local, placement, line.box))
