"""Staves of a page, traced in the image, because a line of a scanned page is rarely straight.

The detector gives the approximate places. The course of the five lines is the path with the highest contrast over the
whole width.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from entourage.detect import Detections
from entourage.detect.options import INTERLINE
from entourage.detect.preprocessing.reading import GrayImage
from entourage.read.layout.ink import SPACE, STEP, boxes_of
from entourage.read.layout.systems import Floats, StaffLines

MIN_STAFF_SCORE = 0.2  # staves have lower scores than other symbols
HALF = 2.0 * INTERLINE  # from the middle line to the outer lines
_WINDOW = 40  # pixels of a window in which the lines are located
NARROW_WINDOW = 7  # the same at the ends of a staff
_MIN_END_CONTRAST = 0.4  # fraction of the mean contrast at which a staff still continues
_SEARCH = 12  # pixels above and below the expected position
_MAX_DRIFT = 3  # pixels per step
_BEND = 4.0  # grey values that a course loses by drifting one pixel in a step; four times as many by two
_MIN_LINE_CONTRAST = 12.0  # grey values by which the lines are darker than the spaces, mean of a window
_MIN_STAFF_WIDTH = 6 * INTERLINE
_MIN_LINE_FRACTION = 0.9  # fraction of the columns of a short piece that show lines; letters show fewer
_MAX_LINE_GAP = 1.2 * INTERLINE  # a wider gap in the lines is where a staff ends, unless a long piece follows
_MIN_STAFF_DISTANCE = 4.5 * INTERLINE  # between the middle lines of two staves
_MIN_WIDTH_FRACTION = 0.3  # of the widest staff: shorter ones are beams or examples in a preface
_MAX_STRETCH = 0.25  # of the distance of ledger lines
_MIN_LEDGER_HEADS = 8


def _is_head(kind: str, name: str) -> bool:
    return name.startswith("notehead") and kind in name


def ledger_stretch(staves: list[StaffLines], detections: Detections) -> float:
    """Return by which fraction ledger lines are farther apart than staff lines, as in old prints.

    Computed from noteheads on and between the first two ledger lines: the class of a head states whether it is on a
    line.
    """
    found = []
    for name, parity in (("OnLine", 0), ("InSpace", 1)):
        for x0, y0, x1, y1 in boxes_of(detections, partial(_is_head, name), 0.5):
            x, y = (x0 + x1) / 2, (y0 + y1) / 2
            steps = min((abs(staff.position(x, y)) for staff in staves), default=0.0)
            nearest = 2 * round((steps - parity) / 2) + parity
            if 6 <= nearest <= 8:
                found.append((steps - nearest) / (nearest - 4))
    return float(np.clip(np.median(found), 0.0, _MAX_STRETCH)) if len(found) >= _MIN_LEDGER_HEADS else 0.0


def find_staves(image: GrayImage, detections: Detections) -> list[StaffLines]:
    """Trace the staves of a page, from top to bottom.

    Args:
        image: grayscale, staff lines `INTERLINE` pixels apart, shape (h, w).
        detections: the symbols on it; boxes of the class "staff" give the approximate places of the staves.

    Returns:
        The staves. Boxes of one staff that were detected in pieces are joined; boxes without five lines are dropped.
    """
    boxes = boxes_of(detections, lambda name: name == "staff", MIN_STAFF_SCORE)
    boxes = boxes[np.argsort(boxes[:, 0] - boxes[:, 2], kind="stable")]  # longest first
    contrast = line_contrast(image)
    found: list[StaffLines] = []
    for x0, y0, x1, y1 in boxes:
        _add_staff(found, contrast, (x0 + x1) / 2, (y0 + y1) / 2, _MIN_STAFF_WIDTH)
    if found:  # the detector misses a staff now and then
        width = float(np.median([staff.right - staff.left for staff in found]))
        level = float(np.median([contrast[int(s.y(x)), int(x)] for s in found for x in s.x[2:-2:4]] or [np.inf]))
        left = float(np.median([staff.left for staff in found]))
        for column in (left + width * fraction for fraction in (0.25, 0.5, 0.75)):
            for row in _peaks(contrast[:, int(column)], 0.6 * level):
                _add_staff(found, contrast, column, row, 0.6 * width)
    widest = max((staff.right - staff.left for staff in found), default=0.0)
    kept = [staff for staff in found if staff.right - staff.left > _MIN_WIDTH_FRACTION * widest]
    return sorted(kept, key=lambda staff: float(staff.middle.mean()))


def _add_staff(found: list[StaffLines], contrast: Floats, column: float, row: float, min_width: float) -> None:
    """Trace the staff at a point and add it, unless it is known or shorter than `min_width`.

    Of two traces that are closer than the height of a staff, the one with the stronger lines is kept: a trace that is
    shifted by one or two lines still meets three or four of them.
    """
    if any(abs(staff.y(column) - row) < HALF for staff in found if staff.left < column < staff.right):
        return
    staff = _trace(contrast, column, row)
    if staff is None or staff.right - staff.left < min_width:
        return
    centre = (staff.left + staff.right) / 2
    near = [s for s in found if abs(s.y(centre) - staff.y(centre)) < _MIN_STAFF_DISTANCE and _overlaps(staff, s)]
    if all(_strength(contrast, staff) > 1.1 * _strength(contrast, other) for other in near):
        found[:] = [other for other in found if all(other is not one for one in near)]
        found.append(staff)


def _strength(contrast: Floats, staff: StaffLines) -> float:
    """Return the median contrast of the lines of a staff."""
    rows = np.clip(staff.middle.astype(int), 0, contrast.shape[0] - 1)
    columns = np.clip(staff.x.astype(int), 0, contrast.shape[1] - 1)
    return float(np.median(contrast[rows, columns]))


def _peaks(values: Floats, level: float) -> list[float]:
    """Return the positions of the values of at least `level` that no larger value within a staff's height exceeds."""
    rows = np.flatnonzero(values >= level)
    reach = 4 * SPACE
    return [float(row) for row in rows if values[row] == values[max(0, row - reach) : row + reach].max()]


