"""A network that has learned to cluster: it groups unseen items and estimates how many groups there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.cluster.estimator import LearnedClustering, train_clustering
    from entourage.cluster.evaluation import ClusteringScores, evaluate, score
    from entourage.cluster.models.network import ClusterNetwork, load_network, save_network
    from entourage.cluster.models.options import LossOptions, ModelOptions
    from entourage.cluster.sampling.episodes import Curriculum, Episode
    from entourage.cluster.sampling.labelled import ConstraintSampler, LabelledSampler
    from entourage.cluster.sampling.points import PointSampler
    from entourage.cluster.task import Recipe

__all__ = [
    "ClusterNetwork",
    "ClusteringScores",
    "ConstraintSampler",
    "Curriculum",
    "Episode",
    "LabelledSampler",
    "LearnedClustering",
    "LossOptions",
    "ModelOptions",
    "PointSampler",
    "Recipe",
    "evaluate",
    "load_network",
    "save_network",
    "score",
    "train_clustering",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "estimator": ("LearnedClustering", "train_clustering"),
        "evaluation": ("ClusteringScores", "evaluate", "score"),
        "models.network": ("ClusterNetwork", "load_network", "save_network"),
        "models.options": ("LossOptions", "ModelOptions"),
        "sampling.episodes": ("Curriculum", "Episode"),
        "sampling.labelled": ("ConstraintSampler", "LabelledSampler"),
        "sampling.points": ("PointSampler",),
        "task": ("Recipe",),
    },
)
