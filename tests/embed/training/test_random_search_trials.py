"""Training, evaluation, storage and resumption of the trials of a random search."""

import json
import math
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from entourage.backbones.backbone import Backbone
from entourage.embed import retrieval_metrics
from entourage.embed.losses.batch_graph import NonFiniteInputError
from entourage.embed.models import Rows, embed_rows
from entourage.embed.training import random_search as trials
from entourage.embed.training.fit import TrainedEmbedding, train_embedding
from entourage.embed.training.random_search import TRIALS_FILE, Trial, sample_recipes, search_recipes, trial_to_dict
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.task import EmbeddingData
from entourage.training.images import NO_AUGMENTATION, ImageBank
from entourage.training.meters import NonFiniteLossError

RECIPE = Recipe(size=20, view=NO_AUGMENTATION, stages=(Stage(1, 1e-3, "classification"), Stage(1, 1e-2)), seed=5)


def split_data(toys: ModuleType) -> tuple[EmbeddingData, Rows]:
    pixels, labels = toys.images(each=6)
    return EmbeddingData(ImageBank(pixels), labels, np.flatnonzero(labels > 2)), np.flatnonzero(labels <= 2)


def search(toys: ModuleType, run: Path, count: int = 3, **change: Any) -> list[Trial]:
    data, held_out = split_data(toys)
    values = {"load": toys.backbone, "data": data, "held_out": held_out, "recipe": RECIPE, **change}
    return search_recipes(**values, trials=count, run_dir=run, device="cpu", progress=False)


class StoppedError(Exception):
    """Simulated interruption."""


def fail_after(monkeypatch: pytest.MonkeyPatch, count: int, error: Exception) -> None:
    """Let the trainings after the first `count` fail with an error."""
    remaining = iter([True] * count)

    def train(*arguments: Any, **options: Any) -> TrainedEmbedding:
        if next(remaining, False):
            return train_embedding(*arguments, **options)
        raise error

    monkeypatch.setattr(trials, "train_embedding", train)


def test_each_trial_is_a_sampled_recipe_scored_on_held_out_classes(toys: ModuleType, tmp_path: Path) -> None:
    results = search(toys, tmp_path)
    assert [one.score for one in results] == sorted((one.score for one in results), reverse=True)
    data, held_out = split_data(toys)
    for _, drawn in zip(range(3), sample_recipes(RECIPE, seed=5), strict=False):
        single = train_embedding(toys.backbone(), data, drawn, device="cpu", progress=False)
        embeddings = embed_rows(single.network, data.bank, held_out, single.preprocessing)
        recall = retrieval_metrics(embeddings, data.labels[held_out], (1,), nmi=False)["recall@1"]
        assert Trial(drawn, recall) in results
    assert [path.name for path in tmp_path.iterdir()] == [TRIALS_FILE]  # checkpoints are removed


def test_interrupted_search_resumes(toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uninterrupted = search(toys, tmp_path / "uninterrupted")
    fail_after(monkeypatch, 2, StoppedError())
    with pytest.raises(StoppedError):
        search(toys, tmp_path / "run")
    fail_after(monkeypatch, 1, StoppedError())
    assert search(toys, tmp_path / "run") == uninterrupted
    assert search(toys, tmp_path / "run") == uninterrupted  # a finished search is not repeated


@pytest.mark.parametrize("error", [NonFiniteLossError("the loss is nan"), NonFiniteInputError("embeddings are nan")])
def test_diverged_trials_come_last(
    toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    fail_after(monkeypatch, 2, error)
    results = search(toys, tmp_path)
    assert [math.isnan(one.score) for one in results] == [False, False, True]
    assert json.loads((tmp_path / TRIALS_FILE).read_text())["trials"][2]["recall@1"] is None
    again = search(toys, tmp_path)
    assert [one.recipe for one in again] == [one.recipe for one in results]
    with pytest.raises(ValueError, match="trials: all 2 diverged; expected one"):
        search(toys, tmp_path / "other", 2)


def test_other_configuration_raises(toys: ModuleType, tmp_path: Path) -> None:
    search(toys, tmp_path, 1)
    data, held_out = split_data(toys)
    pixels = data.bank.values.copy()
    pixels[0] ^= 1

    def other() -> Backbone:
        return replace(toys.backbone(), name="other")

    for change, name in (
        ({"count": 2}, "trials 1, now 2"),
        ({"load": other}, "backbone 'toy .*', now 'other .*'"),
        ({"data": replace(data, bank=ImageBank(pixels))}, "other images"),
        ({"held_out": held_out[1:]}, "other training images or classes"),
        ({"recipe": replace(RECIPE, head="cosine")}, "recipe"),
    ):
        with pytest.raises(ValueError, match=f"holds a run with {name}"):
            search(toys, tmp_path, **{"count": 1, **change})  # type: ignore[arg-type]
    (tmp_path / TRIALS_FILE).write_text("{}")
    with pytest.raises(ValueError, match=r"trials.json: invalid .*; expected trials of this version"):
        search(toys, tmp_path, 1)


def test_shared_classes_raise(toys: ModuleType, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="held_out: 1 classes are also trained on; expected other classes"):
        search(toys, tmp_path, held_out=np.arange(24))


def test_trial_to_dict_replaces_nan() -> None:
    assert trial_to_dict(Trial(RECIPE, 0.5))["recall@1"] == 0.5
    assert trial_to_dict(Trial(RECIPE, math.nan))["recall@1"] is None
