"""A recipe carried out: stage after stage, the best weights by classes that were held out, never by a test set.

Ensembles (thesis, chapter 4): networks trained from different seeds, whose embeddings stand side by side.
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
    """What came of a recipe.

    Attributes:
        network: images to embeddings, in evaluation mode.
        preprocessing: size and normalisation of its input.
        stages: how each stage ended.
        best: Recall@1 of the held-out classes with these weights; None where none were held out.
        epoch: after which the network had these weights, over all stages, from 1: the last of those that did best on
            the held-out classes, or the last of all; None if that is not known any more.
    """

    network: EmbeddingNetwork
    preprocessing: Preprocessing
    stages: tuple[TrainingResult, ...]
    best: float | None
    epoch: int | None = None

    @property
    def epochs(self) -> int:
        """How many there were, over all stages: one in which nothing could be learnt is passed over."""
        return sum(stage.epochs for stage in self.stages)


def hold_out_classes(labels: ArrayLike, fraction: float, seed: int = 0) -> tuple[Rows, Rows]:
    """Splits rows by class: what is validated on is of classes that training never sees, as in a test.

    Args:
        labels: classes of the rows, shape (n,).
        fraction: of the classes to hold out, rounded; two at least on either side, and four to hold out where there are
            twelve or more: with fewer, many a network finds everything, and none is the best.
        seed: another one holds out other classes.

    Returns:
        Rows to train on and rows to validate on, both ascending.

    Raises:
        ValueError: there are fewer than four classes, or the share is not between 0 and 1.
    """
    names = np.asarray(labels)
    classes = np.unique(names)
    if not 0 < fraction < 1:
        raise ValueError(f"fraction is {fraction}; expected a number above 0 and below 1")
    if len(classes) < 4:
        raise ValueError(
            f"there are {len(classes)} classes; expected four or more, two to train on and two to hold out"
        )
    min_held_out = 4 if len(classes) >= 12 else 2
    count = min(max(min_held_out, round(fraction * len(classes))), len(classes) - 2)
    held_out = np.isin(names, np.random.default_rng(seed).permutation(classes)[:count])
    return np.flatnonzero(~held_out), np.flatnonzero(held_out)


def network_preprocessing(backbone: Backbone, recipe: Recipe) -> Preprocessing:
    """The backbone's own, at the size that the recipe trains it for."""
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
    """Train an embedding on top of a backbone, whose weights are changed.

    Args:
        backbone: as `load_backbone(name, frozen=False)` gives it.
        data: images decoded at `recipe.decoded_side`, with a set "validation" among the judged if the best weights
            shall be kept rather than the last.
        recipe: how.
        run_dir: a folder for checkpoints; a stopped training continues from it.
        device: where.
        progress: show a line; None: only on a terminal.
        title: what the line calls it.

    Returns:
        The network and how it came about.
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
                model.loss.memory.clear()  # of embeddings that these weights do not make
        done, planned = sum(result.epochs for result in results), sum(one.epochs for one in recipe.stages[:number])
        task = EmbeddingTask(model, preprocessing, data, recipe, stage, planned, backbone.origin)
        options = stage_options(recipe, stage, validate="validation" in data.eval_sets)
        folder = None if run_dir is None else Path(run_dir) / f"stage-{number + 1}"
        task.root_dir = None if run_dir is None else Path(run_dir)  # each stage goes on from the one before
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
    """Whether the loss has something to learn while the backbone waits: its proxies, an embedding or a classifier."""
    uses_logits = isinstance(model.loss, (GroupLoss, CrossEntropy))
    return uses_logits or any(True for part in (model.loss, model.network.project) for _ in part.parameters())


def _best_epoch(result: TrainingResult) -> int:
    """The epoch of a stage, from 1, after which the best was measured."""
    return round((result.best_step or result.steps) * result.epochs / result.steps)


def build_model(backbone: Backbone, recipe: Recipe, num_classes: int) -> NetworkWithLoss:
    """The network and the loss of a recipe, for that many classes to learn from; as the seed says at first."""
    with fork_rng(recipe.seed):  # the classifier's and the proxies' first weights
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
    """How a stage is trained; where classes are held out (`validate`), the weights that do best on them are kept."""
    select_best = validate and stage.task == "metric"  # the classification only prepares
    return TrainingOptions(
        epochs=stage.epochs,
        optimizer=recipe.optimizer,
        learning_rate=stage.learning_rate,
        weight_decay=recipe.weight_decay if stage.weight_decay is None else stage.weight_decay,
        schedule=stage.schedule,
        milestones=stage.milestones,
        seed=recipe.seed,
        monitor=MONITORED if select_best else None,
        ties="last" if select_best else "first",  # of few classes all are soon found, and learning goes on nevertheless
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
    """Train several networks by one recipe, each with the next seed.

    Args:
        load: gives a fresh backbone for each.
        data: as for `train_embedding`.
        recipe: of all; the first network has its seed.
        n_members: number of networks.
        run_dir: a folder with one for each of them.
        device: where.
        progress: show a line; None: only on a terminal.

    Raises:
        ValueError: there are no members.
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
    """Embeddings of the images of a set that could be read.

    Attributes:
        embeddings: rows of length 1, shape (k, d), on the networks' device.
        indices: position in the set of each, shape (k,), ascending.
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
    """Embed images of any number: some are decoded, embedded and forgotten before the next ones are.

    Args:
        members: trained networks; one is an ensemble, too.
        images: n of them.
        side: that images are decoded to, `Recipe.decoded_side`.
        flip: add the embedding of the mirror image.
        progress: show a bar; None: only on a terminal.

    Raises:
        ValueError: none of the images can be read.
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
        raise ValueError(f"{images.name}: none of its {len(images)} images can be read: {skipped[0][1]}")
    return EmbeddedImages(torch.cat(parts), np.concatenate(indices), skipped)


def embed_ensemble(
    members: Sequence[TrainedEmbedding],
    bank: ImageBank,
    rows: Rows,
    *,
    flip: bool = False,
    progress: bool | None = False,
) -> Tensor:
    """Embeddings of some images by all networks together, shape (k, d_1 + d_2 + ...), rows of length 1.

    Args:
        members: trained networks; one is an ensemble, too.
        bank: decoded images.
        rows: which of them, shape (k,).
        flip: add the embedding of the mirror image.
        progress: show a bar for each network; None: only on a terminal.
    """
    return concatenate_embeddings(
        [
            embed_rows(member.network, bank, rows, member.preprocessing, flip=flip, progress=progress)
            for member in members
        ]
    )
