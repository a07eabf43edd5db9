"""Decoding of maps to objects: peaks or connected components of the energy, with class, box and score.

Class and box are computed only at the cells that need them, a few thousand of the hundreds of thousands of a page.
Components are those of the thesis: threshold the energy, label the components, and combine the cells of each.
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
    """Connected components of the energy: n components with m cells in total.

    Attributes:
        cells: page, group, row and column of each cell, shape (m, 4).
        component: index of the component of each cell, shape (m,).
        cell_energy: energy of each cell, shape (m,).
        peak_cells: the cell of highest energy of each component, the first of equal ones, shape (n, 4).
        peak_energy: energy of the peak of each component, shape (n,).
    """

    cells: Tensor
    component: Tensor
    cell_energy: Tensor
    peak_cells: Tensor
    peak_energy: Tensor

    def mean(self, values: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the mean of values (m, k) over the cells of each component, shape (n, k)."""
        weights = torch.ones_like(self.cell_energy) if weights is None else weights
        total = values.new_zeros(len(self.peak_cells)).index_add_(0, self.component, weights.to(values))
        summed = values.new_zeros(len(self.peak_cells), values.shape[1])
        return summed.index_add_(0, self.component, values * weights.to(values)[:, None]) / total[:, None]

    def peaks(self) -> Tensor:
        """Return the index of the cell of highest energy of each component, shape (n,)."""
        return _first_highest(self.component, self.cell_energy, len(self.peak_cells))

    def classes(self, probabilities: Tensor, vote: Vote) -> tuple[Tensor, Tensor]:
        """Determine the class of each component from the class probabilities of its cells (m, classes).

        Returns:
            Probability of the class, shape (n,), and class, from 0, shape (n,).
        """
        if vote == "vote":  # the probability is the fraction of the votes
            choice = F.one_hot(probabilities.argmax(1), probabilities.shape[1])
            best = self.mean(choice.to(probabilities)).max(1)
        else:
            best = (self.mean(probabilities) if vote == "mean" else probabilities[self.peaks()]).max(1)
        return best.values, best.indices

    def boxes(self, codes: Tensor, options: DecodeOptions, map_options: MapOptions) -> Tensor:
        """Combine box codes of cells (m, box_dim) to the boxes of the components, shape (n, 4)."""
        sizes = decode_sizes(codes, map_options)
        if options.box == "mean":
            sizes = self.mean(sizes)
        elif options.box == "largest":
            largest = sizes.new_zeros(len(self.peak_cells), 2)
            sizes = largest.scatter_reduce_(0, self.component[:, None].expand(-1, 2), sizes, "amax")
        else:
            sizes = sizes[self.peaks()]
        cell_positions = cell_centres(self.cells, map_options.stride)
        if options.centre == "offset":
            boxes = decode_boxes(codes[self.peaks()], self.peak_cells, map_options)
            centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        elif options.centre == "truncated":  # to whole pixels
            centres = self.mean(cell_positions.to(sizes)).floor()
        else:
            centres = self.mean(cell_positions.to(sizes), self.cell_energy if options.centre == "energy" else None)
        return torch.cat([centres - sizes / 2, centres + sizes / 2], 1)


def find_components(surface: Tensor, options: DecodeOptions) -> Components:
    """Find the 8-connected components of the energy above the thresholds `options.cuts`.

    Args:
        surface: energy, shape (b, g, h, w).
        options: options of decoding.

    Returns:
        The components, by page and group.
    """
    energy_maps = surface.float().cpu().numpy()
    cells, members, count = [], [], 0
    for page, group in np.ndindex(*energy_maps.shape[:2]):
        component_map = _label(energy_maps[page, group], options)
        rows, columns = np.nonzero(component_map)
        cells.append(np.stack([np.full_like(rows, page), np.full_like(rows, group), rows, columns], 1))
        numbers, positions = np.unique(component_map[rows, columns], return_inverse=True)
        members.append(positions + count)
        count += len(numbers)
    index = torch.from_numpy(np.concatenate(cells)).to(surface.device)
    component = torch.from_numpy(np.concatenate(members)).to(surface.device)
    cell_energy = surface[tuple(index.unbind(1))].float()
    peaks = _first_highest(component, cell_energy, count)
    return Components(index, component, cell_energy, index[peaks], cell_energy[peaks])


