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
from entourage.embed.models import EmbeddingNetwork, Rows, build_network, embed_rows, join_embeddings
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.task import MONITORED, EmbeddingData, EmbeddingTask, Learner, make_loss
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


def hold_out_classes(labels: ArrayLike, share: float, seed: int = 0) -> tuple[Rows, Rows]:
    """Splits rows by class: what is validated on is of classes that training never sees, as in a test.

    Args:
        labels: classes of the rows, shape (n,).
        share: of the classes to hold out, rounded; two at least on either side, and four to hold out where there are
            twelve or more: with fewer, many a network finds everything, and none is the best.
        seed: another one holds out other classes.

    Returns:
        Rows to train on and rows to validate on, both ascending.

    Raises:
        ValueError: there are fewer than four classes, or the share is not between 0 and 1.
    """
    given = np.asarray(labels)
    names = np.unique(given)
    if not 0 < share < 1:
        raise ValueError(f"the share of classes to hold out is {share}; expected a number above 0 and below 1")
    if len(names) < 4:
        raise ValueError(f"there are {len(names)} classes; expected four or more, two to train on and two to hold out")
    least = 4 if len(names) >= 12 else 2
    count = min(max(least, round(share * len(names))), len(names) - 2)
    held = np.isin(given, np.random.default_rng(seed).permutation(names)[:count])
    return np.flatnonzero(~held), np.flatnonzero(held)


def network_preprocessing(backbone: Backbone, recipe: Recipe) -> Preprocessing:
    """The backbone's own, at the size that the recipe trains it for."""
    return replace(backbone.preprocessing, size=(recipe.size, recipe.size), crop=recipe.crop)


