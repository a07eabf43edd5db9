"""Training of embeddings by the stages of a recipe, and ensembles of networks (thesis, chapter 4).

The best weights are selected on held-out training classes, never on a test set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from entourage.backbones.backbone import Backbone, Preprocessing
from entourage.compute import fork_rng
from entourage.data.image_set import ImageSet
from entourage.data.pixels import decode_pixels
from entourage.embed.losses.group_loss import GroupLoss
from entourage.embed.losses.pml import CrossEntropy
from entourage.embed.models import EmbeddingNetwork, Rows, build_network, concatenate_embeddings, embed_rows
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.task import MONITORED, EmbeddingData, EmbeddingTask, NetworkWithLoss, make_loss
from entourage.io.progress import progress_bar
from entourage.training.checkpoint import TrainingResult
from entourage.training.images import ImageBank
from entourage.training.loop import train
from entourage.training.options import TrainingOptions


@dataclass(frozen=True)
class TrainedEmbedding:
    """A trained embedding network.

    Attributes:
        network: network from images to embeddings, in evaluation mode.
        preprocessing: size and normalisation of its input.
        stages: result of each stage; empty if the network was loaded from a file.
        best: Recall@1 of the held-out classes with these weights; None without held-out classes.
        epoch: epoch after which the network had these weights, over all stages, from 1. With held-out classes, it is
            the last of the epochs with the best Recall@1, otherwise the last epoch; None if the network was loaded from
            a file.
    """

    network: EmbeddingNetwork
    preprocessing: Preprocessing
    stages: tuple[TrainingResult, ...]
    best: float | None
    epoch: int | None = None

    @property
    def epochs(self) -> int:
        """Number of epochs of all stages that were run; stages without trainable parameters are skipped."""
        return sum(stage.epochs for stage in self.stages)


def hold_out_classes(labels: ArrayLike, fraction: float, seed: int = 0) -> tuple[Rows, Rows]:
    """Split rows by class into training and validation rows without common classes, as in a retrieval test.

    Args:
        labels: the class of each row, shape (n,).
        fraction: fraction of the classes to hold out, rounded. Each part has at least two classes. Of twelve classes or
            more, at least four are held out, because many networks reach a Recall@1 of 1 on fewer.
        seed: random seed of the choice of classes.

    Returns:
        Training rows and validation rows, both ascending.

    Raises:
        ValueError: there are fewer than four classes, or the fraction is not between 0 and 1.
    """
    names = np.asarray(labels)
    classes = np.unique(names)
    if not 0 < fraction < 1:
        raise ValueError(f"fraction is {fraction}; expected a number above 0 and below 1")
    if len(classes) < 4:
        raise ValueError(f"labels: {len(classes)} classes; expected four or more, two to train on and two to hold out")
    min_held_out = 4 if len(classes) >= 12 else 2
    count = min(max(min_held_out, round(fraction * len(classes))), len(classes) - 2)
    held_out = np.isin(names, np.random.default_rng(seed).permutation(classes)[:count])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def network_preprocessing(backbone: Backbone, recipe: Recipe) -> Preprocessing:
    """Return the backbone's preprocessing with the input size and the crop of the recipe."""
    return replace(backbone.preprocessing, size=(recipe.size, recipe.size), crop=recipe.crop)


