"""Layout of a page of music: staves joined to systems, their bar lines and the groups of staves that are one part."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from entourage.detect import Detections
from entourage.detect.options import INTERLINE
from entourage.detect.preprocessing.reading import GrayImage
from entourage.read.layout.bars import MIN_BAR_COVERAGE, _run, find_bars, is_glyph, music_begins
from entourage.read.layout.ink import binarize, boxes_of, gap_coverage, leaning_join
from entourage.read.layout.staves import (
    MIN_STAFF_SCORE,
    NARROW_WINDOW,
    find_staves,
    ledger_stretch,
    line_contrast,
    trim,
)
from entourage.read.layout.systems import Floats, Layout, Mask, StaffLines, System

_MIN_JOIN_COVERAGE = 0.85  # minimum of a vertical line that joins two staves
_MIN_LEANING_COVERAGE = 0.75  # the same of a line between their left ends
_MIN_BRACKET = 4  # pixels: a thinner line at the left end joins the staves of a system


def read_layout(image: GrayImage, detections: Detections) -> Layout:
    """Locate staves, systems and bar lines.

    Args:
        image: grayscale, staff lines `INTERLINE` pixels apart, shape (h, w).
        detections: the symbols on it, in the same pixels.

    Returns:
        The layout; without systems if there is no staff.
    """
    ink = binarize(image)
    narrow = line_contrast(image, NARROW_WINDOW)
    traced = find_staves(image, detections)
    staves = [trim(staff, narrow) for staff in traced]
    if len(staves) > 2:  # a piece before a gap belongs to the staff if most staves begin where it begins
        common = (float(np.median([s.left for s in staves])), float(np.median([s.right for s in staves])))
        staves = [trim(staff, narrow, common) for staff in traced]
    systems = _group_staves(staves, ink, detections)
    stretch = ledger_stretch([staff for system in systems for staff in system.staves], detections)
    for system in systems:
        system.staves = [replace(staff, stretch=stretch) for staff in system.staves]
    heads = boxes_of(detections, lambda name: name.startswith("notehead"), 0.3)
    glyphs = boxes_of(detections, is_glyph, 0.3)
    clefs = boxes_of(detections, lambda name: "clef" in name.lower(), 0.3)
    dots = boxes_of(detections, lambda name: name == "repeatDot", 0.25)
    for system in systems:
        system.bars = find_bars(system, ink, heads, glyphs, dots)
        system.bars = [bar for bar in system.bars if bar.x > music_begins(system, clefs)]
        system.groups = _group_parts(system, ink, detections)
    return Layout(systems, ink)


def _group_staves(staves: list[StaffLines], ink: Mask, detections: Detections) -> list[System]:
    """Join staves that a line at their left end, a brace or bar lines connect."""
    braces = boxes_of(detections, lambda name: name == "brace", MIN_STAFF_SCORE)
    systems: list[System] = []
    for staff in staves:
        above = systems[-1].staves[-1] if systems else None
        if above is not None and (_joined_at_left(above, staff, ink) or _braced(above, staff, braces)):
            systems[-1].staves.append(staff)
        else:
            systems.append(System([staff]))
    return systems


def _joined_at_left(above: StaffLines, below: StaffLines, ink: Mask) -> bool:
    """Return whether a line near the left ends of two staves joins them; on photographs it leans."""
    if abs(above.left - below.left) > 6 * INTERLINE:
        return False
    left = max(above.left, below.left)
    coverage = gap_coverage(above, below, ink, left - 2.5 * INTERLINE, left + 2.0 * INTERLINE)
    if coverage.max(initial=0) >= _MIN_JOIN_COVERAGE:
        return True
    return leaning_join(above, below, ink) >= _MIN_LEANING_COVERAGE


def _braced(above: StaffLines, below: StaffLines, braces: Floats) -> bool:
    """Return whether a brace at the left end reaches from one staff to the other."""
    for x0, y0, x1, y1 in braces:
        is_near = abs((x0 + x1) / 2 - above.left) < 4 * INTERLINE
        if is_near and y0 < above.y(above.left) and y1 > below.y(below.left):
            return True
    return False


def _group_parts(system: System, ink: Mask, detections: Detections) -> list[tuple[int, ...]]:
    """Return which staves of a system belong to one instrument, by braces or by bar lines between the staves."""
    n = len(system.staves)
    braces = boxes_of(detections, lambda name: name == "brace", MIN_STAFF_SCORE)
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
    solid: Mask = np.asarray(part.mean(axis=0) >= MIN_BAR_COVERAGE)
    return any(_run(np.asarray(solid[x:])) >= _MIN_BRACKET for x in range(len(solid)))


def _connected_by_bars(system: System, k: int, ink: Mask) -> bool:
    """Return whether most bar lines continue from staff `k` to the next."""
    above, below = system.staves[k], system.staves[k + 1]
    hits = [gap_coverage(above, below, ink, bar.left - 3, bar.right + 3).max(initial=0) > 0.85 for bar in system.bars]
    return len(hits) > 0 and sum(hits) * 2 > len(hits)
