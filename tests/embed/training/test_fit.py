"""Held-out classes, stages, selection of the best weights, and resumption of a training."""

from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from entourage.embed import GroupLoss, GroupLossOptions, retrieval_metrics
from entourage.embed.models import embed_rows
from entourage.embed.training import fit
from entourage.embed.training.fit import hold_out_classes, train_embedding
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.task import EmbeddingData, EmbeddingTask, NetworkWithLoss
from entourage.training import TrainingOptions, TrainingResult
from entourage.training.images import NO_AUGMENTATION, ImageBank

SIDE = 20  # side of the toy images
RECIPE = Recipe(
    average=None,
    size=SIDE,
    classes_per_batch=6,
    samples_per_class=4,
    view=NO_AUGMENTATION,
    group=GroupLossOptions(anchors_per_class=2),
    head="linear",
    stages=(Stage(2, 1e-2, "classification"), Stage(4, 1e-2)),
)


def make_data(toys: ModuleType, *, validation: bool = True) -> EmbeddingData:
    pixels, labels = toys.images(classes=12)
    training, held = hold_out_classes(labels, 0.5)
    return EmbeddingData(ImageBank(pixels), labels, training, {"validation": held} if validation else {})


def test_held_out_classes_are_not_trained_on() -> None:
    labels = np.repeat(["owl", "wren", "crow", "tit", "gull"], [3, 9, 4, 4, 5])
    training, held = hold_out_classes(labels, 0.4, seed=1)
    assert not set(labels[training]) & set(labels[held])
    assert len(set(labels[held])) == 2
    assert sorted([*training, *held]) == list(range(25))
    choices = {tuple(sorted(set(labels[hold_out_classes(labels, 0.4, seed)[1]]))) for seed in range(40)}
    assert len(choices) == 10  # all pairs of five


@pytest.mark.parametrize("fraction", [0.01, 0.99])
def test_each_side_has_two_classes_at_least(fraction: float) -> None:
    labels = np.arange(6).repeat(2)
    training, held = hold_out_classes(labels, fraction)
    assert min(len(set(labels[training])), len(set(labels[held]))) == 2


@pytest.mark.parametrize(("classes", "held"), [(11, 2), (12, 4), (40, 4), (60, 6)])
def test_number_of_held_out_classes(classes: int, held: int) -> None:
    labels = np.arange(classes)
    assert len(hold_out_classes(labels, 0.1)[1]) == held


