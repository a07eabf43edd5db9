from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tests.cluster.small import RECIPE, SIZES, SMALL, make

from entourage.cluster.task import ClusterTask, train_network


def state(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def test_a_network_learns_to_cluster() -> None:
    recipe = replace(RECIPE, steps=90, epoch=45, curriculum=replace(SIZES, sets=12, base_fraction=1.0))
    task = make(recipe)
    before = task.validate(task.model)
    _, result = train_network(task, device="cpu", progress=False)
    after = result.metrics
    assert result.steps == 90
    assert after["mr"] < 0.6 * before["mr"]
    assert after["mr"] < 0.15


def test_a_stopped_run_resumes_to_the_same_result(tmp_path: Path) -> None:
    complete, _ = train_network(make(), tmp_path / "complete", device="cpu", progress=False)
    task = make()

    class StopError(Exception):
        pass

    def stop(step: int) -> None:
        ClusterTask.after_step(task, step)
        if step == 5:
            raise StopError

    task.after_step = stop  # type: ignore[method-assign]
    with pytest.raises(StopError):
        train_network(task, tmp_path / "stopped", device="cpu", progress=False)
    resumed, result = train_network(make(), tmp_path / "stopped", device="cpu", progress=False)
    assert result.steps == 6
    assert torch.equal(state(resumed), state(complete))


def test_the_result_is_the_weight_average_if_enabled() -> None:
    task = make()
    network, _ = train_network(task, device="cpu", progress=False)
    assert network is not task.model
    assert not torch.equal(state(network), state(task.model))
    unaveraged = make(replace(RECIPE, average=0.0))
    assert train_network(unaveraged, device="cpu", progress=False)[0] is unaveraged.model


def test_the_metric_stays_semidefinite_during_training() -> None:
    task = make(replace(RECIPE, learning_rate=0.5, average=0.0), replace(SMALL, metric="diagonal", units=4))
    train_network(task, device="cpu", progress=False)
    a = task.model.clustering.metric.a  # type: ignore[union-attr]
    assert (a >= 0).all()
    assert not torch.equal(a, torch.ones(4))


def test_a_run_stopped_in_its_first_epoch_resumes_from_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entourage.cluster.task.CHECKPOINT_STEPS", 2)
    recipe = replace(RECIPE, steps=8, epoch=8)
    task, again, steps = make(recipe), make(recipe), []

    def stop(step: int) -> None:
        ClusterTask.after_step(task, step)
        if step == 5:
            raise KeyboardInterrupt

    def count(step: int) -> None:
        ClusterTask.after_step(again, step)
        steps.append(step)

    task.after_step, again.after_step = stop, count  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        train_network(task, tmp_path, device="cpu", progress=False)
    train_network(again, tmp_path, device="cpu", progress=False)
    assert steps == [5, 6, 7, 8]
