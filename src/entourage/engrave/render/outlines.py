"""Conversion of SVG paths to polygon edges: curves are flattened, strokes are converted to areas.

The result is always an array of *edges*, of shape (n, 4), whose rows x0, y0, x1, y1 are the sides of closed polygons.
It is the input of the rasteriser in `entourage.engrave.render.raster`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Points = NDArray[np.float64]  # (n, 2)
Edges = NDArray[np.float64]  # (n, 4)

NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")  # number in SVG
_TOKEN = re.compile(rf"[A-Za-z]|{NUMBER.pattern}")
_STRAIGHT = re.compile(r"M(-?\d+) (-?\d+) L(-?\d+) (-?\d+)")  # staff lines and stems: most paths of a page
_ARGUMENTS = {"M": 2, "L": 2, "H": 1, "V": 1, "C": 6, "S": 4, "Q": 4, "T": 2, "Z": 0}
_NO_EDGES: Edges = np.empty((0, 4))
_MIN_MITRE_COSINE = 0.3  # cosine of the angle between segments below which a corner is not mitred


def parse_path(d: str, tolerance: float) -> list[Points]:
    """Parse an SVG path and flatten its curves.

    Args:
        d: path data with the commands M, L, H, V, C, S, Q, T and Z, absolute or relative.
        tolerance: maximum distance between a curve and its chords, in the unit of the path.

    Returns:
        The points of each subpath, shape (n, 2); the first and last point of a closed subpath are equal.

    Raises:
        ValueError: a command is unknown or lacks numbers.
    """
    if straight := _STRAIGHT.fullmatch(d):
        x0, y0, x1, y1 = (float(number) for number in straight.groups())
        return [np.array([[x0, y0], [x1, y1]])]
    return _parse_commands(d, tolerance)


def _parse_commands(d: str, tolerance: float) -> list[Points]:
    """Parse an SVG path with any commands; see `parse_path`."""
    tokens = _TOKEN.findall(d)
    subpaths: list[Points] = []
    points: list[complex] = []
    current = start = control = 0j
    command, index = "", 0
    while index < len(tokens):
        is_command = tokens[index].isalpha()
        if is_command:
            command, index = tokens[index], index + 1
        kind = command.upper()
        count = _ARGUMENTS.get(kind)
        if count is None or index + count > len(tokens) or (count == 0 and not is_command):
            raise ValueError(
                f"path {d[:60]!r}: {command!r} at number {index} cannot be read; expected M L H V C S Q T Z"
            )
        numbers = [float(token) for token in tokens[index : index + count]]
        index += count
        base = current if command.islower() else 0j
        if kind == "Z":
            if points:
                subpaths.append(_as_points([*points, start]))
            points, current = [], start
            continue
        if kind == "M":
            if len(points) > 1:
                subpaths.append(_as_points(points))
            current = start = base + complex(*numbers)
            points, command = [current], "l" if command == "m" else "L"  # further pairs are lines
            control = current
            continue
        if not points:
            points = [current]
        ends = _segment_points(kind, numbers, base, current, control)
        points += ends if len(ends) == 1 else _flatten([current, *ends], tolerance)
        control = ends[-2] if kind in "CSQT" else ends[-1]
        current = ends[-1]
    if len(points) > 1:
        subpaths.append(_as_points(points))
    return subpaths


def _segment_points(
    kind: str, numbers: list[float], base: complex, current: complex, control: complex
) -> list[complex]:
    """Return the control points and the end point of one segment of a path."""
    if kind == "H":
        return [complex(base.real + numbers[0], current.imag)]
    if kind == "V":
        return [complex(current.real, base.imag + numbers[0])]
    points = [base + complex(x, y) for x, y in zip(numbers[::2], numbers[1::2], strict=True)]
    return [2 * current - control, *points] if kind in "ST" else points


def _flatten(controls: list[complex], tolerance: float) -> list[complex]:
    """Return points on a quadratic or cubic curve, without its start, so that chords are within the tolerance."""
    curvature = max(abs(a - 2 * b + c) for a, b, c in zip(controls, controls[1:], controls[2:], strict=False))
    n = min(max(math.ceil(math.sqrt(0.75 * curvature / tolerance)), 1), 64)
    t = np.arange(1, n + 1) / n
    curve = np.array(controls)[:, None] * np.ones(n)  # (degree + 1, n)
    while len(curve) > 1:  # de Casteljau
        curve = curve[:-1] * (1 - t) + curve[1:] * t
    return list(curve[0])


def _as_points(points: Sequence[complex]) -> Points:
    array = np.array(points)
    return np.stack([array.real, array.imag], axis=1)


def fill_edges(subpaths: Iterable[Points]) -> Edges:
    """Return the edges of the area inside outlines, which are closed; holes have the opposite orientation."""
    polygons = []
    for points in subpaths:
        if len(points) > 2:
            ring = np.empty((len(points), 4))
            ring[:, :2], ring[:-1, 2:], ring[-1, 2:] = points, points[1:], points[0]
            polygons.append(ring)
    return np.concatenate(polygons) if polygons else _NO_EDGES


def stroke_edges(line: Points, width: float, cap: str = "butt") -> Edges:
    """Return the edges of the area that a pen covers along a line.

    Args:
        line: points of the line, shape (n, 2). At sharp corners, where a mitre would be too long, it is divided.
        width: width of the pen.
        cap: "butt", "square" or "round" ends; round ends are hexagons, because pens are about a pixel wide.

    Returns:
        The edges, shape (m, 4).
    """
    if len(line) == 2 and cap != "round":
        return _stroke_segment(line, width, cap)
    distinct = np.concatenate([[True], np.any(np.diff(line, axis=0) != 0, axis=1)])
    line = line[distinct]
    if len(line) < 2:
        return _NO_EDGES
    step = np.diff(line, axis=0)
    step /= np.linalg.norm(step, axis=1, keepdims=True)
    turns = (step[1:] * step[:-1]).sum(axis=1)
    if len(sharp := np.flatnonzero(turns < _MIN_MITRE_COSINE)):
        corner = int(sharp[0]) + 1
        return np.concatenate([stroke_edges(line[: corner + 1], width, cap), stroke_edges(line[corner:], width, cap)])
    if cap == "square":
        line = line.copy()
        line[0] -= step[0] * width / 2
        line[-1] += step[-1] * width / 2
    normal = np.stack([-step[:, 1], step[:, 0]], axis=1)  # (n - 1, 2)
    mitre = np.concatenate([normal[:1], normal]) + np.concatenate([normal, normal[-1:]])  # (n, 2)
    offset = mitre / (mitre**2).sum(axis=1, keepdims=True) * width
    edges = [fill_edges([np.concatenate([line + offset, (line - offset)[::-1]])])]
    if cap == "round":
        edges += [ellipse(end[0], end[1], width / 2, width / 2, sides=6) for end in (line[0], line[-1])]
    return np.concatenate([orient_positive(part) for part in edges])


def _stroke_segment(line: Points, width: float, cap: str) -> Edges:
    """Return the edges of a stroke between two points, as of most lines; scalars are faster than arrays here."""
    (x0, y0), (x1, y1) = line.tolist()
    length = math.hypot(x1 - x0, y1 - y0)
    if length == 0:
        return _NO_EDGES
    dx, dy = (x1 - x0) / length * width / 2, (y1 - y0) / length * width / 2
    if cap == "square":
        x0, y0, x1, y1 = x0 - dx, y0 - dy, x1 + dx, y1 + dy
    a, b, c, d = (x0 + dy, y0 - dx), (x1 + dy, y1 - dx), (x1 - dy, y1 + dx), (x0 - dy, y0 + dx)
    return np.array([[*a, *b], [*b, *c], [*c, *d], [*d, *a]])


def orient_positive(edges: Edges) -> Edges:
    """Return the edges with positive orientation, so that the areas of overlapping parts are added, not subtracted."""
    x0, y0, x1, y1 = edges.T
    return edges if (x0 * y1 - x1 * y0).sum() >= 0 else edges[:, [2, 3, 0, 1]]


def ellipse(cx: float, cy: float, rx: float, ry: float, sides: int = 24) -> Edges:
    """Return the edges of a polygon that approximates an ellipse and has the same area."""
    angle = np.arange(sides) * (2 * np.pi / sides)
    scale = math.sqrt(2 * np.pi / (sides * math.sin(2 * np.pi / sides)))
    return fill_edges([np.stack([cx + rx * scale * np.cos(angle), cy + ry * scale * np.sin(angle)], axis=1)])


def rectangle(x: float, y: float, width: float, height: float) -> Edges:
    """Return the edges of an axis-aligned rectangle."""
    return fill_edges([np.array([[x, y], [x + width, y], [x + width, y + height], [x, y + height]])])


def dashes(line: Points, pattern: Sequence[float]) -> list[Points]:
    """Divide a line by a dash pattern (on, off, on, off, ...) and return the dashes.

    A pattern of total length 0 returns the entire line.
    """
    if not pattern or sum(pattern) <= 0:
        return [line]
    lengths = np.linalg.norm(np.diff(line, axis=0), axis=1)
    at = np.concatenate([[0.0], np.cumsum(lengths)])
    cuts = np.cumsum(np.tile(list(pattern) * (1 + len(pattern) % 2), math.ceil(at[-1] / sum(pattern))))
    starts = np.concatenate([[0.0], cuts[1::2]])
    pieces = []
    for start, end in zip(starts, cuts[0::2], strict=False):
        if start >= at[-1]:
            break
        end = min(float(end), float(at[-1]))
        inner = line[(at > start) & (at < end)]
        ends = [[np.interp(s, at, line[:, 0]), np.interp(s, at, line[:, 1])] for s in (start, end)]
        pieces.append(np.concatenate([[ends[0]], inner, [ends[1]]]))
    return pieces


def rings(edges: Edges) -> list[Edges]:
    """Split the edges of an area into closed outlines."""
    ends = np.flatnonzero(np.any(edges[:-1, 2:] != edges[1:, :2], axis=1)) + 1
    return np.split(edges, ends)


def split_at(edges: Edges, y: float) -> tuple[Edges, Edges]:
    """Return the parts of an area above and below the horizontal line at `y`."""
    halves: tuple[list[Points], list[Points]] = ([], [])
    for ring in rings(edges):
        for points, sign in zip(halves, (1, -1), strict=True):
            corners = []
            for x0, y0, x1, y1 in ring:
                if sign * y0 <= sign * y:
                    corners.append((x0, y0))
                if (y0 - y) * (y1 - y) < 0:  # the edge crosses the line: the intersection is a corner of both parts
                    corners.append((x0 + (x1 - x0) * (y - y0) / (y1 - y0), y))
            points.append(np.array(corners).reshape(-1, 2))
    return fill_edges(halves[0]), fill_edges(halves[1])


def transform_edges(edges: Edges, scale: float, x: float, y: float) -> Edges:
    """Scale edges about the origin and then shift them."""
    return np.asarray(edges * scale + np.array([x, y, x, y]))


def rotate_points(points: Points, degrees: float, x: float, y: float) -> Points:
    """Rotate points clockwise (y is downwards) around (x, y)."""
    cos, sin = np.cos(np.radians(degrees)), np.sin(np.radians(degrees))
    return np.asarray((points - (x, y)) @ np.array([[cos, sin], [-sin, cos]]) + (x, y))
