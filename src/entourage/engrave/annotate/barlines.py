"""Bar lines: the marks that form one line, and its class, from the lines and dots of which it consists.

Engravers draw a bar line in pieces, one per staff and one between staves. All pieces that join, or nearly join as those
of a dashed line do, are one symbol: a line through the staves of a piano is one, lines on the staves of a choir are
several. The dots of repeat signs belong to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from entourage.engrave.render.marks import Mark

_MAX_GAP = 1.5  # interlines between pieces of a line, such as dashes; staves are farther apart
_MAX_DOT = 0.8  # interlines; lines are longer
_MIN_THICK = 0.3  # interlines
_MIN_DASHED_EDGES = 12  # an unbroken line has at most 8
_CLASSES = {"thin": "barlineSingle", "thin thin": "barlineDouble", "thin thick": "barlineFinal"}

Extent = tuple[float, float]


def split_barlines(indices: Iterable[int], marks: Sequence[Mark], interline: float) -> list[list[int]]:
    """Group the marks of bar lines into lines.

    Args:
        indices: indices of the marks of all bar lines of a page, or of some.
        marks: all marks of the page.
        interline: pixels between staff lines.

    Returns:
        The indices of each line, lines from the top to the bottom and from left to right.
    """
    groups = [list(indices)]
    for extent in (vertical_extent, horizontal_extent, vertical_extent):  # of systems; of lines; of their parts
        groups = [part for group in groups for part in _split(group, marks, extent, _MAX_GAP * interline)]
    return groups


def barline_class(indices: Iterable[int], marks: Sequence[Mark], interline: float) -> str:
    """Return the class of a bar line.

    Args:
        indices: indices of its marks.
        marks: all marks of the page.
        interline: pixels between staff lines.

    Returns:
        The class in the full list; "" for lines without one, such as a single thick line.
    """
    dots: list[float] = []
    columns: list[Extent] = []
    broken = False
    for x0, x1, i in sorted((*horizontal_extent(marks[i]), i) for i in indices):
        if is_dot(marks[i], interline):
            dots.append((x0 + x1) / 2)
            continue
        broken |= len(marks[i].edges) >= _MIN_DASHED_EDGES
        if not columns or x0 > columns[-1][1]:
            columns.append((x0, x1))
    if not columns:
        return "barlineDashed" if len(dots) > 2 and max(dots) - min(dots) < interline / 4 else ""
    sides = any(x < columns[0][0] for x in dots), any(x > columns[-1][1] for x in dots)
    if any(sides):
        return {(True, False): "repeatRight", (False, True): "repeatLeft"}.get(sides, "repeatRightLeft")
    widths = " ".join("thick" if x1 - x0 > _MIN_THICK * interline else "thin" for x0, x1 in columns)
    return "barlineDashed" if broken and widths == "thin" else _CLASSES.get(widths, "")


def is_dot(mark: Mark, interline: float) -> bool:
    """Return whether a mark of a bar line is a dot, and no line."""
    return all(high - low < _MAX_DOT * interline for low, high in (horizontal_extent(mark), vertical_extent(mark)))


def horizontal_extent(mark: Mark) -> Extent:
    """Return the smallest and the largest x of a mark."""
    x = mark.edges[:, [0, 2]]
    return float(x.min()), float(x.max())


def vertical_extent(mark: Mark) -> Extent:
    """Return the smallest and the largest y of a mark."""
    y = mark.edges[:, [1, 3]]
    return float(y.min()), float(y.max())


def _split(
    indices: list[int], marks: Sequence[Mark], extent: Callable[[Mark], Extent], max_gap: float
) -> list[list[int]]:
    """Split marks where there is a gap of more than `max_gap` between their extents."""
    intervals = sorted((*extent(marks[i]), i) for i in indices)
    parts: list[list[int]] = []
    end = -np.inf
    for low, high, i in intervals:
        if low > end + max_gap:
            parts.append([])
        parts[-1].append(i)
        end = max(end, high)
    return [sorted(part) for part in parts]
