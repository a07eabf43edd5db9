"""How a network is built and trained where nobody says otherwise: from Python as from the command line."""

from __future__ import annotations

from dataclasses import replace

from entourage.cluster.models.options import Metric, ModelOptions, Preset
from entourage.cluster.sampling.curriculum import EPISODE, FIXED, Curriculum
from entourage.cluster.sampling.episodes import EpisodeSampler
from entourage.cluster.sampling.points import PointSampler
from entourage.cluster.task import Recipe

SETS = Curriculum(home=20, home_k=5, home_share=0.5, least=8, most=60, sets=25, crowd=2)  # of a user's own examples
POINT_STEPS, STEPS = 20_000, 4_000


def usual_recipe(sampler: EpisodeSampler, preset: Preset, *, steps: int | None = None, seed: int = 0) -> Recipe:
    """The recipe for a sampler: long and in sets that grow for 2D points made as it goes, short for what users have.

    Args:
        sampler: of the episodes to learn from.
        preset: the network and its loss; an LSTM learns from sets of one size.
        steps: of training, if not the usual number.
        seed: of everything.
    """
    endless = isinstance(sampler, PointSampler)
    if preset.model.network == "attention":
        curriculum = Curriculum() if endless else SETS
    else:
        curriculum = (FIXED if endless else EPISODE).for_clusters(sampler.k_max)
    return Recipe(steps=steps or (POINT_STEPS if endless else STEPS), curriculum=curriculum, seed=seed)


def fitting_options(
    sampler: EpisodeSampler,
    preset: Preset,
    curriculum: Curriculum,
    *,
    metric: Metric = "none",
    k_max: int | None = None,
) -> ModelOptions:
    """The preset's network as it fits what it learns from.

    Args:
        sampler: of the episodes to learn from.
        preset: the network and its loss.
        curriculum: sizes of the sets.
        metric: the optional metric block.
        k_max: the most clusters it finds. None: as many as the sampler draws and, but for LSTMs, no fewer than the
            preset's, as a network that reads no order costs no more for it.

    Raises:
        ValueError: an LSTM that reads rows of distances is to learn from sets of several sizes.
    """
    lstm = preset.model.network == "lstm"
    fixed = curriculum.home if lstm and metric != "none" else None
    if fixed is not None and curriculum.least != curriculum.most:
        sizes = f"{curriculum.least} to {curriculum.most}"
        raise ValueError(f"sets have {sizes} items; an LSTM reads rows of distances to all, expected sets of one size")
    most = k_max or (sampler.k_max if lstm else max(sampler.k_max, preset.model.k_max))
    return replace(preset.model, k_max=most, metric=metric, set_size=fixed)
