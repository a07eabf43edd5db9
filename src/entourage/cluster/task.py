"""What the training loop trains: a network on episodes that are drawn on the device that learns from them.

How many steps of learning to cluster fit into a time.

Training a network to cluster, to the end or for a time.

How a network is built and trained where nobody says otherwise: from Python as from the command line.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entourage.cluster.evaluation import evaluate, mean_scores
from entourage.cluster.losses import total_loss
from entourage.cluster.models.network import ClusterNetwork
from entourage.cluster.models.options import LossOptions, Metric, ModelOptions, Preset
from entourage.cluster.sampling.episodes import (
    THESIS_ITEMS_CURRICULUM,
    THESIS_POINTS_CURRICULUM,
    BatchSpec,
    Curriculum,
    EpisodeSampler,
)
from entourage.cluster.sampling.points import PointSampler
from entourage.training import time_budget
from entourage.training.checkpoint import TrainingResult
from entourage.training.loop import train
from entourage.training.options import StepRecipe, TrainingOptions
from entourage.training.task import EMATask

CHECKPOINT_STEPS = 50  # as often as the losses are written down: an epoch may take hours on a CPU


@dataclass(frozen=True, kw_only=True)
class Recipe(StepRecipe):
    """How a network is trained; `validation` counts sets.

    Attributes:
        curriculum: sizes of the sets.
    """

    curriculum: Curriculum = field(default_factory=Curriculum)
    warmup: int = 200
    weight_decay: float = 0.01
    validation: int = 100
    epoch: int = 500

    def training_options(self) -> TrainingOptions:
        """The same for the training loop."""
        # Nothing is loaded ahead: a batch is drawn where it is needed, from a seed.
        return replace(
            super().training_options(),
            clip_norm=1.0,
            monitor="mr",
            mode="min",
            workers=0,
            checkpoint_every=CHECKPOINT_STEPS,
        )


class ClusterTask(EMATask[BatchSpec, BatchSpec]):
    """What the training loop trains.

    Args:
        network: is trained in place.
        sampler: of the episodes to learn from.
        validation: of the episodes to validate with; classes it draws from should not be the sampler's.
        loss: weights of the terms.
        recipe: sizes and number of sets.
        notes: for the record of the run and the notes of its network: what the items are, what looked at them first...
        log: is called with a line on every validation, e.g. print; None for no line.
    """

    def __init__(
        self,
        network: ClusterNetwork,
        sampler: EpisodeSampler,
        validation: EpisodeSampler,
        loss: LossOptions,
        recipe: Recipe,
        *,
        notes: Mapping[str, str] | None = None,
        log: Callable[[str], None] | None = None,
    ) -> None:
        if sampler.shape != network.shape:
            raise ValueError(f"items have shape {sampler.shape}; the network is for {network.shape}")
        if sampler.k_max > network.options.k_max:
            raise ValueError(f"sets have up to {sampler.k_max} clusters; the network counts to {network.options.k_max}")
        for one in (sampler, validation):
            recipe.curriculum.check(**_sampler_limits(one))  # now, not at whatever step first draws a small set
        super().__init__(network, recipe.average)
        self.network = network
        self.sampler = sampler
        self.validation = validation
        self.loss_options = loss
        self.recipe = recipe
        self.notes = dict(notes or {})
        self.log = log
        self.step = 0
        self.device = torch.device("cpu")
        self._phi: dict[tuple[int, int], float] = {}

    def prepare(self, device: torch.device) -> None:
        """Remembers where to draw."""
        super().prepare(device)
        self.device = device

    def plan(self, epoch: int) -> Sequence[BatchSpec]:
        """Sizes and seeds of an epoch's batches."""
        rng = np.random.default_rng([self.recipe.seed, epoch])
        first = epoch * self.recipe.epoch
        at = [(first + step) / self.recipe.steps for step in range(self.recipe.epoch)]
        return [self.draw(progress, rng) for progress in at]

    def draw(self, progress: float, rng: np.random.Generator) -> BatchSpec:
        """Size and seed of the batch at a point of the run, from 0 to 1, that the sampler can draw."""
        return self.recipe.curriculum.draw(progress, self.sampler.k_max, rng, **_sampler_limits(self.sampler))

    def load(self, item: BatchSpec, rng: np.random.Generator) -> BatchSpec:
        """Nothing is loaded: the draw itself takes place on the device."""
        return item

    def loss(self, model: nn.Module, batch: BatchSpec, step: int) -> Mapping[str, Tensor]:
        """Draws the sets and returns the loss and its parts."""
        generator = torch.Generator(self.device).manual_seed(batch.seed)
        episode = self.sampler.draw(batch.sets, batch.n, generator, batch.k_max)
        key = (batch.n, batch.k_max)
        if key not in self._phi:
            self._phi[key] = self.sampler.pair_prior(*key)
        prediction = model(episode.x, self._k_max_for(batch.k_max))
        total, parts = total_loss(prediction, episode, self._phi[key], self.loss_options)
        return {"loss": total, **parts}

    def _k_max_for(self, k_max: int) -> int:
        """To how many the network counts in sets of up to k_max clusters: beyond twice as many it learns nothing."""
        max_clusters = self.network.options.k_max
        return min(max_clusters, 2 * k_max) if self.network.options.network == "attention" else max_clusters

    def after_step(self, step: int) -> None:
        """Keeps the metric positive semidefinite and the average up to date."""
        self.step = step
        self.network.project()
        super().after_step(step)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Measures on sets of the base size, always the same."""
        curriculum = self.recipe.curriculum
        k_max = curriculum.validation_clusters(self.validation.k_max, **_sampler_limits(self.validation))
        scores = evaluate(
            model, self.validation, self.recipe.validation, curriculum.base_size, k_max, device=self.device
        )
        mean = mean_scores(scores)
        if self.log is not None:
            prediction = f"MR {mean.mr:.4f}, NMI {mean.nmi:.4f}, k right {mean.k_right:.3f}"
            self.log(f"step {self.step} of {self.recipe.steps}: {prediction}")
        return {"mr": mean.mr, "nmi": mean.nmi, "k_right": mean.k_right}

    def config(self) -> dict[str, Any]:
        """What makes this run this run: what is learned from first, as that explains whatever else differs."""
        samplers = {"sampler": self.sampler, "validation": self.validation}
        data = {f"{name}.{key}": value for name, one in samplers.items() for key, value in one.config().items()}
        return {
            **self.notes,
            **data,
            "shape": list(self.network.shape),
            "network": asdict(self.network.options),
            "loss": asdict(self.loss_options),
            "recipe": json.loads(json.dumps(asdict(self.recipe))),
            "sampler": type(self.sampler).__name__,
            "k_max": self.sampler.k_max,
        }


def _sampler_limits(sampler: EpisodeSampler) -> dict[str, int]:
    """The fewest clusters of a set and items of a cluster; 1 where a sampler knows of no such limit."""
    return {"k_min": getattr(sampler, "k_min", 1), "min_cluster_size": getattr(sampler, "min_cluster_size", 1)}


def steps_in_budget(
    task: ClusterTask, run_dir: Path | None, minutes: float, device: str, *, progress: bool | None = None
) -> int:
    """How many steps fit into the time; a run that goes on keeps to the plan in its folder."""
    recipe = task.recipe
    trial = ClusterTask(copy.deepcopy(task.network), task.sampler, task.validation, task.loss_options, recipe)
    rng = np.random.default_rng(recipe.seed)
    draws = [task.draw(0.5, rng) for _ in range(time_budget.TRIAL_STEPS)]
    return time_budget.steps_in_budget(
        trial, draws, run_dir, minutes, device, steps_per_epoch=recipe.epoch, seed=recipe.seed, progress=progress
    )


def train_network(
    task: ClusterTask,
    run_dir: Path | None = None,
    *,
    minutes: float | None = None,
    device: str = "auto",
    progress: bool | None = None,
    title: str = "Learning to cluster",
) -> tuple[ClusterNetwork, TrainingResult]:
    """Trains to the end, going on where an earlier call with the same folder was stopped.

    Args:
        task: what is trained.
        run_dir: the folder for checkpoints; None keeps none.
        minutes: how long it may take, in place of the recipe's steps: a trial, of a tenth of that time or two steps,
            tells how many there will be, two at least, and the folder remembers it.
        device: where to train.
        progress: show a line; None: only on a terminal.
        title: what the line calls it.

    Returns:
        The trained network, in evaluation mode, and how the run went. Its notes say what the task is about, how long it
        has learned, earlier trainings included, and with how many items at once.
    """
    before = task.network.notes
    if minutes is not None:
        steps = steps_in_budget(task, run_dir, minutes, device, progress=progress)
        task.recipe = replace(task.recipe, steps=steps)
    result = train(task, task.recipe.training_options(), run_dir, device=device, progress=progress, title=title)
    network = task.final_model()
    if not isinstance(network, ClusterNetwork):
        raise TypeError(f"the outcome is a {type(network).__name__}; expected a ClusterNetwork")
    spent = {"steps": result.steps, "seconds": round(result.seconds)}
    network.notes = {
        **task.notes,
        **{name: str(int(before.get(name, 0)) + value) for name, value in spent.items()},
        "set_size": str(task.recipe.curriculum.max_size),
    }
    return network.eval(), result


ITEMS_CURRICULUM = Curriculum(
    base_size=20, base_clusters=5, base_fraction=0.5, min_size=8, max_size=60, sets=25, min_cluster_size=2
)  # of a user's own examples
DEFAULT_POINT_STEPS, DEFAULT_STEPS = 20_000, 4_000


def default_recipe(sampler: EpisodeSampler, preset: Preset, *, steps: int | None = None, seed: int = 0) -> Recipe:
    """The recipe for a sampler: long and in sets that grow for 2D points made as it goes, short for what users have.

    Args:
        sampler: of the episodes to learn from.
        preset: the network and its loss; an LSTM learns from sets of one size.
        steps: of training, if not the usual number.
        seed: of everything.
    """
    generated = isinstance(sampler, PointSampler)
    if preset.model.network == "attention":
        curriculum = Curriculum() if generated else ITEMS_CURRICULUM
    else:
        curriculum = (THESIS_POINTS_CURRICULUM if generated else THESIS_ITEMS_CURRICULUM).for_clusters(sampler.k_max)
    return Recipe(
        steps=steps or (DEFAULT_POINT_STEPS if generated else DEFAULT_STEPS), curriculum=curriculum, seed=seed
    )


def resolve_model_options(
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
    fixed = curriculum.base_size if lstm and metric != "none" else None
    if fixed is not None and curriculum.min_size != curriculum.max_size:
        sizes = f"{curriculum.min_size} to {curriculum.max_size}"
        raise ValueError(f"sets have {sizes} items; an LSTM reads rows of distances to all, expected sets of one size")
    max_clusters = k_max or (sampler.k_max if lstm else max(sampler.k_max, preset.model.k_max))
    return replace(preset.model, k_max=max_clusters, metric=metric, set_size=fixed)
