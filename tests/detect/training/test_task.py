from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.detect.small import PLAIN, RECIPE, small_data, small_detector

from entourage.detect.training.task import DetectionTask, mean_precision
from entourage.detect.training.windows import WindowOptions
from entourage.training import train


def make(folder: Path, recipe=RECIPE, **arguments) -> DetectionTask:  # type: ignore[no-untyped-def]
    validation, pack = small_data(folder)
    return DetectionTask(small_detector(pack.classes), pack, validation, recipe, **arguments)


def test_training_reduces_the_losses_and_detects_symbols(tmp_path: Path) -> None:
    recipe = replace(PLAIN, steps=80, batch=4, epoch=80, average=0.9, learning_rate=1e-2, warmup=10)
    lines: list[str] = []
    task = make(tmp_path / "data", recipe, log=lines.append)
    rng = np.random.default_rng(0)
    batch = task.load(0, rng)
    before = float(task.loss(task.model.eval(), batch, 0)["loss"].detach())
    result = train(task, recipe.training_options(), None, device="cpu", progress=False)
    after = float(task.loss(task.model.eval(), batch, 0)["loss"].detach())
    assert after < before / 2
    assert result.metrics["ap50"] > 0.15  # untrained: 0
    assert lines == [f"step 80 of 80: map {result.metrics['map']:.3f}, ap50 {result.metrics['ap50']:.3f}"]
    assert not task.trained().training


def test_a_resumed_run_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    uninterrupted = make(tmp_path / "a")
    train(uninterrupted, RECIPE.training_options(), tmp_path / "whole", device="cpu", progress=False)
    interrupted = make(tmp_path / "b")
    interrupted.after_step = _stop_after(2, interrupted.after_step)  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train(interrupted, RECIPE.training_options(), tmp_path / "parts", device="cpu", progress=False)
    resumed = make(tmp_path / "c")
    train(resumed, RECIPE.training_options(), tmp_path / "parts", device="cpu", progress=False)
    for first, second in zip(uninterrupted.trained().parameters(), resumed.trained().parameters(), strict=True):
        assert torch.equal(first, second)


def _stop_after(steps: int, after_step_of_task):  # type: ignore[no-untyped-def]
    def after_step(step: int) -> None:
        after_step_of_task(step)
        if step > steps:
            raise KeyboardInterrupt

    return after_step


def test_only_the_given_terms_are_minimised(tmp_path: Path) -> None:
    task = make(tmp_path / "data", PLAIN, terms=("energy",))
    losses = task.loss(task.model, task.load(0, np.random.default_rng(0)), 0)
    assert float(losses["loss"].detach()) == float(losses["energy"])
    losses["loss"].backward()
    classes, energy = task.detector.network.head.classes.weight.grad, task.detector.network.energy.weight.grad
    assert classes is not None
    assert not classes.any()
    assert energy is not None
    assert energy.any()


def test_margins_without_rare_symbols_raise(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"pages: .* 1% .*; expected at least one"):
        make(tmp_path / "data", replace(RECIPE, margin=1, window=WindowOptions(height=64, width=128)))


def test_a_trial_copies_the_detector(tmp_path: Path) -> None:
    task = make(tmp_path / "data")
    trial = task.trial()
    assert trial.detector is not task.detector
    assert trial.pack is task.pack


def test_perfect_detections_have_a_precision_of_one(tmp_path: Path) -> None:
    validation, pack = small_data(tmp_path / "data")
    detector = small_detector(pack.classes)

    def objects(ink: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        assert ink.shape == (1, 1, 160, 240)
        rows = [row for row, name in enumerate(validation[0].labels) if name in pack.classes]
        labels = torch.tensor([pack.classes.index(validation[0].labels[row]) + 1 for row in rows])  # type: ignore[arg-type]
        boxes = torch.from_numpy(validation[0].boxes[rows] / 2)
        return [{"boxes": boxes, "labels": labels, "scores": torch.ones(len(rows))}]

    detector.objects = objects  # type: ignore[method-assign, assignment]
    means = mean_precision(detector, validation, torch.device("cpu"))
    assert means == {"map": pytest.approx(1.0), "ap50": pytest.approx(1.0)}


def test_different_classes_raise(tmp_path: Path) -> None:
    validation, pack = small_data(tmp_path / "data")
    with pytest.raises(ValueError, match="detector: 1 classes that are not those of the pages; expected the same"):
        DetectionTask(small_detector(("coda",)), pack, validation, RECIPE)


def test_recipes_differ_in_the_configuration(tmp_path: Path) -> None:
    assert make(tmp_path / "a").config() != make(tmp_path / "b", PLAIN).config()
