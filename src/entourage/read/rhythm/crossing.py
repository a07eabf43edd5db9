"""Voices that change between the staves of a part: a second search in measures whose staves do not add up alone.

A rest or a beamed group of one voice may be printed on the other staff of a piano, so that both staves are incomplete.
Such a measure is solved again with other staves for these symbols, and the cheapest reading counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

from entourage.read.rhythm.competition import play
from entourage.read.rhythm.readings import MeasureInput, Reading
from entourage.read.rhythm.search import solve, solve_by_rules

Method = Literal["rules", "search", "game"]

_PLAUSIBLE = 2.0  # cost of a reading below which no other is sought
_MAX_COST = 12.0  # cost up to which a reading is preferred to one that does not add up
_CROSSING = 0.8  # cost of a voice that changes between staves


def solve_by(method: Method, measure: MeasureInput) -> list[Reading]:
    """Return the readings of a measure of one part by a method, best first.

    Args:
        method: "rules" takes every duration as printed, "search" finds the most plausible consistent reading, and
            "game" lets readings compete before the search.
        measure: chords, rests and the expected length.

    Returns:
        One or two readings.
    """
    if method == "rules":
        return [solve_by_rules(measure)]
    return solve_across(play(measure) if method == "game" else measure)


def solve_across(measure: MeasureInput) -> list[Reading]:
    """Return the most plausible readings of a measure of one part, best first.

    Args:
        measure: chords, rests and the expected length.

    Returns:
        The readings of `solve`, or those of the best of several assignments of symbols to staves.
    """
    best = solve(measure)
    if measure.n_staves != 2 or (best[0].cost < _PLAUSIBLE and not best[0].problem):
        return best
    for other in _assignments(measure):
        found = solve(other, below=_MAX_COST if best[0].problem else best[0].cost - _CROSSING)
        if not found:
            continue
        cost = found[0].cost + _CROSSING
        better = cost < best[0].cost and (not found[0].problem or bool(best[0].problem))
        if better or (best[0].problem and not found[0].problem):
            best = [replace(reading, cost=reading.cost + _CROSSING) for reading in found]
        if best[0].cost < _PLAUSIBLE and not best[0].problem:
            break
    return best


def _assignments(measure: MeasureInput) -> Iterator[MeasureInput]:
    """Yield the measure with other staves: the short rests of one staff on the other, then all voices on one staff."""
    for staff in (0, 1):
        moved = [
            1 - home if home == staff and event.is_rest and event.value not in ("whole", "breve") else home
            for event, home in zip(measure.events, measure.staff_of, strict=True)
        ]
        if moved != measure.staff_of:
            yield replace(measure, staff_of=moved)
    yield replace(measure, staff_of=[0] * len(measure.events), n_staves=1)