def _label(energy: np.ndarray, options: DecodeOptions) -> np.ndarray:
    """Number the components of an energy map (h, w) from 1; other cells are 0.

    A lower threshold only adds components that overlap none of the higher ones.
    """
    result = np.zeros(energy.shape, dtype=np.int64)
    for threshold in options.cuts:
        _, component_map, stats, _ = cv2.connectedComponentsWithStats(
            (energy > threshold).astype(np.uint8), connectivity=8
        )
        new = stats[:, cv2.CC_STAT_AREA] >= options.least
        new[np.unique(component_map[result > 0])] = False
        new[0] = False
        result += np.where(new[component_map], component_map + result.max(), 0)
    return result


def _first_highest(component: Tensor, cell_energy: Tensor, count: int) -> Tensor:
    """Return the index of the cell of highest energy in each of `count` components, the first of equal ones."""
    best = cell_energy.new_zeros(count).scatter_reduce_(0, component, cell_energy, "amax")
    position = torch.arange(len(component), device=component.device)
    candidate = position.where(cell_energy == best[component], len(component))
    first = torch.full((count,), len(component), device=component.device)
    return first.scatter_reduce_(0, component, candidate, "amin")


def typical_box_sizes(boxes: Tensor, labels: Tensor, classes: int) -> Tensor:
    """Compute the median width and height of the boxes of each class.

    Args:
        boxes: shape (n, 4).
        labels: shape (n,), from 1.
        classes: number of classes.

    Returns:
        Sizes, shape (classes, 2), float32; NaN for classes without boxes.
    """
    sizes = (boxes[:, 2:] - boxes[:, :2]).float()
    result = torch.full((classes, 2), torch.nan)
    for label in sorted(set(labels.tolist())):
        result[label - 1] = sizes[labels == label].median(0).values.cpu()
    return result


def set_box_sizes(boxes: Tensor, labels: Tensor, sizes: Tensor | None) -> Tensor:
    """Replace width and height of boxes by the typical ones of their classes; the centres are unchanged.

    The thesis does so because the sizes that its network predicts are averaged too strongly.

    Args:
        boxes: shape (n, 4).
        labels: shape (n,), from 1.
        sizes: typical width and height, shape (classes, 2); NaN: boxes of the class are unchanged.

    Returns:
        The boxes, shape (n, 4).

    Raises:
        ValueError: sizes is None.
    """
    if sizes is None:
        raise ValueError(
            "sizes: the detector has no typical box sizes, but box is 'class'; expected a call of `set_typical_sizes`"
        )
    predicted = boxes[:, 2:] - boxes[:, :2]
    typical = sizes.to(boxes)[labels - 1]
    half = torch.where(typical.isnan(), predicted, typical) / 2
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return torch.cat([centres - half, centres + half], 1)


# Boxes are enlarged to this width and height, in pixels, for comparison: otherwise, a shift by a fraction of a pixel
# would separate two detections of the same stem.
_MIN_SIZE = 4.0


