from __future__ import annotations

import json
from dataclasses import asdict, replace

import numpy as np
import pytest
import torch
from tests.cluster.small import GAUSSIANS, RECIPE, SIZES, SMALL, make

from entourage.cluster.models.network import ClusterNetwork
from entourage.cluster.models.options import LossOptions
from entourage.cluster.sampling.episodes import BatchSpec, Curriculum, EpisodeSampler
from entourage.cluster.sampling.labelled import ConstraintSampler, LabelledSampler
from entourage.cluster.sampling.points import PointSampler
from entourage.cluster.task import ClusterTask, Recipe

# What a run's record says of its recipe: with other names or values, a run that was begun could not go on.
RECORDED = {
    "steps": 20_000,
    "optimizer": "adamw",
    "learning_rate": 1e-3,
    "schedule": "cosine",
    "warmup": 200,
    "weight_decay": 0.01,
    "average": 0.999,
    "validation": 100,
    "epoch": 500,
    "seed": 0,
}


def test_a_run_is_known_by_its_recipe() -> None:
    described = make(Recipe(curriculum=SIZES)).config()
    assert described["recipe"] == {**RECORDED, "curriculum": json.loads(json.dumps(asdict(SIZES)))}


def test_the_loop_is_told_the_same_and_what_to_keep() -> None:
    options = Recipe(steps=1100, learning_rate=2e-3, seed=7).training_options()
    assert (options.epochs, options.max_steps, options.learning_rate, options.seed) == (3, 1100, 2e-3, 7)
    assert (options.warmup_steps, options.weight_decay, options.clip_norm) == (200, 0.01, 1.0)
    assert (options.monitor, options.mode, options.workers) == ("mr", "min", 0)
    assert options.checkpoint_every == options.log_every == 50  # an epoch takes too long to be lost


def test_a_plan_is_a_function_of_the_epoch() -> None:
    task = make()
    assert task.plan(1) == make().plan(1)
    assert task.plan(0) != task.plan(1)
    assert len(task.plan(0)) == 3
    draw = task.plan(0)[0]
    assert task.load(draw, np.random.default_rng(0)) is draw


def test_the_network_counts_to_twice_what_is_drawn_and_an_lstm_to_what_it_was_built_for() -> None:
    k_max_values: list[int] = []
    for options in (replace(SMALL, k_max=5), replace(SMALL, network="lstm", k_max=5, units=8, layers=1)):
        task = make(options=options)
        task.network.register_forward_pre_hook(lambda _, inputs: k_max_values.append(inputs[1]))
        for k_max in (2, 3):
            task.loss(task.model, BatchSpec(seed=3, sets=4, n=30, k_max=k_max), 0)
    assert k_max_values == [4, 5, 5, 5]


def test_the_loss_is_that_of_the_drawn_sets_with_their_phi() -> None:
    task = make()
    draw = BatchSpec(seed=3, sets=4, n=20, k_max=2)
    first, second = (task.loss(task.model, draw, 0) for _ in range(2))
    assert torch.equal(first["loss"], second["loss"])
    torch.testing.assert_close(first["loss"], first["count"] + 5 * first["assignment"] + first["pairwise"])
    assert task._phi == {(20, 2): GAUSSIANS.pair_prior(20, 2)}


def test_constraints_alone_can_be_learned_from() -> None:
    items = torch.cat([torch.randn(6, 2), torch.randn(6, 2) + 9])
    pairs = ConstraintSampler(items, [(i, i + 1) for i in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)], [(0, 6)], 2)
    sizes = Curriculum(
        base_size=8, base_clusters=2, base_fraction=1.0, min_size=8, max_size=8, sets=2, min_cluster_size=2
    )
    task = ClusterTask(ClusterNetwork((2,), SMALL), pairs, GAUSSIANS, LossOptions(), replace(RECIPE, curriculum=sizes))
    losses = task.loss(task.model, BatchSpec(0, 4, 8, 2), 0)
    losses["loss"].backward()  # type: ignore[no-untyped-call]
    assert all(value.isfinite() for value in losses.values())


