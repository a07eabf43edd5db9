"""Batches, losses, parameter groups, validation and resumption of the training task."""

import copy
from dataclasses import replace
from types import ModuleType

import numpy as np
import pytest
import torch

from entourage.embed import BASELINE_LOSSES, GroupLoss, GroupLossOptions, MultiCenterHead, retrieval_metrics
from entourage.embed.models import build_network, embed_rows
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.task import EmbeddingData, EmbeddingTask, NetworkWithLoss, make_loss
from entourage.training import TrainingOptions, train
from entourage.training.images import NO_AUGMENTATION, ImageBank

SIDE = 20  # side of the toy images
RECIPE = Recipe(
    size=SIDE,
    classes_per_batch=3,
    samples_per_class=4,
    head="linear",
    head_rate=5.0,
    view=NO_AUGMENTATION,
    average=None,
    seed=2,
)
METRIC = Stage(1, 1e-3)


def make_data(toys: ModuleType) -> EmbeddingData:
    pixels, labels = toys.images()
    training = np.flatnonzero(np.isin(labels, [1, 2, 5, 6, 7]))
    return EmbeddingData(
        ImageBank(pixels), labels, training, {"validation": np.flatnonzero(np.isin(labels, [0, 3, 4]))}
    )


def task_of(toys: ModuleType, recipe: Recipe = RECIPE, stage: Stage = METRIC, epochs_before: int = 0) -> EmbeddingTask:
    backbone, data = toys.backbone(), make_data(toys)
    network = build_network(backbone, 5, head=recipe.head)
    model = NetworkWithLoss(network, make_loss(recipe, 5, network.embedding_size))
    return EmbeddingTask(model, backbone.preprocessing, data, recipe, stage, epochs_before)


def test_class_codes_are_consecutive(toys: ModuleType) -> None:
    data = make_data(toys)
    assert data.codes.tolist() == np.repeat(np.arange(5), 12).tolist()


def test_batches_are_balanced_or_shuffled_by_task(toys: ModuleType) -> None:
    task = task_of(toys)
    for rows in task.plan(0):
        assert np.unique(task.codes[rows], return_counts=True)[1].tolist() == [4, 4, 4]
    shuffled = task_of(toys, replace(RECIPE, classification_batch=7), Stage(1, 1e-3, "classification")).plan(0)
    assert [len(rows) for rows in shuffled] == [7] * 8
    assert len(set(np.concatenate(shuffled).tolist())) == 56


def test_later_stages_continue_the_order_of_epochs(toys: ModuleType) -> None:
    first, later = task_of(toys), task_of(toys, epochs_before=3)
    assert all(np.array_equal(a, b) for a, b in zip(first.plan(5), later.plan(2), strict=True))
    assert not all(np.array_equal(a, b) for a, b in zip(first.plan(5), first.plan(4), strict=True))


def test_batch_contains_images_and_classes_of_its_rows(toys: ModuleType) -> None:
    task = task_of(toys)
    rows = np.array([0, 13, 59])
    batch = task.load(rows, np.random.default_rng(0))
    expected = torch.from_numpy(task.data.bank.values[task.data.training[rows]]).permute(0, 3, 1, 2)
    assert torch.equal(batch.images, expected)
    assert batch.codes.tolist() == [0, 1, 4]