def train_embedding(
    backbone: Backbone,
    data: EmbeddingData,
    recipe: Recipe,
    *,
    run_dir: str | Path | None = None,
    device: str | torch.device = "auto",
    progress: bool | None = None,
    title: str = "Training",
) -> TrainedEmbedding:
    """Train an embedding network on a backbone. The weights of the backbone are changed.

    Args:
        backbone: result of `load_backbone(name, frozen=False)`.
        data: images decoded at `recipe.decoded_side`. If its `eval_sets` contain "validation", the weights with the
            best Recall@1 on this set are returned, otherwise the last ones.
        recipe: options of the training.
        run_dir: folder of checkpoints, from which an interrupted training resumes; None for no checkpoints.
        device: device to train on.
        progress: whether to show a progress line; None: only on a terminal.
        title: title of the progress line.

    Returns:
        The network, with the results of the stages.

    Raises:
        ValueError: `run_dir` contains a training with another configuration, or its files are invalid.
    """
    preprocessing = network_preprocessing(backbone, recipe)
    num_classes = int(data.codes.max()) + 1
    model = build_model(backbone, recipe, num_classes)
    results: list[TrainingResult] = []
    best: tuple[float, int, dict[str, Tensor]] | None = None
    for number, stage in enumerate(recipe.stages):
        if stage.only_head and not _trains_without_backbone(model):
            continue
        if stage.from_best and best is not None:
            model.load_state_dict(best[2])
            if isinstance(model.loss, GroupLoss):
                model.loss.memory.clear()  # it contains embeddings of other weights
        done, planned = sum(result.epochs for result in results), sum(one.epochs for one in recipe.stages[:number])
        task = EmbeddingTask(model, preprocessing, data, recipe, stage, planned, backbone.origin)
        options = stage_options(recipe, stage, validate="validation" in data.eval_sets)
        folder = None if run_dir is None else Path(run_dir) / f"stage-{number + 1}"
        task.root_dir = None if run_dir is None else Path(run_dir)  # each stage starts from the previous one
        line = f"{title}, stage {number + 1} of {len(recipe.stages)}"
        results.append(train(task, options, folder, device=device, progress=progress, title=line))
        model.load_state_dict(task.final_model().state_dict())
        recall = results[-1].best
        if recall is not None and (best is None or recall >= best[0]):
            weights = {name: value.detach().clone() for name, value in model.state_dict().items()}
            best = recall, done + _best_epoch(results[-1]), weights
    best_recall, epoch = None, sum(result.epochs for result in results)
    if best is not None:
        best_recall, epoch, weights = best
        model.load_state_dict(weights)
    return TrainedEmbedding(model.network.eval(), preprocessing, tuple(results), best_recall, epoch)


def _trains_without_backbone(model: NetworkWithLoss) -> bool:
    """Return whether the loss depends on parameters outside the backbone: proxies, embedding layer or classifier."""
    uses_logits = isinstance(model.loss, (GroupLoss, CrossEntropy))
    return uses_logits or any(True for part in (model.loss, model.network.project) for _ in part.parameters())


def _best_epoch(result: TrainingResult) -> int:
    """Return the epoch of a stage, from 1, after which its best result was measured."""
    return round((result.best_step or result.steps) * result.epochs / result.steps)


def build_model(backbone: Backbone, recipe: Recipe, num_classes: int) -> NetworkWithLoss:
    """Build the network and the loss of a recipe for a number of training classes, initialised by the recipe's seed."""
    with fork_rng(recipe.seed):
        network = build_network(
            backbone,
            num_classes,
            embedding_size=recipe.dimensions,
            head=recipe.head,
            scale=recipe.scale,
            freeze_norm=recipe.freeze_norm,
        )
        return NetworkWithLoss(network, make_loss(recipe, num_classes, network.embedding_size))


def stage_options(recipe: Recipe, stage: Stage, *, validate: bool = False) -> TrainingOptions:
    """Return the training options of a stage; `validate` selects the weights with the best Recall@1 on "validation"."""
    select_best = validate and stage.task == "metric"  # the classification stage is a preparation
    return TrainingOptions(
        epochs=stage.epochs,
        optimizer=recipe.optimizer,
        learning_rate=stage.learning_rate,
        weight_decay=recipe.weight_decay if stage.weight_decay is None else stage.weight_decay,
        schedule=stage.schedule,
        milestones=stage.milestones,
        seed=recipe.seed,
        monitor=MONITORED if select_best else None,
        ties="last" if select_best else "first",  # with few classes Recall@1 soon reaches 1, while training still helps
        restore_best=select_best,
    )


