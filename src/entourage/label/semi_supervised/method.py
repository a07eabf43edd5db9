"""What all ways of learning from few labels share: batches of labelled and unlabelled images, and an average.

Methods with one number of their own that matters most: how much a difference weighs, or how sure is sure.
"""

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
MIN_BATCH_SIZE = 32  # statistics of fewer images are mostly chance


@dataclass(frozen=True)
class MethodOptions:
    """What all methods are told alike, so that a comparison compares methods."""

    labelled_batch: int = 32  # drawn with repetition: few images are seen often
    unlabelled_batch: int = 224  # seven times as many, as in FixMatch
    min_steps: int = 48  # of an epoch, however few the images
    ema_decay: float = 0.99  # of the averaged weights, which are what is kept
    ramp_steps: int = 200  # in which the unsupervised loss of the older methods grows to its full weight
    freeze_norm: bool = True  # batch normalisation keeps its pretrained statistics: few steps learn no better ones
    head_lr_scale: float = 10.0  # the head starts from nothing and may learn faster than the body
    seed: int = 0

    def __post_init__(self) -> None:
        validate_counts(self, 1, "labelled_batch", "unlabelled_batch", "min_steps")
        validate_counts(self, 0, "ramp_steps", "seed")
        if not is_number(self.ema_decay) or not 0 <= self.ema_decay < 1:
            raise ValueError(f"ema_decay is {self.ema_decay!r}; expected a number in [0, 1)")
        if not is_number(self.head_lr_scale) or not 0 < self.head_lr_scale < math.inf:
            raise ValueError(f"head_lr_scale is {self.head_lr_scale!r}; expected a number above 0")


class Batch(NamedTuple):
    """Images of one step, by position among the data.

    Attributes:
        labelled: images with a label, shape (l,).
        codes: their classes, shape (l,).
        unlabelled: any images, also those with a label, shape (u,).
    """

    labelled: Tensor
    codes: Tensor
    unlabelled: Tensor


