"""Pages upside down, which their clefs tell: a staff begins with one, at its left end.

On a page that is turned by half a turn noteheads, stems and beams look as they always do, and much else is found in its
place; but hardly a clef is seen where staves begin, and all are there when the page is turned back.
"""

from __future__ import annotations

import numpy as np

from entourage.detect.detections import Detections
from entourage.detect.map_options import INTERLINE

FEW = 0.4  # share of the staves below which it is worth another look, the page turned
ENOUGH = 0.5  # share that shows that the page is right as it is turned
SURE = 0.3  # least score of the staves and clefs that count
_LEFT, _RIGHT = 2.0, 6.0  # interlines from a staff's left end to the middle of a clef
_BESIDE = 1.5  # and from its lines


def begun_with_clefs(found: Detections) -> float | None:
    """The share of the staves on a page that begin with a clef.

    Args:
        found: at the network's scale, staff lines `INTERLINE` pixels apart.

    Returns:
        From 0 to 1; None if there is no staff, or no class of clefs. Costs O(staves clefs).
    """
    names = np.array(found.names, dtype=object)
    sure = found.scores.numpy() >= SURE
    boxes = found.boxes.numpy()
    staves = boxes[(names == "staff") & sure]
    if len(staves) == 0 or not any(_is_clef(name) for name in found.classes):
        return None
    clefs = boxes[np.array([_is_clef(name) for name in names], dtype=bool) & sure]
    x, y = (clefs[:, :2] + clefs[:, 2:]).T[:, None] / 2  # (1, clefs) each
    left, top, bottom = staves[:, [0]], staves[:, [1]], staves[:, [3]]  # (staves, 1) each
    across = (x > left - _LEFT * INTERLINE) & (x < left + _RIGHT * INTERLINE)
    along = (y > top - _BESIDE * INTERLINE) & (y < bottom + _BESIDE * INTERLINE)
    return float((across & along).any(axis=1).mean())


def may_be_upside_down(found: Detections) -> bool:
    """Whether so few staves begin with a clef that the page should be looked at the other way round as well."""
    share = begun_with_clefs(found)
    return share is not None and share < FEW


def is_upright(found: Detections) -> bool:
    """Whether so many staves begin with a clef that the page cannot be upside down."""
    share = begun_with_clefs(found)
    return share is not None and share >= ENOUGH


def _is_clef(name: str) -> bool:
    return "clef" in name.lower()
