"""Check of the annotations: boxes and instances against ink, notes against MusicXML as read by music21.

    ENTOURAGE_DATA=... python -m benchmarks.engrave_truth             # 200 pages of the Lieder
    python -m benchmarks.engrave_truth --scores FOLDER --pages 50

Dark pixels inside the boxes of glyphs must belong to an instance or to a mark without a class (text, bar lines); music
glyphs without a class are reported. Notes are compared by onset, duration, pitch and staff position in both directions:
notes on the page that are not in the MusicXML, and notes that are missing from the page.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections import Counter
from pathlib import Path

import music21
import numpy as np

from benchmarks.engrave_scores import default_source, some_scores
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import FONTS, MusicFont, PageOptions
from entourage.engrave.render.page import Page
from entourage.engrave.render.raster import rasterise
from entourage.engrave.scores.archives import ScoreFile
from entourage.engrave.scores.parsing import Score, read_score

# Symbols of no fixed shape, which the engraver draws as long or as tall as needed.
FREE = ("staff", "stem", "beam", "slur", "tie", "brace", "legerLine", "dynamicCrescendo", "dynamicDiminuendo")
FREE += ("tupletBracket", "ottavaBracket", "arpeggiato", "restHBar", "graceNote")
MIDDLE = 4  # steps from the lowest of five lines to the middle one, the origin of staff positions
Note = tuple[float, float, int | None, int | None]
"""Onset, duration, MIDI pitch and staff position."""


def main() -> None:
    """Print the largest distance of boxes from ink, missing ink or instances, and the fraction of correct notes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scores", type=Path, default=default_source())
    parser.add_argument("--pages", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        _check(some_scores(arguments.scores, 60, Path(folder)), arguments.pages)


def _check(files: list[ScoreFile], max_pages: int) -> None:
    engravers = [VerovioEngraver(PageOptions(), MusicFont(font)) for font in FONTS]
    pages, boxes, notes, largest = 0, Counter[str](), Counter[str](), {"fixed": 0, "free": 0}
    for k, file in enumerate(files):
        if pages >= max_pages:
            break
        score = read_score(file)
        on_page: Counter[Note] = Counter()
        for page in engravers[k % len(engravers)].engrave(score):
            pages += 1
            _check_page(page, boxes, largest)
            on_page.update(_heads(page, notes))
        expected = _music21_notes(score)
        _compare(file.name, on_page, expected, notes)
    print(f"{pages} pages, {boxes['symbols']} symbols")
    print(f"largest distance of a box from its ink: {largest['fixed']} px for glyphs, {largest['free']} px for others")
    print(f"instances without ink: {boxes['empty']}; dark pixels of symbols without instance: {boxes['stray']}")
    print(f"music glyphs without a class: {boxes['unlabelled']}")
    print(f"noteheads without onset, pitch, duration or position: {notes['incomplete']} of {notes['heads']}")
    heads = max(notes["heads"], 1)
    print(f"noteheads with onset, duration and pitch as in music21: {notes['agree'] / heads:.4%} of {heads}")
    # Verovio draws some clef changes later than in the score; positions are those on the page.
    print(f"noteheads with the same staff position as well: {notes['in place'] / heads:.4%}")
    expected_notes = notes["expected"]
    print(f"notes of music21 that are on the page: {notes['agree'] / max(expected_notes, 1):.4%} of {expected_notes}")


def _compare(name: str, found: Counter[Note], expected: Counter[Note], notes: Counter[str]) -> None:
    """Count equal notes, with and without staff positions, and print the differences of a score."""
    notes["expected"] += sum(expected.values())
    notes["in place"] += sum((found & expected).values())
    on_page, in_score = (_without_positions(one) for one in (found, expected))
    notes["agree"] += sum((on_page & in_score).values())
    for text, wrong in (("are not in the MusicXML", on_page - in_score), ("are on no page", in_score - on_page)):
        if wrong:
            print(f"  {name}: {sum(wrong.values())} of {sum(found.values())} notes {text}, first {min(wrong)}")


def _without_positions(notes: Counter[Note]) -> Counter[Note]:
    counts: Counter[Note] = Counter()
    for (*key, _), n in notes.items():
        counts[*key, None] += n
    return counts


def _check_page(page: Page, boxes: Counter[str], largest: dict[str, int]) -> None:
    height, width = page.image.shape
    boxes["unlabelled"] += len(page.unlabelled)
    pixels = page.pixels
    dark = page.image[pixels.y, pixels.x] < 128
    ends = np.searchsorted(pixels.symbol_index, np.arange(len(page.symbols) + 1))
    for symbol, box, start, end in zip(page.symbols, page.boxes, ends[:-1], ends[1:], strict=True):
        boxes["symbols"] += 1
        x, y = (values[start:end][dark[start:end]] for values in (pixels.x, pixels.y))
        if len(x) == 0:
            boxes["empty"] += 1
            continue
        ink = np.array([x.min(), y.min(), x.max() + 1, y.max() + 1])
        kind = "free" if symbol.label.startswith(FREE) else "fixed"
        largest[kind] = max(largest[kind], int(np.abs(ink - box).max()))
    covered = np.zeros((height, width), dtype=bool)
    covered[page.pixels.y, page.pixels.x] = True
    boxes["stray"] += int((_symbol_ink(page) & ~covered).sum())


def _symbol_ink(page: Page) -> np.ndarray:
    """Return the dark pixels inside the boxes of symbols that belong to no other mark."""
    inside = np.zeros(page.image.shape, dtype=bool)
    for symbol, (x0, y0, x1, y1) in zip(page.symbols, page.boxes, strict=True):
        if symbol.label.startswith(("notehead", "clef", "rest", "accidental", "key", "timeSig", "flag")):
            inside[y0:y1, x0:x1] = True
    others = np.zeros(page.image.shape, dtype=bool)
    ink = rasterise(page.unassigned)
    ok = (ink.x >= 0) & (ink.x < others.shape[1]) & (ink.y >= 0) & (ink.y < others.shape[0])
    others[ink.y[ok], ink.x[ok]] = True
    return inside & (page.image < 100) & ~others


def _heads(page: Page, notes: Counter[str]) -> list[Note]:
    found = []
    for s in page.symbols:
        if s.label.startswith("notehead"):
            notes["heads"] += 1
            if s.onset is None or s.duration is None or not s.pitch or s.position is None:
                notes["incomplete"] += 1
                continue
            position = None if s.midi is None else s.position  # music21 has no staff position of drums
            found.append((round(s.onset, 3), round(s.duration, 3), s.midi, position))
    return found


def _music21_notes(score: Score) -> Counter[Note]:
    """Return all notes; measures start at the same time in all parts, as on paper."""
    parsed = music21.converter.parse(score.text, format="musicxml", forceSource=True)
    octave_shifts = _under_octave_lines(parsed)
    parts = [list(part.getElementsByClass("Measure")) for part in parsed.parts]
    starts = [0.0]
    for measures in zip(*parts, strict=False):
        lengths = [max((float(n.offset + n.quarterLength) for n in _timed(m)), default=0.0) for m in measures]
        starts.append(starts[-1] + (max(lengths) or float(measures[0].barDuration.quarterLength)))
    notes: Counter[Note] = Counter()
    for measures in parts:
        for start, measure in zip(starts, measures, strict=False):
            for n in measure.recurse().notes:
                if isinstance(n, music21.harmony.Harmony):
                    continue
                onset = round(start + float(n.getOffsetInHierarchy(measure)), 3)
                length = 0.0 if n.duration.isGrace else round(float(n.quarterLength), 3)
                lowest_line = getattr(n.getContextByClass("Clef"), "lowestLine", None)
                for single in n.notes if n.isChord else [n]:
                    if single.notehead in (None, "none") or single.style.hideObjectOnPrint:
                        continue  # not printed
                    midi, position = _pitch(single, lowest_line)
                    notes[onset, length, midi, None if position is None else position + octave_shifts.get(n.id, 0)] += 1
    return notes


def _under_octave_lines(parsed: music21.stream.Score) -> dict[str | int, int]:
    """Return the difference of written and sounding position in steps, by the id of the note."""
    octave_shifts: dict[str | int, int] = {}
    for line in parsed.recurse().getElementsByClass(music21.spanner.Ottava):
        line.fill()  # music21 reads only its start and end
        steps = (line.shiftMagnitude() - 1) * (1 if line.shiftDirection() == "down" else -1)
        octave_shifts |= {note.id: steps for note in line.getSpannedElements()}
    return octave_shifts


def _pitch(note: music21.note.NotRest, lowest_line: int | None) -> tuple[int | None, int | None]:
    """Return MIDI pitch and staff position relative to the lowest line; None for drums."""
    if not isinstance(note, music21.note.Note):
        return None, None
    return note.pitch.midi, None if lowest_line is None else note.pitch.diatonicNoteNum - lowest_line - MIDDLE


def _timed(measure: music21.stream.Measure) -> list[music21.note.GeneralNote]:
    """Return the notes and rests that determine the length of a measure: all but full-measure rests."""
    timed = measure.flatten().notesAndRests
    return [n for n in timed if not (n.isRest and n.fullMeasure in (True, "always"))]


if __name__ == "__main__":
    main()
