"""Losses of the detector: energy of all cells, class and box of foreground cells, and weights of rare classes."""

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
    """Compute the focal loss of an energy map (Law and Deng, 2018), divided by the number of centres.

    Cells of energy 1 are positive; all others are negative, with a weight that decreases with their energy.

    Args:
        logits: shape (b, g, h, w).
        target: energy in [0, 1], shape (b, g, h, w).
        valid: mask of the cells that contribute, shape (b, h, w).
        alpha: exponent that reduces the weight of cells that are predicted correctly.
        beta: exponent that reduces the weight of negative cells of high energy.

    Returns:
        The loss, a scalar.
    """
    logits = logits.float()
    centre = target >= 1.0
    positive = F.logsigmoid(logits) * (-logits).sigmoid() ** alpha
    negative = F.logsigmoid(-logits) * logits.sigmoid() ** alpha * (1 - target) ** beta
    mask = valid[:, None].expand_as(target)
    count = (centre & mask).sum().clamp(min=1)
    return -(torch.where(centre, positive, negative) * mask).sum() / count


def bce_energy(logits: Tensor, target: Tensor, valid: Tensor) -> Tensor:
    """Compute the mean binary cross-entropy of an energy map; the arguments are those of `focal_energy`."""
    per_cell = F.binary_cross_entropy_with_logits(logits.float(), target, reduction="none")
    mask = valid[:, None].expand_as(target)
    return (per_cell * mask).sum() / mask.sum().clamp(min=1)


def level_energy(logits: Tensor, levels: Tensor, valid: Tensor) -> Tensor:
    """Compute the mean cross-entropy of a quantised energy map: logits (b, levels, h, w), levels (b, 1, h, w) int64."""
    per_cell = F.cross_entropy(logits.float(), levels[:, 0], reduction="none")  # (b, h, w)
    return (per_cell * valid).sum() / valid.sum().clamp(min=1)


def class_loss(
    logits: Tensor, labels: Tensor, group: Tensor, groups: Tensor, weights: Tensor, class_weights: Tensor
) -> Tensor:
    """Compute the weighted mean cross-entropy of the class, over the classes of the group of each cell.

    Args:
        logits: shape (m, classes), for m foreground cells.
        labels: shape (m,), from 1.
        group: energy channel of each cell, shape (m,).
        groups: energy channel of every label, shape (1 + classes,).
        weights: weight of each cell, shape (m,).
        class_weights: weight of each class, shape (classes,).

    Returns:
        The loss, a scalar.
    """
    other_groups = groups[1:][None] != group[:, None]
    per_cell = F.cross_entropy(logits.float().masked_fill(other_groups, -torch.inf), labels - 1, reduction="none")
    weights = weights * class_weights[labels - 1]
    return (per_cell * weights).sum() / weights.sum().clamp(min=1e-6)


def generalized_iou(first: Tensor, second: Tensor) -> Tensor:
    """Compute the generalised IoU, from -1 to 1, of each pair of boxes: (m, 4) and (m, 4) -> (m,)."""
    corner = torch.maximum(first[:, :2], second[:, :2])
    common = (torch.minimum(first[:, 2:], second[:, 2:]) - corner).clamp(min=0).prod(1)
    union = (first[:, 2:] - first[:, :2]).prod(1) + (second[:, 2:] - second[:, :2]).prod(1) - common
    hull = (torch.maximum(first[:, 2:], second[:, 2:]) - torch.minimum(first[:, :2], second[:, :2])).prod(1)
    return common / union.clamp(min=1e-6) - (hull - union) / hull.clamp(min=1e-6)


def box_loss(codes: Tensor, target: Tensor, weights: Tensor, options: LossOptions) -> Tensor:
    """Compute the weighted mean of the squared or smooth absolute error of box codes (m, box_dim); weights: (m,)."""
    if options.box == "squared":
        per_cell = (codes - target).square().mean(1)
    else:
        per_cell = F.smooth_l1_loss(codes, target, beta=options.rounding, reduction="none").mean(1)
    return (per_cell * weights).sum() / weights.sum().clamp(min=1e-6)


