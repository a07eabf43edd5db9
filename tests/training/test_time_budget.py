from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from tests.training.runs import weights_of
from torch import Tensor, nn

from entourage.runs.directory import try_lock
from entourage.training import Task, TrainingOptions, train
from entourage.training.options import StepRecipe
from entourage.training.task import Losses
from entourage.training.time_budget import seconds_per_step, steps_in_budget

CPU = torch.device("cpu")
NO_WORKERS = TrainingOptions(workers=0)  # loads nothing ahead


class _Line(Task[int, torch.Tensor]):
    """Linear regression that counts the calls of its methods."""

    def __init__(self) -> None:
        self.model = nn.Linear(1, 1)
        self.loaded: list[int] = []
        self.validated = 0

    def plan(self, epoch: int) -> Sequence[int]:
        return range(4)

    def load(self, item: int, rng: np.random.Generator) -> torch.Tensor:
        self.loaded.append(item)
        return torch.from_numpy(rng.normal(size=(8, 1)).astype(np.float32))

    def loss(self, model: nn.Module, batch: torch.Tensor, step: int) -> Losses:
        return {"loss": (model(batch) - batch).square().mean()}

    def validate(self, model: nn.Module) -> dict[str, float]:
        assert not model.training
        self.validated += 1
        return {}


def test_steps_are_measured_once_and_stored(tmp_path: Path) -> None:
    task = _Line()
    steps = steps_in_budget(task, range(9), tmp_path, 10.0, "cpu", steps_per_epoch=10, options=NO_WORKERS)
    assert task.loaded == list(range(9))
    assert task.validated == 1
    plan = json.loads((tmp_path / "steps.json").read_text())
    assert plan["steps"] == steps == max(2, int(600 / plan["seconds a step"]))
    assert [path.name for path in tmp_path.iterdir()] == ["steps.json"]
    again = _Line()
    assert steps_in_budget(again, range(9), tmp_path, 10.0, "cpu", steps_per_epoch=10) == steps
    assert again.loaded == []


def test_zero_minutes_raise(tmp_path: Path) -> None:
    assert steps_in_budget(_Line(), range(3), None, 1e-9, "cpu", steps_per_epoch=1) == 2
    with pytest.raises(ValueError, match="minutes is 0; expected a number above 0"):
        steps_in_budget(_Line(), range(3), None, 0, "cpu", steps_per_epoch=1)


@pytest.mark.parametrize("count", [0, 1])
def test_trial_of_fewer_than_two_items_raises(count: int) -> None:
    with pytest.raises(ValueError, match=f"^items: {count} items; expected two or more"):
        seconds_per_step(_Line(), range(count), CPU, 1.0, steps_per_epoch=1)


def test_several_processes_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "1")
    steps_in_budget(_Line(), range(3), tmp_path, 1e-6, "cpu", steps_per_epoch=1)
    monkeypatch.setenv("WORLD_SIZE", "4")
    task = _Line()
    for run in (tmp_path, None):  # with a plan and without
        with pytest.raises(ValueError, match=r"^minutes is set for 4 processes; expected one process, or steps"):
            steps_in_budget(task, range(3), run, 1e-6, "cpu", steps_per_epoch=1)
    with pytest.raises(ValueError, match=r"minutes .* 4 processes; expected one process"):
        seconds_per_step(task, range(3), CPU, 1.0, steps_per_epoch=1)
    assert task.loaded == []


@pytest.mark.parametrize(
    "options",
    [
        TrainingOptions(learning_rate=0.05, clip_norm=0.1),
        TrainingOptions(learning_rate=0.05, optimizer="sgd", precision="bfloat16", accumulate=8, workers=0),
    ],
)
def test_trial_equals_the_training_loop(worker: ModuleType, options: TrainingOptions) -> None:
    items = np.arange(24).reshape(-1, 4)

    class Grouped(worker.Noisy):  # type: ignore[misc, name-defined]
        def plan(self, epoch: int) -> Sequence[Any]:
            return [*items] * options.accumulate  # one step each

        def parameter_groups(self) -> list[dict[str, Any]]:
            first, *others = self.model
            rest = [parameter for module in others for parameter in module.parameters()]
            return [{"params": first.parameters(), "lr_scale": 0.1}, {"params": rest}]

    trial, trained = Grouped(), Grouped()
    seconds_per_step(trial, items, CPU, 1e9, steps_per_epoch=1, seed=3, options=options)
    train(trained, replace(options, epochs=1, seed=3), device="cpu")
    assert trial.average.updates == trained.average.updates == 6
    for one, other in ((trial.model, trained.model), (trial.final_model(), trained.final_model())):
        assert torch.equal(weights_of(one), weights_of(other))


@dataclass(frozen=True, kw_only=True)
class _Recipe(StepRecipe):
    warmup: int = 0
    weight_decay: float = 0.0
    validation: int = 0
    epoch: int = 10


def test_trial_uses_the_recipe(worker: ModuleType) -> None:
    recipe = _Recipe(optimizer="sgd", schedule="constant", learning_rate=0.3)
    given = [recipe.training_options(), None, TrainingOptions()]
    trials = [worker.Noisy() for _ in given]
    for trial, options in zip(trials, given, strict=True):
        trial.recipe = recipe
        seconds_per_step(trial, np.arange(24).reshape(-1, 4), CPU, 1e9, steps_per_epoch=1, options=options)
    explicit, from_recipe, other = (weights_of(trial.model) for trial in trials)
    assert torch.equal(explicit, from_recipe)
    assert not torch.equal(explicit, other)


