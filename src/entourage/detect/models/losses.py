"""Losses: energy everywhere, class and box where there are objects, and their sum.

Weights of classes that few objects have.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from entourage.detect.models.maps import Maps, decode_boxes
from entourage.detect.models.network import MapPredictions
from entourage.detect.options import LossOptions

TERMS = ("energy", "class", "box")


def focal_energy(logits: Tensor, target: Tensor, valid: Tensor, alpha: float = 2.0, beta: float = 4.0) -> Tensor:
    """Focal loss on a surface of hills (Law and Deng, 2018), a centre.

    Cells of full energy are to be found; all others are background, the less so the higher their energy.

    Args:
        logits: (b, g, h, w).
        target: (b, g, h, w) in [0, 1].
        valid: (b, h, w) bool, cells that are looked at.
        alpha: how little cells count that the network has right.
        beta: how little cells count that lie high.
    """
    logits = logits.float()
    centre = target >= 1.0
    found = F.logsigmoid(logits) * (-logits).sigmoid() ** alpha
    empty = F.logsigmoid(-logits) * logits.sigmoid() ** alpha * (1 - target) ** beta
    mask = valid[:, None].expand_as(target)
    number = (centre & mask).sum().clamp(min=1)
    return -(torch.where(centre, found, empty) * mask).sum() / number


def bce_energy(logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Binary cross-entropy between the energy and its sigmoid, a cell; arguments as of `focal_energy`."""
    each = F.binary_cross_entropy_with_logits(logits.float(), target, reduction="none")
    mask = valid[:, None].expand_as(target)
    return (each * mask).sum() / mask.sum().clamp(min=1)


def level_energy(logits: Tensor, levels: Tensor, valid: Tensor) -> Tensor:
    """Cross-entropy on quantised energy, a cell: logits (b, levels, h, w), levels (b, 1, h, w) int64."""
    each = F.cross_entropy(logits.float(), levels[:, 0], reduction="none")  # (b, h, w)
    return (each * valid).sum() / valid.sum().clamp(min=1)


def class_loss(
    logits: Tensor, labels: Tensor, group: Tensor, groups: Tensor, weights: Tensor, class_weights: Tensor
) -> Tensor:
    """Cross-entropy on the class among those of the group, a cell.

    Args:
        logits: (m, classes) of the cells of objects.
        labels: (m,) from 1.
        group: (m,) of each cell.
        groups: (1 + classes,) of each label.
        weights: (m,) how much each cell counts.
        class_weights: (classes,) how much each class counts.
    """
    foreign = groups[1:][None] != group[:, None]
    each = F.cross_entropy(logits.float().masked_fill(foreign, -torch.inf), labels - 1, reduction="none")
    weights = weights * class_weights[labels - 1]
    return (each * weights).sum() / weights.sum().clamp(min=1e-6)


def generalised_iou(first: Tensor, second: Tensor) -> Tensor:
    """GIoU of boxes (m, 4) and (m, 4), one by one: (m,), from -1 to 1."""
    corner = torch.maximum(first[:, :2], second[:, :2])
    common = (torch.minimum(first[:, 2:], second[:, 2:]) - corner).clamp(min=0).prod(1)
    union = (first[:, 2:] - first[:, :2]).prod(1) + (second[:, 2:] - second[:, :2]).prod(1) - common
    hull = (torch.maximum(first[:, 2:], second[:, 2:]) - torch.minimum(first[:, :2], second[:, :2])).prod(1)
    return common / union.clamp(min=1e-6) - (hull - union) / hull.clamp(min=1e-6)


def box_loss(codes: Tensor, target: Tensor, weights: Tensor, options: LossOptions) -> Tensor:
    """Squared or absolute error of box numbers (m, box_dim), a cell, each cell by its weight (m,)."""
    if options.box == "squared":
        each = (codes - target).square().mean(1)
    else:
        each = F.smooth_l1_loss(codes, target, beta=options.rounding, reduction="none").mean(1)
    return (each * weights).sum() / weights.sum().clamp(min=1e-6)


@dataclass(frozen=True)
class _Foreground:
    """The cells of objects: where, what, and how much they count."""

    index: Tensor
    labels: Tensor
    codes: Tensor
    weights: Tensor


