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

# Configuration of a run's recipe: other names or values would invalidate unfinished runs.
STORED_RECIPE = {
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


def test_config_contains_the_recipe() -> None:
    config = make(Recipe(curriculum=SIZES)).config()
    assert config["recipe"] == {**STORED_RECIPE, "curriculum": json.loads(json.dumps(asdict(SIZES)))}


def test_training_options_follow_from_the_recipe() -> None:
    options = Recipe(steps=1100, learning_rate=2e-3, seed=7).training_options()
    assert (options.epochs, options.max_steps, options.learning_rate, options.seed) == (3, 1100, 2e-3, 7)
    assert (options.warmup_steps, options.weight_decay, options.clip_norm) == (200, 0.01, 1.0)
    assert (options.monitor, options.mode, options.workers) == ("mr", "min", 0)
    assert options.checkpoint_every == options.log_every == 50  # shorter than an epoch, which may take hours


def test_plan_depends_only_on_the_epoch() -> None:
    task = make()
    assert task.plan(1) == make().plan(1)
    assert task.plan(0) != task.plan(1)
    assert len(task.plan(0)) == 3
    draw = task.plan(0)[0]
    assert task.load(draw, np.random.default_rng(0)) is draw


def test_k_max_is_twice_that_of_the_sets_and_fixed_for_an_lstm() -> None:
    k_max_values: list[int] = []
    for options in (replace(SMALL, k_max=5), replace(SMALL, network="lstm", k_max=5, units=8, layers=1)):
        task = make(options=options)
        task.network.register_forward_pre_hook(lambda _, inputs: k_max_values.append(inputs[1]))
        for k_max in (2, 3):
            task.loss(task.model, BatchSpec(seed=3, sets=4, n=30, k_max=k_max), 0)
    assert k_max_values == [4, 5, 5, 5]


def test_loss_uses_the_phi_of_the_drawn_sets() -> None:
    task = make()
    draw = BatchSpec(seed=3, sets=4, n=20, k_max=2)
    first, second = (task.loss(task.model, draw, 0) for _ in range(2))
    assert torch.equal(first["loss"], second["loss"])
    torch.testing.assert_close(first["loss"], first["count"] + 5 * first["assignment"] + first["pairwise"])
    assert task._phi == {(20, 2): GAUSSIANS.pair_prior(20, 2)}


def test_loss_supports_constraints() -> None:
    items = torch.cat([torch.randn(6, 2), torch.randn(6, 2) + 9])
    pairs = ConstraintSampler(items, [(i, i + 1) for i in (0, 1, 2, 3, 4, 6, 7, 8, 9, 10)], [(0, 6)], 2)
    sizes = Curriculum(
        base_size=8, base_clusters=2, base_fraction=1.0, min_size=8, max_size=8, sets=2, min_cluster_size=2
    )
    task = ClusterTask(ClusterNetwork((2,), SMALL), pairs, GAUSSIANS, LossOptions(), replace(RECIPE, curriculum=sizes))
    losses = task.loss(task.model, BatchSpec(0, 4, 8, 2), 0)
    losses["loss"].backward()  # type: ignore[no-untyped-call]
    assert all(value.isfinite() for value in losses.values())


def test_incompatible_network_and_sampler_raise() -> None:
    with pytest.raises(ValueError, match=r"sampler has items of shape \(2,\); expected \(3,\)"):
        ClusterTask(ClusterNetwork((3,), SMALL), GAUSSIANS, GAUSSIANS, LossOptions(), RECIPE)
    with pytest.raises(ValueError, match="k_max is 3; expected 2 or less"):
        ClusterTask(ClusterNetwork((2,), replace(SMALL, k_max=2)), GAUSSIANS, GAUSSIANS, LossOptions(), RECIPE)


def test_every_validation_is_logged() -> None:
    lines: list[str] = []
    task = make()
    task.log = lines.append
    task.after_step(3)
    scores = task.validate(task.model)
    assert lines == [f"step 3 of 6: MR {scores['mr']:.4f}, NMI {scores['nmi']:.4f}, k right {scores['k_right']:.3f}"]


def test_config_identifies_samplers_and_notes() -> None:
    items, codes = torch.randn(12, 2), np.repeat([0, 1, 2], 4)

    def config_text(sampler: object, validation: object = GAUSSIANS, **notes: str) -> str:
        network = ClusterNetwork((2,), SMALL)
        task = ClusterTask(network, sampler, validation, LossOptions(), RECIPE, notes=notes)  # type: ignore[arg-type]
        return json.dumps(task.config())

    other = items.clone()
    other[3, 1] += 1e-3
    links = [(0, 1)], [(0, 2)]
    configs = [
        config_text(GAUSSIANS),
        config_text(PointSampler(3)),
        config_text(PointSampler(3, varied=1)),
        config_text(PointSampler(3, k_min=2)),
        config_text(GAUSSIANS, PointSampler(3)),
        config_text(GAUSSIANS, backbone="some"),
        config_text(LabelledSampler(items, codes, 3)),
        config_text(LabelledSampler(items, codes, 3, min_cluster_size=1)),
        config_text(LabelledSampler(items, codes, 3, augmentation=lambda items, generator: items)),
        config_text(LabelledSampler(other, codes, 3)),
        config_text(LabelledSampler(items, codes[::-1], 2)),
        config_text(LabelledSampler(items, np.roll(codes, 1), 3)),
        config_text(ConstraintSampler(items, *links, 3)),
        config_text(ConstraintSampler(other, *links, 3)),
        config_text(ConstraintSampler(items, *links[::-1], 3)),
    ]
    assert len(set(configs)) == len(configs)
    assert config_text(LabelledSampler(items.clone(), codes, 3)) == config_text(LabelledSampler(items, codes, 3))


@pytest.mark.parametrize(
    "sampler", [PointSampler(3, k_min=3), LabelledSampler(torch.randn(30, 2), [0, 1, 2] * 10, 3, min_cluster_size=8)]
)
def test_batches_respect_the_limits_of_the_sampler(sampler: EpisodeSampler) -> None:
    """The curriculum has sets of 12 items in 2 clusters, too small for 3 clusters or for 2 clusters of 8 items."""
    sizes = Curriculum(
        base_size=24, base_clusters=2, base_fraction=0.2, min_size=12, max_size=30, sets=2, min_cluster_size=4
    )
    task = ClusterTask(ClusterNetwork((2,), SMALL), sampler, sampler, LossOptions(), replace(RECIPE, curriculum=sizes))
    plan = [draw for epoch in range(6) for draw in task.plan(epoch)]
    for draw in plan:
        assert task.loss(task.model, draw, 0)["loss"].isfinite()
    assert 0 <= task.validate(task.model)["mr"] < 1


def test_a_sampler_whose_clusters_never_fit_raises_before_training() -> None:
    large = LabelledSampler(torch.randn(90, 2), [0, 1, 2] * 30, 3, k_min=3, min_cluster_size=9)
    for sampler, validation in ((large, GAUSSIANS), (GAUSSIANS, large)):
        with pytest.raises(ValueError, match="base_size is 24; expected 27 or more"):
            ClusterTask(ClusterNetwork((2,), SMALL), sampler, validation, LossOptions(), RECIPE)