def test_trial_uses_autocast_and_threads(worker: ModuleType) -> None:
    seen, threads = set(), set()

    class Taught(worker.Noisy):  # type: ignore[misc, name-defined]
        def load(self, item: Any, rng: np.random.Generator) -> Any:
            threads.add(threading.current_thread() is threading.main_thread())
            return super().load(item, rng)

        def loss(self, model: nn.Module, batch: Any, step: int) -> dict[str, Tensor]:
            with self.autocast():
                seen.add(self.average.module(batch[0]).dtype)
            return dict(super().loss(model, batch, step))

    options = TrainingOptions(precision="bfloat16", workers=2)
    seconds_per_step(Taught(), np.arange(24).reshape(-1, 4), CPU, 1e9, steps_per_epoch=1, options=options)
    assert seen == {torch.bfloat16}
    assert threads == {False}


def test_plan_of_another_process_is_used(tmp_path: Path) -> None:
    plan = json.dumps({"steps": 7, "seconds a step": 9.0, "minutes": 1.0})

    class Late(_Line):
        def load(self, item: int, rng: np.random.Generator) -> torch.Tensor:
            (tmp_path / "steps.json").write_text(plan)
            return super().load(item, rng)

    assert steps_in_budget(Late(), range(3), tmp_path, 1.0, "cpu", steps_per_epoch=1) == 7
    assert (tmp_path / "steps.json").read_text() == plan


@pytest.mark.parametrize("ours", [True, False])
def test_plan_is_written_under_a_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ours: bool) -> None:
    plan = json.dumps({"steps": 7, "seconds a step": 9.0, "minutes": 1.0})

    @contextmanager
    def lock_after_other_process(target: Path) -> Iterator[bool]:
        assert target == tmp_path / "steps.json"
        target.write_text(plan)
        with try_lock(target) as mine:
            yield mine and ours

    monkeypatch.setattr("entourage.training.time_budget.try_lock", lock_after_other_process)
    assert steps_in_budget(_Line(), range(3), tmp_path, 1.0, "cpu", steps_per_epoch=1) == 7
    assert (tmp_path / "steps.json").read_text() == plan


def test_different_time_budget_raises(tmp_path: Path) -> None:
    steps = steps_in_budget(_Line(), range(3), tmp_path, 10.0, "cpu", steps_per_epoch=1)
    message = f"{tmp_path} holds a run with minutes 10 ({steps} steps), now 2.5"
    expected = f"{message}; resume it with the same configuration, or choose another folder"
    with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
        steps_in_budget(_Line(), range(3), tmp_path, 2.5, "cpu", steps_per_epoch=1)


@pytest.mark.parametrize(("minutes", "kept"), [(1.0, True), (1.004, True), (0.98, False), (1.02, False)])
def test_plan_of_an_earlier_version(tmp_path: Path, minutes: float, kept: bool) -> None:
    (tmp_path / "steps.json").write_text(json.dumps({"steps": 119, "seconds a step": 0.503}))  # 60 s / 0.503 s
    if kept:
        assert steps_in_budget(_Line(), range(3), tmp_path, minutes, "cpu", steps_per_epoch=1) == 119
    else:
        with pytest.raises(ValueError, match=r"holds a run with minutes 0\.9976\d+ \(119 steps\), now"):
            steps_in_budget(_Line(), range(3), tmp_path, minutes, "cpu", steps_per_epoch=1)


class _Clock:
    """Clock that advances only when a task adds seconds."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("entourage.training.time_budget.time", self)

    def perf_counter(self) -> float:
        return self.now


class _Slow(_Line):
    """Task with given durations of the first step, of the others, and of a validation."""

    def __init__(self, clock: _Clock, first: float, others: float, validation: float = 0.0) -> None:
        super().__init__()
        self.clock, self.first, self.others, self.validation = clock, first, others, validation

    def load(self, item: int, rng: np.random.Generator) -> torch.Tensor:
        self.clock.now += self.others if self.loaded else self.first
        return super().load(item, rng)

    def validate(self, model: nn.Module) -> dict[str, float]:
        self.clock.now += self.validation
        return super().validate(model)


@pytest.mark.parametrize(
    ("first", "others", "made"),
    [
        (1.0, 0.01, 48),  # fast enough for all steps of the trial
        (1.0, 0.5, 11),  # ends with the step that reaches 6 seconds, a tenth of a minute
        (30.0, 20.0, 2),  # one timed step after the first, of any duration
    ],
)
def test_trial_ends_after_a_tenth_of_the_budget(
    monkeypatch: pytest.MonkeyPatch, first: float, others: float, made: int
) -> None:
    task = _Slow(_Clock(monkeypatch), first, others, validation=5.0)
    steps = steps_in_budget(task, range(48), None, 1.0, "cpu", steps_per_epoch=100, options=NO_WORKERS)
    assert task.loaded == list(range(made))
    assert steps == int(60 / (others + 0.05))  # the first step is not timed