@dataclass(frozen=True)
class _Foreground:
    """Foreground cells, shape (m, 4), with labels (m,), box codes (m, box_dim) and loss weights (m,)."""

    index: Tensor
    labels: Tensor
    codes: Tensor
    weights: Tensor


class DetectionLoss(nn.Module):
    """The three losses times their weights w, each divided by its running mean v if `LossOptions.window` is set.

    The recent values of the losses and the weights of classes are buffers and thus part of checkpoints.

    Args:
        options: options of the losses.
        groups: energy channel of every label, shape (1 + classes,).
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
        """Compute the weighted losses "energy", "class" and "box"; their sum is minimised."""
        raw = self.raw(predictions, maps)
        means = self._means(raw) if self.options.window else raw.new_ones(len(TERMS))
        weighted = raw / means * raw.new_tensor(self.options.weights)
        return dict(zip(TERMS, weighted.unbind(), strict=True))

    def raw(self, predictions: MapPredictions, maps: Maps) -> Tensor:
        """Compute the losses of energy, class and box without weights and normalisation, shape (3,)."""
        foreground = self._foreground(maps)
        logits, codes = predictions.read(foreground.index)
        group = foreground.index[:, 1]
        by_class = class_loss(logits, foreground.labels, group, self.groups, foreground.weights, self.class_weights)
        by_box = box_loss(codes, foreground.codes, foreground.weights, self.options)
        if self.options.giou:
            cells = foreground.index
            giou = generalized_iou(
                decode_boxes(codes, cells, maps.options), decode_boxes(foreground.codes, cells, maps.options)
            )
            total = foreground.weights.sum().clamp(min=1e-6)
            by_box = by_box + self.options.giou * ((1 - giou) * foreground.weights).sum() / total
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
        cells = tuple(index.unbind(1))
        weights = maps.energy[cells]
        if not self.options.by_energy:
            weights = torch.ones_like(weights)
        else:  # large objects have more cells; normalise to a total of 1 per object
            object_index = maps.object_index[cells]
            total = weights.new_zeros(len(maps.boxes)).index_add_(0, object_index, weights)
            weights = weights / total[object_index].clamp(min=1e-6)
        return _Foreground(index, labels, codes, weights)

    @torch.no_grad()
    def _means(self, raw: Tensor) -> Tensor:
        """Return v, the mean of each loss over the previous steps; in training, store the current losses, too."""
        means = self.recent.mean(1).clamp(min=1e-6)
        if self.training:
            finite = torch.where(raw.isfinite(), raw.detach(), means)
            self.recent.copy_(torch.cat([self.recent[:, 1:], finite[:, None]], 1))
        return means


def class_weights(counts: Tensor, bound: float) -> Tensor:
    """Compute weights of classes proportional to the inverse square root of their frequency, within bounds.

    The bounds keep single rare objects from dominating a step. The class of the median object has weight 1: half of all
    objects belong to classes that are at least as frequent.

    Args:
        counts: number of training objects of each class, shape (classes,); 0 is treated as 1.
        bound: the weights lie between 1 / bound and bound.

    Returns:
        Weights, shape (classes,), float32.

    Raises:
        ValueError: a count is negative, or the bound is below 1.
    """
    if bound < 1:
        raise ValueError(f"bound is {bound}; expected 1 or more")
    if counts.ndim != 1 or (counts < 0).any():
        raise ValueError(f"counts has shape {tuple(counts.shape)}; expected (classes,), none negative")
    frequency = counts.double().clamp(min=1)
    descending = frequency.sort(descending=True).values
    median = descending[int((descending.cumsum(0) < descending.sum() / 2).sum())]
    return (median / frequency).sqrt().clamp(1 / bound, bound).float()
