"""Cost, the whole way on toys."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from experiments.cells import Cell, run_experiment
from experiments.embed_cost import LOSSES, TURNS, cost_experiment, first_epoch_near_the_last
from experiments.embed_trials import Bench, add_options, setting_of
from experiments.ledger import Ledger

from entourage.embed.training.task import EmbeddingTask
from entourage.training import TrainingOptions
from experiments import embed_cost


def test_losses_take_turns_and_the_fastest_turn_counts(
    one_set: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, asked = iter(range(100, 0, -1)), []

    def seconds_per_step(
        task: EmbeddingTask, steps: Sequence[object], *_: object, steps_per_epoch: int, options: TrainingOptions
    ) -> float:
        recipe = one_set.setting.recipe
        assert (options.optimizer, options.learning_rate) == (recipe.optimizer, recipe.stages[-1].learning_rate)
        asked.append((type(task.model.loss), len(steps), steps_per_epoch))
        return next(times)

    monkeypatch.setattr(embed_cost, "seconds_per_step", seconds_per_step)
    monkeypatch.setattr(embed_cost, "STEPS", 1)
    ledger = run_experiment(cost_experiment(one_set), tmp_path, verbose=False)
    steps = asked[0][2]
    assert [kind for kind, _, _ in asked[:4]] == [kind for kind, _, _ in asked[4:8]]
    assert {(tried, epoch) for _, tried, epoch in asked} == {(1, steps)}
    timed = ledger.values("cub200/seconds an epoch, cpu")
    last = 100 - (TURNS - 1) * len(LOSSES)  # of the first loss, its fastest
    assert timed == {
        name: {"seconds": steps * (last - torch_device)} for torch_device, name in enumerate(LOSSES)
    }  # no memory: the
    # peak of a program never falls, and would be another loss'
    page = (tmp_path / "embed_cost.md").read_text()
    assert "| loss | seconds per epoch, CPU | epochs to 95 % | final Recall@1 |" in page
    assert f"| proxy-nca | {steps * (last - 3):.1f} |" in page
    assert "Seconds per epoch are extrapolated from trials of at most 1 steps or 8 s." in page


def test_time_is_that_of_an_epoch(one_set: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []

    def seconds_per_step(
        task: EmbeddingTask,
        steps: Sequence[object],
        torch_device: torch.device,
        *_: object,
        steps_per_epoch: int,
        **__: object,
    ) -> float:
        tried.append((len(task.plan(0)), torch_device.type))
        return 0.5

    monkeypatch.setattr(embed_cost, "seconds_per_step", seconds_per_step)
    timed = embed_cost._time(one_set, "cub200", "proxy-nca")
    steps = tried[0][0]
    assert steps == 3  # 64 images, 20 in a batch
    assert timed == {"seconds": 0.5 * steps}
    assert tried == [(steps, "cpu")]


def test_memory_is_that_of_the_device_that_is_used(one_set: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    second, asked = torch.device("cuda", 1), []
    monkeypatch.setattr(embed_cost, "resolve_device", lambda device: second)
    monkeypatch.setattr(embed_cost, "seconds_per_step", lambda *_, **__: 0.5)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device=None: asked.append(device))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device=None: 2**31 if device == second else 0)
    assert embed_cost._time(one_set, "cub200", "proxy-nca")["gigabytes"] == 2.0
    assert asked == [second]


def test_memory_is_shown_with_what_it_includes_and_a_loss_that_joined_later_without(
    one_set: Bench, tmp_path: Path
) -> None:
    ledger = Ledger("toy", tmp_path, {})
    ledger.add("cub200/seconds an epoch, cuda", {LOSSES[0]: {"seconds": 1.5, "gigabytes": 2.0}}, 1.0)
    (shown,) = cost_experiment(one_set).tables(ledger)
    assert shown.rows == [
        ("loss", "seconds per epoch, GPU", "peak memory, GB"),
        (LOSSES[0], "1.50", "2.00"),
        *((name, "", "") for name in LOSSES[1:]),
    ]
    assert shown.note.startswith("Memory includes the images")
    other = Ledger("other", tmp_path, {})
    other.add("cub200/seconds an epoch, cpu", {LOSSES[0]: {"seconds": 1.5}}, 1.0)
    assert [one.note for one in cost_experiment(one_set).tables(other)] == [""]


@pytest.mark.parametrize(("device", "minutes"), [("cuda", 4.0), ("cpu", 10.0)])
def test_what_the_documentation_says_fits_into_its_time(
    device: str, minutes: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embed_cost, "resolve_device", lambda _: torch.device(device))
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="auto")
    add_options(parser, epochs=8)
    experiment = cost_experiment(Bench(setting_of(parser.parse_args([]))))
    clock = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: clock[0])

    def passing(cell: Cell) -> Cell:
        def work(ledger: Ledger) -> dict[str, dict[str, float]]:
            clock[0] += cell.seconds
            return {}

        return replace(cell, work=work)

    experiment = replace(experiment, cells=[passing(cell) for cell in experiment.cells], tables=lambda ledger: [])
    keys = set(run_experiment(experiment, tmp_path, minutes=minutes, verbose=False).rows)
    times = {f"{dataset}/seconds an epoch, {device}" for dataset in ("cub200", "cars196")}
    assert times <= keys
    assert len(keys - times) == (2 if device == "cuda" else 0)  # courses


def test_nearly_the_last_is_the_first_epoch_that_comes_close() -> None:
    assert first_epoch_near_the_last([0.1, 0.48, 0.6, 0.5]) == 1  # epoch 0: frozen backbone
    assert first_epoch_near_the_last([0.1, 0.2, 0.5]) == 2
    assert first_epoch_near_the_last([0.5, 0.4, 0.5]) == 0


def test_epochs_of_a_course_are_those_of_the_backbone(one_set: Bench, tmp_path: Path) -> None:
    ledger = Ledger("toy", tmp_path, {})
    ledger.add(f"cub200/{LOSSES[0]}/course", {"test": [0.3, 0.4, 0.5]}, 1.0)
    experiment = cost_experiment(one_set)
    (shown,) = experiment.tables(ledger)
    assert shown.rows[1] == (LOSSES[0], "2", "50.0")
    assert "epoch 0 is the one before" in experiment.note