def test_what_does_not_fit_together_is_refused() -> None:
    with pytest.raises(ValueError, match="the network is for"):
        ClusterTask(ClusterNetwork((3,), SMALL), GAUSSIANS, GAUSSIANS, LossOptions(), RECIPE)
    with pytest.raises(ValueError, match="counts to 2"):
        ClusterTask(ClusterNetwork((2,), replace(SMALL, k_max=2)), GAUSSIANS, GAUSSIANS, LossOptions(), RECIPE)


def test_every_validation_is_told() -> None:
    lines: list[str] = []
    task = make()
    task.log = lines.append
    task.after_step(3)
    scores = task.validate(task.model)
    assert lines == [f"step 3 of 6: MR {scores['mr']:.4f}, NMI {scores['nmi']:.4f}, k right {scores['k_right']:.3f}"]


def test_a_run_is_known_by_what_it_learns_from_and_validates_with() -> None:
    items, codes = torch.randn(12, 2), np.repeat([0, 1, 2], 4)

    def described(sampler: object, validation: object = GAUSSIANS, **notes: str) -> str:
        network = ClusterNetwork((2,), SMALL)
        task = ClusterTask(network, sampler, validation, LossOptions(), RECIPE, notes=notes)  # type: ignore[arg-type]
        return json.dumps(task.config())

    other = items.clone()
    other[3, 1] += 1e-3
    links = [(0, 1)], [(0, 2)]
    configs = [
        described(GAUSSIANS),
        described(PointSampler(3)),
        described(PointSampler(3, varied=1)),
        described(PointSampler(3, k_min=2)),
        described(GAUSSIANS, PointSampler(3)),
        described(GAUSSIANS, backbone="some"),
        described(LabelledSampler(items, codes, 3)),
        described(LabelledSampler(items, codes, 3, min_cluster_size=1)),
        described(LabelledSampler(items, codes, 3, augmentation=lambda items, generator: items)),
        described(LabelledSampler(other, codes, 3)),
        described(LabelledSampler(items, codes[::-1], 2)),
        described(LabelledSampler(items, np.roll(codes, 1), 3)),
        described(ConstraintSampler(items, *links, 3)),
        described(ConstraintSampler(other, *links, 3)),
        described(ConstraintSampler(items, *links[::-1], 3)),
    ]
    assert len(set(configs)) == len(configs)
    assert described(LabelledSampler(items.clone(), codes, 3)) == described(LabelledSampler(items, codes, 3))


@pytest.mark.parametrize(
    "sampler", [PointSampler(3, k_min=3), LabelledSampler(torch.randn(30, 2), [0, 1, 2] * 10, 3, min_cluster_size=8)]
)
def test_a_sampler_of_many_clusters_or_large_ones_is_asked_for_what_it_draws(sampler: EpisodeSampler) -> None:
    """Sets of twelve may have two clusters, by the curriculum: neither three nor two of eight items each."""
    sizes = Curriculum(
        base_size=24, base_clusters=2, base_fraction=0.2, min_size=12, max_size=30, sets=2, min_cluster_size=4
    )
    task = ClusterTask(ClusterNetwork((2,), SMALL), sampler, sampler, LossOptions(), replace(RECIPE, curriculum=sizes))
    plan = [draw for epoch in range(6) for draw in task.plan(epoch)]
    for draw in plan:
        assert task.loss(task.model, draw, 0)["loss"].isfinite()
    assert 0 <= task.validate(task.model)["mr"] < 1


def test_a_sampler_whose_clusters_never_fit_is_refused_before_the_first_step() -> None:
    large = LabelledSampler(torch.randn(90, 2), [0, 1, 2] * 30, 3, k_min=3, min_cluster_size=9)
    for sampler, validation in ((large, GAUSSIANS), (GAUSSIANS, large)):
        with pytest.raises(ValueError, match="base_size is 24; expected 27 or more"):
            ClusterTask(ClusterNetwork((2,), SMALL), sampler, validation, LossOptions(), RECIPE)