def train_embedding(
    backbone: Backbone,
    data: EmbeddingData,
    recipe: Recipe,
    *,
    run: str | Path | None = None,
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
        run: a folder for checkpoints; a stopped training continues from it.
        device: where.
        progress: show a line; None: only on a terminal.
        title: what the line calls it.

    Returns:
        The network and how it came about.
    """
    preprocessing = network_preprocessing(backbone, recipe)
    classes = int(data.codes.max()) + 1
    learner = build_learner(backbone, recipe, classes)
    results: list[TrainingResult] = []
    best: tuple[float, int, dict[str, Tensor]] | None = None
    for number, stage in enumerate(recipe.stages):
        if stage.only_head and not _learns_by_itself(learner):
            continue
        if stage.from_best and best is not None:
            learner.load_state_dict(best[2])
            if isinstance(learner.loss, GroupLoss):
                learner.loss.memory.clear()  # of embeddings that these weights do not make
        done, planned = sum(result.epochs for result in results), sum(one.epochs for one in recipe.stages[:number])
        task = EmbeddingTask(learner, preprocessing, data, recipe, stage, planned, backbone.origin)
        options = stage_options(recipe, stage, judged="validation" in data.judged)
        folder = None if run is None else Path(run) / f"stage-{number + 1}"
        task.root_dir = None if run is None else Path(run)  # each stage goes on from the one before
        line = f"{title}, stage {number + 1} of {len(recipe.stages)}"
        results.append(train(task, options, folder, device=device, progress=progress, title=line))
        learner.load_state_dict(task.final_model().state_dict())
        reached = results[-1].best
        if reached is not None and (best is None or reached >= best[0]):
            weights = {name: value.detach().clone() for name, value in learner.state_dict().items()}
            best = reached, done + _best_epoch(results[-1]), weights
    recall, epoch = None, sum(result.epochs for result in results)
    if best is not None:
        recall, epoch, weights = best
        learner.load_state_dict(weights)
    return TrainedEmbedding(learner.network.eval(), preprocessing, tuple(results), recall, epoch)


def _learns_by_itself(learner: Learner) -> bool:
    """Whether the loss has something to learn while the backbone waits: its proxies, an embedding or a classifier."""
    looks_at_logits = isinstance(learner.loss, (GroupLoss, CrossEntropy))
    return looks_at_logits or any(True for part in (learner.loss, learner.network.project) for _ in part.parameters())


def _best_epoch(result: TrainingResult) -> int:
    """The epoch of a stage, from 1, after which the best was measured."""
    return round((result.best_step or result.steps) * result.epochs / result.steps)


def build_learner(backbone: Backbone, recipe: Recipe, classes: int) -> Learner:
    """The network and the loss of a recipe, for that many classes to learn from; as the seed says at first."""
    with fork_rng(recipe.seed):  # the classifier's and the proxies' first weights
        network = build_network(
            backbone,
            classes,
            embedding_size=recipe.dimensions,
            head=recipe.head,
            scale=recipe.scale,
            freeze_norm=recipe.freeze_norm,
        )
        return Learner(network, make_loss(recipe, classes, network.embedding_size))


def stage_options(recipe: Recipe, stage: Stage, *, judged: bool = False) -> TrainingOptions:
    """How a stage is trained; where classes are held out (`judged`), the weights that do best on them are kept."""
    chooses = judged and stage.task == "metric"  # the classification only prepares
    return TrainingOptions(
        epochs=stage.epochs,
        optimizer=recipe.optimizer,
        learning_rate=stage.learning_rate,
        weight_decay=recipe.weight_decay if stage.weight_decay is None else stage.weight_decay,
        schedule=stage.schedule,
        milestones=stage.milestones,
        seed=recipe.seed,
        monitor=MONITORED if chooses else None,
        ties="last" if chooses else "first",  # of few classes all are soon found, and learning goes on nevertheless
        restore_best=chooses,
    )


CHUNK = 2048  # images decoded at a time


def train_ensemble(
    load: Callable[[], Backbone],
    data: EmbeddingData,
    recipe: Recipe,
    members: int,
    *,
    run: str | Path | None = None,
    device: str | torch.device = "auto",
    progress: bool | None = None,
) -> list[TrainedEmbedding]:
    """Train several networks by one recipe, each with the next seed.

    Args:
        load: gives a fresh backbone for each.
        data: as for `train_embedding`.
        recipe: of all; the first network has its seed.
        members: how many networks.
        run: a folder with one for each of them.
        device: where.
        progress: show a line; None: only on a terminal.

    Raises:
        ValueError: there are no members.
    """
    if members < 1:
        raise ValueError(f"members is {members}; expected 1 or more")
    return [
        train_embedding(
            load(),
            data,
            replace(recipe, seed=recipe.seed + member),
            run=None if run is None else Path(run) / f"member-{member + 1}",
            device=device,
            progress=progress,
        )
        for member in range(members)
    ]


@dataclass(frozen=True, eq=False)
class EmbeddedImages:
    """Embeddings of the images of a set that could be read.

    Attributes:
        embeddings: rows of length 1, shape (k, d), on the networks' device.
        kept: the place in the set of each, shape (k,), ascending.
        skipped: name and reason of each image that could not be read.
    """

    embeddings: Tensor
    kept: Rows
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
    parts, kept, skipped = [], [], []
    with progress_bar("Embedding images", len(images), progress) as advance:
        for start in range(0, len(images), CHUNK):
            places = np.arange(start, min(start + CHUNK, len(images)))
            pixels = decode_pixels(images.subset(places), (side, side), progress=False)
            parts.append(embed_ensemble(members, ImageBank(pixels.values), np.arange(len(pixels.indices)), flip=flip))
            kept.append(places[pixels.indices])
            skipped += pixels.failures
            advance(len(places))
    if not sum(map(len, kept)):
        raise ValueError(f"{images.name}: none of its {len(images)} images can be read: {skipped[0][1]}")
    return EmbeddedImages(torch.cat(parts), np.concatenate(kept), skipped)


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
    return join_embeddings(
        [
            embed_rows(member.network, bank, rows, member.preprocessing, flip=flip, progress=progress)
            for member in members
        ]
    )
