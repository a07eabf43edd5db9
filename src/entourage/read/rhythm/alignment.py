"""Rhythms of the parts of a system, solved one after the other: what sounds together is printed one above the other.

The part whose reading is the most plausible is solved first. Its chords are anchors: chords of other parts at the same
place begin at the same time, and those between two anchors begin between them. A part that contradicts the anchors is
solved again, and every deviation from them has a cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from entourage.read.rhythm.crossing import Method, solve_by
from entourage.read.rhythm.readings import Anchor, MeasureInput, Placed, Reading, deviates

_MAX_ANCHOR_COST = 2.5  # cost of a reading up to which it gives anchors
_MAX_COST = 1.5  # cost that a reading may have more than without anchors


def solve_parts(method: Method, parts: Sequence[MeasureInput]) -> list[list[Reading]]:
    """Return the readings of a measure of each part of a system, best first.

    Args:
        method: how durations and voices are found; "rules" solves each part by itself.
        parts: chords, rests and the expected length of each part.

    Returns:
        For each part, one or two readings. Parts that contradict more plausible ones are solved twice.
    """
    solved = [solve_by(method, part) for part in parts]
    if method == "rules" or len(parts) == 1:
        return solved
    anchors: list[Anchor] = []
    length: int | None = None
    for k in sorted(range(len(parts)), key=lambda k: (bool(solved[k][0].problem), solved[k][0].cost)):
        best = solved[k][0]
        contradicts = any(deviates(anchors, placed.event.x, placed.onset) for placed in _sounding(best))
        if contradicts or (length is not None and best.length != length):
            aligned = solve_by(method, replace(parts[k], anchors=tuple(anchors), length=length))
            if best.problem or (not aligned[0].problem and aligned[0].cost < best.cost + _MAX_COST):
                solved[k] = aligned
        best = solved[k][0]
        if not best.problem and best.cost < _MAX_ANCHOR_COST:
            anchors = sorted({*anchors, *((placed.event.x, placed.onset) for placed in _sounding(best))})
            length = best.length if length is None and _sounding(best) else length
    return solved


def _sounding(reading: Reading) -> list[Placed]:
    """Return the chords and rests of a reading, without rests of a whole measure, which are printed in its middle."""
    return [placed for placed in reading.placed if not placed.choice.full_measure]
