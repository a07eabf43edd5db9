"""Shared parts of the `embed` experiments: data sets, one training protocol for all losses, and measurements.

All losses have the same network, images, augmentation, batches, optimiser and number of epochs; the randomly
initialised layers are trained alone for one epoch before. The learning rate is constant and the moving average of the
weights is evaluated, so that the number of epochs can be chosen within a single training.
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.backbones.backbone import Backbone
from entourage.backbones.registry import load_backbone
from entourage.compute import resolve_device
from entourage.data.datasets.registry import find_dataset
from entourage.data.pixels import decode_pixels
from entourage.embed import retrieval_metrics
from entourage.embed.data import sample_classes
from entourage.embed.losses.options import GroupLossOptions
from entourage.embed.models import Rows, build_network, embed_rows
from entourage.embed.training.fit import (
    TrainedEmbedding,
    build_model,
    hold_out_classes,
    network_preprocessing,
    train_embedding,
)
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.run_folder import read_training_history
from entourage.embed.training.task import EmbeddingData, EmbeddingTask
from entourage.training.images import ImageBank
from experiments.cells import FailedError
from experiments.command import one_or_more

# Group Loss and classifier that presets and variants modify.
PLAIN = GroupLossOptions(temperature=24.0, anchors_per_class=2, cross_entropy_weight=1.0, memory=0)
BASE = Recipe(group=PLAIN, head="linear")
MIRRORED = "recall@1, mirrored"  # sum of the embeddings of an image and of its mirror image
HELD_OUT = 0.5  # fraction of the training classes for validation: a gallery of about the test size
IMAGES = {"cub200": (5864, 5924), "cars196": (8048, 8122)}  # numbers of training and test images
EACH = 80.0  # approximate images per class
# Estimates for one H200: images per second in training and in evaluation; seconds to start a training and to evaluate.
TRAINED_PER_SECOND, EVALUATED_PER_SECOND, BEGIN, MEASURE = 1500.0, 20000.0, 3.0, 3.0
EPOCHS_NOTE = (  # for tables by epoch
    "Epochs count the training of the backbone: epoch 0 is the one before, in which it is frozen and only the randomly"
    " initialised layers are trained."
)


@dataclass(frozen=True)
class Setting:
    """Settings of an experiment.

    Attributes:
        datasets: names of data sets with a zero-shot split.
        backbone: name of the pretrained network.
        recipe: recipe shared by all losses.
        seeds: number of trainings per figure.
        classes: number of classes of either half; None for all.
        device: device of the computation.
    """

    datasets: tuple[str, ...] = ("cub200", "cars196")
    backbone: str = "efficientnet-lite1"
    recipe: Recipe = BASE
    seeds: int = 3
    classes: int | None = None
    device: str = "auto"

    def described(self) -> dict[str, Any]:
        """Return the settings on which results depend, for the ledger."""
        return {"backbone": self.backbone, "classes": self.classes, "recipe": asdict(self.recipe)}

    def seconds(self, dataset: str, epochs: int, *, choosing: bool = False) -> float:
        """Estimate the seconds of a trial on one H200; with few classes, on any machine."""
        training, test = IMAGES.get(dataset, (1000, 1000)) if self.classes is None else 2 * (EACH * self.classes,)
        if choosing:
            held_out = HELD_OUT * training
            return BEGIN + epochs * ((training - held_out) / TRAINED_PER_SECOND + held_out / EVALUATED_PER_SECOND)
        return BEGIN + epochs * training / TRAINED_PER_SECOND + test / EVALUATED_PER_SECOND + MEASURE


@dataclass(frozen=True)
class Halves:
    """A data set in memory with the rows of the training classes and of the other, test classes."""

    bank: ImageBank
    labels: Rows
    training: Rows
    test: Rows


@dataclass
class Bench:
    """Trainings and measurements; data sets are decoded at first use."""

    setting: Setting
    _read: dict[str, Halves] = field(default_factory=dict)

    def halves(self, dataset: str) -> Halves:
        """Return a data set, decoded once.

        Raises:
            ValueError: the data set is missing or damaged.
        """
        if dataset not in self._read:
            images = find_dataset(dataset)
            if self.setting.classes is not None:
                images = images.subset(_first_classes(images.labels, images.split, self.setting.classes))
            side = self.setting.recipe.decoded_side
            pixels = decode_pixels(images, (side, side), progress=False)
            labels, split = images.labels[pixels.indices], images.split[pixels.indices]
            bank = ImageBank(pixels.values)
            self._read[dataset] = Halves(bank, labels, np.flatnonzero(split == 0), np.flatnonzero(split == 1))
        return self._read[dataset]

    def choose(self, dataset: str, recipe: Recipe) -> dict[str, float]:
        """Train on a part of the training classes and evaluate on the others after each epoch.

        Returns:
            The best Recall@1 and its epoch.
        """
        halves = self.halves(dataset)
        training_rows, held_out = hold_out_classes(halves.labels[halves.training], HELD_OUT, recipe.seed)
        parts = {"validation": halves.training[held_out]}
        trained = self._train(EmbeddingData(halves.bank, halves.labels, halves.training[training_rows], parts), recipe)
        result = trained.stages[-1]
        if result.best is None or result.best_step is None:
            raise FailedError("recall of the held-out classes is NaN")
        return {"recall@1": result.best, "epoch": round(result.best_step * result.epochs / result.steps)}

    def train(self, dataset: str, recipe: Recipe) -> TrainedEmbedding:
        """Train on all training classes, to the last epoch."""
        halves = self.halves(dataset)
        return self._train(EmbeddingData(halves.bank, halves.labels, halves.training), recipe)

    def recall_by_epoch(self, dataset: str, recipe: Recipe, *, on_training: bool = False) -> dict[str, list[float]]:
        """Train on all training classes and evaluate on the test classes after each epoch, without any selection.

        Args:
            dataset: name of the data set.
            recipe: training recipe.
            on_training: evaluate also on about as many training images as there are test images.

        Returns:
            Recall@1 after each epoch for "test" and, with `on_training`, for "training"; if the backbone is frozen in
            the first epoch, as with `with_training`, the first value is that of the pretrained features.
        """
        halves, parts = self.halves(dataset), {}
        if on_training:
            n_rows = min(len(halves.training), len(halves.test))
            parts["training"] = sample_classes(halves.labels, halves.training, n_rows)
        data = EmbeddingData(halves.bank, halves.labels, halves.training, {**parts, "test": halves.test})
        with tempfile.TemporaryDirectory() as folder:
            self._train(data, recipe, folder)
            return read_training_history(folder)

    def task(self, dataset: str, recipe: Recipe) -> EmbeddingTask:
        """Return the task of the last training stage, for timing."""
        halves, backbone = self.halves(dataset), self.load()
        data = EmbeddingData(halves.bank, halves.labels, halves.training)
        model = build_model(backbone, recipe, int(data.codes.max()) + 1)
        preprocessing = network_preprocessing(backbone, recipe)
        return EmbeddingTask(model, preprocessing, data, recipe, recipe.stages[-1], 0, backbone.name)

    def embed_test(self, dataset: str, trained: TrainedEmbedding, *, flip: bool = False) -> torch.Tensor:
        """Return embeddings of the test images, shape (n, d); with `flip` summed with those of the mirror images."""
        halves = self.halves(dataset)
        return embed_rows(trained.network, halves.bank, halves.test, trained.preprocessing, flip=flip)

    def measure(self, dataset: str, embeddings: torch.Tensor) -> dict[str, float]:
        """Return all metrics of embeddings of the test images."""
        halves = self.halves(dataset)
        return retrieval_metrics(embeddings, halves.labels[halves.test])

    def test(self, dataset: str, recipe: Recipe) -> dict[str, float]:
        """Train on all training classes and evaluate on the test classes, without and with mirror images."""
        halves, trained = self.halves(dataset), self.train(dataset, recipe)
        both = self.embed_test(dataset, trained, flip=True)
        recall = retrieval_metrics(both, halves.labels[halves.test], (1,), nmi=False)["recall@1"]
        return {**self.measure(dataset, self.embed_test(dataset, trained)), MIRRORED: recall}

    def untrained(self, dataset: str) -> dict[str, float]:
        """Return the metrics of the pretrained features."""
        halves, device = self.halves(dataset), resolve_device(self.setting.device)
        halves.bank.move(device)
        backbone = self.load()
        preprocessing = network_preprocessing(backbone, self.setting.recipe)
        network = build_network(backbone, 1).to(device).eval()
        return self.measure(dataset, embed_rows(network, halves.bank, halves.test, preprocessing))

    def load(self) -> Backbone:
        """Load the pretrained backbone."""
        return load_backbone(self.setting.backbone, self.setting.device, frozen=False)

    def _train(self, data: EmbeddingData, recipe: Recipe, run_dir: str | None = None) -> TrainedEmbedding:
        return train_embedding(self.load(), data, recipe, run_dir=run_dir, device=self.setting.device, progress=False)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the classes per batch and the samples per class."""
        return self.setting.recipe.classes_per_batch, self.setting.recipe.samples_per_class


