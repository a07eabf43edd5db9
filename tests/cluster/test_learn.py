from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from entourage.cluster.constraints import ConstraintSampler
from entourage.cluster.curriculum import Curriculum, Draw
from entourage.cluster.episodes import Episode
from entourage.cluster.learn import ClusterTask, Recipe, evaluate, learn
from entourage.cluster.model import ClusterNetwork
from entourage.cluster.options import LossOptions, ModelOptions
from entourage.cluster.points import PointSampler

SMALL = ModelOptions(k_max=3, width=16, depth=2, heads=2, code=8, frequencies=8)
SIZES = Curriculum(home=24, home_k=3, home_share=0.5, least=12, most=30, sets=8, crowd=4)
RECIPE = Recipe(steps=6, curriculum=SIZES, warmup=2, validation=4, epoch=3, average=0.9, learning_rate=3e-3)
GAUSSIANS = PointSampler(3, kinds=(4, 5))


def make(recipe: Recipe = RECIPE, options: ModelOptions = SMALL, loss: LossOptions | None = None) -> ClusterTask:
    torch.manual_seed(0)
    return ClusterTask(ClusterNetwork((2,), options), GAUSSIANS, GAUSSIANS, loss or LossOptions(), recipe)


def state(network: torch.nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in network.parameters()])


def test_a_network_learns_to_cluster() -> None:
    recipe = replace(RECIPE, steps=90, epoch=45, curriculum=replace(SIZES, sets=12, home_share=1.0))
    task = make(recipe)
    before = task.validate(task.model)
    _, result = learn(task, device="cpu", progress=False)
    after = result.metrics
    assert result.steps == 90
    assert after["mr"] < 0.6 * before["mr"]
    assert after["mr"] < 0.15


def test_a_run_that_was_stopped_goes_on_to_the_same_end(tmp_path: Path) -> None:
    whole, _ = learn(make(), tmp_path / "whole", device="cpu", progress=False)
    task = make()

    class StopError(Exception):
        pass

    def stop(step: int) -> None:
        ClusterTask.after_step(task, step)
        if step == 5:
            raise StopError

    task.after_step = stop  # type: ignore[method-assign]
    with pytest.raises(StopError):
        learn(task, tmp_path / "parts", device="cpu", progress=False)
    resumed, result = learn(make(), tmp_path / "parts", device="cpu", progress=False)
    assert result.steps == 6
    assert torch.equal(state(resumed), state(whole))


def test_the_outcome_is_the_average_unless_there_is_none() -> None:
    task = make()
    network, _ = learn(task, device="cpu", progress=False)
    assert network is not task.model
    assert not torch.equal(state(network), state(task.model))
    plain = make(replace(RECIPE, average=0.0))
    assert learn(plain, device="cpu", progress=False)[0] is plain.model


def test_the_metric_stays_semidefinite_during_training() -> None:
    task = make(replace(RECIPE, learning_rate=0.5, average=0.0), replace(SMALL, metric="diagonal", units=4))
    learn(task, device="cpu", progress=False)
    a = task.model.clustering.metric.a  # type: ignore[union-attr]
    assert (a >= 0).all()
    assert not torch.equal(a, torch.ones(4))


def test_a_plan_is_a_function_of_the_epoch() -> None:
    task = make()
    assert task.plan(1) == make().plan(1)
    assert task.plan(0) != task.plan(1)
    assert len(task.plan(0)) == 3
    draw = task.plan(0)[0]
    assert task.load(draw, np.random.default_rng(0)) is draw


def test_the_loss_is_that_of_the_drawn_sets_with_their_phi() -> None:
    task = make()
    draw = Draw(seed=3, sets=4, n=20, k_max=2)
    first, second = (task.loss(task.model, draw, 0) for _ in range(2))
    assert torch.equal(first["loss"], second["loss"])
    torch.testing.assert_close(first["loss"], first["count"] + 5 * first["assignment"] + first["pairwise"])
    assert task._phi == {(20, 2): GAUSSIANS.same_share(20, 2)}


def test_a_time_limit_sets_the_number_of_steps_once(tmp_path: Path) -> None:
    task = make(replace(RECIPE, steps=10**6))
    _, result = learn(task, tmp_path, minutes=0.003, device="cpu", progress=False)
    plan = json.loads((tmp_path / "steps.json").read_text())
    assert result.steps == plan["steps"] == task.recipe.steps < 1000
    again = make(replace(RECIPE, steps=10**6))
    assert learn(again, tmp_path, minutes=5, device="cpu", progress=False)[1].steps == plan["steps"]
    with pytest.raises(ValueError, match="minutes is 0"):
        learn(make(), minutes=0, device="cpu")


def test_evaluation_uses_the_same_sets_again_and_takes_any_method() -> None:
    def perfect(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return torch.zeros(x.shape[:2], dtype=torch.long)

    seen: list[torch.Tensor] = []
    first = evaluate(perfect, PointSampler(1), 5, 8, batch=2)
    assert [s.mr for s in first] == [0] * 5
    evaluate(perfect, PointSampler(1), 5, 8, batch=2)
    assert torch.equal(seen[0], seen[3])
    assert [len(x) for x in seen[:3]] == [2, 2, 1]
    assert not torch.equal(seen[0], seen[1])


def test_evaluation_needs_labels() -> None:
    pairs = ConstraintSampler(torch.randn(4, 2), [(0, 1)], [(1, 2)], 2)
    with pytest.raises(ValueError, match="no labels"):
        evaluate(lambda x: torch.zeros(x.shape[:2]), pairs, 2, 4)


def test_constraints_alone_can_be_learned_from() -> None:
    items = torch.cat([torch.randn(6, 2), torch.randn(6, 2) + 9])
    pairs = ConstraintSampler(items, [(i, i + 1) for i in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)], [(0, 6)], 2)
    sizes = Curriculum(home=8, home_k=2, home_share=1.0, least=8, most=8, sets=2, crowd=2)
    task = ClusterTask(ClusterNetwork((2,), SMALL), pairs, GAUSSIANS, LossOptions(), replace(RECIPE, curriculum=sizes))
    losses = task.loss(task.model, Draw(0, 4, 8, 2), 0)
    losses["loss"].backward()  # type: ignore[no-untyped-call]
    assert all(value.isfinite() for value in losses.values())


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="the network is for"):
        ClusterTask(ClusterNetwork((3,), SMALL), GAUSSIANS, GAUSSIANS, LossOptions(), RECIPE)
    with pytest.raises(ValueError, match="counts to 2"):
        ClusterTask(ClusterNetwork((2,), replace(SMALL, k_max=2)), GAUSSIANS, GAUSSIANS, LossOptions(), RECIPE)
    assert Episode.of_labels(torch.zeros(1, 2, 1), torch.zeros(1, 2, dtype=torch.long)).k.tolist() == [1]
