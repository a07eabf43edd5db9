"""Base classes of the semi-supervised training methods: batches of labelled and unlabelled images, averaged weights."""

from __future__ import annotations

import hashlib
import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
import torch.distributed as dist
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.training.task import EMA, EMATask, Losses
from entourage.validation import is_number, validate_counts

Rows = NDArray[np.int64]

MISMATCH_MESSAGES: Mapping[str, str] = MappingProxyType(
    {
        "task.labels": "other labels or classes than are given now",
        "task.images": "other images, another size or other views than there are now",
    }
)
MIN_BATCH_SIZE = 32  # batch statistics of fewer images are too noisy


@dataclass(frozen=True)
class MethodOptions:
    """Options that all methods share.

    Attributes:
        labelled_batch: labelled images per batch, drawn with replacement, as there are few.
        unlabelled_batch: other images per batch; seven times as many by default, as in FixMatch.
        min_steps: minimum number of steps per epoch, for few images.
        ema_decay: decay of the averaged weights, which are the final weights.
        ramp_steps: number of steps over which the unsupervised loss of the older methods grows to its full weight.
        freeze_norm: keep the pretrained statistics of batch normalisation; few steps do not estimate better ones.
        head_lr_scale: learning rate of the untrained head relative to that of the pretrained body.
        seed: random seed.
    """

    labelled_batch: int = 32
    unlabelled_batch: int = 224
    min_steps: int = 48
    ema_decay: float = 0.99
    ramp_steps: int = 200
    freeze_norm: bool = True
    head_lr_scale: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        validate_counts(self, 1, "labelled_batch", "unlabelled_batch", "min_steps")
        validate_counts(self, 0, "ramp_steps", "seed")
        if not is_number(self.ema_decay) or not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay is {self.ema_decay!r}; expected a number in [0, 1)")
        if not is_number(self.head_lr_scale) or not 0 < self.head_lr_scale < math.inf:
            raise ValueError(f"head_lr_scale is {self.head_lr_scale!r}; expected a number above 0")


class Batch(NamedTuple):
    """Indices of the images of one step.

    Attributes:
        labelled: indices of labelled images, shape (l,).
        codes: their classes, shape (l,).
        unlabelled: indices of any images, labelled or not, whose labels are not used, shape (u,).
    """

    labelled: Tensor
    codes: Tensor
    unlabelled: Tensor


class SemiSupervisedMethod(EMATask[tuple[Rows, Rows], Batch]):
    """Base class of the methods that train a network on few labels and many images.

    The loss is the cross-entropy on labelled images plus an unsupervised loss. Subclasses implement `unlabelled_views`,
    the inputs of the unsupervised loss, and `unlabelled_loss`.

    Args:
        network: the network to train.
        data: the images and the given labels.
        options: the options that all methods share.
    """

    mismatch_messages: Mapping[str, str] = MISMATCH_MESSAGES
    model: ImageNetwork
    average: EMA

    def __init__(self, network: ImageNetwork, data: SemiSupervisedData, options: MethodOptions | None = None) -> None:
        self.options = options or MethodOptions()
        network.freeze_norm = self.options.freeze_norm
        super().__init__(network, None)
        self.average = EMA(network, self.options.ema_decay)  # a separate network even with decay 0
        self.data = data
        self.views = data.views

    @abstractmethod
    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """Return the views of unlabelled images that the network processes with gradients, each of shape (b, ...)."""

    @abstractmethod
    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Compute the unsupervised loss, including its weight.

        Args:
            logits: logits of each of `unlabelled_views`, shape (b, m).
            batch: the images.
            step: number of previous updates.

        Returns:
            A scalar.
        """

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """Return the batches of an epoch: all images in random order, and labelled images drawn with replacement.

        The last, incomplete batch is dropped. Small data sets are divided into smaller batches and repeated, so that
        every epoch has at least `min_steps` steps.
        """
        rng = np.random.default_rng([self.options.seed, epoch])
        n, size, steps = len(self.data), self._batch_size(), self.steps()
        passes = [rng.permutation(n) for _ in range(-(-steps * size // n))]
        unlabelled = np.concatenate(passes)[: steps * size].reshape(steps, size)
        n_labelled = max(1, round(self.options.labelled_batch * size / self.options.unlabelled_batch))
        return list(zip(rng.choice(self.data.labelled, (steps, n_labelled)), unlabelled, strict=True))

    def steps(self) -> int:
        """Return the number of batches per epoch."""
        return max(len(self.data) // self._batch_size(), self.options.min_steps)

    def _batch_size(self) -> int:
        n = len(self.data)
        return min(n, self.options.unlabelled_batch, max(MIN_BATCH_SIZE, n // 8))

    def load(self, item: tuple[Rows, Rows], rng: np.random.Generator) -> Batch:
        """Return the indices and labels of the batch without pixels: views are made from the indices on the device."""
        labelled, unlabelled = item
        return Batch(
            torch.from_numpy(labelled), torch.from_numpy(self.data.codes[labelled]), torch.from_numpy(unlabelled)
        )

    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Compute the sum of the labelled and the unsupervised loss from one forward pass."""
        views = [self.views.weak(batch.labelled), *self.unlabelled_views(batch)]
        logits = model(torch.cat(views)).float().split([len(view) for view in views])
        labelled = F.cross_entropy(logits[0], batch.codes)
        unlabelled = self.unlabelled_loss(logits[1:], batch, step)
        return {"loss": labelled + unlabelled, "labelled": labelled, "unlabelled": unlabelled}

    @torch.no_grad()
    def teacher_probabilities(self, views: Tensor) -> Tensor:
        """Compute the distributions that the averaged network predicts, shape (b, m)."""
        with self.autocast():
            return F.softmax(self.average.module(views).float(), dim=1)

    def ramp(self, step: int) -> float:
        """Return the weight exp(-5 (1 - t)^2), which grows to 1 during the first `ramp_steps`."""
        done = 1.0 if step >= self.options.ramp_steps else step / self.options.ramp_steps
        return float(np.exp(-5.0 * (1.0 - done) ** 2))

    def after_step(self, step: int) -> None:
        """Copy the batch statistics of the main process to all others, as checkpoints do; update the weight average."""
        _broadcast_statistics(self.model)
        super().after_step(step)

    def prepare(self, device: torch.device) -> None:
        """Move the images to the device if they fit."""
        super().prepare(device)
        self.views.move(device)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """Return the body and the head as separate groups; the head has a higher learning rate."""
        return [
            {"params": list(self.model.body.parameters())},
            {"params": list(self.model.head.parameters()), "lr_scale": self.options.head_lr_scale},
        ]

    def config(self) -> dict[str, Any]:
        """Return the method, its options, and digests of the images and labels."""
        labels = hashlib.blake2b(self.data.codes.tobytes(), digest_size=8).hexdigest()
        return {"method": type(self).__name__, **asdict(self.options), "images": self.views.digest(), "labels": labels}