def with_training(recipe: Recipe, *, rate: float, epochs: int, seed: int = 0) -> Recipe:
    """Return the recipe with a constant learning rate, after one epoch with a frozen backbone."""
    return replace(recipe, stages=(Stage(1, rate, only_head=True), Stage(epochs, rate)), seed=seed)


def add_options(parser: argparse.ArgumentParser, *, epochs: int, seeds: int | None = None) -> None:
    """Add the options that the `embed` experiments share.

    Args:
        parser: the parser.
        epochs: default number of epochs.
        seeds: default number of seeds; None omits the option.
    """
    parser.add_argument("--datasets", nargs="+", default=["cub200", "cars196"])
    parser.add_argument("--epochs", type=one_or_more, default=epochs, help="Epochs of the longest training.")
    if seeds is not None:
        parser.add_argument("--seeds", type=one_or_more, default=seeds, help="Trainings per figure.")
    parser.add_argument("--small", action="store_true", help="Trial run: few classes, a small network, one epoch.")


def setting_of(options: argparse.Namespace) -> Setting:
    """Return the setting of the options."""
    recipe = with_training(BASE, rate=BASE.stages[-1].learning_rate, epochs=options.epochs)
    seeds = getattr(options, "seeds", 1)
    setting = Setting(tuple(options.datasets), recipe=recipe, seeds=seeds, device=options.device)
    if not options.small:
        return setting
    small = replace(
        recipe,
        size=64,
        classes_per_batch=4,
        samples_per_class=5,
        stages=(Stage(1, 2e-4, only_head=True), Stage(1, 2e-4)),
    )
    return replace(setting, backbone="efficientnet-lite0", recipe=small, seeds=min(2, seeds), classes=4)


def _first_classes(labels: Rows, split: NDArray[np.uint8], count: int) -> Rows:
    """Return the rows of the first `count` classes of either half."""
    chosen = [np.unique(labels[split == part])[:count] for part in (0, 1)]
    return np.flatnonzero(np.isin(labels, np.concatenate(chosen)))
