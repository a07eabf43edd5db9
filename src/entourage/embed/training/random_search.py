"""Random search (thesis, chapter 4): recipes drawn from ranges, judged by classes that were held out.

Random search carried out: each recipe is trained, judged by classes it never saw, and remembered in a folder.
"""

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
    """Where recipes are drawn from; by default the intervals of the thesis."""

    learning_rate: tuple[float, float] = (1e-5, 0.1)  # all these are evenly spread in the logarithm
    weight_decay: tuple[float, float] = (1e-16, 0.1)
    temperature: tuple[float, float] = (1.0, 100.0)  # the text names none; the original code's lie between 24 and 79
    samples_per_class: tuple[int, int] = (5, 10)
    anchors_per_class: tuple[int, int] = (0, 4)
    batch: tuple[int, int] = (30, 100)  # the number of classes follows

    def __post_init__(self) -> None:
        for name in ("learning_rate", "weight_decay", "temperature", "samples_per_class", "batch"):
            low, high = getattr(self, name)
            if not 0 < low <= high:
                raise ValueError(f"{name} goes from {low} to {high}; expected two numbers above 0, the smaller first")
        low, high = self.anchors_per_class
        if not 0 <= low <= high < self.samples_per_class[0]:
            raise ValueError(
                f"anchors_per_class goes from {low} to {high}; expected 0 up to fewer than {self.samples_per_class[0]},"
                " the fewest samples of a class"
            )


@dataclass(frozen=True)
class Trial:
    """A recipe and how well it did."""

    recipe: Recipe
    score: float


def sample_recipes(recipe: Recipe, ranges: SearchSpace | None = None, *, seed: int = 0) -> Iterator[Recipe]:
    """Recipes without end, each with its own draw from the ranges; all else is as in the one that is given.

    The learning rate that is drawn is that of the first stage of the loss; the others are scaled alike.

    Args:
        recipe: where to begin.
        ranges: where to draw from; the thesis' when None.
        seed: another one draws others.
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
    """Tries recipes.

    Args:
        score: trains by a recipe and says how well it did on classes that were held out; more is better.
        recipe: where to begin.
        trials: how many to try.
        ranges: where to draw from; the thesis' when None.
        seed: of the draws.

    Returns:
        All trials, best first; one whose score is not a number (a training that diverged) comes last.
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
    """Train by recipes drawn from the thesis' ranges, each to its last epoch, and judge them by Recall@1.

    Args:
        load: gives a fresh backbone for each trial.
        data: the images, with the rows to train on.
        held_out: rows to judge by, of classes that are not trained on.
        recipe: where to begin; all that is not drawn stays as it is there, and its seed is that of the draws.
        trials: how many recipes to try.
        run_dir: a folder that remembers what each trial came to; a search that was stopped continues from it.
        device: where.
        progress: show a line for each trial; None: only on a terminal.

    Returns:
        All trials, best first; the score of one that diverged is not a number.

    Raises:
        ValueError: the folder holds another search, classes are both trained on and held out, or all trials diverged.
    """
    shared = set(data.labels[data.training].tolist()) & set(data.labels[held_out].tolist())
    if shared:
        raise ValueError(f"{len(shared)} classes are both trained on and held out; expected different ones")
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
            shutil.rmtree(folder, ignore_errors=True)  # some hundred megabytes that are not needed any more
        return trials_file.scores[sampled]

    results = random_search(score, recipe, trials, seed=recipe.seed)
    if math.isnan(results[0].score):
        raise ValueError(f"all {trials} trials diverged; expected one that does not, so try more or another recipe")
    return results


def trial_to_dict(trial: Trial) -> dict[str, Any]:
    """A trial for JSON, which has no word for what is not a number: null."""
    return {MONITORED: None if math.isnan(trial.score) else trial.score, "recipe": asdict(trial.recipe)}


class _TrialsFile:
    """What each recipe came to, in a file.

    Args:
        folder: of the search.
        search: what makes it this search and not another.
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
                raise ValueError(f"{self.path} is no record of this version: {error}; choose another folder") from error
            check_config(folder, stored_search, self.search, _MISMATCH_MESSAGES)

    def write(self) -> None:
        """Keep all scores."""
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
