"""Layout of a page of music: staves with the course of their lines, bar lines, systems and measures.

All coordinates are pixels of a page whose staff lines are `INTERLINE` pixels apart. Staves come from the detector and
are traced in the image, because a line of a scanned page is rarely straight. Bar lines are read from the ink: they are
the columns that are dark from the top line of a staff to its bottom line and are not stems.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from entourage.detect import Detections
from entourage.detect.options import INTERLINE
from entourage.detect.preprocessing.reading import GrayImage

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
BarStyle = Literal["regular", "double", "final", "start-repeat", "end-repeat", "both-repeat", "dashed"]

MIN_STAFF_SCORE = 0.2  # staves have lower scores than other symbols
_SPACE = round(INTERLINE)
HALF = 2.0 * INTERLINE  # from the middle line to the outer lines
_STEP = 16  # pixels between the columns at which a staff is traced
_WINDOW = 40  # pixels of a window in which the lines are located
_NARROW_WINDOW = 7  # the same at the ends of a staff
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
_DARK = 0.5  # fraction of the page's contrast from which a pixel is ink
_MIN_BAR_COVERAGE = 0.93  # minimum fraction of ink in a column between the outer lines
_MIN_STROKE_COVERAGE = 0.7  # the same for a faded line, if other staves have one at the same place
_MIN_FAINT_COVERAGE = 0.79  # minimum mean of staves and gaps between them of a faded bar line
_MIN_JOINED_COVERAGE = 0.85  # minimum in each staff and gap of a bar line that a notehead touches
_MAX_THIN = 3.6  # pixels: a wider bar line is a thick one
_MAX_THICK = 14.0  # pixels: anything wider is no bar line
_MIN_BRACKET = 4  # pixels: a thinner line at the left end joins the staves of a system
_BAR_GROUP = 1.4 * INTERLINE  # strokes closer than this form one bar line
_MAX_OVERSHOOT = 0.35 * INTERLINE  # ink beyond the outer lines, at a bar line that ends there
_MAX_STRETCH = 0.25  # of the distance of ledger lines
_MIN_LEDGER_HEADS = 8
_REPEAT_DOT_REACH = 1.6 * INTERLINE
_MIN_MEASURE = 2.2 * INTERLINE  # minimum distance between bar lines


@dataclass(frozen=True)
class StaffLines:
    """A staff: the course of its middle line, from left to right.

    Attributes:
        x: positions at which the staff was traced, shape (k,), ascending.
        middle: y coordinates of the middle line there, shape (k,).
        spacing: mean distance between its lines.
        stretch: by which fraction the distance of ledger lines is larger.
    """

    x: Floats
    middle: Floats
    spacing: float = INTERLINE
    stretch: float = 0.0

    @property
    def left(self) -> float:
        """Left end of the lines."""
        return float(self.x[0])

    @property
    def right(self) -> float:
        """Right end of the lines."""
        return float(self.x[-1])

    def y(self, x: float) -> float:
        """Return the y coordinate of the middle line at `x`; outside the staff, that of the nearest end."""
        return float(np.interp(x, self.x, self.middle))

    def top(self, x: float) -> float:
        """Return the y coordinate of the top line at `x`."""
        return self.y(x) - 2 * self.spacing

    def bottom(self, x: float) -> float:
        """Return the y coordinate of the bottom line at `x`."""
        return self.y(x) + 2 * self.spacing

    def position(self, x: float, y: float) -> float:
        """Return the staff position of a point: steps above the middle line, two for each distance between lines."""
        steps = (self.y(x) - y) / (self.spacing / 2)
        beyond = abs(steps) - 4
        return float(steps if beyond <= 0 else np.copysign(4 + beyond / (1 + self.stretch), steps))


@dataclass(frozen=True)
class BarLine:
    """A bar line of a system.

    Attributes:
        x: its position: the middle of its strokes.
        style: kind of bar line.
        left, right: extent of its strokes and repeat dots.
    """

    x: float
    style: BarStyle
    left: float
    right: float


@dataclass
class System:
    """Staves that are played together.

    Attributes:
        staves: from top to bottom.
        bars: bar lines from left to right, without the line that joins the staves at the left end.
        groups: staves of one part, such as (1, 2) for a piano below a voice; each staff occurs once.
    """

    staves: list[StaffLines]
    bars: list[BarLine] = field(default_factory=list)
    groups: list[tuple[int, ...]] = field(default_factory=list)

    @property
    def left(self) -> float:
        """Left end of the staves."""
        return min(staff.left for staff in self.staves)

    @property
    def right(self) -> float:
        """Right end of the staves."""
        return max(staff.right for staff in self.staves)

    def spans(self) -> list[tuple[float, float]]:
        """Return the left and right end of each measure, from left to right.

        A measure without a bar line at its right end, such as the last of a line that is cut off, is included if it is
        wide enough to hold notes.
        """
        ends = [bar.x for bar in self.bars]
        if not ends or self.right - ends[-1] > 3 * INTERLINE:
            ends.append(self.right)
        starts = [self.left, *ends[:-1]]
        return list(zip(starts, ends, strict=True))


@dataclass
class Layout:
    """The systems of a page from top to bottom.

    Attributes:
        systems: the systems.
        ink: ink of the page, shape (h, w).
    """

    systems: list[System]
    ink: Mask


def read_layout(image: GrayImage, detections: Detections) -> Layout:
    """Locate staves, systems and bar lines.

    Args:
        image: grayscale, staff lines `INTERLINE` pixels apart, shape (h, w).
        detections: the symbols on it, in the same pixels.

    Returns:
        The layout; without systems if there is no staff.
    """
    ink = binarize(image)
    narrow = _line_contrast(image, _NARROW_WINDOW)
    traced = find_staves(image, detections)
    staves = [_trim(staff, narrow) for staff in traced]
    if len(staves) > 2:  # a piece before a gap belongs to the staff if most staves begin where it begins
        usual = (float(np.median([s.left for s in staves])), float(np.median([s.right for s in staves])))
        staves = [_trim(staff, narrow, usual) for staff in traced]
    systems = _group_staves(staves, ink, detections)
    stretch = _ledger_stretch([staff for system in systems for staff in system.staves], detections)
    for system in systems:
        system.staves = [replace(staff, stretch=stretch) for staff in system.staves]
    heads = _boxes(detections, lambda name: name.startswith("notehead"), 0.3)
    glyphs = _boxes(detections, _is_glyph, 0.3)
    clefs = _boxes(detections, lambda name: "clef" in name.lower(), 0.3)
    dots = _boxes(detections, lambda name: name == "repeatDot", 0.25)
    for system in systems:
        system.bars = _find_bars(system, ink, heads, glyphs, dots)
        system.bars = [bar for bar in system.bars if bar.x > _music_begins(system, clefs)]
        system.groups = _group_parts(system, ink, detections)
    return Layout(systems, ink)


def binarize(image: GrayImage, zoom: float = 1.0) -> Mask:
    """Return the pixels that are nearer to the darkest ink than to the paper around them, shape (h, w).

    Args:
        image: grayscale, shape (h, w).
        zoom: distance between its staff lines, in units of `INTERLINE`.
    """
    import cv2

    window, grain = round(6 * _SPACE * zoom) + 1, round(15 * zoom)
    paper = cv2.blur(cv2.dilate(image, np.ones((grain, grain), np.uint8)), (window, window)).astype(np.float32)
    darkest = float(np.percentile(image / np.maximum(paper, 1), 1))
    return np.asarray(image < paper * (_DARK + (1 - _DARK) * darkest))


def _is_head(kind: str, name: str) -> bool:
    return name.startswith("notehead") and kind in name


def _ledger_stretch(staves: list[StaffLines], detections: Detections) -> float:
    """Return by which fraction ledger lines are farther apart than staff lines, as in old prints.

    Heads up to two ledger lines show it: their class tells whether they are on a line or between two.
    """
    found = []
    for name, parity in (("OnLine", 0), ("InSpace", 1)):
        for x0, y0, x1, y1 in _boxes(detections, partial(_is_head, name), 0.5):
            x, y = (x0 + x1) / 2, (y0 + y1) / 2
            steps = min((abs(staff.position(x, y)) for staff in staves), default=0.0)
            nearest = 2 * round((steps - parity) / 2) + parity
            if 6 <= nearest <= 8:
                found.append((steps - nearest) / (nearest - 4))
    return float(np.clip(np.median(found), 0.0, _MAX_STRETCH)) if len(found) >= _MIN_LEDGER_HEADS else 0.0


def _boxes(detections: Detections, accept: Callable[[str], bool], threshold: float) -> Floats:
    """Return the boxes of the accepted classes with at least a score, shape (n, 4)."""
    names = detections.names
    accepted = np.array([accept(name) for name in names], dtype=np.bool_)
    boxes = detections.boxes.numpy()[accepted & (detections.scores.numpy() >= threshold)]
    return np.asarray(boxes, dtype=np.float64)


def find_staves(image: GrayImage, detections: Detections) -> list[StaffLines]:
    """Trace the staves of a page, from top to bottom.

    Args:
        image: grayscale, staff lines `INTERLINE` pixels apart, shape (h, w).
        detections: the symbols on it; boxes of the class "staff" say where to look.

    Returns:
        The staves. Boxes of one staff that were detected in pieces are joined; boxes without five lines are dropped.
    """
    boxes = _boxes(detections, lambda name: name == "staff", MIN_STAFF_SCORE)
    boxes = boxes[np.argsort(boxes[:, 0] - boxes[:, 2], kind="stable")]  # longest first
    contrast = _line_contrast(image)
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
    reach = 4 * _SPACE
    return [float(row) for row in rows if values[row] == values[max(0, row - reach) : row + reach].max()]


def _overlaps(a: StaffLines, b: StaffLines) -> bool:
    return min(a.right, b.right) - max(a.left, b.left) > 0


def _line_contrast(image: GrayImage, window: int = _WINDOW) -> Floats:
    """Return for each pixel by how much five lines around it are darker than the spaces between, shape (h, w).

    Rows are averaged over a window of some pixels, so that stems and heads count little.
    """
    import cv2

    dark = cv2.blur(255 - image.astype(np.float32), (window, 1))
    kernel = np.zeros((5 * _SPACE + 1, 1), np.float32)  # from half a space above the top line to half below the bottom
    for k in range(5):
        kernel[_SPACE // 2 + k * _SPACE] = 1 / 5
    for k in range(6):
        kernel[k * _SPACE] = -1 / 6
    return np.asarray(cv2.filter2D(dark, -1, kernel), dtype=np.float64)


def _trace(contrast: Floats, column: float, middle: float) -> StaffLines | None:
    """Follow a staff from a point on its middle line to both ends; None if there are no five lines."""
    width = contrast.shape[1]
    start = int(np.clip(column, 0, width - 1))
    near = _best_row(contrast, start, middle, _SEARCH)
    if near is None:
        near = _best_row(contrast, max(0, start - 5 * _STEP), middle, _SEARCH)
    if near is None:
        return None
    points = [(float(start), near)]
    for direction in (-1, 1):
        y, missing, x = near, 0, start
        pending: list[tuple[float, float]] = []
        slope = 0.0
        while 0 <= x + direction * _STEP < width and missing <= 4:
            x += direction * _STEP
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
    reach = round(2.5 * _SPACE)
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


def _group_staves(staves: list[StaffLines], ink: Mask, detections: Detections) -> list[System]:
    """Join staves that a line at their left end, a brace or bar lines connect."""
    braces = _boxes(detections, lambda name: name == "brace", MIN_STAFF_SCORE)
    systems: list[System] = []
    for staff in staves:
        above = systems[-1].staves[-1] if systems else None
        if above is not None and (_joined_at_left(above, staff, ink) or _braced(above, staff, braces)):
            systems[-1].staves.append(staff)
        else:
            systems.append(System([staff]))
    return systems


def _joined_at_left(above: StaffLines, below: StaffLines, ink: Mask) -> bool:
    """Return whether a vertical line near the left ends of two staves joins them."""
    left = max(above.left, below.left)
    if abs(above.left - below.left) > 6 * INTERLINE:
        return False
    coverage = _gap_coverage(above, below, ink, left - 2.5 * INTERLINE, left + 2.0 * INTERLINE)
    return bool(coverage.max(initial=0) >= 0.85)


def _braced(above: StaffLines, below: StaffLines, braces: Floats) -> bool:
    """Return whether a brace at the left end reaches from one staff to the other."""
    for x0, y0, x1, y1 in braces:
        is_near = abs((x0 + x1) / 2 - above.left) < 4 * INTERLINE
        if is_near and y0 < above.y(above.left) and y1 > below.y(below.left):
            return True
    return False


def _gap_coverage(above: StaffLines, below: StaffLines, ink: Mask, x0: float, x1: float) -> Floats:
    """Return the fraction of ink between two staves in the columns from `x0` to `x1`; lines may lean by a pixel."""
    low, high = max(0, int(x0)), min(ink.shape[1], int(x1) + 1)
    if high <= low:
        return np.zeros(0)
    middle = (low + high) / 2
    top, bottom = round(above.bottom(middle)) + 2, round(below.top(middle)) - 1
    if bottom - top < 3:
        return np.zeros(high - low)
    return _leaning_coverage(ink, low, high, top, bottom)


def _leaning_coverage(ink: Mask, low: int, high: int, top: int, bottom: int) -> Floats:
    """Return the fraction of rows in which a column or one next to it is ink, for the columns low to high - 1."""
    first, last = max(0, low - 1), min(ink.shape[1], high + 1)
    part = ink[max(0, top) : max(0, bottom), first:last]
    wide = part.copy()
    wide[:, 1:] |= part[:, :-1]
    wide[:, :-1] |= part[:, 1:]
    return np.asarray(wide[:, low - first : low - first + high - low].mean(axis=0), dtype=np.float64)


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


def _trim(staff: StaffLines, contrast: Floats, usual: tuple[float, float] | None = None) -> StaffLines:
    """Move the ends of a staff to the ends of its lines.

    The window of the trace blurs them, and the letters of a name before the staff may continue the trace: short pieces
    beyond a gap are dropped.

    Args:
        staff: the staff as it was traced.
        contrast: line contrast in windows of `_NARROW_WINDOW` pixels.
        usual: left and right end of most staves of the page; a piece that begins or ends there is kept.
    """
    reach = 3 * _SPACE
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
    ends = (np.inf, -np.inf) if usual is None else usual

    def belongs(first: int, last: int) -> bool:
        if last - first >= _MIN_WIDTH_FRACTION * longest:
            return True
        usual_end = abs(columns[first] - ends[0]) < INTERLINE or abs(columns[last - 1] - ends[1]) < INTERLINE
        return usual_end and last - first > INTERLINE and there[first:last].mean() >= _MIN_LINE_FRACTION

    runs = [(first, last) for first, last in runs if belongs(first, last)]
    if not runs:
        return staff
    left, right = float(columns[runs[0][0]]), float(columns[runs[-1][1] - 1])
    inside = (staff.x > left) & (staff.x < right)
    x = np.concatenate([[left], staff.x[inside], [right + 1]])
    return StaffLines(x, np.interp(x, staff.x, staff.middle), staff.spacing)


def _find_bars(system: System, ink: Mask, heads: Floats, glyphs: Floats, dots: Floats) -> list[BarLine]:
    """Return the bar lines of a system: strokes that enough of its staves have at the same place.

    Lines that are broken or faded are accepted where most of the line is ink through all staves and, if the other bar
    lines continue between the staves, between them.
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
    """Return whether a stroke that a notehead touches continues to one of the next staff: a bar line beside a head."""
    (k, stroke), (j, plain) = touched, other
    near = abs(stroke.left - plain.left) < 4 and abs(k - j) == 1
    if not near or min(stroke.coverage, plain.coverage) < _MIN_JOINED_COVERAGE or not plain.fits:
        return False
    above, below = system.staves[min(j, k)], system.staves[max(j, k)]
    low, high = min(stroke.left, plain.left) - 1, max(stroke.right, plain.right) + 1
    return bool(_gap_coverage(above, below, ink, low, high).max(initial=0) >= _MIN_JOINED_COVERAGE)