@pytest.mark.parametrize(
    ("labels", "fraction", "message"),
    [
        ([0, 1, 2], 0.5, "labels: 3 classes; expected four or more"),
        ([0, 1, 2, 3], 1.0, r"fraction is 1.0; expected"),
    ],
)
def test_too_few_classes_or_a_wrong_fraction_raise(labels: list[int], fraction: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hold_out_classes(labels, fraction)


def test_training_improves_unseen_classes(toys: ModuleType) -> None:
    data = make_data(toys)
    held = data.eval_sets["validation"]
    untrained = fit.build_network(toys.backbone(), 2).eval()
    before = embed_rows(untrained, data.bank, held, toys.backbone().preprocessing)
    trained = train_embedding(toys.backbone(), data, RECIPE, device="cpu", progress=False)
    after = embed_rows(trained.network, data.bank, held, trained.preprocessing)
    first, last = (retrieval_metrics(e, data.labels[held], (1,), nmi=False)["recall@1"] for e in (before, after))
    assert last > first + 0.1
    assert last == trained.best == trained.stages[1].best
    assert [stage.epochs for stage in trained.stages] == [2, 4]
    assert not trained.network.training


def test_finished_training_is_reloaded(toys: ModuleType, tmp_path: Path) -> None:
    first_run = train_embedding(
        toys.backbone(), make_data(toys), RECIPE, run_dir=tmp_path / "run", device="cpu", progress=False
    )
    assert {path.name for path in (tmp_path / "run").iterdir()} == {"stage-1", "stage-2"}
    again = train_embedding(
        toys.backbone(), make_data(toys), RECIPE, run_dir=tmp_path / "run", device="cpu", progress=False
    )
    without_folder = train_embedding(toys.backbone(), make_data(toys), RECIPE, device="cpu", progress=False)
    for other in (again, without_folder):
        assert other.best == first_run.best
        for name, value in first_run.network.state_dict().items():
            assert torch.equal(value, other.network.state_dict()[name]), name
    assert again.stages == first_run.stages


class ScriptedTraining:
    """Replacement of the training loop: each stage adds 1 to the classifier's bias and has the given score."""

    def __init__(self, scores: list[float | None]) -> None:
        self.scores = scores
        self.initial_bias: list[float] = []
        self.memory_filled: list[bool] = []
        self.options: list[TrainingOptions] = []

    def __call__(self, task: EmbeddingTask, options: TrainingOptions, folder: Any, **_: Any) -> TrainingResult:
        bias = task.model.network.head.bias
        assert isinstance(task.model.loss, GroupLoss)
        self.memory_filled.append(task.model.loss.memory.nodes("cpu") is not None)
        task.model.loss.memory.add(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
        self.initial_bias.append(float(bias[0].detach()))
        self.options.append(options)
        with torch.no_grad():
            bias += 1
        return TrainingResult(options.epochs, 1, {}, self.scores[len(self.initial_bias) - 1], 1, "done", 0.0)


def test_from_best_restores_the_best_weights(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = (Stage(1, 3e-4, "classification"), Stage(30, 2e-4), *[Stage(20, 2e-5, from_best=True)] * 3)
    training = ScriptedTraining([None, 0.5, 0.4, 0.7, 0.6])
    monkeypatch.setattr(fit, "train", training)
    recipe = replace(RECIPE, stages=stages, group=replace(RECIPE.group, memory=1), classes_per_batch=2)
    trained = train_embedding(toys.backbone(), make_data(toys), recipe, device="cpu")
    assert training.memory_filled == [False, True, False, False, False]  # embeddings of other weights are removed
    start = training.initial_bias[0]
    # Stage 3 starts from the weights of stage 2, and so does stage 4, as stage 3 was worse; stage 5 from stage 4.
    assert [round(value - start) for value in training.initial_bias] == [0, 1, 2, 2, 3]
    assert trained.best == 0.7
    assert trained.epoch == 1 + 30 + 20 + 20
    assert round(float(trained.network.head.bias[0].detach()) - start) == 3
    assert [options.learning_rate for options in training.options] == [3e-4, 2e-4, 2e-5, 2e-5, 2e-5]
    assert [options.monitor for options in training.options] == [None, *["recall@1"] * 4]


def test_only_head_freezes_the_backbone(toys: ModuleType) -> None:
    backbone = toys.backbone()
    before = {name: value.clone() for name, value in backbone.module.state_dict().items()}
    first = replace(RECIPE, stages=(Stage(2, 1e-2, only_head=True),))
    head_only = train_embedding(backbone, make_data(toys), first, device="cpu", progress=False)
    start = train_embedding(toys.backbone(), make_data(toys), replace(first, stages=(Stage(1, 1e-9),)), device="cpu")
    after = head_only.network.body.state_dict()
    assert all(torch.equal(value, after[name]) for name, value in before.items())  # statistics are frozen, too
    assert (head_only.network.head.weight - start.network.head.weight).abs().max() > 1e-2
    both = replace(first, stages=(*first.stages, Stage(1, 1e-2)))
    trained = train_embedding(toys.backbone(), make_data(toys, validation=False), both, device="cpu", progress=False)
    assert len(trained.stages) == 2
    assert all(parameter.requires_grad for parameter in trained.network.body.parameters())
    assert any(not torch.equal(value, before[name]) for name, value in trained.network.body.state_dict().items())


@pytest.mark.parametrize(("loss", "stages"), [("triplet", 1), ("proxy-anchor", 2), ("cross-entropy", 2), ("group", 2)])
def test_stage_of_the_head_is_skipped_without_trainable_parameters(toys: ModuleType, loss: str, stages: int) -> None:
    pytest.importorskip("pytorch_metric_learning")
    recipe = replace(RECIPE, loss=loss, stages=(Stage(1, 1e-3, only_head=True), Stage(1, 1e-3)))
    trained = train_embedding(toys.backbone(), make_data(toys), recipe, device="cpu")
    assert (len(trained.stages), trained.epochs, trained.epoch) == (stages, stages, stages)
    embedding = replace(recipe, dimensions=4)  # the embedding layer has trainable parameters
    assert len(train_embedding(toys.backbone(), make_data(toys), embedding, device="cpu").stages) == 2


def test_stage_may_have_a_separate_weight_decay(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    training = ScriptedTraining([None, None])
    monkeypatch.setattr(fit, "train", training)
    stages = (Stage(1, 1e-3, weight_decay=0.0), Stage(1, 1e-3))
    recipe = replace(RECIPE, stages=stages, weight_decay=0.25)
    train_embedding(toys.backbone(), make_data(toys, validation=False), recipe, device="cpu")
    assert [options.weight_decay for options in training.options] == [0.0, 0.25]


def test_last_of_equally_good_stages_is_selected(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    training = ScriptedTraining([1.0, 1.0, 0.9])
    monkeypatch.setattr(fit, "train", training)
    recipe = replace(RECIPE, stages=(Stage(3, 2e-4), Stage(4, 2e-4), Stage(5, 2e-4)))
    trained = train_embedding(toys.backbone(), make_data(toys), recipe, device="cpu")
    assert round(float(trained.network.head.bias[0].detach()) - training.initial_bias[0]) == 2
    assert trained.epoch == 7


@pytest.mark.parametrize("in_folder", [True, False])
def test_last_of_equally_good_epochs_is_selected(
    toys: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_folder: bool
) -> None:
    weights: list[torch.Tensor] = []

    def validate(task: EmbeddingTask, model: NetworkWithLoss) -> dict[str, float]:
        weights.append(model.network.head.weight.clone())
        return {"recall@1": (1.0, 1.0, 0.5, 1.0, 0.5)[len(weights) - 1]}

    monkeypatch.setattr(EmbeddingTask, "validate", validate)
    recipe = replace(RECIPE, stages=(Stage(5, 1e-2),))
    run = tmp_path if in_folder else None
    trained = train_embedding(toys.backbone(), make_data(toys), recipe, run_dir=run, device="cpu", progress=False)
    assert trained.epoch == 4
    assert torch.equal(trained.network.head.weight, weights[3])
    assert not torch.equal(weights[3], weights[0])


def test_last_weights_are_returned_without_validation(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    training = ScriptedTraining([None, None])
    monkeypatch.setattr(fit, "train", training)
    trained = train_embedding(toys.backbone(), make_data(toys, validation=False), RECIPE, device="cpu")
    assert trained.best is None
    assert trained.epoch == 6
    assert [options.restore_best for options in training.options] == [False, False]
    assert round(float(trained.network.head.bias[0].detach()) - training.initial_bias[0]) == 2


def test_initial_weights_depend_on_the_seed(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit, "train", ScriptedTraining([None] * 6))
    data = make_data(toys, validation=False)
    heads = [
        train_embedding(toys.backbone(), data, replace(RECIPE, seed=seed), device="cpu").network.head.weight
        for seed in (0, 0, 1)
    ]
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_averaged_weights_are_returned(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    def averaged(task: EmbeddingTask, options: TrainingOptions, folder: Any, **_: Any) -> TrainingResult:
        assert task.average is not None
        with torch.no_grad():
            task.average.module.network.head.bias.fill_(7)
        return TrainingResult(1, 1, {}, None, None, "done", 0.0)

    monkeypatch.setattr(fit, "train", averaged)
    data = make_data(toys, validation=False)
    trained = train_embedding(toys.backbone(), data, replace(RECIPE, average=0.9), device="cpu")
    assert (trained.network.head.bias == 7).all()
