"""Chords, rests and measures for tests of rhythms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from entourage.read.rhythm.durations import TICKS
from entourage.read.rhythm.readings import MeasureInput
from entourage.read.symbols.glyphs import Event, Glyph, Head, Stem

LEVELS = {"eighth": 1, "16th": 2, "32nd": 3, "64th": 4}


def chord(
    x: float,
    value: str,
    *,
    staff: int = 0,
    dots: int = 0,
    direction: Literal["up", "down"] = "up",
    group: int | None = None,
    position: int = 0,
    beams: tuple[int, int] | None = None,
) -> Event:
    """Return a chord of one head; `beams` are those to the left and right of its stem."""
    box = np.array([x - 5, 0, x + 5, 10], dtype=float)
    left, right = (LEVELS.get(value, 0),) * 2 if beams is None else beams
    stem = Stem(x, 0, 35, direction, left_beams=left, right_beams=right)
    head = Head(Glyph("noteheadBlackOnLine", box, 0.9), staff, position, "black", False)
    return Event(staff, x, [head], stem, value, dots, box, beam_group=group)


def rest(x: float, value: str, staff: int = 0) -> Event:
    """Return a rest."""
    return Event(staff, x, [], None, value, 0, np.array([x - 5, 0, x + 5, 10], dtype=float))


def measure(events: Sequence[Event], length: float | None = 4.0, n_staves: int = 1, **options: object) -> MeasureInput:
    """Return a measure of one part; the length is in quarter notes."""
    ticks = None if length is None else int(length * TICKS)
    return MeasureInput(list(events), [event.staff for event in events], n_staves, ticks, **options)  # type: ignore[arg-type]