def _is_bar(system: System, group: list[tuple[int, _Stroke]], ink: Mask) -> bool:
    """Return whether strokes at one place form a bar line of the system."""
    n_staves = len(system.staves)
    best = [max((s.coverage for k, s in group if k == staff), default=0.0) for staff in range(n_staves)]
    solid = [
        any(k == staff and s.fits and s.coverage >= _MIN_BAR_COVERAGE for k, s in group) for staff in range(n_staves)
    ]
    if n_staves == 1:
        return solid[0]
    low, high = min(s.left for _, s in group) - 2, max(s.right for _, s in group) + 2
    gaps = [
        float(_gap_coverage(a, b, ink, low, high).max(initial=0))
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
    low, high = max(0, int(staff.left) - 4), min(ink.shape[1], int(staff.right) + _SPACE)
    coverage = np.zeros(high - low)
    for start in range(low, high, _STEP):  # the staff is straight over a step
        stop = min(high, start + _STEP)
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
    for i in np.flatnonzero((coverage > 0.4) & (coverage < _MIN_BAR_COVERAGE)):
        x = low + int(i)
        top, bottom = round(staff.top(x)), round(staff.bottom(x))
        result[i] = max(coverage[i], float(_leaning_coverage(ink, x, x + 1, top, bottom + 1)[0]) - 0.02)
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


def _music_begins(system: System, clefs: Floats) -> float:
    """Return the x coordinate of the first clef of a system; bar lines to the left of it only join the staves."""
    x, y = (clefs[:, 0] + clefs[:, 2]) / 2, (clefs[:, 1] + clefs[:, 3]) / 2
    first = [
        float(x[mask].min())
        for staff in system.staves
        if (mask := (abs(y - staff.y(staff.left)) < 3 * INTERLINE) & (x < staff.left + 8 * INTERLINE)).any()
    ]
    return max(min(first, default=0.0), system.left + INTERLINE)


def _is_glyph(name: str) -> bool:
    return name.startswith(("timeSig", "key", "accidental", "rest")) or "clef" in name.lower()


def _ends_at_lines(system: System, k: int, ink: Mask, x0: float, x1: float) -> bool:
    """Return whether a stroke ends at the outer lines of staff `k` or continues to the neighbouring staff."""
    staff = system.staves[k]
    low, high = int(x0), max(int(x0) + 1, int(x1))
    top, bottom = round(staff.top(x0)), round(staff.bottom(x0))
    reach = 2 * _SPACE
    above: Mask = np.asarray(ink[max(0, top - reach) : top - 1, low:high].any(axis=1))[::-1]
    below: Mask = np.asarray(ink[bottom + 2 : bottom + 2 + reach, low:high].any(axis=1))
    over_top, over_bottom = _run(above), _run(below)
    continues_up = k > 0 and _gap_coverage(system.staves[k - 1], staff, ink, x0 - 2, x1 + 2).max(initial=0) > 0.85
    next_staff = system.staves[k + 1] if k + 1 < len(system.staves) else None
    continues_down = (
        next_staff is not None and _gap_coverage(staff, next_staff, ink, x0 - 2, x1 + 2).max(initial=0) > 0.85
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


def _group_parts(system: System, ink: Mask, detections: Detections) -> list[tuple[int, ...]]:
    """Return which staves of a system belong to one instrument, by braces or by bar lines between the staves."""
    n = len(system.staves)
    braces = _boxes(detections, lambda name: name == "brace", MIN_STAFF_SCORE)
    joined = [_braced(system.staves[k], system.staves[k + 1], braces) for k in range(n - 1)]
    if not any(joined):
        connected = [_connected_by_bars(system, k, ink) and not _bracketed(system, k, ink) for k in range(n - 1)]
        if n == 2 or not all(connected):
            joined = connected
    groups: list[tuple[int, ...]] = [(0,)]
    for k in range(1, n):
        if joined[k - 1] and len(groups[-1]) < 3:
            groups[-1] = (*groups[-1], k)
        else:
            groups.append((k,))
    return groups


def _bracketed(system: System, k: int, ink: Mask) -> bool:
    """Return whether a bracket, which groups instruments, joins staff `k` and the next: a thick line at their left."""
    above, below = system.staves[k], system.staves[k + 1]
    low, high = round(min(above.left, below.left) - 2.5 * INTERLINE), round(max(above.left, below.left)) + 3
    part = ink[round(above.bottom(above.left)) : round(below.top(below.left)), max(0, low) : high]
    if not part.size:
        return False
    solid: Mask = np.asarray(part.mean(axis=0) >= _MIN_BAR_COVERAGE)
    return any(_run(np.asarray(solid[x:])) >= _MIN_BRACKET for x in range(len(solid)))


def _connected_by_bars(system: System, k: int, ink: Mask) -> bool:
    """Return whether most bar lines continue from staff `k` to the next."""
    above, below = system.staves[k], system.staves[k + 1]
    hits = [_gap_coverage(above, below, ink, bar.left - 3, bar.right + 3).max(initial=0) > 0.85 for bar in system.bars]
    return len(hits) > 0 and sum(hits) * 2 > len(hits)
