"""Baselines on a stand-in of torchvision, and on torchvision where it is installed."""

from __future__ import annotations

import copy
import sys
from pathlib import Path

import pytest
import torch
from experiments.detect_baseline_models import (
    BASELINES,
    MAX_DETECTIONS,
    MIN_SCORE,
    N_CANDIDATES,
    N_PROPOSALS,
    RATIOS,
    SIZES,
    STRIDES,
    Float32Output,
    make_baseline,
    need_torchvision,
)
from tests.experiments.stand_in_torchvision import AnchorGenerator, modules
from torch import Tensor, nn


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, module in modules().items():
        monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", BASELINES)
def test_pages_keep_their_size_in_training_and_in_evaluation_and_paper_is_0(name: str) -> None:
    model = make_baseline(name, 5)
    page = torch.rand(3, 947, 30)
    for _ in range(2):
        model.train(not model.training)
        assert model.transform.resize(page, None)[0] is page  # type: ignore[union-attr,operator]
    assert model.transform.image_mean == [0.0] * 3  # type: ignore[union-attr]


@pytest.mark.usefixtures("stand_in")
def test_nothing_is_capped_below_what_a_page_holds() -> None:
    first = make_baseline("faster-rcnn", 5)
    assert first.roi_heads.detections_per_img == MAX_DETECTIONS  # type: ignore[union-attr]
    assert first.rpn.kept == N_PROPOSALS  # type: ignore[union-attr]
    for name in ("retinanet", "fcos"):
        model = make_baseline(name, 5)
        assert (model.detections_per_img, model.topk_candidates, model.score_thresh) == (
            MAX_DETECTIONS,
            N_CANDIDATES,
            MIN_SCORE,
        )


@pytest.mark.usefixtures("stand_in")
def test_heads_fit_the_anchors_and_the_classes_with_the_background() -> None:
    places = len(SIZES[0]) * len(RATIOS)
    rpn = make_baseline("faster-rcnn", 5).rpn
    assert rpn.anchor_generator.num_anchors_per_location() == [places] * 5  # type: ignore[union-attr,operator]
    assert (rpn.head.part.num_anchors, rpn.head.part.conv_depth) == (places, 2)  # type: ignore[union-attr]
    retinanet = make_baseline("retinanet", 5)
    assert retinanet.anchor_generator.num_anchors_per_location() == [places] * 5  # type: ignore[union-attr,operator]
    head = retinanet.head.part  # type: ignore[union-attr]
    assert (head.num_anchors, head.num_classes) == (places, 6)  # type: ignore[union-attr]
    assert head.regression_head._loss_type == "giou"  # type: ignore[union-attr]
    fcos = make_baseline("fcos", 5)
    assert fcos.anchor_generator.num_anchors_per_location() == [1] * 5  # type: ignore[union-attr,operator]
    assert fcos.anchor_generator.sizes == tuple((stride,) for stride in STRIDES)  # type: ignore[union-attr]
    assert (fcos.head.part.regression_head.bbox_reg.bias == 1).all()  # type: ignore[union-attr]
    for model in (retinanet, fcos):
        assert model.backbone.part.layers == (1, 2, 3, 4)  # type: ignore[union-attr]


def test_no_anchor_is_empty_and_symbols_of_all_sizes_have_one() -> None:
    anchors = AnchorGenerator(SIZES, (RATIOS,) * len(SIZES))
    cells = torch.cat([anchors.cells(level) for level in range(len(SIZES))])
    sides = cells[:, 2:] - cells[:, :2]
    assert (sides >= 2).all()
    # Dot, head, stem, ledger line, bar line, clef, slur and staff, at the interline 10.
    symbols = [(4, 4), (12, 10), (1.3, 35), (16, 1.6), (2, 41), (26, 70), (300, 20), (890, 41)]
    for wide, high in symbols:
        common = sides[:, 0].clamp(max=wide) * sides[:, 1].clamp(max=high)
        assert (common / (wide * high + sides.prod(1) - common)).max() > 0.4


@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("name", BASELINES)
def test_maps_and_heads_give_float32_where_the_loop_computes_in_bfloat16_also_in_a_copy(name: str) -> None:
    for model in (made := make_baseline(name, 5), copy.deepcopy(made)):
        with torch.autocast("cpu", torch.bfloat16):
            maps = model.backbone(torch.rand(1, 3, 8, 8))  # type: ignore[operator]
            assert {value.dtype for value in maps.values()} == {torch.float32}
            head = model.rpn.head if name == "faster-rcnn" else model.head  # type: ignore[union-attr]
            found = head(list(maps.values()))  # type: ignore[operator]
        outcome = found[0][0] if name == "faster-rcnn" else found["cls_logits"]
        assert outcome.dtype == torch.float32
        outcome.sum().backward()
        assert all(one.grad is not None for one in model.backbone.parameters())  # type: ignore[union-attr]
        if name != "faster-rcnn":
            assert set(head.compute_loss([], found)) == {"classification"}  # type: ignore[operator]


def test_a_precise_part_keeps_the_shape_of_what_is_given_back() -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> tuple[list[Tensor], dict[str, Tensor]]:
            return [x.half()], {"a": x.half()}

    (one,), two = Float32Output(Odd())(torch.ones(2))
    assert one.dtype == two["a"].dtype == torch.float32


def test_baselines_have_a_name_and_need_torchvision(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'yolo' is unknown; expected one of faster-rcnn, retinanet, fcos"):
        make_baseline("yolo", 3)
    monkeypatch.setitem(sys.modules, "torchvision", None)
    monkeypatch.setitem(sys.modules, "torchvision.models.detection", None)
    with pytest.raises(ValueError, match="torchvision: cannot be imported; expected"):
        make_baseline("fcos", 3)


def test_a_torchvision_that_does_not_fit_torch_is_reported_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "torchvision").mkdir()
    (tmp_path / "torchvision" / "__init__.py").write_text("raise RuntimeError('operator nms\\ndoes not exist')")
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ValueError, match=r"torchvision: .*expected a version for torch \S+: operator nms does not exist"
    ):
        need_torchvision()


@pytest.mark.parametrize("name", BASELINES)
def test_torchvision_models_train_and_detect(name: str) -> None:
    pytest.importorskip("torchvision")
    torch.manual_seed(0)
    model = make_baseline(name, 4)
    seen: list[torch.Size] = []
    model.backbone.register_forward_pre_hook(lambda _, given: seen.append(given[0].shape))  # type: ignore[union-attr]
    boxes = torch.tensor([[10.0, 12.0, 14.0, 16.0], [40.0, 20.0, 41.3, 55.0], [5.0, 30.0, 120.0, 71.0]])
    full = {"boxes": boxes, "labels": torch.tensor([1, 2, 4])}
    empty = {"boxes": torch.zeros(0, 4), "labels": torch.zeros(0, dtype=torch.int64)}
    with torch.autocast("cpu", torch.bfloat16):
        losses = model(list(torch.rand(2, 3, 96, 128)), [full, empty])
    total = torch.stack(list(losses.values())).sum()
    assert total.isfinite()
    total.backward()
    assert all(one.grad is not None and one.grad.isfinite().all() for one in model.parameters())
    model.eval()
    with torch.inference_mode():
        (found,) = model([torch.rand(3, 100, 150)])
    assert [tuple(shape[2:]) for shape in seen] == [(96, 128), (128, 160)]  # padded to whole cells, and no more
    assert found["boxes"].dtype == torch.float32
    assert found["boxes"].shape == (len(found["labels"]), 4)