def test_loss_is_that_of_the_recipe(toys: ModuleType) -> None:
    task = task_of(toys, replace(RECIPE, group=GroupLossOptions(anchor_choice="first", class_players=1.0)))
    batch = task.load(task.plan(0)[0], np.random.default_rng(0))
    network = task.model.network.eval()
    output = network(task.preprocessing.normalize(batch.images))
    game, cross_entropy, _ = task.model.loss.terms(*output, batch.codes, network.head.weight)
    losses = task.loss(task.model, batch, 0)
    # The views are resampled at the positions of the pixels, so that they are equal up to rounding.
    torch.testing.assert_close(losses["loss"], game + 3 * cross_entropy, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(losses["game"], game.detach(), rtol=1e-3, atol=1e-3)
    plain = task_of(toys, stage=Stage(1, 1e-3, "classification"))
    plain.model.load_state_dict(task.model.state_dict())
    plain.model.eval()
    torch.testing.assert_close(plain.loss(plain.model, batch, 0)["loss"], cross_entropy, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("loss", ["group", "cross-entropy"])
def test_classifier_weight_is_not_computed_unless_required(
    toys: ModuleType, loss: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(head: MultiCenterHead) -> None:
        raise AssertionError("the weight was computed")

    task = task_of(toys, replace(RECIPE, loss=loss, head="centres"))
    monkeypatch.setattr(MultiCenterHead, "weight", property(fail))
    batch = task.load(task.plan(0)[0], np.random.default_rng(0))
    assert task.loss(task.model, batch, 0)["loss"].isfinite()


@pytest.mark.filterwarnings("ignore:.*")
@pytest.mark.parametrize("name", BASELINE_LOSSES)
def test_every_baseline_loss_can_replace_the_group_loss(toys: ModuleType, name: str) -> None:
    pytest.importorskip("pytorch_metric_learning")
    task = task_of(toys, replace(RECIPE, loss=name))
    before = copy.deepcopy(task.model.network.body.state_dict())
    result = train(task, TrainingOptions(epochs=1, learning_rate=1e-2, workers=0), device="cpu", progress=False)
    assert result.steps == 5
    after = task.model.network.body.state_dict()
    assert any(not torch.equal(before[key], after[key]) for key in before)


def test_new_parameters_have_a_higher_learning_rate(toys: ModuleType) -> None:
    pytest.importorskip("pytorch_metric_learning")
    task = task_of(toys, replace(RECIPE, loss="proxy-anchor"))
    body, new = task.parameter_groups()
    assert "lr_scale" not in body
    assert new["lr_scale"] == 5
    assert sum(p.numel() for p in new["params"]) == 5 * 8 + 5 + 5 * 8  # classifier and proxies
    assert len(body["params"]) + len(new["params"]) == len(list(task.model.parameters()))


def test_validation_is_recall_within_each_evaluation_set(toys: ModuleType) -> None:
    task = task_of(toys)
    labels = task.data.labels
    rows = np.flatnonzero(labels < 3)
    task.data = replace(task.data, eval_sets={"validation": rows, "test": np.flatnonzero(labels > 4)})
    task.model.eval()
    results = task.validate(task.model)
    embeddings = embed_rows(task.model.network, task.data.bank, rows, task.preprocessing)
    assert results["recall@1"] == retrieval_metrics(embeddings, labels[rows], (1,), nmi=False)["recall@1"]
    assert set(results) == {"recall@1", "test recall@1"}


def test_average_and_memory_are_saved_for_resuming(toys: ModuleType) -> None:
    recipe = replace(RECIPE, average=0.5, group=GroupLossOptions(memory=2), samples_per_class=2)
    task, other = task_of(toys, recipe), task_of(toys, recipe)
    train(task, TrainingOptions(epochs=1, workers=0), device="cpu", progress=False)
    other.model.load_state_dict(task.model.state_dict())
    other.load_extra_state(task.extra_state())
    kinds = {name.partition(".")[0]: name.startswith(task.per_process_state) for name in task.extra_state()}
    assert kinds == {"average": False, "memory": True}  # each process stores other batches
    assert isinstance(other.model.loss, GroupLoss)
    assert isinstance(task.model.loss, GroupLoss)
    stored, again = task.model.loss.memory.nodes("cpu"), other.model.loss.memory.nodes("cpu")
    assert stored is not None
    assert again is not None
    assert torch.equal(stored.inputs, again.inputs)
    average = other.final_model().state_dict()
    assert all(torch.equal(value, average[name]) for name, value in task.final_model().state_dict().items())
    assert any(not torch.equal(value, average[name]) for name, value in task.model.state_dict().items())


@pytest.mark.parametrize(("classes", "samples", "stored"), [(3, 4, 1), (3, 1, 4), (5, 4, 0)])
def test_memory_is_limited_to_a_quarter_of_an_epoch(toys: ModuleType, classes: int, samples: int, stored: int) -> None:
    group = GroupLossOptions(memory=4, anchors_per_class=0)
    recipe = replace(RECIPE, group=group, classes_per_batch=classes, samples_per_class=samples)
    loss = task_of(toys, recipe).model.loss  # 60 images per epoch
    assert isinstance(loss, GroupLoss)
    for _ in range(6):
        loss.memory.add(torch.zeros(1, 1), torch.zeros(1, dtype=torch.long))
    assert len(loss.memory.state_dict()) == 2 * stored


def test_final_model_without_average_is_the_model(toys: ModuleType) -> None:
    task = task_of(toys)
    assert task.final_model() is task.model
    assert task.extra_state() == {}
    task.load_extra_state({})


@pytest.mark.parametrize("change", [{"seed": 3}, {"head_rate": 1.0}, {"group": GroupLossOptions(iterations=2)}])
def test_config_depends_on_the_recipe(toys: ModuleType, change: dict[str, object]) -> None:
    assert task_of(toys, replace(RECIPE, **change)).config() != task_of(toys).config()  # type: ignore[arg-type]
    assert task_of(toys).config() == task_of(toys).config()


def test_config_depends_on_pixels_and_backbone(toys: ModuleType) -> None:
    task, before = task_of(toys), task_of(toys).config()
    values = task.data.bank.values.copy()
    values[-1, -1, -1, -1] ^= 1
    task.data = replace(task.data, bank=ImageBank(values))
    task.backbone = "other"
    assert {name for name, value in task.config().items() if value != before[name]} == {"pixels", "backbone"}


def test_classes_per_batch_is_limited_to_the_classes(toys: ModuleType) -> None:
    task = task_of(toys, replace(RECIPE, classes_per_batch=50))
    assert len(np.unique(task.codes[task.plan(0)[0]])) == 5


def test_single_class_or_mismatched_labels_raise(toys: ModuleType) -> None:
    pixels, labels = toys.images()
    with pytest.raises(ValueError, match="training: images of one class; expected two or more"):
        EmbeddingData(ImageBank(pixels), labels, np.arange(12))
    with pytest.raises(ValueError, match="eval_sets: 'validation' has 1 classes; expected two or more"):
        EmbeddingData(ImageBank(pixels), labels, np.arange(24), {"validation": np.arange(12)})
    with pytest.raises(ValueError, match=r"labels have shape \(95,\); expected \(96,\), one per image"):
        EmbeddingData(ImageBank(pixels), labels[1:], np.arange(12))