CHUNK_SIZE = 2048  # images decoded at a time


def train_ensemble(
    load: Callable[[], Backbone],
    data: EmbeddingData,
    recipe: Recipe,
    n_members: int,
    *,
    run_dir: str | Path | None = None,
    device: str | torch.device = "auto",
    progress: bool | None = None,
) -> list[TrainedEmbedding]:
    """Train several networks by one recipe with successive seeds.

    Args:
        load: returns a new backbone for each network.
        data: see `train_embedding`.
        recipe: options of the training; its seed is that of the first network.
        n_members: number of networks.
        run_dir: folder with a subfolder of checkpoints for each network, or None.
        device: device to train on.
        progress: whether to show progress lines; None: only on a terminal.

    Returns:
        The networks.

    Raises:
        ValueError: `n_members` is less than 1; see also `train_embedding`.
    """
    if n_members < 1:
        raise ValueError(f"n_members is {n_members}; expected 1 or more")
    return [
        train_embedding(
            load(),
            data,
            replace(recipe, seed=recipe.seed + member),
            run_dir=None if run_dir is None else Path(run_dir) / f"member-{member + 1}",
            device=device,
            progress=progress,
        )
        for member in range(n_members)
    ]


@dataclass(frozen=True, eq=False)
class EmbeddedImages:
    """Embeddings of those images of a set that could be read.

    Attributes:
        embeddings: rows of length 1, shape (k, d), on the networks' device.
        indices: index of each image in the set, shape (k,), ascending.
        skipped: name and reason of each image that could not be read.
    """

    embeddings: Tensor
    indices: Rows
    skipped: list[tuple[str, str]]


def embed_images(
    members: Sequence[TrainedEmbedding],
    images: ImageSet,
    side: int,
    *,
    flip: bool = False,
    progress: bool | None = None,
) -> EmbeddedImages:
    """Compute the embeddings of an image set in chunks, so that its decoded images need not fit into memory.

    Args:
        members: one or more trained networks.
        images: the image set.
        side: side that images are decoded to, `Recipe.decoded_side`.
        flip: whether to add the embeddings of the mirrored images.
        progress: whether to show a progress bar; None: only on a terminal.

    Returns:
        The embeddings of all images that can be read.

    Raises:
        ValueError: no image can be read.
    """
    parts, indices, skipped = [], [], []
    with progress_bar("Embedding images", len(images), progress) as advance:
        for start in range(0, len(images), CHUNK_SIZE):
            rows = np.arange(start, min(start + CHUNK_SIZE, len(images)))
            pixels = decode_pixels(images.subset(rows), (side, side), progress=False)
            parts.append(embed_ensemble(members, ImageBank(pixels.values), np.arange(len(pixels.indices)), flip=flip))
            indices.append(rows[pixels.indices])
            skipped += pixels.failures
            advance(len(rows))
    if not sum(map(len, indices)):
        raise ValueError(
            f"{images.name}: none of {len(images)} images can be read ({skipped[0][1]}); expected at least one"
        )
    return EmbeddedImages(torch.cat(parts), np.concatenate(indices), skipped)


def embed_ensemble(
    members: Sequence[TrainedEmbedding],
    bank: ImageBank,
    rows: Rows,
    *,
    flip: bool = False,
    progress: bool | None = False,
) -> Tensor:
    """Compute the concatenated embeddings of an ensemble for images of a bank.

    Args:
        members: one or more trained networks.
        bank: decoded images.
        rows: indices of the images, shape (k,).
        flip: whether to add the embeddings of the mirrored images.
        progress: whether to show a progress bar for each network; None: only on a terminal.

    Returns:
        Embeddings, shape (k, d_1 + d_2 + ...), rows of length 1.
    """
    return concatenate_embeddings(
        [
            embed_rows(member.network, bank, rows, member.preprocessing, flip=flip, progress=progress)
            for member in members
        ]
    )
