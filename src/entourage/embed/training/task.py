"""What the training loop is handed: balanced batches, random views, a loss on embeddings and logits, Recall@1."""

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
    """Images to train on, and images to be judged by.

    Attributes:
        bank: all decoded images, n of them.
        labels: their classes, shape (n,).
        training: rows that are trained on.
        eval_sets: rows of other sets by name, each judged by Recall@1 among themselves. "validation" says which weights
            are best; the others (a test set, say) are only looked at.
    """

    bank: ImageBank
    labels: Rows
    training: Rows
    eval_sets: Mapping[str, Rows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.labels.shape != (len(self.bank),):
            raise ValueError(f"labels have shape {self.labels.shape}; expected ({len(self.bank)},), one an image")
        if len(np.unique(self.labels[self.training])) < 2:
            raise ValueError("the training images are of one class; expected two or more, to be told apart")
        for name, rows in self.eval_sets.items():  # now, rather than after an epoch
            classes, sizes = np.unique(self.labels[rows], return_counts=True)
            if len(classes) < 2 or sizes.max() < 2:
                expected = "expected two or more, and two images of one of them"
                raise ValueError(f"the set {name!r} has {len(classes)} classes; {expected}")

    @property
    def codes(self) -> Rows:
        """Classes of the training rows, numbered from 0 without gaps, shape (training,)."""
        return np.unique(self.labels[self.training], return_inverse=True)[1].astype(np.int64)

    def config(self) -> dict[str, Any]:
        """What makes a training on these images this one: shape, rows, classes and pixels; not who is judged."""
        rows = hashlib.blake2b(self.training.tobytes() + self.labels.tobytes(), digest_size=12).hexdigest()
        return {"images": list(self.bank.values.shape), "rows": rows, "pixels": self.bank.digest}


class ImageBatch(NamedTuple):
    """Images, uint8, shape (b, 3, h, w), and their classes, shape (b,)."""

    images: Tensor
    codes: Tensor


class NetworkWithLoss(nn.Module):
    """A network with its loss, so that all that is learnt is in one place.

    Args:
        network: images to embeddings and logits.
        loss: called as `loss(embeddings, logits, labels)`, and with the classifier's weight where class vectors play.
    """

    def __init__(self, network: EmbeddingNetwork, loss: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.loss = loss

    def forward(self, images: Tensor, codes: Tensor, *, classify: bool = False) -> dict[str, Tensor]:
        """Losses of normalised images, by name: the metric loss, or the plain cross-entropy of the classifier."""
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
    """The loss that a recipe names."""
    if recipe.loss == "group":
        return GroupLoss(**asdict(recipe.group))
    return baseline_loss(recipe.loss, num_classes, embedding_size)


class EmbeddingTask(EMATask[Rows, ImageBatch]):
    """One stage of a recipe.

    Args:
        model: what is trained.
        preprocessing: size and normalisation of its input.
        data: the images.
        recipe: how.
        stage: which part of it.
        epochs_before: of earlier stages, so that each epoch of a run has an order of its own.
        backbone: what the network was built on, so that a run is not continued with another one.
    """

    model: NetworkWithLoss
    # The classifier has no part in losses that know no logits, nor a loss' own proxies in the classification.
    skips_parameters = True
    per_process_state = (_MEMORY_PREFIX,)  # each process plays with the batches that it has seen
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
        if isinstance(model.loss, GroupLoss):  # who comes again while he is remembered would know his label
            model.loss.memory.limit(len(self.sampler) // 4)

    def plan(self, epoch: int) -> Sequence[Rows]:
        """Positions among the training rows: a few of each of a few classes, or shuffled for the classification."""
        epoch += self.epochs_before
        if self.stage.task == "metric":
            return self.sampler.plan(epoch)
        rows = np.random.default_rng([self.recipe.seed, epoch]).permutation(len(self.codes))
        size = min(self.recipe.classification_batch, len(rows))
        return list(rows[: len(rows) // size * size].reshape(-1, size))

    def load(self, item: Rows, rng: np.random.Generator) -> ImageBatch:
        """Take the pixels; views are made on the device."""
        return ImageBatch(self.data.bank.take(self.data.training[item]), torch.from_numpy(self.codes[item]))

    def loss(self, model: nn.Module, batch: ImageBatch, step: int) -> Losses:
        """The loss of random views."""
        views = augment(batch.images, self.preprocessing.size, self.recipe.view)
        losses: Losses = model(
            self.preprocessing.normalize(views), batch.codes, classify=self.stage.task == "classification"
        )
        return losses

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Recall@1 among each of the judged sets; "recall@1" itself is that of the validation set."""
        network = cast(NetworkWithLoss, model).network
        results = {}
        for name, rows in self.data.eval_sets.items():
            embeddings = embed_rows(network, self.data.bank, rows, self.preprocessing)
            metrics = retrieval_metrics(embeddings, self.data.labels[rows], (1,), nmi=False)
            results[MONITORED if name == "validation" else f"{name} {MONITORED}"] = metrics[MONITORED]
        return results

    def prepare(self, device: torch.device) -> None:
        """Images that fit go to the GPU; a backbone that waits needs no gradients."""
        super().prepare(device)
        self.model.network.body.requires_grad_(not self.stage.only_head)
        self.data.bank.move(device)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The backbone, unless it waits, and what starts from nothing: embedding, classifier and proxies."""
        body = list(self.model.network.body.parameters())
        body_ids = {id(parameter) for parameter in body}
        new_parameters = [parameter for parameter in self.model.parameters() if id(parameter) not in body_ids]
        new_group = {"params": new_parameters, "lr_scale": self.recipe.head_rate}
        return [new_group] if self.stage.only_head else [{"params": body}, new_group]

    def extra_state(self) -> dict[str, Tensor]:
        """The average, and the batches that a Group Loss remembers."""
        state = super().extra_state()
        if isinstance(self.model.loss, GroupLoss):
            state |= {f"{_MEMORY_PREFIX}{name}": value for name, value in self.model.loss.memory.state_dict().items()}
        return state

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `extra_state` gave."""
        memory = {name: value for name, value in state.items() if name.startswith(_MEMORY_PREFIX)}
        super().load_extra_state({name: value for name, value in state.items() if name not in memory})
        if isinstance(self.model.loss, GroupLoss):
            self.model.loss.memory.load_state_dict(
                {name.removeprefix(_MEMORY_PREFIX): value for name, value in memory.items()}
            )

    def config(self) -> dict[str, Any]:
        """The backbone, the recipe, the stage and the data."""
        return {
            "backbone": self.backbone,
            "recipe": asdict(self.recipe),
            "stage": asdict(self.stage),
            "epochs_before": self.epochs_before,
            **self.data.config(),
        }
