from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from entourage.detect.detections import energy_channels
from entourage.detect.models.losses import (
    TERMS,
    DetectionLoss,
    bce_energy,
    box_loss,
    class_loss,
    focal_energy,
    generalized_iou,
    level_energy,
)
from entourage.detect.models.maps import Maps, render_targets
from entourage.detect.models.network import MapPredictions, WatershedNetwork
from entourage.detect.options import DetectorOptions, LossOptions, preset

CLASSES = ("dot", "clef", "stem", "beam")


def surfaces(seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(2, 3, 4, 5, generator=generator)
    target = torch.rand(2, 3, 4, 5, generator=generator)
    target[target > 0.8] = 1.0
    valid = torch.rand(2, 4, 5, generator=generator) > 0.3
    return logits, target, valid


def test_focal_loss_and_its_gradient_equal_a_loop_over_cells() -> None:
    logits, target, valid = surfaces()
    first, second = logits.clone().requires_grad_(), logits.clone().requires_grad_()
    total, centres = torch.zeros(()), 0
    for b, g, y, x in torch.cartesian_prod(*(torch.arange(size) for size in target.shape)).tolist():
        if not valid[b, y, x]:
            continue
        p, e = second[b, g, y, x].sigmoid(), float(target[b, g, y, x])
        if e == 1:
            centres += 1
            total = total - (1 - p) ** 2 * p.log()
        else:
            total = total - (1 - e) ** 4 * p**2 * (1 - p).log()
    loss = focal_energy(first, target, valid)
    torch.testing.assert_close(loss, total / centres)
    loss.backward()
    (total / centres).backward()
    torch.testing.assert_close(first.grad, second.grad)


def test_focal_loss_of_an_empty_page_and_of_extreme_logits_is_finite() -> None:
    logits = torch.tensor([-200.0, 200.0]).view(1, 1, 1, 2)
    assert focal_energy(logits, torch.zeros(1, 1, 1, 2), torch.ones(1, 1, 2).bool()).item() == pytest.approx(200.0)
    right = focal_energy(logits, torch.tensor([0.0, 1.0]).view(1, 1, 1, 2), torch.ones(1, 1, 2).bool())
    assert right.item() == pytest.approx(0.0)


def test_cross_entropies_are_means_over_valid_cells() -> None:
    logits, target, valid = surfaces()
    p = logits.sigmoid()
    per_cell = -(target * p.log() + (1 - target) * (1 - p).log())
    mask = valid[:, None].expand_as(per_cell)
    torch.testing.assert_close(bce_energy(logits, target, valid), per_cell[mask].mean())
    levels = torch.randint(0, 3, (2, 1, 4, 5), generator=torch.Generator().manual_seed(1))
    per_cell = -logits.log_softmax(1).gather(1, levels)[:, 0]
    torch.testing.assert_close(level_energy(logits, levels, valid), per_cell[valid].mean())
    assert level_energy(logits, levels, torch.zeros_like(valid)) == 0


def test_class_loss_is_restricted_to_the_classes_of_the_group() -> None:
    groups = torch.tensor([0, 0, 0, 1, 1])
    logits = torch.tensor([[1.0, 2.0, 50.0, 50.0], [50.0, 50.0, 0.0, 1.0]], requires_grad=True)
    weights, by_class = torch.tensor([1.0, 3.0]), torch.tensor([2.0, 1.0, 1.0, 1.0])
    loss = class_loss(logits, torch.tensor([1, 4]), torch.tensor([0, 1]), groups, weights, by_class)
    first, second = math.log(1 + math.e), math.log(1 + math.exp(-1))
    assert loss.item() == pytest.approx((2 * first + 3 * second) / 5)
    loss.backward()
    assert logits.grad is not None
    assert logits.grad[0, 2:].tolist() == [0, 0]
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([0, 0, 2, 2], [0, 0, 2, 2], 1.0),
        ([0, 0, 2, 2], [1, 0, 3, 2], 1 / 3),
        ([0, 0, 1, 1], [2, 0, 3, 1], -1 / 3),
        ([0, 0, 2, 2], [0, 0, 1, 1], 0.25),
    ],
)
def test_generalized_iou(first: list[float], second: list[float], expected: float) -> None:
    value = generalized_iou(torch.tensor([first]).float(), torch.tensor([second]).float())
    assert value.item() == pytest.approx(expected)