class DecodableMaps(Protocol):
    """Interface of energy, class and box maps of pages, rendered targets or predictions."""

    def surface(self) -> Tensor:
        """Return the energy in [0, 1], shape (b, g, h, w)."""

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits (m, classes) and box codes (m, box_dim) of cells (m, 4): page, group, row, column."""


def decode(
    maps: DecodableMaps, options: DecodeOptions, map_options: MapOptions, groups: Tensor, sizes: Tensor | None = None
) -> list[dict[str, Tensor]]:
    """Decode energy, class and box maps to the objects of each page.

    Args:
        maps: maps, as `render_targets` and the network return them.
        options: options of decoding.
        map_options: options of the maps.
        groups: energy channel of every label, shape (1 + classes,).
        sizes: typical width and height of each class, shape (classes, 2), for `DecodeOptions(box="class")`.

    Returns:
        For each page, "boxes" (n, 4) in pixels, "labels" (n,) from 1 and "scores" (n,), highest scores first.
    """
    surface = maps.surface()
    if options.method == "peaks":
        index, energy = find_peaks(surface, options.threshold)
        logits, codes = maps.read(index)
        probabilities, labels = class_probabilities(logits, index[:, 1], groups).max(1)
        boxes = decode_boxes(codes, index, map_options)
    else:
        components = find_components(surface, options)
        logits, codes = maps.read(components.cells)
        probabilities, labels = components.classes(
            class_probabilities(logits, components.cells[:, 1], groups), options.vote
        )
        boxes = components.boxes(codes, options, map_options)
        index, energy = components.peak_cells, components.peak_energy
    scores = energy * probabilities if options.score else torch.ones_like(energy)
    if options.box == "class":
        boxes = set_box_sizes(boxes, labels + 1, sizes)
    if options.snap is not None:
        boxes = (boxes / options.snap).round() * options.snap
    return _split(boxes, labels + 1, scores, index, len(surface), options)


def find_peaks(surface: Tensor, threshold: float) -> tuple[Tensor, Tensor]:
    """Find the local maxima of the energy that reach a threshold.

    Args:
        surface: energy, shape (b, g, h, w).
        threshold: minimum energy.

    Returns:
        The cells that are not lower than their eight neighbours, shape (n, 4), and their energy, shape (n,).
    """
    local_maximum = F.max_pool2d(surface, 3, stride=1, padding=1)
    index = torch.nonzero((surface >= max(threshold, 1e-6)) & (surface == local_maximum))
    return index, surface[tuple(index.unbind(1))]


def class_probabilities(logits: Tensor, group: Tensor, groups: Tensor) -> Tensor:
    """Convert class logits (m, classes) of cells to probabilities over the classes of their groups, shape (m,)."""
    other_groups = groups[1:].to(logits.device)[None] != group[:, None]  # (m, classes)
    return logits.float().masked_fill(other_groups, -torch.inf).softmax(1)


def suppress_overlaps(boxes: Tensor, group: Tensor, max_iou: float, block_size: int = 512) -> Tensor:
    """Select the boxes that overlap no better box of their group by more than `max_iou`.

    In contrast to non-maximum suppression, a suppressed box still suppresses others, so that boxes are compared in
    parallel.

    Args:
        boxes: shape (n, 4), best first.
        group: energy channel of each box, shape (n,).
        max_iou: IoU above which a box is suppressed.
        block_size: number of boxes that are compared with all better ones at a time, to bound the memory.

    Returns:
        Mask of the retained boxes, shape (n,), bool. Costs O(n^2) time and O(n block_size) memory.
    """
    centres, half = (boxes[:, :2] + boxes[:, 2:]) / 2, (boxes[:, 2:] - boxes[:, :2]).clamp(min=_MIN_SIZE) / 2
    boxes = torch.cat([centres - half, centres + half], 1)
    keep = torch.ones(len(boxes), dtype=torch.bool, device=boxes.device)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    for start in range(0, len(boxes), block_size):
        block, candidates = slice(start, start + block_size), slice(0, start + block_size)
        x0, y0, x1, y1 = (boxes[block, None, side] for side in range(4))  # (block_size, 1) each
        left, top, right, bottom = (boxes[None, candidates, side] for side in range(4))  # (1, candidates) each
        width = torch.minimum(x1, right).sub_(torch.maximum(x0, left)).clamp_(min=0)
        height = torch.minimum(y1, bottom).sub_(torch.maximum(y0, top)).clamp_(min=0)
        intersection = height.mul_(width)  # (block_size, candidates)
        # IoU > t is (1 + t) intersection > t (sum of areas).
        covered = intersection.mul_((1 + max_iou) / max_iou) > areas[block, None] + areas[None, candidates]
        covered &= group[block, None] == group[None, candidates]
        keep[block] = ~covered.tril_(start - 1).any(1)  # a box is covered only by those before it
    return keep


def _split(
    boxes: Tensor, labels: Tensor, scores: Tensor, index: Tensor, pages: int, options: DecodeOptions
) -> list[dict[str, Tensor]]:
    results = []
    for page in range(pages):
        selected = torch.nonzero((index[:, 0] == page) & (scores >= options.threshold)).squeeze(1)
        selected = selected[scores[selected].argsort(descending=True, stable=True)]
        if options.overlap is not None and len(selected):
            selected = selected[suppress_overlaps(boxes[selected], index[selected, 1], options.overlap)]
        selected = selected[: options.most]
        results.append({"boxes": boxes[selected], "labels": labels[selected], "scores": scores[selected]})
    return results
