"""A network that has learned to cluster: it groups unseen things and says how many groups there are."""

from entourage.cluster.clustering import LearnedClustering
from entourage.cluster.evaluate import evaluate
from entourage.cluster.measures import Scores, mean_scores, score
from entourage.cluster.models.model import ClusterNetwork, load_network, save_network
from entourage.cluster.models.options import PRESETS, LossOptions, ModelOptions, Preset, preset
from entourage.cluster.models.prediction import SetPrediction
from entourage.cluster.sampling.constraints import ConstraintSampler
from entourage.cluster.sampling.curriculum import Curriculum
from entourage.cluster.sampling.episodes import Episode, EpisodeSampler
from entourage.cluster.sampling.labelled import LabelledSampler
from entourage.cluster.sampling.points import PointSampler
from entourage.cluster.task import Recipe

__all__ = [
    "PRESETS",
    "ClusterNetwork",
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
    "Scores",
    "SetPrediction",
    "evaluate",
    "load_network",
    "mean_scores",
    "preset",
    "save_network",
    "score",
]
