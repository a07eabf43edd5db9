"""A network that has learned to cluster: it groups unseen things and says how many groups there are."""

from entourage.cluster.estimator import LearnedClustering
from entourage.cluster.evaluation import ClusteringScores, evaluate, mean_scores, score
from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.network import ClusterNetwork, load_network, save_network
from entourage.cluster.models.options import PRESETS, LossOptions, ModelOptions, Preset, preset
from entourage.cluster.sampling.episodes import Curriculum, Episode, EpisodeSampler
from entourage.cluster.sampling.labelled import ConstraintSampler, LabelledSampler
from entourage.cluster.sampling.points import PointSampler
from entourage.cluster.task import Recipe

__all__ = [
    "PRESETS",
    "ClusterNetwork",
    "ClusteringScores",
    "ConstraintSampler",
    "Curriculum",
    "Episode",
    "EpisodeSampler",
    "LabelledSampler",
    "LearnedClustering",
    "LossOptions",
    "ModelOptions",
    "PointSampler",
    "Preset",
    "Recipe",
    "SetPrediction",
    "evaluate",
    "load_network",
    "mean_scores",
    "preset",
    "save_network",
    "score",
]