class SemiSupervisedMethod(EMATask[tuple[Rows, Rows], Batch]):
    """A way to train a network on few labels and many images.

    Subclasses say which `unlabelled_views` of the unlabelled images the network shall see and how much they disagree.

    Args:
        network: what is trained.
        data: the images.
        options: what all methods share.
    """

    mismatch_messages: Mapping[str, str] = MISMATCH_MESSAGES
    model: ImageNetwork
    average: EMA

    def __init__(self, network: ImageNetwork, data: SemiSupervisedData, options: MethodOptions | None = None) -> None:
        self.options = options or MethodOptions()
        network.freeze_norm = self.options.freeze_norm
        super().__init__(network, None)
        self.average = EMA(network, self.options.ema_decay)  # also of decay 0: a teacher is a network of its own
        self.data = data
        self.views = data.views

    @abstractmethod
    def unlabelled_views(self, batch: Batch) -> Sequence[Tensor]:
        """The views of unlabelled images that go through the network with gradients, each (b, ...)."""

    @abstractmethod
    def unlabelled_loss(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """The unsupervised loss, a scalar, weight included.

        Args:
            logits: of each of `unlabelled_views`, shape (b, m).
            batch: the images.
            step: updates made so far.
        """

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """All images once, in a new order, each batch beside a draw of labelled ones; what fills no batch waits.

        Few images come in smaller batches, and several times over: a network learns by steps, not by images.
        """
        rng = np.random.default_rng([self.options.seed, epoch])
        n, size, steps = len(self.data), self._batch_size(), self.steps()
        passes = [rng.permutation(n) for _ in range(-(-steps * size // n))]
        unlabelled = np.concatenate(passes)[: steps * size].reshape(steps, size)
        n_labelled = max(1, round(self.options.labelled_batch * size / self.options.unlabelled_batch))
        return list(zip(rng.choice(self.data.labelled, (steps, n_labelled)), unlabelled, strict=True))

    def steps(self) -> int:
        """How many batches an epoch's plan has."""
        return max(len(self.data) // self._batch_size(), self.options.min_steps)

    def _batch_size(self) -> int:
        n = len(self.data)
        return min(n, self.options.unlabelled_batch, max(MIN_BATCH_SIZE, n // 8))

    def load(self, item: tuple[Rows, Rows], rng: np.random.Generator) -> Batch:
        """Positions only: views are made or kept on the device."""
        labelled, unlabelled = item
        return Batch(
            torch.from_numpy(labelled), torch.from_numpy(self.data.codes[labelled]), torch.from_numpy(unlabelled)
        )

    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Cross-entropy on the labelled images and disagreement on the others, from one pass of the network."""
        views = [self.views.weak(batch.labelled), *self.unlabelled_views(batch)]
        logits = model(torch.cat(views)).float().split([len(view) for view in views])
        labelled = F.cross_entropy(logits[0], batch.codes)
        unlabelled = self.unlabelled_loss(logits[1:], batch, step)
        return {"loss": labelled + unlabelled, "labelled": labelled, "unlabelled": unlabelled}

    @torch.no_grad()
    def teacher_probabilities(self, views: Tensor) -> Tensor:
        """What the averaged network believes of some views: distributions, shape (b, m)."""
        with self.autocast():
            return F.softmax(self.average.module(views).float(), dim=1)

    def ramp(self, step: int) -> float:
        """A weight that rises from nearly 0 to 1 in the first `ramp_steps`, exp(-5 (1 - t)^2)."""
        done = 1.0 if step >= self.options.ramp_steps else step / self.options.ramp_steps
        return float(np.exp(-5.0 * (1.0 - done) ** 2))

    def after_step(self, step: int) -> None:
        """The average follows the weights, with the main process's statistics: a checkpoint holds no others."""
        _broadcast_statistics(self.model)
        super().after_step(step)

    def prepare(self, device: torch.device) -> None:
        """Images that fit go to the GPU."""
        super().prepare(device)
        self.views.move(device)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The head learns faster than the body."""
        return [
            {"params": list(self.model.body.parameters())},
            {"params": list(self.model.head.parameters()), "lr_scale": self.options.head_lr_scale},
        ]

    def config(self) -> dict[str, Any]:
        """SemiSupervisedMethod, options and labels."""
        labels = hashlib.blake2b(self.data.codes.tobytes(), digest_size=8).hexdigest()
        return {"method": type(self).__name__, **asdict(self.options), "images": self.views.digest(), "labels": labels}


@torch.no_grad()
def _broadcast_statistics(model: nn.Module) -> None:
    """Give all processes the main one's running statistics, in one message: a teacher's answers depend on them."""
    statistics = [value for value in model.buffers() if value.is_floating_point()]
    if not statistics or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    flat = torch.cat([value.flatten() for value in statistics])
    dist.broadcast(flat, src=0)
    for value, received in zip(statistics, torch.split(flat, [value.numel() for value in statistics]), strict=True):
        value.copy_(received.view_as(value))


DEFAULT_THRESHOLD = 0.95  # Pseudo-Label's first version trusted every answer; later comparisons of it have this


class WeightedMethod(SemiSupervisedMethod):
    """A method whose disagreement has a weight.

    Args:
        network, data, options: as for `SemiSupervisedMethod`.
        weight: of the difference, when it has grown; None: the `default_weight` one.

    Attributes:
        default_weight: what is of use to the method where labels are few.
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
        """With the weight."""
        return {**super().config(), "weight": self.weight}


class ConfidenceThresholdMethod(SemiSupervisedMethod):
    """A method that believes answers it is sure of.

    Args:
        network, data, options: as for `SemiSupervisedMethod`.
        threshold: how sure an answer must be.
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
            raise ValueError(f"threshold is {threshold!r}; expected a share of 0 to 1")
        self.threshold = threshold

    def config(self) -> dict[str, Any]:
        """With the threshold."""
        return {**super().config(), "threshold": self.threshold}