class DetectionLoss(nn.Module):
    """The three losses with weights w, each divided by its running mean v if asked for.

    The last values and the weights of classes are buffers, so that checkpoints carry them.

    Args:
        options: which and how much.
        groups: (1 + classes,) energy channel of every label.
    """

    groups: Tensor
    class_weights: Tensor
    recent: Tensor

    def __init__(self, options: LossOptions, groups: Tensor) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("groups", groups, persistent=False)
        self.register_buffer("class_weights", torch.ones(len(groups) - 1))
        self.register_buffer("recent", torch.ones(len(TERMS), options.window or 1))  # (terms, window), newest last

    def forward(self, predictions: MapPredictions, maps: Maps) -> dict[str, Tensor]:
        """Energy, class and box loss, weighted; their sum is what is minimised."""
        raw = self.raw(predictions, maps)
        means = self._means(raw) if self.options.window else raw.new_ones(len(TERMS))
        weighted = raw / means * raw.new_tensor(self.options.weights)
        return dict(zip(TERMS, weighted.unbind(), strict=True))

    def raw(self, predictions: MapPredictions, maps: Maps) -> Tensor:
        """The three losses as they are, (3,)."""
        foreground = self._foreground(maps)
        logits, codes = predictions.read(foreground.index)
        group = foreground.index[:, 1]
        by_class = class_loss(logits, foreground.labels, group, self.groups, foreground.weights, self.class_weights)
        by_box = box_loss(codes, foreground.codes, foreground.weights, self.options)
        if self.options.giou:
            cells = foreground.index
            alike = generalised_iou(
                decode_boxes(codes, cells, maps.options), decode_boxes(foreground.codes, cells, maps.options)
            )
            share = foreground.weights.sum().clamp(min=1e-6)
            by_box = by_box + self.options.giou * ((1 - alike) * foreground.weights).sum() / share
        return torch.stack([self._energy(predictions.energy, maps), by_class, by_box])

    def _energy(self, logits: Tensor, maps: Maps) -> Tensor:
        if self.options.energy == "levels":
            return level_energy(logits, maps.levels(), maps.valid)
        if self.options.energy == "bce":
            return bce_energy(logits, maps.energy, maps.valid)
        return focal_energy(logits, maps.energy, maps.valid, self.options.alpha, self.options.beta)

    def _foreground(self, maps: Maps) -> _Foreground:
        index = maps.foreground_cells()
        labels, codes = maps.targets(index)
        place = tuple(index.unbind(1))
        weights = maps.energy[place]
        if not self.options.by_energy:
            weights = torch.ones_like(weights)
        else:  # large hills have more cells, but an object is an object
            object_index = maps.object_index[place]
            total = weights.new_zeros(len(maps.boxes)).index_add_(0, object_index, weights)
            weights = weights / total[object_index].clamp(min=1e-6)
        return _Foreground(index, labels, codes, weights)

    @torch.no_grad()
    def _means(self, raw: Tensor) -> Tensor:
        """v: the mean of each loss over the steps before this one, which then joins them."""
        means = self.recent.mean(1).clamp(min=1e-6)
        if self.training:
            finite = torch.where(raw.isfinite(), raw.detach(), means)
            self.recent.copy_(torch.cat([self.recent[:, 1:], finite[:, None]], 1))
        return means


def class_weights(counts: Tensor, bound: float) -> Tensor:
    """Weights by the inverse root of frequency, bounded, so that one rare object cannot shake the training.

    The class in the middle of all objects has weight 1: half of all objects are of classes at least as frequent.

    Args:
        counts: (classes,) objects of each class in training; classes without any count as if they had one.
        bound: weights lie between 1 / bound and bound.

    Returns:
        (classes,) float32.

    Raises:
        ValueError: a count is negative, or the bound is below 1.
    """
    if bound < 1:
        raise ValueError(f"bound is {bound}; expected 1 or more")
    if counts.ndim != 1 or (counts < 0).any():
        raise ValueError(f"counts have shape {tuple(counts.shape)}; expected (classes,), none negative")
    frequency = counts.double().clamp(min=1)
    ordered = frequency.sort(descending=True).values
    middle = ordered[int((ordered.cumsum(0) < ordered.sum() / 2).sum())]
    return (middle / frequency).sqrt().clamp(1 / bound, bound).float()
