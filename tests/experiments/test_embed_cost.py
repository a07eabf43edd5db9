"""Cost, the whole way on toys."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from experiments.cells import run_experiment
from experiments.embed_cost import LOSSES, cost_experiment, first_epoch_near_the_last
from experiments.embed_trials import Bench

from entourage.embed.training import EmbeddingTask
from experiments import embed_cost


def test_losses_take_turns_and_the_fastest_turn_counts(
    one_set: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    times, asked = iter(range(100, 0, -1)), []

    def seconds_a_step(task: EmbeddingTask, steps: Sequence[object], *given: object, epoch: int) -> float:
        asked.append((type(task.model.loss), len(steps), epoch))
        return next(times)

    monkeypatch.setattr(embed_cost, "seconds_a_step", seconds_a_step)
    monkeypatch.setattr(embed_cost, "STEPS", 1)
    ledger = run_experiment(cost_experiment(one_set), tmp_path, say=False)
    steps = asked[0][2]
    assert [kind for kind, _, _ in asked[:4]] == [kind for kind, _, _ in asked[4:8]]
    assert {(tried, epoch) for _, tried, epoch in asked} == {(1, steps)}
    timed = ledger.values("cub200/seconds an epoch, cpu")
    assert timed == {name: {"seconds": steps * (92 - place)} for place, name in enumerate(LOSSES)}  # no memory: the
    # peak of a program never falls, and would be another loss'
    page = (tmp_path / "embed_cost.md").read_text()
    assert "| loss | seconds an epoch, CPU | epochs to 95 % | Recall@1 at the last |" in page
    assert f"| proxy-nca | {steps * 89:.1f} |" in page


def test_time_is_that_of_an_epoch(one_set: Bench) -> None:
    timed = embed_cost._time(one_set, "cub200", "proxy-nca")
    assert timed.keys() == {"seconds"}
    assert timed["seconds"] > 0


def test_nearly_the_last_is_the_first_epoch_that_comes_close() -> None:
    assert first_epoch_near_the_last([0.1, 0.48, 0.6, 0.5]) == 2
    assert first_epoch_near_the_last([0.1, 0.2, 0.5]) == 3
