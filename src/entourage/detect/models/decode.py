"""Connected components of the energy, as in the thesis: cut, label, and ask all cells of a component.

Cached boxes: one size a class, which the thesis puts in the place of sizes that its network averages away.

From maps to objects: peaks or connected components of the energy, with class, box and score read there.

Class and box are asked for only at the cells that matter, a few thousand of the hundreds of thousands on a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from entourage.detect.models.maps import cell_centres, decode_boxes, decode_sizes
from entourage.detect.options import DecodeOptions, MapOptions, Vote


@dataclass(frozen=True)
class Components:
    """n components of m cells in all.

    Attributes:
        cells: (m, 4) page, group, row, column.
        member: (m,) the component of each cell.
        height: (m,) energy of each cell.
        index: (n, 4) the cell of highest energy of each component, the first of equals.
        energy: (n,) its energy.
    """

    cells: Tensor
    member: Tensor
    height: Tensor
    index: Tensor
    energy: Tensor

    def mean(self, values: Tensor, weights: Tensor | None = None) -> Tensor:
        """The mean of values (m, k) over the cells of each component, (n, k)."""
        weights = torch.ones_like(self.height) if weights is None else weights
        total = values.new_zeros(len(self.index)).index_add_(0, self.member, weights.to(values))
        summed = values.new_zeros(len(self.index), values.shape[1])
        return summed.index_add_(0, self.member, values * weights.to(values)[:, None]) / total[:, None]

    def peaks(self) -> Tensor:
        """The position among the cells of each component's highest, (n,)."""
        return _first_highest(self.member, self.height, len(self.index))

    def classes(self, probabilities: Tensor, vote: Vote) -> tuple[Tensor, Tensor]:
        """Probability (n,) and class (n,), from 0, given those of the cells, (m, classes)."""
        if vote == "vote":  # the probability is the share of the votes
            choice = torch.nn.functional.one_hot(probabilities.argmax(1), probabilities.shape[1])
            best = self.mean(choice.to(probabilities)).max(1)
        else:
            best = (self.mean(probabilities) if vote == "mean" else probabilities[self.peaks()]).max(1)
        return best.values, best.indices

    def boxes(self, codes: Tensor, options: DecodeOptions, map_options: MapOptions) -> Tensor:
        """The box of each component, (n, 4), given the box codes of the cells, (m, box_dim)."""
        sizes = decode_sizes(codes, map_options)
        if options.box == "mean":
            sizes = self.mean(sizes)
        elif options.box == "largest":
            largest = sizes.new_zeros(len(self.index), 2)
            sizes = largest.scatter_reduce_(0, self.member[:, None].expand(-1, 2), sizes, "amax")
        else:
            sizes = sizes[self.peaks()]
        middle = cell_centres(self.cells, map_options.stride)
        if options.centre == "offset":
            boxes = decode_boxes(codes[self.peaks()], self.index, map_options)
            centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        elif options.centre == "truncated":  # whole pixels, the rest cut off
            centres = self.mean(middle.to(sizes)).floor()
        else:
            centres = self.mean(middle.to(sizes), self.height if options.centre == "energy" else None)
        return torch.cat([centres - sizes / 2, centres + sizes / 2], 1)


def find_components(surface: Tensor, options: DecodeOptions) -> Components:
    """The 8-connected components of the energy (b, g, h, w) above the cuts."""
    energy = surface.float().cpu().numpy()
    cells, members, count = [], [], 0
    for page, group in np.ndindex(*energy.shape[:2]):
        numbers = _label(energy[page, group], options)
        rows, columns = np.nonzero(numbers)
        cells.append(np.stack([np.full_like(rows, page), np.full_like(rows, group), rows, columns], 1))
        found, places = np.unique(numbers[rows, columns], return_inverse=True)
        members.append(places + count)
        count += len(found)
    index = torch.from_numpy(np.concatenate(cells)).to(surface.device)
    member = torch.from_numpy(np.concatenate(members)).to(surface.device)
    height = surface[tuple(index.unbind(1))].float()
    peaks = _first_highest(member, height, count)
    return Components(index, member, height, index[peaks], height[peaks])


def _label(energy: np.ndarray, options: DecodeOptions) -> np.ndarray:
    """Number of the component of every cell, 0 for none; lower cuts add what touches nothing found before."""
    result = np.zeros(energy.shape, dtype=np.int64)
    for cut in options.cuts:
        _, numbers, stats, _ = cv2.connectedComponentsWithStats((energy > cut).astype(np.uint8), connectivity=8)
        new = stats[:, cv2.CC_STAT_AREA] >= options.least
        new[np.unique(numbers[result > 0])] = False
        new[0] = False
        result += np.where(new[numbers], numbers + result.max(), 0)
    return result


