"""The task of the training loop: balanced batches, augmentation, loss of embeddings and logits, and validation."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from entourage.backbones.backbone import Preprocessing
from entourage.embed.losses.group_loss import GroupLoss
from entourage.embed.losses.pml import CrossEntropy, baseline_loss
from entourage.embed.metrics import retrieval_metrics
from entourage.embed.models import EmbeddingNetwork, NetworkOutput, Rows, embed_rows
from entourage.embed.training.recipes import Recipe, Stage
from entourage.embed.training.sampler import BalancedBatchSampler
from entourage.training.images import ImageBank, augment
from entourage.training.task import EMATask, Losses

MONITORED = "recall@1"
DIFFERENT_ROWS = "other training images or classes (is hold_out the same?)"
DIFFERENT_PIXELS = "other images"
_MEMORY_PREFIX = "memory."


@dataclass(frozen=True, eq=False)
class EmbeddingData:
    """Training images and evaluation sets.

    Attributes:
        bank: all decoded images, n of them.
        labels: their classes, shape (n,).
        training: rows to train on.
        eval_sets: rows of evaluation sets by name. Recall@1 is computed within each set. That of "validation" selects
            the best weights; those of other sets, such as a test set, are only recorded.

    Raises:
        ValueError: shapes do not match, or a set has fewer than two classes or, for evaluation, no class of two images.
    """

    bank: ImageBank
    labels: Rows
    training: Rows
    eval_sets: Mapping[str, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.bank),):
            raise ValueError(f"labels have shape {self.labels.shape}; expected ({len(self.bank)},), one per image")
        if len(np.unique(self.labels[self.training])) < 2:
            raise ValueError("training: images of one class; expected two or more classes")
        for name, rows in self.eval_sets.items():  # checked here rather than after an epoch
            classes, sizes = np.unique(self.labels[rows], return_counts=True)
            if len(classes) < 2 or sizes.max() < 2:
                expected = "expected two or more, and two images of one of them"
                raise ValueError(f"eval_sets: {name!r} has {len(classes)} classes; {expected}")

    @property
    def codes(self) -> Rows:
        """Classes of the training rows as consecutive integers from 0, shape (len(training),)."""
        return np.unique(self.labels[self.training], return_inverse=True)[1].astype(np.int64)

    def config(self) -> dict[str, Any]:
        """Return shape and digests of the training images; a run is resumed only if they are equal."""
        rows = hashlib.blake2b(self.training.tobytes() + self.labels.tobytes(), digest_size=12).hexdigest()
        return {"images": list(self.bank.values.shape), "rows": rows, "pixels": self.bank.digest}


class ImageBatch(NamedTuple):
    """Images, uint8, shape (b, 3, h, w), and their classes, shape (b,)."""

    images: Tensor
    codes: Tensor


class NetworkWithLoss(nn.Module):
    """A network with its loss, which may have parameters, too.

    Args:
        network: network from images to embeddings and logits.
        loss: called as `loss(embeddings, logits, labels)`; a `GroupLoss` also receives the weight of the classifier if
            its option `class_players` is above 0.
    """

    def __init__(self, network: EmbeddingNetwork, loss: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, images: Tensor, codes: Tensor, *, classify: bool = False) -> dict[str, Tensor]:
        """Compute the losses of normalised images by name; `classify` uses the cross-entropy instead of the loss."""
        output: NetworkOutput = self.network(images)
        if classify:
            return {"loss": CrossEntropy()(*output, codes)}
        if not isinstance(self.loss, GroupLoss):
            return {"loss": self.loss(*output, codes)}
        uses_class_vectors = self.loss.options.class_players > 0
        weight = self.network.head.weight if uses_class_vectors else None
        terms = self.loss.terms(*output, codes, weight, update_memory=self.training)
        return {"loss": self.loss.total(terms), **{name: term.detach() for name, term in terms._asdict().items()}}


def make_loss(recipe: Recipe, num_classes: int, embedding_size: int) -> nn.Module:
    """Create the loss of a recipe."""
    if recipe.loss == "group":
        return GroupLoss(**asdict(recipe.group))
    return baseline_loss(recipe.loss, num_classes, embedding_size)


class EmbeddingTask(EMATask[Rows, ImageBatch]):
    """Training task of one stage of a recipe.

    Args:
        model: network and loss.
        preprocessing: size and normalisation of the network's input.
        data: the images.
        recipe: options of the training.
        stage: the stage; one of `recipe.stages`.
        epochs_before: number of epochs of earlier stages, so that no epoch of a run repeats an order of samples.
        backbone: `Backbone.origin` of the network, so that a run is not resumed with another backbone.
    """

    model: NetworkWithLoss
    # Losses without logits do not use the classifier, and the classification stage does not use proxies of the loss.
    skips_parameters = True
    per_process_state = (_MEMORY_PREFIX,)  # each process stores its own batches in the memory
    mismatch_messages = MappingProxyType(
        {"monitor": DIFFERENT_ROWS, "task.rows": DIFFERENT_ROWS, "task.pixels": DIFFERENT_PIXELS}
    )

    def __init__(
        self,
        model: NetworkWithLoss,
        preprocessing: Preprocessing,
        data: EmbeddingData,
        recipe: Recipe,
        stage: Stage,
        epochs_before: int = 0,
        backbone: str = "",
    ) -> None:
        super().__init__(model, recipe.average)
        self.preprocessing = preprocessing
        self.data = data
        self.recipe = recipe
        self.stage = stage
        self.epochs_before = epochs_before
        self.backbone = backbone
        self.codes = data.codes
        self.sampler = BalancedBatchSampler(
            self.codes,
            min(recipe.classes_per_batch, int(self.codes.max()) + 1),
            recipe.samples_per_class,
            seed=recipe.seed,
        )
        if isinstance(model.loss, GroupLoss):  # a sample that is still in the memory would support its own label
            model.loss.memory.limit(len(self.sampler) // 4)

    def plan(self, epoch: int) -> Sequence[Rows]:
        """Return the rows of each batch: class-balanced in metric stages, shuffled in classification stages."""
        epoch += self.epochs_before
        if self.stage.task == "metric":
            return self.sampler.plan(epoch)
        rows = np.random.default_rng([self.recipe.seed, epoch]).permutation(len(self.codes))
        size = min(self.recipe.classification_batch, len(rows))
        return list(rows[: len(rows) // size * size].reshape(-1, size))

    def load(self, item: Rows, rng: np.random.Generator) -> ImageBatch:
        """Read the pixels of a batch; they are augmented on the device."""
        return ImageBatch(self.data.bank.take(self.data.training[item]), torch.from_numpy(self.codes[item]))

    def loss(self, model: nn.Module, batch: ImageBatch, step: int) -> Losses:
        """Compute the losses of augmented images."""
        views = augment(batch.images, self.preprocessing.size, self.recipe.view)
        losses: Losses = model(
            self.preprocessing.normalize(views), batch.codes, classify=self.stage.task == "classification"
        )
        return losses

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Compute Recall@1 within each evaluation set; that of "validation" is named "recall@1"."""
        network = cast(NetworkWithLoss, model).network
        results = {}
        for name, rows in self.data.eval_sets.items():
            embeddings = embed_rows(network, self.data.bank, rows, self.preprocessing)
            metrics = retrieval_metrics(embeddings, self.data.labels[rows], (1,), nmi=False)
            results[MONITORED if name == "validation" else f"{name} {MONITORED}"] = metrics[MONITORED]
        return results

    def prepare(self, device: torch.device) -> None:
        """Move images to the GPU if they fit, and disable gradients of the backbone if only the head is trained."""
        super().prepare(device)
        self.model.network.body.requires_grad_(not self.stage.only_head)
        self.data.bank.move(device)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the group of randomly initialised parameters and, unless only the head is trained, the backbone's."""
        body = list(self.model.network.body.parameters())
        body_ids = {id(parameter) for parameter in body}
        new_parameters = [parameter for parameter in self.model.parameters() if id(parameter) not in body_ids]
        new_group = {"params": new_parameters, "lr_scale": self.recipe.head_rate}
        return [new_group] if self.stage.only_head else [{"params": body}, new_group]

    def extra_state(self) -> dict[str, Tensor]:
        """Return the averaged weights and the memory of the Group Loss."""
        state = super().extra_state()
        if isinstance(self.model.loss, GroupLoss):
            state |= {f"{_MEMORY_PREFIX}{name}": value for name, value in self.model.loss.memory.state_dict().items()}
        return state

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Restore the result of `extra_state`."""
        memory = {name: value for name, value in state.items() if name.startswith(_MEMORY_PREFIX)}
        super().load_extra_state({name: value for name, value in state.items() if name not in memory})
        if isinstance(self.model.loss, GroupLoss):
            self.model.loss.memory.load_state_dict(
                {name.removeprefix(_MEMORY_PREFIX): value for name, value in memory.items()}
            )

    def config(self) -> dict[str, Any]:
        """Return backbone, recipe, stage and data; a run is resumed only if they are equal."""
        return {
            "backbone": self.backbone,
            "recipe": asdict(self.recipe),
            "stage": asdict(self.stage),
            "epochs_before": self.epochs_before,
            **self.data.config(),
        }
