"""Draw docs/images/read.jpg: a simulated photograph of a minuet, and the engraving of what was read from it.

The minuet is that in G major of Petzold from the notebook for Anna Magdalena Bach, its first strain.

python -m experiments.read_picture
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.scores.parsing import parse_score
from entourage.io.files import atomic_path
from entourage.read.formats.musicxml import to_musicxml
from entourage.read.reader import ScoreReader, Transcription
from entourage.read.score import Chord, Clef, Measure, Note, Part, Pitch
from experiments.command import run_command

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "read.jpg"
SIZE = PageOptions(width=1500, height=1060)
FONTS = ("Leipzig", "Bravura")  # of the photograph and of the engraving
WIDTH = 1000  # pixels of each half
GAP = 24  # white pixels between the halves
MARGIN = 30  # pixels of paper around the music

# Measures of both hands: pitches of a chord, then e, q, h or d (dotted half).
RIGHT = """D5q G4e A4e B4e C5e | D5q G4q G4q | E5q C5e D5e E5e F#5e | G5q G4q G4q |
C5q D5e C5e B4e A4e | B4q C5e B4e A4e G4e | F#4q G4e A4e B4e G4e | A4d"""
LEFT = """G3B3D4h A3q | B3d | C4d | B3d | A3d | G3d | D4q B3q G3q | D4q D3e C4e B3e A3e"""
VALUES = {"e": ("eighth", 0, Fraction(1, 2)), "q": ("quarter", 0, Fraction(1)), "h": ("half", 0, Fraction(2))}
VALUES["d"] = ("half", 1, Fraction(3))
BREAKS = (0, 4)  # measures that begin a line


def main() -> None:
    """Draw and save the figure."""
    truth = minuet()
    photo = engrave(truth, FONTS[0], Degrader("photo", SIZE.height, SIZE.width, seed=1))
    score = ScoreReader.load(device="cpu").read(photo)
    halves = [scaled(photo), scaled(crop(engrave(score, FONTS[1])))]
    height = max(half.shape[0] for half in halves)
    picture = np.full((height, 2 * WIDTH + GAP), 255, dtype=np.uint8)
    for half, left in zip(halves, (0, WIDTH + GAP), strict=True):
        top = (height - half.shape[0]) // 2
        picture[top : top + half.shape[0], left : left + WIDTH] = half
    with atomic_path(IMAGE) as temporary:
        temporary.write_bytes(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes())
    expected, found = (Counter((n.pitch, n.onset, n.duration) for n in one.notes) for one in (truth, score))
    print(f"{(expected & found).total()} of {expected.total()} notes are right, {found.total()} were read: {IMAGE}")


def minuet() -> Transcription:
    """Return the minuet on two staves."""
    measures = []
    for number, hands in enumerate(zip(RIGHT.split("|"), LEFT.split("|"), strict=True), start=1):
        chords = [chord for staff, text in enumerate(hands, start=1) for chord in read_chords(text, staff)]
        measures.append(Measure(number, Fraction(3), chords, new_system=number - 1 in BREAKS))
    first = measures[0]
    first.key, first.meter = 1, (3, 4, "")
    first.clefs = [(1, Fraction(0), Clef()), (2, Fraction(0), Clef("F", 4))]
    return Transcription([Part("Piano", 2, measures)])


def read_chords(text: str, staff: int) -> list[Chord]:
    """Return the chords of a staff of a measure; eighth notes are beamed."""
    onset, chords = Fraction(0), []
    for word in text.split():
        value, dots, duration = VALUES[word[-1]]
        names = word[:-1].replace("3", "3 ").replace("4", "4 ").replace("5", "5 ").split()
        notes = [Note(Pitch(int(name[-1]), name[0], name.count("#")), 0, (0, 0, 0, 0)) for name in names]
        chords.append(Chord(onset, duration, value, dots, notes, staff, 4 * staff - 3, (0, 0, 0, 0)))
        onset += duration
    beamed = [chord for chord in chords if chord.value == "eighth"]
    for chord in beamed:
        chord.beams = ["begin" if chord is beamed[0] else "end" if chord is beamed[-1] else "continue"]
    return chords


def engrave(score: Transcription, font: str, degrader: Degrader | None = None) -> NDArray[np.uint8]:
    """Return the engraved page of a score, grayscale, shape (h, w)."""
    engraver = VerovioEngraver(SIZE, MusicFont(font))
    return next(engraver.engrave(parse_score(to_musicxml(score), "minuet"), lambda _: degrader)).image


def crop(page: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a page without the empty paper below and above the music."""
    rows = np.flatnonzero((page < 128).any(axis=1))
    return page[max(0, int(rows[0]) - MARGIN) : int(rows[-1]) + MARGIN]


def scaled(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image of the width `WIDTH`."""
    scale = WIDTH / image.shape[1]
    small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=np.uint8)


if __name__ == "__main__":
    run_command(main)
