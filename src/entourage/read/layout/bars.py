"""Bar lines of a system, read from the ink.

They are the columns that are dark from the top line of a staff to its bottom line and are not stems.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from entourage.detect.options import INTERLINE
from entourage.read.layout.ink import SPACE, STEP, gap_coverage, leaning_coverage
from entourage.read.layout.systems import BarLine, BarStyle, Floats, Mask, StaffLines, System

MIN_BAR_COVERAGE = 0.93  # minimum fraction of ink in a column between the outer lines
_MIN_STROKE_COVERAGE = 0.7  # the same for a faded line, if other staves have one at the same place
_MIN_FAINT_COVERAGE = 0.79  # minimum mean of staves and gaps between them of a faded bar line
_MIN_JOINED_COVERAGE = 0.85  # minimum in each staff and gap of a bar line that a notehead touches
_MAX_THIN = 3.6  # pixels: a wider bar line is a thick one
_MAX_THICK = 14.0  # pixels: anything wider is no bar line
_BAR_GROUP = 1.4 * INTERLINE  # strokes closer than this form one bar line
_MAX_OVERSHOOT = 0.35 * INTERLINE  # ink beyond the outer lines, at a bar line that ends there
_REPEAT_DOT_REACH = 1.6 * INTERLINE


@dataclass(frozen=True)
class _Stroke:
    """A vertical stroke across a staff.

    Attributes:
        left, right: its edges.
        coverage: its fraction of ink.
        fits: whether its ends are those of a bar line.
        touched: whether a notehead touches it, as it touches a stem.
    """

    left: float
    right: float
    coverage: float
    fits: bool
    touched: bool = False


def find_bars(system: System, ink: Mask, heads: Floats, glyphs: Floats, dots: Floats) -> list[BarLine]:
    """Return the bar lines of a system: vertical strokes at the same place in enough of its staves.

    A broken or faded line is accepted if most of its pixels are ink in all staves and, if the other bar lines continue
    between the staves, also between them.
    """
    strokes = [(k, stroke) for k in range(len(system.staves)) for stroke in _strokes(system, k, ink, heads, glyphs)]
    plain = [item for item in strokes if not item[1].touched]
    joined = [item for item in strokes if item[1].touched and any(_joins(system, item, other, ink) for other in plain)]
    groups: list[list[tuple[int, _Stroke]]] = []
    for k, stroke in sorted(plain + joined, key=lambda item: item[1].left):
        if groups and stroke.left - max(other.right for _, other in groups[-1]) < _BAR_GROUP:
            groups[-1].append((k, stroke))
        else:
            groups.append([(k, stroke)])
    bars = []
    for group in groups:
        if not _is_bar(system, group, ink):
            continue
        by_staff = [[stroke for k, stroke in group if k == staff] for staff in {k for k, _ in group}]
        plainest = min(by_staff, key=lambda row: (len(row), sum(s.right - s.left for s in row), -row[0].coverage))
        bar = _describe_bar(system, plainest, dots)
        bars.append(bar)
    return bars


def _joins(system: System, touched: tuple[int, _Stroke], other: tuple[int, _Stroke], ink: Mask) -> bool:
    """Return whether a stroke that a notehead touches continues to one of the next staff: a bar line next to a head."""
    (k, stroke), (j, plain) = touched, other
    near = abs(stroke.left - plain.left) < 4 and abs(k - j) == 1
    if not near or min(stroke.coverage, plain.coverage) < _MIN_JOINED_COVERAGE or not plain.fits:
        return False
    above, below = system.staves[min(j, k)], system.staves[max(j, k)]
    low, high = min(stroke.left, plain.left) - 1, max(stroke.right, plain.right) + 1
    return bool(gap_coverage(above, below, ink, low, high).max(initial=0) >= _MIN_JOINED_COVERAGE)


def _is_bar(system: System, group: list[tuple[int, _Stroke]], ink: Mask) -> bool:
    """Return whether strokes at one place form a bar line of the system."""
    n_staves = len(system.staves)
    best = [max((s.coverage for k, s in group if k == staff), default=0.0) for staff in range(n_staves)]
    solid = [
        any(k == staff and s.fits and s.coverage >= MIN_BAR_COVERAGE for k, s in group) for staff in range(n_staves)
    ]
    if n_staves == 1:
        return solid[0]
    low, high = min(s.left for _, s in group) - 2, max(s.right for _, s in group) + 2
    gaps = [
        float(gap_coverage(a, b, ink, low, high).max(initial=0))
        for a, b in zip(system.staves[:-1], system.staves[1:], strict=True)
    ]
    if (
        sum(best) + sum(gaps) >= _MIN_FAINT_COVERAGE * (n_staves + len(gaps))
        and sum(c > 0 for c in best) * 2 > n_staves
    ):
        return True
    return sum(solid) * 2 > n_staves


def _strokes(system: System, k: int, ink: Mask, heads: Floats, glyphs: Floats) -> list[_Stroke]:
    """Return the vertical strokes that cross staff `k` of a system and are not the stems of notes."""
    staff = system.staves[k]
    low, high = max(0, int(staff.left) - 4), min(ink.shape[1], int(staff.right) + SPACE)
    coverage = np.zeros(high - low)
    for start in range(low, high, STEP):  # the staff is straight over a step
        stop = min(high, start + STEP)
        top, bottom = round(staff.top(start)), round(staff.bottom(start))
        coverage[start - low : stop - low] = ink[max(0, top) : bottom + 1, start:stop].mean(axis=0)
    leaning = _leaning(coverage, staff, ink, low)
    full = leaning >= _MIN_STROKE_COVERAGE
    full[1:-1] |= full[:-2] & full[2:]  # a line is not broken lengthwise
    edges = np.flatnonzero(np.diff(np.concatenate([[0], full.astype(np.int8), [0]])))
    found = []
    for first, last in zip(edges[::2], edges[1::2], strict=True):
        solid = np.flatnonzero(coverage[first:last] >= _MIN_STROKE_COVERAGE)
        if len(solid):  # without the columns that only a leaning line reaches
            first, last = first + int(solid[0]), first + int(solid[-1]) + 1
        x0, x1 = float(low + first), float(low + last)
        if x1 - x0 > _MAX_THICK or _within_glyph(staff, glyphs, x0, x1):
            continue
        touched = _touches_head(staff, heads, x0, x1)
        found.append(_Stroke(x0, x1, float(leaning[first:last].max()), _ends_at_lines(system, k, ink, x0, x1), touched))
    return found


def _leaning(coverage: Floats, staff: StaffLines, ink: Mask, low: int) -> Floats:
    """Return the coverage of columns, and where it is moderate that of lines that lean by one pixel."""
    result = coverage.copy()
    for i in np.flatnonzero((coverage > 0.4) & (coverage < MIN_BAR_COVERAGE)):
        x = low + int(i)
        top, bottom = round(staff.top(x)), round(staff.bottom(x))
        result[i] = max(coverage[i], float(leaning_coverage(ink, x, x + 1, top, bottom + 1)[0]) - 0.02)
    return result


def _touches_head(staff: StaffLines, heads: Floats, x0: float, x1: float) -> bool:
    """Return whether a notehead on or near the staff touches the columns from `x0` to `x1`."""
    if len(heads) == 0:
        return False
    y = (heads[:, 1] + heads[:, 3]) / 2
    near = (y > staff.top(x0) - 2 * INTERLINE) & (y < staff.bottom(x0) + 2 * INTERLINE)
    return bool((near & (heads[:, 0] < x1 + 1.5) & (heads[:, 2] > x0 - 1.5)).any())


def _within_glyph(staff: StaffLines, glyphs: Floats, x0: float, x1: float) -> bool:
    """Return whether the middle of a stroke lies within a symbol on the staff, such as the digits of a metre."""
    if len(glyphs) == 0:
        return False
    x, y = (x0 + x1) / 2, (glyphs[:, 1] + glyphs[:, 3]) / 2
    near = (y > staff.top(x)) & (y < staff.bottom(x)) & (glyphs[:, 3] - glyphs[:, 1] > 1.2 * INTERLINE)
    return bool((near & (glyphs[:, 0] + 2 < x) & (glyphs[:, 2] - 2 > x)).any())


def music_begins(system: System, clefs: Floats) -> float:
    """Return the x coordinate of the first clef of a system; bar lines to the left of it only join the staves."""
    x, y = (clefs[:, 0] + clefs[:, 2]) / 2, (clefs[:, 1] + clefs[:, 3]) / 2
    first = [
        float(x[mask].min())
        for staff in system.staves
        if (mask := (abs(y - staff.y(staff.left)) < 3 * INTERLINE) & (x < staff.left + 8 * INTERLINE)).any()
    ]
    return max(min(first, default=0.0), system.left + INTERLINE)


def is_glyph(name: str) -> bool:
    """Return whether symbols of a class have vertical strokes that are no bar lines."""
    return name.startswith(("timeSig", "key", "accidental", "rest")) or "clef" in name.lower()


def _ends_at_lines(system: System, k: int, ink: Mask, x0: float, x1: float) -> bool:
    """Return whether a stroke ends at the outer lines of staff `k` or continues to the neighbouring staff."""
    staff = system.staves[k]
    low, high = int(x0), max(int(x0) + 1, int(x1))
    top, bottom = round(staff.top(x0)), round(staff.bottom(x0))
    reach = 2 * SPACE
    above: Mask = np.asarray(ink[max(0, top - reach) : top - 1, low:high].any(axis=1))[::-1]
    below: Mask = np.asarray(ink[bottom + 2 : bottom + 2 + reach, low:high].any(axis=1))
    over_top, over_bottom = _run(above), _run(below)
    continues_up = k > 0 and gap_coverage(system.staves[k - 1], staff, ink, x0 - 2, x1 + 2).max(initial=0) > 0.85
    next_staff = system.staves[k + 1] if k + 1 < len(system.staves) else None
    continues_down = (
        next_staff is not None and gap_coverage(staff, next_staff, ink, x0 - 2, x1 + 2).max(initial=0) > 0.85
    )
    return (over_top <= _MAX_OVERSHOOT or continues_up) and (over_bottom <= _MAX_OVERSHOOT or continues_down)


def _run(values: Mask) -> int:
    """Return the number of leading true values."""
    stops = np.flatnonzero(~values)
    return int(stops[0]) if len(stops) else len(values)


def _describe_bar(system: System, strokes: list[_Stroke], dots: Floats) -> BarLine:
    """Return the bar line that strokes and repeat dots form."""
    strokes = sorted(strokes, key=lambda stroke: stroke.left)
    left, right = strokes[0].left, strokes[-1].right
    thick = [stroke.right - stroke.left > _MAX_THIN for stroke in strokes]
    before = after = False
    for x0, y0, x1, y1 in dots:
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        if not any(staff.top(x) < y < staff.bottom(x) for staff in system.staves):
            continue
        before |= left - _REPEAT_DOT_REACH < x < left
        after |= right < x < right + _REPEAT_DOT_REACH
    style: BarStyle = "regular"
    if before and after:
        style = "both-repeat"
    elif before:
        style = "end-repeat"
    elif after:
        style = "start-repeat"
    elif any(thick):
        style = "final"
    elif len(strokes) > 1:
        style = "double"
    return BarLine((left + right) / 2, style, left, right)
