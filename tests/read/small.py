"""Small scores and pages of them."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.scores.parsing import parse_score
from entourage.read.formats.musicxml import to_musicxml
from entourage.read.score import NOTE_VALUES, STEPS, Chord, Clef, Measure, Note, Part, Pitch, Score

_ALTER = {"#": 1, "b": -1}


def pitch(name: str) -> Pitch:
    """Return a pitch such as "C4" or "F#5"."""
    return Pitch(int(name[-1]), name[0], sum(_ALTER[c] for c in name[1:-1]))


def chord(onset: float | Fraction, value: str, names: str = "", **fields: object) -> Chord:
    """Return a chord of notes such as "C4 E4" at an onset in quarter notes; without names, a rest."""
    notes = [Note(pitch(name), 0, (0.0, 0.0, 1.0, 1.0)) for name in names.split()]
    notes.sort(key=lambda note: 7 * note.pitch.octave + STEPS.index(note.pitch.step))
    defaults: dict[str, object] = {"staff": 1, "voice": 1, "box": (0.0, 0.0, 1.0, 1.0)}
    duration = NOTE_VALUES[value]
    return Chord(Fraction(onset), duration, value, 0, notes, **{**defaults, **fields})  # type: ignore[arg-type]


def measure(number: int, chords: Sequence[Chord], length: float | Fraction = 4, **fields: object) -> Measure:
    """Return a measure."""
    return Measure(number, Fraction(length), list(chords), **fields)  # type: ignore[arg-type]


def score_of(*measures: Measure, name: str = "Part 1", n_staves: int = 1) -> Score:
    """Return a score of one part."""
    return Score([Part(name, n_staves, list(measures))])


def melody() -> Score:
    """Return two measures in G major: quarters, a half, beamed eighths and a rest."""
    beamed = [
        chord(0, "eighth", "C5", stem="down", beams=["begin"]),
        chord(0.5, "eighth", "D5", stem="down", beams=["end"]),
    ]
    first = [chord(0, "quarter", "G4"), chord(1, "quarter", "A4"), chord(2, "half", "F#5")]
    second = [*beamed, chord(1, "quarter", "B4"), chord(2, "half")]
    signs = {"key": 1, "meter": (4, 4, ""), "clefs": [(1, Fraction(0), Clef())]}
    return score_of(measure(1, first, **signs), measure(2, second, right="light-heavy"))


def page_of(score: Score, width: int = 1100, height: int = 400, interline: float = 14.0) -> NDArray[np.uint8]:
    """Return a page of a score engraved by Verovio, grayscale, shape (height, width)."""
    engraver = VerovioEngraver(PageOptions(width, height, interline), MusicFont("Leipzig"))
    return next(engraver.engrave(parse_score(to_musicxml(score), "score"))).image