def _first_highest(member: Tensor, height: Tensor, count: int) -> Tensor:
    """For each of `count` components the position of its highest cell, the first of equals."""
    best = height.new_zeros(count).scatter_reduce_(0, member, height, "amax")
    position = torch.arange(len(member), device=member.device)
    candidate = position.where(height == best[member], len(member))
    first = torch.full((count,), len(member), device=member.device)
    return first.scatter_reduce_(0, member, candidate, "amin")


def typical_box_sizes(boxes: Tensor, labels: Tensor, classes: int) -> Tensor:
    """The median width and height of each class.

    Args:
        boxes: (n, 4).
        labels: (n,) from 1.
        classes: how many classes there are.

    Returns:
        (classes, 2) float32; NaN for classes that no box has.
    """
    sizes = (boxes[:, 2:] - boxes[:, :2]).float()
    result = torch.full((classes, 2), torch.nan)
    for label in sorted(set(labels.tolist())):
        result[label - 1] = sizes[labels == label].median(0).values.cpu()
    return result


def set_box_sizes(boxes: Tensor, labels: Tensor, sizes: Tensor | None) -> Tensor:
    """Boxes (n, 4) with the sides of their classes, (classes, 2), about their centres; as they are where that is NaN.

    Raises:
        ValueError: there are no sides.
    """
    if sizes is None:
        raise ValueError(
            "box is 'class', but the detector has no typical box sizes; expected a call of `set_typical_sizes` first"
        )
    own = boxes[:, 2:] - boxes[:, :2]
    cached = sizes.to(boxes)[labels - 1]
    half = torch.where(cached.isnan(), own, cached) / 2
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return torch.cat([centres - half, centres + half], 1)


_MIN_SIDE = (
    4.0  # pixels; thinner boxes are compared as if so wide, or a hair's breadth would part two finds of one stem
)


class DecodableMaps(Protocol):
    """Maps of pages, painted or predicted."""

    def surface(self) -> Tensor:
        """Energy, (b, g, h, w) in [0, 1]."""

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Class logits (m, classes) and box numbers (m, box_dim) of cells (m, 4): page, group, row, column."""


def decode(
    maps: DecodableMaps, options: DecodeOptions, map_options: MapOptions, groups: Tensor, sizes: Tensor | None = None
) -> list[dict[str, Tensor]]:
    """The objects on each page, best first.

    Args:
        maps: as `render_targets` or the network made them.
        options: how they are read.
        map_options: options that the maps were made with.
        groups: (1 + classes,) energy channel of every label.
        sizes: (classes, 2) width and height of each class, if boxes are to have those.

    Returns:
        For each page boxes (n, 4) in pixels, labels (n,) from 1 and scores (n,), as torchvision has them.
    """
    surface = maps.surface()
    if options.method == "peaks":
        index, energy = find_peaks(surface, options.threshold)
        logits, codes = maps.read(index)
        probability, labels = class_probabilities(logits, index[:, 1], groups).max(1)
        boxes = decode_boxes(codes, index, map_options)
    else:
        found = find_components(surface, options)
        logits, codes = maps.read(found.cells)
        probability, labels = found.classes(class_probabilities(logits, found.cells[:, 1], groups), options.vote)
        boxes = found.boxes(codes, options, map_options)
        index, energy = found.index, found.energy
    scores = energy * probability if options.score else torch.ones_like(energy)
    if options.box == "class":
        boxes = set_box_sizes(boxes, labels + 1, sizes)
    if options.snap is not None:
        boxes = (boxes / options.snap).round() * options.snap
    return _split(boxes, labels + 1, scores, index, len(surface), options)


def find_peaks(surface: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Cells (n, 4) that none of their eight neighbours tops and that reach the threshold, and their energy (n,)."""
    highest = F.max_pool2d(surface, 3, stride=1, padding=1)
    index = torch.nonzero((surface >= max(threshold, 1e-6)) & (surface == highest))
    return index, surface[tuple(index.unbind(1))]


def class_probabilities(logits: Tensor, group: Tensor, groups: Tensor) -> Tensor:
    """Probabilities (m, classes) of logits among the classes of the group that each cell belongs to, (m,)."""
    foreign = groups[1:].to(logits.device)[None] != group[:, None]  # (m, classes)
    return logits.float().masked_fill(foreign, -torch.inf).softmax(1)


def suppress_overlaps(boxes: Tensor, group: Tensor, overlap: float, block: int = 512) -> Tensor:
    """Which boxes, best first, no better one of their group covers.

    Args:
        boxes: (n, 4).
        group: (n,) of each.
        overlap: IoU above which one covers the other.
        block: boxes that are compared with all others at a time, to bound memory.

    Returns:
        (n,) bool.
    """
    centres, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).clamp(min=_MIN_SIDE) / 2
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
            mine = mine[suppress_overlaps(boxes[mine], index[mine, 1], options.overlap)]
        mine = mine[: options.most]
        results.append({"boxes": boxes[mine], "labels": labels[mine], "scores": scores[mine]})
    return results
