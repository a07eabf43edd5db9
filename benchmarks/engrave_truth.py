"""Is the ground truth true? Boxes against ink, ink against instances, notes against MusicXML as music21 reads it.

    ENTOURAGE_DATA=... python -m benchmarks.engrave_truth             # 200 pages of the Lieder
    python -m benchmarks.engrave_truth --scores FOLDER --pages 50

Dark pixels inside the boxes of glyphs must belong to an instance, or to what is no symbol (text, bar lines).
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
from entourage.engrave.archives import ScoreFile
from entourage.engrave.options import FONTS, MusicFont, PageOptions
from entourage.engrave.page import Page
from entourage.engrave.raster import rasterise
from entourage.engrave.scores import Score, read_score
from entourage.engrave.verovio_engine import VerovioEngraver

# Symbols of no fixed shape, which the engraver draws as long or as tall as needed.
FREE = ("staff", "stem", "beam", "slur", "tie", "brace", "legerLine", "dynamicCrescendo", "dynamicDiminuendo")
FREE += ("tupletBracket", "ottavaBracket", "arpeggiato", "restHBar", "graceNote")
Note = tuple[float, float, int | None]


def main() -> None:
    """Prints the largest distance between boxes and ink, what lacks ink or instance, and the share of right notes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scores", type=Path, default=default_source())
    parser.add_argument("--pages", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        _check(some_scores(arguments.scores, 60, Path(folder)), arguments.pages)


def _check(files: list[ScoreFile], most: int) -> None:
    engravers = [VerovioEngraver(PageOptions(), MusicFont(font)) for font in FONTS]
    pages, boxes, notes, worst = 0, Counter[str](), Counter[str](), {"fixed": 0, "free": 0}
    for k, file in enumerate(files):
        if pages >= most:
            break
        score = read_score(file)
        found: Counter[Note] = Counter()
        for page in engravers[k % len(engravers)].engrave(score):
            pages += 1
            _check_page(page, boxes, worst)
            found.update(_heads(page, notes))
        expected = _music21_notes(score)
        notes["expected"] += sum(expected.values())
        notes["agree"] += sum((found & expected).values())
        wrong = found - expected
        if wrong:
            print(f"  {file.name}: {sum(wrong.values())} of {sum(found.values())} notes differ, first {min(wrong)}")
    print(f"{pages} pages, {boxes['symbols']} symbols")
    print(f"largest distance of a box from its ink: {worst['fixed']} px for glyphs, {worst['free']} px for the rest")
    print(f"instances without ink: {boxes['empty']}; dark pixels of symbols without instance: {boxes['stray']}")
    print(f"noteheads without onset, pitch, duration or position: {notes['incomplete']} of {notes['heads']}")
    print(f"notes that agree with music21: {notes['agree'] / max(notes['heads'], 1):.4%} of {notes['heads']}")


def _check_page(page: Page, boxes: Counter[str], worst: dict[str, int]) -> None:
    height, width = page.image.shape
    pixels = page.pixels
    dark = page.image[pixels.y, pixels.x] < 128
    ends = np.searchsorted(pixels.owner, np.arange(len(page.symbols) + 1))
    for symbol, box, start, end in zip(page.symbols, page.boxes, ends[:-1], ends[1:], strict=True):
        boxes["symbols"] += 1
        x, y = (values[start:end][dark[start:end]] for values in (pixels.x, pixels.y))
        if len(x) == 0:
            boxes["empty"] += 1
            continue
        ink = np.array([x.min(), y.min(), x.max() + 1, y.max() + 1])
        kind = "free" if symbol.label.startswith(FREE) else "fixed"
        worst[kind] = max(worst[kind], int(np.abs(ink - box).max()))
    covered = np.zeros((height, width), dtype=bool)
    covered[page.pixels.y, page.pixels.x] = True
    boxes["stray"] += int((_symbol_ink(page) & ~covered).sum())


def _symbol_ink(page: Page) -> np.ndarray:
    """Pixels of the image that are dark and lie inside some symbol's box but belong to no other drawing."""
    inside = np.zeros(page.image.shape, dtype=bool)
    for symbol, (x0, y0, x1, y1) in zip(page.symbols, page.boxes, strict=True):
        if symbol.label.startswith(("notehead", "clef", "rest", "accidental", "key", "timeSig", "flag")):
            inside[y0:y1, x0:x1] = True
    others = np.zeros(page.image.shape, dtype=bool)
    ink = rasterise(page.unclaimed)
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
            found.append((round(s.onset, 3), round(s.duration, 3), s.midi))
    return found


def _music21_notes(score: Score) -> Counter[Note]:
    """Onset, duration and pitch of all notes; measures begin together in all parts, as they do on paper."""
    parsed = music21.converter.parse(score.text, format="musicxml", forceSource=True)
    parts = [list(part.getElementsByClass("Measure")) for part in parsed.parts]
    starts = [0.0]
    for measures in zip(*parts, strict=False):
        lengths = [max((float(n.offset + n.quarterLength) for n in _timed(m)), default=0.0) for m in measures]
        starts.append(starts[-1] + (max(lengths) or float(measures[0].barDuration.quarterLength)))
    found: Counter[Note] = Counter()
    for measures in parts:
        for start, measure in zip(starts, measures, strict=False):
            for n in measure.recurse().notes:
                if isinstance(n, music21.harmony.Harmony):
                    continue
                onset = round(start + float(n.getOffsetInHierarchy(measure)), 3)
                length = 0.0 if n.duration.isGrace else round(float(n.quarterLength), 3)
                for single in n.notes if n.isChord else [n]:
                    found[onset, length, single.pitch.midi if hasattr(single, "pitch") else None] += 1
    return found


def _timed(measure: music21.stream.Measure) -> list[music21.note.GeneralNote]:
    """What says how long a measure is: a rest for the whole of it does not."""
    timed = measure.flatten().notesAndRests
    return [n for n in timed if not (n.isRest and n.fullMeasure in (True, "always"))]


if __name__ == "__main__":
    main()