def test_box_loss_is_weighted() -> None:
    codes, target = torch.tensor([[1.0, 2.0], [0.0, 0.0]]), torch.tensor([[0.0, 0.0], [0.0, 4.0]])
    weights = torch.tensor([3.0, 1.0])
    squared = box_loss(codes, target, weights, LossOptions(box="squared"))
    assert squared.item() == pytest.approx((3 * 2.5 + 8) / 4)
    smooth = box_loss(codes, target, weights, LossOptions(box="smooth", rounding=0.05))
    assert smooth.item() == pytest.approx((3 * 1.475 + (4 - 0.025) / 2) / 4)


def scene(options: DetectorOptions) -> tuple[MapPredictions, Maps, Tensor]:
    torch.manual_seed(0)
    groups = energy_channels(CLASSES, options.maps.groups)
    boxes = torch.tensor([[4.0, 4.0, 14.0, 14.0], [20.0, 2.0, 21.3, 40.0], [10.0, 30.0, 60.0, 36.0]])
    maps = render_targets(boxes, torch.tensor([1, 3, 4]), torch.tensor([0, 0, 1]), (2, 48, 64), options.maps, groups)
    return WatershedNetwork(len(CLASSES), options)(torch.rand(2, 1, 48, 64)), maps, groups


def test_all_parameters_of_the_head_have_gradients(tiny: DetectorOptions) -> None:
    predictions, maps, groups = scene(tiny)
    losses = DetectionLoss(tiny.loss, groups)(predictions, maps)
    assert tuple(losses) == TERMS
    sum(losses.values(), torch.zeros(())).backward()
    without_gradient = [name for name, value in predictions.head.named_parameters() if value.grad is None]
    assert without_gradient == []
    assert all(float(value.detach()) > 0 for value in losses.values())


def test_objects_of_any_size_have_the_same_weight(tiny: DetectorOptions) -> None:
    _, maps, groups = scene(tiny)
    foreground = DetectionLoss(tiny.loss, groups)._foreground(maps)
    object_index = maps.object_index[tuple(foreground.index.unbind(1))]
    totals = torch.zeros(3).index_add_(0, object_index, foreground.weights)
    torch.testing.assert_close(totals, torch.ones(3))
    assert object_index.bincount()[2] > object_index.bincount()[0]


def test_losses_are_divided_by_running_means_which_checkpoints_contain(tiny: DetectorOptions) -> None:
    options = replace(tiny.loss, window=2, weights=(2.0, 1.0, 1.0))
    predictions, maps, groups = scene(tiny)
    module = DetectionLoss(options, groups)
    raw = module.raw(predictions, maps).detach()
    first = torch.stack(list(module(predictions, maps).values())).detach()
    second = torch.stack(list(module(predictions, maps).values())).detach()
    third = torch.stack(list(module(predictions, maps).values())).detach()
    weights = torch.tensor([2.0, 1.0, 1.0])
    torch.testing.assert_close(first, raw * weights)  # means start at 1
    torch.testing.assert_close(second, raw / ((1 + raw) / 2) * weights)
    torch.testing.assert_close(third, weights)  # the loss divided by itself
    other = DetectionLoss(options, groups)
    other.load_state_dict(module.state_dict())
    assert torch.equal(other.recent, module.recent)
    module.eval()
    before = module.recent.clone()
    module(predictions, maps)
    assert torch.equal(module.recent, before)


def test_pages_without_objects_have_finite_losses(tiny: DetectorOptions) -> None:
    predictions, _, groups = scene(tiny)
    empty = torch.zeros(0, 4), torch.zeros(0).long(), torch.zeros(0).long()
    maps = render_targets(*empty, (2, 48, 64), tiny.maps, groups)
    module = DetectionLoss(replace(tiny.loss, window=5), groups)
    for _ in range(8):  # the means of class and box go to zero
        losses = module(predictions, maps)
    assert all(torch.isfinite(value) for value in losses.values())
    assert losses["class"] == losses["box"] == 0


def test_losses_of_the_thesis() -> None:
    options = preset("thesis")
    options = replace(options, network=replace(options.network, encoder="resnet18", filters=8))
    predictions, maps, groups = scene(options)
    module = DetectionLoss(options.loss, groups)
    raw = module.raw(predictions, maps)
    torch.testing.assert_close(raw[0], level_energy(predictions.energy, maps.levels(), maps.valid))
    index = maps.foreground_cells()
    _, codes = predictions.read(index)
    torch.testing.assert_close(raw[2], (codes - maps.targets(index)[1]).square().mean())
