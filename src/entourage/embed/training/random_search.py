"""Random search of hyperparameters (thesis, chapter 4), evaluated on held-out classes and stored in a folder."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from entourage.backbones.backbone import Backbone
from entourage.embed.losses.batch_graph import NonFiniteInputError
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.models import Rows, embed_rows
from entourage.embed.training.fit import TrainedEmbedding, train_embedding
from entourage.embed.training.recipes import Recipe, recipe_from_dict, with_learning_rate
from entourage.embed.training.task import DIFFERENT_PIXELS, DIFFERENT_ROWS, MONITORED, EmbeddingData
from entourage.io.files import write_json
from entourage.runs.directory import check_config
from entourage.training.meters import NonFiniteLossError


@dataclass(frozen=True)
class SearchSpace:
    """Ranges of a random search; the defaults are those of the thesis, where it states them.

    Attributes:
        learning_rate: range of the learning rate, sampled log-uniformly.
        weight_decay: range of the weight decay, sampled log-uniformly.
        temperature: range of the temperature, sampled log-uniformly.
        samples_per_class: range of the samples per class, both ends included.
        anchors_per_class: range of the anchors per class, both ends included.
        batch: range of the batch size, from which the number of classes is derived.
    """

    learning_rate: tuple[float, float] = (1e-5, 0.1)
    weight_decay: tuple[float, float] = (1e-16, 0.1)
    temperature: tuple[float, float] = (1.0, 100.0)  # not in the thesis; the original code uses 24 to 79
    samples_per_class: tuple[int, int] = (5, 10)
    anchors_per_class: tuple[int, int] = (0, 4)
    batch: tuple[int, int] = (30, 100)

    def __post_init__(self) -> None:
        for name in ("learning_rate", "weight_decay", "temperature", "samples_per_class", "batch"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} is ({low}, {high}); expected two numbers above 0, the smaller first")
        low, high = self.anchors_per_class
        if not 0 <= low <= high < self.samples_per_class[0]:
            raise ValueError(
                f"anchors_per_class is ({low}, {high}); expected numbers from 0 to {self.samples_per_class[0] - 1},"
                " fewer than the samples per class"
            )


@dataclass(frozen=True)
class Trial:
    """A recipe of a random search, and its Recall@1 on the held-out classes; NaN if the training diverged."""

    recipe: Recipe
    score: float


def sample_recipes(recipe: Recipe, ranges: SearchSpace | None = None, *, seed: int = 0) -> Iterator[Recipe]:
    """Yield an infinite sequence of recipes with hyperparameters drawn from ranges.

    The learning rate is that of the first stage with the metric loss; those of other stages are scaled by the same
    factor.

    Args:
        recipe: values of all other options.
        ranges: ranges to draw from; None for those of the thesis.
        seed: random seed of the draws.

    Yields:
        Recipes.
    """
    ranges = ranges or SearchSpace()
    rng = np.random.default_rng(seed)
    while True:
        rate = _log_uniform(rng, ranges.learning_rate)
        samples = int(rng.integers(ranges.samples_per_class[0], ranges.samples_per_class[1] + 1))
        min_classes, max_classes = math.ceil(ranges.batch[0] / samples), ranges.batch[1] // samples
        yield replace(
            with_learning_rate(recipe, rate),
            weight_decay=_log_uniform(rng, ranges.weight_decay),
            samples_per_class=samples,
            classes_per_batch=int(rng.integers(min_classes, max(min_classes, max_classes) + 1)),
            group=replace(
                recipe.group,
                temperature=_log_uniform(rng, ranges.temperature),
                anchors_per_class=int(rng.integers(ranges.anchors_per_class[0], ranges.anchors_per_class[1] + 1)),
            ),
        )


def random_search(
    score: Callable[[Recipe], float],
    recipe: Recipe,
    trials: int,
    ranges: SearchSpace | None = None,
    *,
    seed: int = 0,
) -> list[Trial]:
    """Evaluate randomly drawn recipes.

    Args:
        score: trains by a recipe and returns its score; higher is better.
        recipe: values of all options that are not drawn.
        trials: number of recipes.
        ranges: ranges to draw from; None for those of the thesis.
        seed: random seed of the draws.

    Returns:
        All trials, best first; those with a score of NaN (diverged trainings) come last.

    Raises:
        ValueError: `trials` is less than 1.
    """
    if trials < 1:
        raise ValueError(f"trials is {trials}; expected 1 or more")
    recipes = sample_recipes(recipe, ranges, seed=seed)
    results = [Trial(one, score(one)) for _, one in zip(range(trials), recipes, strict=False)]
    return sorted(results, key=lambda trial: -math.inf if math.isnan(trial.score) else trial.score, reverse=True)


def _log_uniform(rng: np.random.Generator, span: tuple[float, float]) -> float:
    return float(np.exp(rng.uniform(math.log(span[0]), math.log(span[1]))))


TRIALS_FILE = "trials.json"
_MISMATCH_MESSAGES = {"rows": DIFFERENT_ROWS, "held_out": DIFFERENT_ROWS, "pixels": DIFFERENT_PIXELS}


def search_recipes(
    load: Callable[[], Backbone],
    data: EmbeddingData,
    held_out: Rows,
    recipe: Recipe,
    trials: int,
    *,
    run_dir: str | Path,
    device: str | torch.device = "auto",
    progress: bool | None = None,
) -> list[Trial]:
    """Train recipes drawn from the ranges of the thesis to their last epoch, and rank them by Recall@1.

    Args:
        load: returns a new backbone for each trial.
        data: the images, with the rows to train on.
        held_out: rows that Recall@1 is computed on, of classes that are not trained on.
        recipe: values of all options that are not drawn; its seed is also that of the draws.
        trials: number of recipes.
        run_dir: folder in which the results of trials are stored, so that an interrupted search resumes.
        device: device to train on.
        progress: whether to show a progress line for each trial; None: only on a terminal.

    Returns:
        All trials, best first; the score of a diverged training is NaN.

    Raises:
        ValueError: the folder contains another search, classes are both trained on and held out, or all trials diverge.
    """
    shared = set(data.labels[data.training].tolist()) & set(data.labels[held_out].tolist())
    if shared:
        raise ValueError(f"held_out: {len(shared)} classes are also trained on; expected other classes")
    trials_file = _TrialsFile(Path(run_dir), _search_config(load().origin, data, held_out, recipe, trials))

    def score(sampled: Recipe) -> float:
        if sampled not in trials_file.scores:
            number = len(trials_file.scores) + 1
            folder = Path(run_dir) / f"trial-{number}"
            title = f"Trial {number} of {trials}"
            try:
                trained = train_embedding(
                    load(), data, sampled, run_dir=folder, device=device, progress=progress, title=title
                )
                trials_file.scores[sampled] = _recall(trained, data, held_out)
            except (NonFiniteLossError, NonFiniteInputError):
                trials_file.scores[sampled] = math.nan
            trials_file.write()
            shutil.rmtree(folder, ignore_errors=True)  # checkpoints of several hundred megabytes
        return trials_file.scores[sampled]

    results = random_search(score, recipe, trials, seed=recipe.seed)
    if math.isnan(results[0].score):
        raise ValueError(f"trials: all {trials} diverged; expected one that does not, so try more or another recipe")
    return results


def trial_to_dict(trial: Trial) -> dict[str, Any]:
    """Convert a trial to a dict for JSON, which has no NaN: the score of a diverged training is null."""
    return {MONITORED: None if math.isnan(trial.score) else trial.score, "recipe": asdict(trial.recipe)}


class _TrialsFile:
    """Scores of the evaluated recipes, stored in `trials.json`.

    Args:
        folder: folder of the search.
        search: configuration of the search; a ValueError is raised if that of an existing file differs.
    """

    def __init__(self, folder: Path, search: dict[str, Any]) -> None:
        self.path = folder / TRIALS_FILE
        self.search: dict[str, Any] = json.loads(json.dumps(search))
        self.scores: dict[Recipe, float] = {}
        if self.path.exists():
            try:
                stored = json.loads(self.path.read_text("utf-8"))
                self.scores = {recipe_from_dict(one["recipe"]): _number(one[MONITORED]) for one in stored["trials"]}
                stored_search = dict(stored["search"])
            except (ValueError, KeyError, TypeError) as error:
                raise ValueError(
                    f"{self.path}: invalid ({error}); expected trials of this version, or another folder"
                ) from error
            check_config(folder, stored_search, self.search, _MISMATCH_MESSAGES)

    def write(self) -> None:
        """Write all scores."""
        trials = [Trial(recipe, score) for recipe, score in self.scores.items()]
        write_json(self.path, {"search": self.search, "trials": [trial_to_dict(trial) for trial in trials]})


def _recall(trained: TrainedEmbedding, data: EmbeddingData, rows: Rows) -> float:
    embeddings = embed_rows(trained.network, data.bank, rows, trained.preprocessing)
    if not bool(embeddings.isfinite().all()):
        return math.nan
    return retrieval_metrics(embeddings, data.labels[rows], (1,), nmi=False)[MONITORED]


def _search_config(backbone: str, data: EmbeddingData, held_out: Rows, recipe: Recipe, trials: int) -> dict[str, Any]:
    digest = hashlib.blake2b(held_out.tobytes(), digest_size=12).hexdigest()
    return {"trials": trials, "backbone": backbone, "recipe": asdict(recipe), **data.config(), "held_out": digest}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