def _overlaps(a: StaffLines, b: StaffLines) -> bool:
    return min(a.right, b.right) - max(a.left, b.left) > 0


def line_contrast(image: GrayImage, window: int = _WINDOW) -> Floats:
    """Return for each pixel by how much five lines around it are darker than the spaces between, shape (h, w).

    Rows are averaged over a window of some pixels, so that stems and heads count little.
    """
    import cv2

    dark = cv2.blur(255 - image.astype(np.float32), (window, 1))
    kernel = np.zeros((5 * SPACE + 1, 1), np.float32)  # from half a space above the top line to half below the bottom
    for k in range(5):
        kernel[SPACE // 2 + k * SPACE] = 1 / 5
    for k in range(6):
        kernel[k * SPACE] = -1 / 6
    return np.asarray(cv2.filter2D(dark, -1, kernel), dtype=np.float64)


def _trace(contrast: Floats, column: float, middle: float) -> StaffLines | None:
    """Follow a staff from a point on its middle line to both ends; None if there are no five lines."""
    width = contrast.shape[1]
    start = int(np.clip(column, 0, width - 1))
    near = _best_row(contrast, start, middle, _SEARCH)
    if near is None:
        near = _best_row(contrast, max(0, start - 5 * STEP), middle, _SEARCH)
    if near is None:
        return None
    points = [(float(start), near)]
    for direction in (-1, 1):
        y, missing, x = near, 0, start
        pending: list[tuple[float, float]] = []
        slope = 0.0
        while 0 <= x + direction * STEP < width and missing <= 4:
            x += direction * STEP
            row = _best_row(contrast, x, y + slope, _MAX_DRIFT + missing)
            if row is None:
                missing += 1
                continue
            slope = 0.8 * slope + 0.2 * (row - y) if missing == 0 else slope
            y, missing = row, 0
            pending.append((float(x), y))
        points.extend(pending)
    ordered = np.array(sorted(points))
    if ordered[-1, 0] - ordered[0, 0] < _MIN_STAFF_WIDTH:
        return None
    rows = _best_course(contrast, ordered[:, 0].astype(int), ordered[:, 1])
    smooth = np.convolve(np.pad(rows, 2, mode="edge"), np.ones(5) / 5, mode="valid")
    return StaffLines(ordered[:, 0], smooth)


def _best_course(contrast: Floats, columns: NDArray[np.int64], rows: Floats) -> Floats:
    """Return the course near `rows` with the highest sum of contrasts, by dynamic programming over the columns.

    A staff that was followed step by step may have been entered, or left, one line too high or low: beams and ledger
    lines continue the pattern of lines beyond the staff. The sum over all columns shows the right one.
    """
    reach = round(2.5 * SPACE)
    low, high = max(1, int(rows.min()) - reach), min(contrast.shape[0] - 1, int(rows.max()) + reach)
    values = contrast[low:high, columns].T
    steps = np.arange(-_MAX_DRIFT, _MAX_DRIFT + 1)
    costs = _BEND * steps.astype(float) ** 2
    total = values[0].copy()
    choices = np.zeros(values.shape, dtype=np.int64)
    for k in range(1, len(columns)):
        padded = np.pad(total, _MAX_DRIFT, constant_values=-np.inf)
        options = np.stack(
            [padded[_MAX_DRIFT + d : _MAX_DRIFT + d + len(total)] - c for d, c in zip(steps, costs, strict=True)]
        )
        choices[k] = options.argmax(axis=0)
        total = options.max(axis=0) + values[k]
    row = int(total.argmax())
    found = np.zeros(len(columns))
    for k in range(len(columns) - 1, -1, -1):
        found[k] = low + row + _peak_offset(contrast[:, columns[k]], low + row) + 0.5  # centres of pixels
        row += int(steps[choices[k, row]])
    return found


def _peak_offset(values: Floats, row: int) -> float:
    """Return by how much the vertex of the parabola through a value and its neighbours is below it, at most 0.5."""
    before, here, after = values[row - 1], values[row], values[min(row + 1, len(values) - 1)]
    curve = before - 2 * here + after
    return 0.0 if curve >= 0 else float(np.clip(0.5 * (before - after) / curve, -0.5, 0.5))


def _best_row(contrast: Floats, x: int, y: float, reach: float) -> float | None:
    """Return the row near `y` at which the lines contrast most, to a fraction of a pixel; None if they do not."""
    low, high = max(1, round(y - reach)), min(contrast.shape[0] - 1, round(y + reach) + 1)
    if high - low < 1:
        return None
    part = contrast[low:high, x]
    best = int(part.argmax())
    if part[best] < _MIN_LINE_CONTRAST:
        return None
    row = low + best
    return row + _peak_offset(contrast[:, x], row) + 0.5  # pixel centres have half-integer coordinates


def trim(staff: StaffLines, contrast: Floats, common: tuple[float, float] | None = None) -> StaffLines:
    """Move the ends of a staff to the ends of its lines.

    The ends of a traced staff are blurred by the window of the trace, and the trace may continue into the letters of a
    name before the staff. Short pieces beyond a gap are therefore dropped.

    Args:
        staff: the staff as it was traced.
        contrast: line contrast in windows of `NARROW_WINDOW` pixels.
        common: left and right end of most staves of the page; a piece that begins or ends there is kept.
    """
    reach = 3 * SPACE
    columns = np.arange(max(0, int(staff.left) - reach), min(contrast.shape[1], int(staff.right) + reach))
    rows = np.interp(columns, staff.x, staff.middle).astype(np.int64)
    values = np.max([contrast[np.clip(rows + k, 0, len(contrast) - 1), columns] for k in (-1, 0, 1)], axis=0)
    there = values >= _MIN_END_CONTRAST * np.median(values)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], there.astype(np.int8), [0]])))
    runs: list[tuple[int, int]] = []
    for first, last in zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True):
        if runs and first - runs[-1][1] <= _MAX_LINE_GAP:
            runs[-1] = (runs[-1][0], last)
        else:
            runs.append((first, last))
    longest = max((last - first for first, last in runs), default=0)
    ends = (np.inf, -np.inf) if common is None else common

    def belongs(first: int, last: int) -> bool:
        if last - first >= _MIN_WIDTH_FRACTION * longest:
            return True
        common_end = abs(columns[first] - ends[0]) < INTERLINE or abs(columns[last - 1] - ends[1]) < INTERLINE
        return common_end and last - first > INTERLINE and there[first:last].mean() >= _MIN_LINE_FRACTION

    runs = [(first, last) for first, last in runs if belongs(first, last)]
    if not runs:
        return staff
    left, right = float(columns[runs[0][0]]), float(columns[runs[-1][1] - 1])
    inside = (staff.x > left) & (staff.x < right)
    x = np.concatenate([[left], staff.x[inside], [right + 1]])
    return StaffLines(x, np.interp(x, staff.x, staff.middle), staff.spacing)
