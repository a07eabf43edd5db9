"""From maps to objects: peaks or connected components of the energy, with class, box and score read there.

Class and box are asked for only at the cells that matter, a few thousand of the hundreds of thousands on a page.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from entourage.detect.decode_options import DecodeOptions
from entourage.detect.map_options import MapOptions
from entourage.detect.models.components import find_components
from entourage.detect.models.maps import number_boxes
from entourage.detect.models.sides import put_sides

_THIN = 4.0  # pixels; thinner boxes are compared as if so wide, or a hair's breadth would part two finds of one stem


class Readable(Protocol):
    """Maps of pages, painted or predicted."""

    def surface(self) -> Tensor:
        """Energy, (b, g, h, w) in [0, 1]."""

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Class logits (m, classes) and box numbers (m, sides) of cells (m, 4): page, group, row, column."""


def decode(
    maps: Readable, options: DecodeOptions, how: MapOptions, groups: Tensor, sides: Tensor | None = None
) -> list[dict[str, Tensor]]:
    """The objects on each page, best first.

    Args:
        maps: as `paint` or the network made them.
        options: how they are read.
        how: how they are painted.
        groups: (1 + classes,) energy channel of every label.
        sides: (classes, 2) width and height of each class, if boxes are to have those.

    Returns:
        For each page boxes (n, 4) in pixels, labels (n,) from 1 and scores (n,), as torchvision has them.
    """
    surface = maps.surface()
    if options.method == "peaks":
        index, energy = find_peaks(surface, options.threshold)
        logits, numbers = maps.read(index)
        chance, labels = class_chances(logits, index[:, 1], groups).max(1)
        boxes = number_boxes(numbers, index, how)
    else:
        found = find_components(surface, options)
        logits, numbers = maps.read(found.cells)
        chance, labels = found.classes(class_chances(logits, found.cells[:, 1], groups), options.vote)
        boxes = found.boxes(numbers, options, how)
        index, energy = found.index, found.energy
    scores = energy * chance if options.score else torch.ones_like(energy)
    if options.box == "class":
        boxes = put_sides(boxes, labels + 1, sides)
    if options.snap is not None:
        boxes = (boxes / options.snap).round() * options.snap
    return _split(boxes, labels + 1, scores, index, len(surface), options)


def find_peaks(surface: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Cells (n, 4) that none of their eight neighbours tops and that reach the threshold, and their energy (n,)."""
    highest = F.max_pool2d(surface, 3, stride=1, padding=1)
    index = torch.nonzero((surface >= max(threshold, 1e-6)) & (surface == highest))
    return index, surface[tuple(index.unbind(1))]


def class_chances(logits: Tensor, group: Tensor, groups: Tensor) -> Tensor:
    """Probabilities (m, classes) of logits among the classes of the group that each cell belongs to, (m,)."""
    foreign = groups[1:].to(logits.device)[None] != group[:, None]  # (m, classes)
    return logits.float().masked_fill(foreign, -torch.inf).softmax(1)


def suppress(boxes: Tensor, group: Tensor, overlap: float, block: int = 512) -> Tensor:
    """Which boxes, best first, no better one of their group covers.

    Args:
        boxes: (n, 4).
        group: (n,) of each.
        overlap: IoU above which one covers the other.
        block: boxes that are compared with all others at a time, to bound memory.

    Returns:
        (n,) bool.
    """
    centres, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).clamp(min=_THIN) / 2
    boxes = torch.cat([centres - half, centres + half], 1)
    keep = torch.ones(len(boxes), dtype=torch.bool, device=boxes.device)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for start in range(0, len(boxes), block):
        mine, others = slice(start, start + block), slice(0, start + block)
        x0, y0, x1, y1 = (boxes[mine, None, side] for side in range(4))  # (block, 1) each
        left, top, right, bottom = (boxes[None, others, side] for side in range(4))  # (1, better) each
        wide = torch.minimum(x1, right).sub_(torch.maximum(x0, left)).clamp_(min=0)
        common = torch.minimum(y1, bottom).sub_(torch.maximum(y0, top)).clamp_(min=0).mul_(wide)  # (block, better)
        # IoU > t is (1 + t) common > t (sum of areas).
        covered = common.mul_((1 + overlap) / overlap) > areas[mine, None] + areas[None, others]
        covered &= group[mine, None] == group[None, others]
        keep[mine] = ~covered.tril_(start - 1).any(1)  # a box is covered only by those before it
    return keep


def _split(
    boxes: Tensor, labels: Tensor, scores: Tensor, index: Tensor, pages: int, options: DecodeOptions
) -> list[dict[str, Tensor]]:
    results = []
    for page in range(pages):
        mine = torch.nonzero((index[:, 0] == page) & (scores >= options.threshold)).squeeze(1)
        mine = mine[scores[mine].argsort(descending=True, stable=True)]
        if options.overlap is not None and len(mine):
            mine = mine[suppress(boxes[mine], index[mine, 1], options.overlap)]
        mine = mine[: options.most]
        results.append({"boxes": boxes[mine], "labels": labels[mine], "scores": scores[mine]})
    return results
