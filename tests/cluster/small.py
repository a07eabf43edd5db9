"""A small network, small sets and a short training."""

from __future__ import annotations

import torch

from entourage.cluster.models.network import ClusterNetwork
from entourage.cluster.models.options import LossOptions, ModelOptions
from entourage.cluster.sampling.episodes import Curriculum
from entourage.cluster.sampling.points import PointSampler
from entourage.cluster.task import ClusterTask, Recipe

SMALL = ModelOptions(k_max=3, width=16, depth=2, heads=2, code=8, frequencies=8)
SIZES = Curriculum(
    base_size=24, base_clusters=3, base_fraction=0.5, min_size=12, max_size=30, sets=8, min_cluster_size=4
)
RECIPE = Recipe(steps=6, curriculum=SIZES, warmup=2, validation=4, epoch=3, average=0.9, learning_rate=3e-3)
GAUSSIANS = PointSampler(3, kinds=(4, 5))


def make(recipe: Recipe = RECIPE, options: ModelOptions = SMALL, loss: LossOptions | None = None) -> ClusterTask:
    torch.manual_seed(0)
    return ClusterTask(ClusterNetwork((2,), options), GAUSSIANS, GAUSSIANS, loss or LossOptions(), recipe)
