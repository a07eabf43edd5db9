"""Detected symbols, and the noteheads, stems, chords and rests that they form."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from entourage.detect import Detections

Floats = NDArray[np.float64]
_MIN_PART_SCORE = 0.2  # minimum score of parts of notes: they count only where a note is
_MAX_OVERLAP = 0.4  # intersection over union above which two heads or rests are one


@dataclass
class Glyph:
    """A detected symbol.

    Attributes:
        name: its class.
        box: x0, y0, x1, y1.
        score: score of the detection.
    """

    name: str
    box: Floats
    score: float

    @property
    def x(self) -> float:
        """Horizontal coordinate of the centre."""
        return float(self.box[0] + self.box[2]) / 2

    @property
    def y(self) -> float:
        """Vertical coordinate of the centre."""
        return float(self.box[1] + self.box[3]) / 2

    @property
    def width(self) -> float:
        """Width of the box."""
        return float(self.box[2] - self.box[0])

    @property
    def height(self) -> float:
        """Height of the box."""
        return float(self.box[3] - self.box[1])


@dataclass
class Head:
    """A notehead on a staff.

    Attributes:
        glyph: the detection.
        staff: staff of the system, from 0.
        position: steps above the middle line.
        kind: "black", "half", "whole" or "breve".
        small: whether it has the size of a grace note.
        accidental: printed accidental, as in `score.Note`.
        dots: number of augmentation dots.
    """

    glyph: Glyph
    staff: int
    position: int
    kind: str
    small: bool
    accidental: str = ""
    dots: int = 0


@dataclass
class Stem:
    """A stem: its column, its ends and its direction."""

    x: float
    top: float
    bottom: float
    direction: Literal["up", "down"]
    left_beams: int = 0
    right_beams: int = 0
    flags: int = 0

    @property
    def free_end(self) -> float:
        """The y coordinate of the end without heads."""
        return self.top if self.direction == "up" else self.bottom


@dataclass
class Event:
    """A chord or a rest.

    Attributes:
        staff: staff of the system, from 0; that of most of the heads.
        x: column: centre of the heads without those on the wrong side of the stem, or of the rest.
        heads: from low to high; empty for a rest.
        stem: the stem, or None.
        value: name of the note value, as printed.
        dots: number of augmentation dots.
        box: box around heads and stem, or of the rest.
        grace: "" for normal notes; "grace" or "slashed".
        beam_group: number of the group of beamed chords in the system, or None.
        position: steps above the middle line of a rest or of the middle of the heads.
        confidence: lowest score of its heads, or that of the rest.
        reaching: number of beams that reach the next chord or the one before, if there are others; else 0.
        shared_dot: whether it may share the dot of a chord of another voice.
    """

    staff: int
    x: float
    heads: list[Head]
    stem: Stem | None
    value: str
    dots: int
    box: Floats
    grace: Literal["", "grace", "slashed"] = ""
    beam_group: int | None = None
    position: float = 0.0
    confidence: float = 1.0
    reaching: int = 0
    shared_dot: bool = False

    @property
    def is_rest(self) -> bool:
        """Whether it is a rest."""
        return not self.heads

    @property
    def beams(self) -> int:
        """Number of beams or flags."""
        return 0 if self.stem is None else max(self.stem.left_beams, self.stem.right_beams, self.stem.flags)


def to_glyphs(detections: Detections, min_score: float = _MIN_PART_SCORE) -> list[Glyph]:
    """Return the detections whose scores reach the threshold, highest scores first."""
    order = detections.scores.argsort(descending=True, stable=True).tolist()
    names, boxes, scores = detections.names, detections.boxes.numpy().astype(np.float64), detections.scores.tolist()
    return [Glyph(names[i], boxes[i], scores[i]) for i in order if scores[i] >= min_score]


def iou(a: Floats, b: Floats) -> float:
    """Return the intersection over union of two boxes."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return float(both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both))


def distinct(glyphs: Iterable[Glyph]) -> list[Glyph]:
    """Return the symbols without those that overlap an earlier one; they are sorted, highest scores first."""
    found: list[Glyph] = []
    for glyph in glyphs:
        if all(iou(glyph.box, other.box) < _MAX_OVERLAP for other in found):
            found.append(glyph)
    return found
