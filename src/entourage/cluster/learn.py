"""Training a network to cluster: episodes are drawn on the device that learns from them."""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entourage.cluster.curriculum import Curriculum, Draw
from entourage.cluster.episodes import EpisodeSampler
from entourage.cluster.loss import total_loss
from entourage.cluster.measures import Scores, mean_scores, score
from entourage.cluster.model import ClusterNetwork
from entourage.cluster.options import LossOptions
from entourage.data import atomic_path, resolve_device
from entourage.training import Task, TrainingOptions, TrainingResult, WeightAverage, train

TRIAL_STEPS = 24  # steps by which a run with a time limit learns how fast it is
_PLAN = "steps.json"


@dataclass(frozen=True)
class Recipe:
    """How a network is trained.

    Attributes:
        steps: updates of the weights.
        curriculum: sizes of the sets.
        learning_rate: the highest; it rises over `warmup` steps and falls as a cosine.
        warmup: steps.
        weight_decay: of all weights.
        average: decay of the moving average of the weights, which is what is kept; 0 keeps the last weights.
        validation: sets to validate with, after every epoch.
        epoch: steps of an epoch.
        seed: of everything.
    """

    steps: int = 20_000
    curriculum: Curriculum = field(default_factory=Curriculum)
    learning_rate: float = 1e-3
    warmup: int = 200
    weight_decay: float = 0.01
    average: float = 0.999
    validation: int = 100
    epoch: int = 500
    seed: int = 0

    def training_options(self) -> TrainingOptions:
        """The same for the training loop."""
        return TrainingOptions(
            epochs=max(1, -(-self.steps // self.epoch)),
            max_steps=self.steps,
            learning_rate=self.learning_rate,
            weight_decay=self.weight_decay,
            schedule="cosine",
            warmup_steps=min(self.warmup, self.steps // 4),
            clip_norm=1.0,
            seed=self.seed,
            monitor="mr",
            mode="min",
            log_every=50,
            workers=0,  # a batch is drawn where it is needed, from a seed
        )


class ClusterTask(Task[Draw, Draw]):
    """What the training loop trains.

    Args:
        network: is trained in place.
        sampler: of the episodes to learn from.
        validation: of the episodes to validate with; classes it draws from should not be the sampler's.
        loss: weights of the terms.
        recipe: sizes and number of sets.
    """

    def __init__(
        self,
        network: ClusterNetwork,
        sampler: EpisodeSampler,
        validation: EpisodeSampler,
        loss: LossOptions,
        recipe: Recipe,
    ) -> None:
        if sampler.shape != network.shape:
            raise ValueError(f"items have shape {sampler.shape}; the network is for {network.shape}")
        if sampler.k_max > network.options.k_max:
            raise ValueError(f"sets have up to {sampler.k_max} clusters; the network counts to {network.options.k_max}")
        self.model = self.network = network
        self.sampler = sampler
        self.validation = validation
        self.loss_options = loss
        self.recipe = recipe
        self.device = torch.device("cpu")
        self.average = WeightAverage(network, recipe.average) if recipe.average else None
        self._phi: dict[tuple[int, int], float] = {}

    def prepare(self, device: torch.device) -> None:
        """Remembers where to draw."""
        self.device = device
        if self.average is not None:
            self.average.module.to(device)

    def plan(self, epoch: int) -> Sequence[Draw]:
        """Sizes and seeds of an epoch's batches."""
        rng = np.random.default_rng([self.recipe.seed, epoch])
        first = epoch * self.recipe.epoch
        at = [(first + step) / self.recipe.steps for step in range(self.recipe.epoch)]
        return [self.recipe.curriculum.draw(progress, self.sampler.k_max, rng) for progress in at]

    def load(self, item: Draw, rng: np.random.Generator) -> Draw:
        """Nothing is loaded: the draw itself takes place on the device."""
        return item

    def loss(self, model: nn.Module, batch: Draw, step: int) -> Mapping[str, Tensor]:
        """Draws the sets and returns the loss and its parts."""
        generator = torch.Generator(self.device).manual_seed(batch.seed)
        episode = self.sampler.draw(batch.sets, batch.n, generator, batch.k_max)
        key = (batch.n, batch.k_max)
        if key not in self._phi:
            self._phi[key] = self.sampler.same_share(*key)
        total, parts = total_loss(model(episode.x), episode, self._phi[key], self.loss_options)
        return {"loss": total, **parts}

    def after_step(self, step: int) -> None:
        """Keeps the metric positive semidefinite and the average up to date."""
        self.network.project()
        if self.average is not None:
            self.average.update(self.model)

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Measures on sets of the home size, always the same."""
        curriculum = self.recipe.curriculum
        k_max = min(curriculum.home_k, self.validation.k_max)
        scores = evaluate(model, self.validation, self.recipe.validation, curriculum.home, k_max, device=self.device)
        mean = mean_scores(scores)
        return {"mr": mean.mr, "nmi": mean.nmi, "k_right": mean.k_right}

    def outcome(self) -> nn.Module:
        """The averaged network."""
        return self.model if self.average is None else self.average.module

    def extra_state(self) -> dict[str, Tensor]:
        """The average, for a run that goes on."""
        return {} if self.average is None else self.average.state()

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Takes the average back."""
        if self.average is not None:
            self.average.load_state(state)

    def describe(self) -> dict[str, Any]:
        """What makes this run this run."""
        return {
            "shape": list(self.network.shape),
            "network": asdict(self.network.options),
            "loss": asdict(self.loss_options),
            "recipe": json.loads(json.dumps(asdict(self.recipe))),
            "sampler": type(self.sampler).__name__,
            "k_max": self.sampler.k_max,
        }


def learn(
    task: ClusterTask,
    run: Path | None = None,
    *,
    minutes: float | None = None,
    device: str = "auto",
    progress: bool | None = None,
    title: str = "Learning to cluster",
) -> tuple[ClusterNetwork, TrainingResult]:
    """Trains to the end, going on where an earlier call with the same folder was stopped.

    Args:
        task: what is trained.
        run: the folder for checkpoints; None keeps none.
        minutes: how long it may take in all, in place of the recipe's steps: the first steps tell how many there will
            be, and the folder remembers it.
        device: where to train.
        progress: show a line; None: only on a terminal.
        title: what the line calls it.

    Returns:
        The trained network, in evaluation mode, and how the run went.
    """
    if minutes is not None:
        steps = _planned_steps(task, run, minutes, device)
        task.recipe = replace(task.recipe, steps=steps)
    result = train(task, task.recipe.training_options(), run, device=device, progress=progress, title=title)
    network = task.outcome()
    if not isinstance(network, ClusterNetwork):
        raise TypeError(f"the outcome is a {type(network).__name__}; expected a ClusterNetwork")
    return network.eval(), result


@torch.no_grad()
def evaluate(
    model: nn.Module | Callable[[Tensor], Tensor],
    sampler: EpisodeSampler,
    sets: int,
    n: int,
    k_max: int | None = None,
    *,
    device: torch.device | None = None,
    seed: int = 1_000_003,
    batch: int = 50,
) -> list[Scores]:
    """Measures a network on sets that are always the same.

    Args:
        model: the network, or any function from sets (b, n, ...) to clusters (b, n).
        sampler: of the sets; it must give labels.
        sets: how many.
        n: items of each.
        k_max: the most clusters of each, if fewer than the sampler's.
        device: where to draw them.
        seed: of the sets.
        batch: how many at a time.

    Returns:
        The scores of each set.
    """
    scores = []
    for first in range(0, sets, batch):
        generator = torch.Generator(device or "cpu").manual_seed(seed + first)
        episode = sampler.draw(min(batch, sets - first), n, generator, k_max)
        if episode.labels is None:
            raise ValueError("the sets have no labels to compare with; expected a sampler of labelled items")
        answer = model(episode.x)
        found = answer if isinstance(answer, Tensor) else answer.clusters()
        scores += [score(t, f) for t, f in zip(episode.labels.cpu().numpy(), found.cpu().numpy(), strict=True)]
    return scores


def _planned_steps(task: ClusterTask, run: Path | None, minutes: float, device: str) -> int:
    """How many steps fit into the time; a run that goes on keeps to its plan."""
    plan = None if run is None else run / _PLAN
    if plan is not None and plan.is_file():
        return int(json.loads(plan.read_text(encoding="utf-8"))["steps"])
    if minutes <= 0:
        raise ValueError(f"minutes is {minutes}; expected a time above 0")
    seconds = _seconds_a_step(task, device)
    steps = max(2, int(60 * minutes / seconds))
    if plan is not None:
        with atomic_path(plan) as temporary:
            temporary.write_text(json.dumps({"steps": steps, "seconds a step": seconds}) + "\n", encoding="utf-8")
    return steps


def _seconds_a_step(task: ClusterTask, device: str) -> float:
    """Times steps of a copy of the network, the draws and a share of the validation included."""
    trial = ClusterTask(
        copy.deepcopy(task.network), task.sampler, task.validation, task.loss_options, replace(task.recipe, average=0.0)
    )
    place = resolve_device(device)
    trial.model.to(place).train()
    trial.prepare(place)
    optimizer = torch.optim.AdamW(trial.model.parameters(), lr=0.0, weight_decay=0.0)
    rng = np.random.default_rng(task.recipe.seed)
    draws = [task.recipe.curriculum.draw(0.5, task.sampler.k_max, rng) for _ in range(TRIAL_STEPS)]
    began = 0.0
    for step, draw in enumerate(draws):
        if step == TRIAL_STEPS // 3:  # the first steps load kernels and choose algorithms
            _wait(place)
            began = time.perf_counter()
        with torch.autocast(place.type, torch.bfloat16, enabled=place.type == "cuda"):
            loss = trial.loss(trial.model, draw, step)["loss"]
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()
    _wait(place)
    each = (time.perf_counter() - began) / (TRIAL_STEPS - TRIAL_STEPS // 3)
    trial.model.eval()
    began = time.perf_counter()
    trial.validate(trial.model)
    return each + (time.perf_counter() - began) / task.recipe.epoch


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
