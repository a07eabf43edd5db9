"""Training of a clustering network: the recipe, the task of the training loop, and the default options.

Episodes are drawn on the device of the network. Python (`LearnedClustering.fit`) and the command line
(`cluster train`) use the same defaults.
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

CHECKPOINT_STEPS = 50  # steps between checkpoints, as between log entries: an epoch may take hours on a CPU


@dataclass(frozen=True, kw_only=True)
class Recipe(StepRecipe):
    """Training options of a clustering network; those of `StepRecipe`, with other defaults, and the curriculum.

    Attributes:
        curriculum: schedule of set sizes and numbers of clusters.
        warmup: steps of linear warm-up.
        weight_decay: weight decay of AdamW.
        validation: number of validation sets.
        epoch: steps between validations.
    """

    curriculum: Curriculum = field(default_factory=Curriculum)
    warmup: int = 200
    weight_decay: float = 0.01
    validation: int = 100
    epoch: int = 500

    def training_options(self) -> TrainingOptions:
        """Return the options of the training loop."""
        # No loader processes: a batch is drawn from a seed, on the device of the network.
        return replace(
            super().training_options(),
            clip_norm=1.0,
            monitor="mr",
            mode="min",
            workers=0,
            checkpoint_every=CHECKPOINT_STEPS,
        )


class ClusterTask(EMATask[BatchSpec, BatchSpec]):
    """Task of the training loop: a network, its samplers, its loss and its recipe.

    Args:
        network: network to train, in place.
        sampler: sampler of training episodes.
        validation: sampler of validation episodes, preferably of other classes.
        loss: weights of the loss terms.
        recipe: training options.
        notes: strings stored in the run's configuration and the network's file: kind of the items, backbone, ...
        log: function called with one line per validation, e.g. print; None for no output.
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
            raise ValueError(f"sampler has items of shape {sampler.shape}; expected {network.shape}, as the network")
        if sampler.k_max > network.options.k_max:
            raise ValueError(
                f"sampler.k_max is {sampler.k_max}; expected {network.options.k_max} or less, as the network"
            )
        for episodes in (sampler, validation):
            recipe.curriculum.check(**_sampler_limits(episodes))  # before training, not at the first small set
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
        """Store the device, on which episodes are drawn."""
        super().prepare(device)
        self.device = device

    def plan(self, epoch: int) -> Sequence[BatchSpec]:
        """Return sizes and seeds of the batches of an epoch."""
        rng = np.random.default_rng([self.recipe.seed, epoch])
        first = epoch * self.recipe.epoch
        at = [(first + step) / self.recipe.steps for step in range(self.recipe.epoch)]
        return [self.draw(progress, rng) for progress in at]

    def draw(self, progress: float, rng: np.random.Generator) -> BatchSpec:
        """Draw size and seed of a batch within the sampler's limits, at a progress from 0 to 1 of the training."""
        return self.recipe.curriculum.draw(progress, self.sampler.k_max, rng, **_sampler_limits(self.sampler))

    def load(self, item: BatchSpec, rng: np.random.Generator) -> BatchSpec:
        """Return the item unchanged: `loss` draws the sets on the device."""
        return item

    def loss(self, model: nn.Module, batch: BatchSpec, step: int) -> Mapping[str, Tensor]:
        """Draw the sets and compute the loss and its terms."""
        generator = torch.Generator(self.device).manual_seed(batch.seed)
        episode = self.sampler.draw(batch.sets, batch.n, generator, batch.k_max)
        key = (batch.n, batch.k_max)
        if key not in self._phi:
            self._phi[key] = self.sampler.pair_prior(*key)
        prediction = model(episode.x, self._k_max_for(batch.k_max))
        total, terms = total_loss(prediction, episode, self._phi[key], self.loss_options)
        return {"loss": total, **terms}

    def _k_max_for(self, k_max: int) -> int:
        """Limit the network's k to twice that of the sets: more costs time without improving the network."""
        max_clusters = self.network.options.k_max
        return min(max_clusters, 2 * k_max) if self.network.options.network == "attention" else max_clusters

    def after_step(self, step: int) -> None:
        """Project the metric to positive semidefinite matrices and update the weight average."""
        self.step = step
        self.network.project()
        super().after_step(step)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Evaluate on fixed validation sets of the base size."""
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
        """Return the configuration of the run; data come first, so that a message names them before other values."""
        samplers = {"sampler": self.sampler, "validation": self.validation}
        data = {f"{name}.{key}": value for name, s in samplers.items() for key, value in s.config().items()}
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
    """Return the minimum number of clusters and the minimum cluster size; 1 for samplers without such limits."""
    return {"k_min": getattr(sampler, "k_min", 1), "min_cluster_size": getattr(sampler, "min_cluster_size", 1)}


def steps_in_budget(
    task: ClusterTask, run_dir: Path | None, minutes: float, device: str, *, progress: bool | None = None
) -> int:
    """Return the number of steps that fit into the time; for a resumed run, the stored number."""
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
    """Train a network, resuming an earlier call with the same folder.

    Args:
        task: training task.
        run_dir: folder for checkpoints; None for no checkpoints.
        minutes: training time, instead of the recipe's steps. The speed is measured for a tenth of that time, or for
            two steps; the resulting number of steps, two or more, is stored in the folder.
        device: "auto", "cpu", "cuda", ...
        progress: show progress; None: only on a terminal.
        title: label of the progress display.

    Returns:
        The trained network, in evaluation mode, and the result of the training. The network's notes contain those of
        the task, steps and seconds including earlier trainings, and the set size.
    """
    before = task.network.notes
    if minutes is not None:
        steps = steps_in_budget(task, run_dir, minutes, device, progress=progress)
        task.recipe = replace(task.recipe, steps=steps)
    result = train(task, task.recipe.training_options(), run_dir, device=device, progress=progress, title=title)
    network = task.final_model()
    if not isinstance(network, ClusterNetwork):
        raise TypeError(f"the trained model is a {type(network).__name__}; expected a ClusterNetwork")
    spent = {"steps": result.steps, "seconds": round(result.seconds)}
    network.notes = {
        **task.notes,
        **{name: str(int(before.get(name, 0)) + value) for name, value in spent.items()},
        "set_size": str(task.recipe.curriculum.max_size),
    }
    return network.eval(), result


# For items of the user
ITEMS_CURRICULUM = Curriculum(
    base_size=20, base_clusters=5, base_fraction=0.5, min_size=8, max_size=60, sets=25, min_cluster_size=2
)
DEFAULT_POINT_STEPS, DEFAULT_STEPS = 20_000, 4_000


def default_recipe(sampler: EpisodeSampler, preset: Preset, *, steps: int | None = None, seed: int = 0) -> Recipe:
    """Return the default recipe: 20,000 steps with growing sets for generated 2D points, 4,000 for other items.

    Args:
        sampler: sampler of training episodes.
        preset: network and loss; an LSTM is trained on sets of one size.
        steps: number of steps; None for the default.
        seed: random seed of the training.
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
    """Return the preset's network options, adapted to the training data.

    Args:
        sampler: sampler of training episodes.
        preset: network and loss.
        curriculum: schedule of set sizes.
        metric: optional metric block.
        k_max: maximum number of clusters. None: that of the sampler and, for attention networks, at least that of the
            preset, as their cost in training does not depend on it.

    Raises:
        ValueError: the curriculum has several set sizes, and the network is an LSTM on rows of distances.
    """
    lstm = preset.model.network == "lstm"
    fixed = curriculum.base_size if lstm and metric != "none" else None
    if fixed is not None and curriculum.min_size != curriculum.max_size:
        sizes = f"{curriculum.min_size} to {curriculum.max_size}"
        raise ValueError(
            f"curriculum has sets of {sizes} items; expected one set size, as an LSTM with a metric requires"
        )
    max_clusters = k_max or (sampler.k_max if lstm else max(sampler.k_max, preset.model.k_max))
    return replace(preset.model, k_max=max_clusters, metric=metric, set_size=fixed)