@torch.no_grad()
def _broadcast_statistics(model: nn.Module) -> None:
    """Broadcast the running statistics of the main process, in one message; a teacher's predictions depend on them."""
    statistics = [value for value in model.buffers() if value.is_floating_point()]
    if not statistics or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    flat = torch.cat([value.flatten() for value in statistics])
    dist.broadcast(flat, src=0)
    for value, received in zip(statistics, torch.split(flat, [value.numel() for value in statistics]), strict=True):
        value.copy_(received.view_as(value))


def mean_over_processes(mean: Tensor) -> Tensor:
    """Average over all processes, so that all processes use the same value, which the checkpoint stores."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return mean
    total = mean.contiguous()
    dist.all_reduce(total)
    return total / dist.get_world_size()


DEFAULT_THRESHOLD = 0.95  # as in FixMatch and later comparisons of Pseudo-Label, which originally had no threshold


class WeightedMethod(SemiSupervisedMethod):
    """Base class of methods whose unsupervised loss has a weight.

    Args:
        network, data, options: see `SemiSupervisedMethod`.
        weight: final weight of the unsupervised loss; None: `default_weight`.

    Attributes:
        default_weight: default weight of the method, for few labels.
    """

    default_weight: ClassVar[float]

    def __init__(
        self,
        network: ImageNetwork,
        data: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        weight: float | None = None,
    ) -> None:
        super().__init__(network, data, options)
        self.weight = self.default_weight if weight is None else weight
        if not is_number(self.weight) or not self.weight >= 0:
            raise ValueError(f"weight is {weight!r}; expected 0 or more")

    def config(self) -> dict[str, Any]:
        """Return the configuration with the weight."""
        return {**super().config(), "weight": self.weight}


class ConfidenceThresholdMethod(SemiSupervisedMethod):
    """Base class of methods that use confident predictions as labels.

    Args:
        network, data, options: see `SemiSupervisedMethod`.
        threshold: minimum confidence of a prediction.
    """

    def __init__(
        self,
        network: ImageNetwork,
        data: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        threshold: float = DEFAULT_THRESHOLD,
    ) -> None:
        super().__init__(network, data, options)
        if not is_number(threshold) or not 0 <= threshold <= 1:
            raise ValueError(f"threshold is {threshold!r}; expected a number from 0 to 1")
        self.threshold = threshold

    def config(self) -> dict[str, Any]:
        """Return the configuration with the threshold."""
        return {**super().config(), "threshold": self.threshold}
