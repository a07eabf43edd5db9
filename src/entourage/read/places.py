"""Staff, measure and time at a place of a system, for signs that belong to a time and not to a note."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

from entourage.detect.options import INTERLINE
from entourage.read.score import Measure, Placement

if TYPE_CHECKING:
    from entourage.read.assemble import SystemReading


def staff_for(y: float, x: float, reading: SystemReading) -> tuple[int, Placement]:
    """Return the staff that a sign between or outside staves belongs to, and its placement.

    Between the staves of a part a sign belongs to the staff above it, between parts to the nearer one.

    Args:
        y, x: place of the sign.
        reading: the system.
    """
    for k, staff in enumerate(reading.system.staves):
        if y < staff.y(x):
            if k == 0:
                return 0, "above"
            previous = reading.system.staves[k - 1]
            together = any(k in group and k - 1 in group for group in reading.system.groups)
            if together or y - previous.bottom(x) < staff.top(x) - y:
                return k - 1, "below"
            return k, "above"
    return len(reading.system.staves) - 1, "below"


def locate(x: float, staff: int, reading: SystemReading, after: bool = False) -> tuple[Measure, int, Fraction] | None:
    """Return the measure of a part, the staff within it and the time at a place of a system.

    Args:
        x: the place.
        staff: staff of the system, from 0.
        reading: the system.
        after: whether a place behind the last chord is the end of the measure.

    Returns:
        Measure, staff of the part from 1, and time of the nearest chord; None if the system has no measures.
    """
    group = next(k for k, staves in enumerate(reading.system.groups) if staff in staves)
    spans = reading.spans
    if not spans:
        return None
    number = next((m for m, span in enumerate(spans) if x < span.x1), len(spans) - 1)
    measure = reading.parts[group][number]
    columns = sorted(
        (event.x, chord.onset)
        for event, chord, g, m in reading.chords
        if g == group and m == number and not chord.grace
    )
    local = reading.system.groups[group].index(staff) + 1
    if not columns:
        return measure, local, Fraction(0)
    if after and x > columns[-1][0] + 1.5 * INTERLINE:
        return measure, local, measure.length
    return measure, local, min(columns, key=lambda column: abs(column[0] - x))[1]
