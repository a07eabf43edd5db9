"""torchvision's detectors as baselines: targets, training and detections."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.detect_baselines import (
    DECAY,
    PARTS,
    RATE,
    BaselineDetector,
    BaselineLossModule,
    add_truncated_symbols,
    baseline_recipe,
    load_matching_weights,
)
from tests.detect.engraved import write_engraved
from tests.detect.small import RECIPE, small_data
from tests.detect.synthetic import staff_page

from entourage.detect.evaluation.ground_truth import class_names, read_ground_truth
from entourage.detect.training.task import Recipe, WindowSample, make_batch
from entourage.detect.training.task import WindowBatch as Batch
from entourage.detect.training.windows import WindowOptions, WindowSampler, pack_pages
from entourage.training import TrainingOptions
from experiments import detect_baselines


def test_a_baseline_gets_the_boxes_inside_each_window(tmp_path: Path) -> None:
    _, pack = small_data(tmp_path / "data")
    given: dict[str, list[object]] = {}

    class Fake(torch.nn.Module):
        def forward(
            self, images: list[torch.Tensor], targets: list[dict[str, torch.Tensor]]
        ) -> dict[str, torch.Tensor]:
            given["images"], given["targets"] = list(images), list(targets)
            return {"a": torch.tensor(1.0), "b": torch.tensor(2.0)}

    windows = WindowSampler(pack, WindowOptions(height=64, width=128)).sample(3, np.random.default_rng(0))
    batch = make_batch(WindowSample(windows), pack.pixels, 64, 128, None)
    assert set(BaselineLossModule(Fake())(batch)) == {"a", "b"}
    assert [image.shape for image in given["images"]] == [(3, 64, 128)] * 3  # type: ignore[attr-defined]
    assert sum(len(target["labels"]) for target in given["targets"]) == len(batch.labels)  # type: ignore[index]
    for target in given["targets"]:
        boxes = target["boxes"]  # type: ignore[index]
        assert (boxes[:, 2:] > boxes[:, :2]).all()
        assert (boxes[:, :2] >= 0).all()
        assert (boxes[:, 2] <= 128.2).all()


def test_ignored_regions_are_paper_for_a_baseline() -> None:
    class Fake(torch.nn.Module):
        def forward(self, pages: list[torch.Tensor], _: object) -> dict[str, torch.Tensor]:
            assert [page.shape for page in pages] == [(3, 8, 8)] * 2
            return {"ink": torch.stack([page.sum() for page in pages])}

    ignore = torch.zeros(2, 8, 8, dtype=torch.bool)
    ignore[1, :2] = True
    none = torch.zeros(0, dtype=torch.int64)
    batch = Batch(torch.ones(2, 1, 8, 8), torch.zeros(0, 4), none, none, ignore)
    assert BaselineLossModule(Fake())(batch)["ink"].tolist() == [3 * 64, 3 * 48]


def test_a_baseline_gets_the_visible_parts_of_truncated_symbols(tmp_path: Path) -> None:
    rows = [
        ("staff", "", 40, 120, 440, 202),
        ("restQuarter", "restQuarter", 96, 60, 116, 116),  # its centre is inside
        ("flag8thUp", "flag8thUp", 30, 60, 90, 90),  # half of it is beyond, and its centre too
        ("restQuarter", "restQuarter", 60, 60, 82, 116),  # a sliver of a pixel reaches in
        ("restQuarter", "restQuarter", 20, 60, 40, 116),  # beyond
    ]
    pages = read_ground_truth(write_engraved(tmp_path / "data", [("other", "train", rows[1:2]), ("p", "train", rows)]))
    pack = pack_pages(pages, class_names(pages), workers=1, progress=False)
    window = WindowOptions(height=64, width=128)
    corner = np.array([[40.0, 20.0]])  # on a page of half the size
    windows = WindowSampler(pack, window).cut(np.array([1]), corner, np.ones((1, 2)))
    before = [pack.classes[label - 1] for label in windows.labels.tolist()]
    assert before == ["restQuarter"]  # of the staff, whose centre is inside, too little can be seen
    parts = add_truncated_symbols(windows, pack, window)
    assert [pack.classes[label - 1] for label in parts.labels.tolist()] == [*before, "flag8thUp"]
    assert parts.boxes[-1].tolist() == [0, 10, 5, 25]
    assert parts.image.tolist() == [0, 0]
    empty = WindowSampler(pack, window).cut(np.array([1]), np.array([[150.0, 20.0]]), np.ones((1, 2)))
    assert empty.boxes.shape == (0, 4)
    assert add_truncated_symbols(empty, pack, window).boxes.tolist() == [
        [0, 40, 70, 64]
    ]  # of the staff, what can be seen


def test_weights_with_equal_shapes_are_copied_to_another_number_of_classes() -> None:
    torch.manual_seed(0)
    old, new = (torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Linear(4, classes)) for classes in (5, 2))
    head = new[1].weight.clone()
    load_matching_weights(new, old)
    assert torch.equal(new[0].weight, old[0].weight)
    assert torch.equal(new[1].weight, head)


def test_baselines_have_the_schedule_and_batch_of_the_detector_and_another_rate() -> None:
    own, other = Recipe(), baseline_recipe(Recipe())
    assert (other.batch, other.warmup, other.schedule, other.average) == (own.batch, own.warmup, "cosine", own.average)
    assert (other.learning_rate, other.weight_decay, other.optimizer) == (RATE, DECAY, "adamw")
    options = replace(other, steps=2000).training_options()
    assert (options.schedule, options.warmup_steps, options.learning_rate) == ("cosine", 300, RATE)


def test_a_baseline_is_trained_for_the_time_and_detects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, pack = small_data(tmp_path / "data")

    class Tiny(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = torch.nn.Parameter(torch.zeros(()))

        def forward(self, images: list[torch.Tensor], targets: object = None) -> object:
            if self.training:
                assert len(images) == recipe.batch // PARTS
                return {"a": (self.weight - 1).square(), "b": self.weight * 0}
            boxes = torch.tensor([[10.0, 10.0, 20.0, 20.0], [30.0, 10.0, 40.0, 20.0]])
            return [{"boxes": boxes, "labels": torch.tensor([0, 1]), "scores": torch.tensor([0.9, 0.8])}]

    monkeypatch.setattr(detect_baselines, "make_baseline", lambda name, classes: Tiny())
    recipe = replace(RECIPE, validation=0, batch=4)
    baseline, known = detect_baselines.train_baseline("tiny", pack, recipe, 0.005, tmp_path / "run", "cpu")
    assert known["steps"] >= 2
    assert baseline.model.weight > 0  # type: ignore[operator]
    found = baseline.detect(staff_page())
    assert found.names == [pack.classes[0]]  # what is background is left out


def test_windows_that_are_no_multiple_of_the_parts_are_seen_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, pack = small_data(tmp_path / "data")
    seen: list[tuple[int, int]] = []

    def record(task: detect_baselines.BaselineTask, options: TrainingOptions, *_: object, **__: object) -> None:
        windows = task.load(0, np.random.default_rng(0)).windows
        seen.append((len(windows.start) * options.accumulate, len(task.plan(1)) // options.accumulate))
        raise StopIteration

    monkeypatch.setattr(detect_baselines, "make_baseline", lambda name, classes: torch.nn.Linear(1, 1))
    monkeypatch.setattr(detect_baselines, "steps_in_budget", lambda *_, **__: 5)
    monkeypatch.setattr(detect_baselines, "train", record)
    for batch in (3, 4):
        recipe = replace(RECIPE, validation=0, batch=batch)
        with pytest.raises(StopIteration):
            detect_baselines.train_baseline("tiny", pack, recipe, 1.0, tmp_path / str(batch), "cpu")
    assert seen == [(3, RECIPE.epoch), (4, RECIPE.epoch)]  # windows a step, and steps an epoch


def test_boxes_of_a_baseline_are_mapped_to_the_page_and_refined() -> None:
    page = staff_page()
    page[20:29, 100:108] = 0  # a dot above the staff
    exact = [100.0, 20.0, 108.0, 29.0]

    class Fixed(torch.nn.Module):
        def forward(self, pages: list[torch.Tensor]) -> list[dict[str, torch.Tensor]]:
            off = torch.tensor([[0.3, -0.2, -0.3, 0.2]])
            scale = pages[0].shape[-1] / page.shape[1]
            found = torch.tensor([exact]) * scale + off
            return [{"boxes": found, "labels": torch.tensor([1]), "scores": torch.tensor([0.9])}]

    found = BaselineDetector(Fixed(), ("augmentationDot",), "cpu").detect(page)
    assert found.boxes.tolist() == [exact]
    assert len(BaselineDetector(Fixed(), ("augmentationDot",), "cpu").detect(np.full_like(page, 255))) == 0
