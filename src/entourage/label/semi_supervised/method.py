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
LEAST_BATCH = 32  # statistics of fewer images are mostly chance


@dataclass(frozen=True)
class MethodOptions:
    """What all methods are told alike, so that a comparison compares methods."""

    labelled_batch: int = 32  # drawn with repetition: few images are seen often
    unlabelled_batch: int = 224  # seven times as many, as in FixMatch
    least_steps: int = 48  # of an epoch, however few the images
    decay: float = 0.99  # of the averaged weights, which are what is kept
    ramp_steps: int = 200  # in which the unsupervised loss of the older methods grows to its full weight
    freeze_norm: bool = True  # batch normalisation keeps its pretrained statistics: few steps learn no better ones
    head_rate: float = 10.0  # the head starts from nothing and may learn faster than the body
    seed: int = 0

    def __post_init__(self) -> None:
        validate_counts(self, 1, "labelled_batch", "unlabelled_batch", "least_steps")
        validate_counts(self, 0, "ramp_steps", "seed")
        if not is_number(self.decay) or not 0 <= self.decay < 1:
            raise ValueError(f"decay is {self.decay!r}; expected a number in [0, 1)")
        if not is_number(self.head_rate) or not 0 < self.head_rate < math.inf:
            raise ValueError(f"head_rate is {self.head_rate!r}; expected a number above 0")


class Batch(NamedTuple):
    """Images of one step, by position among the examples.

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

    Subclasses say which `views` of the unlabelled images the network shall see and how much they disagree.

    Args:
        network: what is trained.
        examples: the images.
        options: what all methods share.
    """

    mismatch_messages: Mapping[str, str] = MISMATCH_MESSAGES
    model: ImageNetwork
    average: EMA

    def __init__(
        self, network: ImageNetwork, examples: SemiSupervisedData, options: MethodOptions | None = None
    ) -> None:
        self.options = options or MethodOptions()
        network.freeze_norm = self.options.freeze_norm
        super().__init__(network, None)
        self.average = EMA(network, self.options.decay)  # also of decay 0: a teacher is a network of its own
        self.examples = examples
        self.looks = examples.looks

    @abstractmethod
    def views(self, batch: Batch) -> Sequence[Tensor]:
        """The views of unlabelled images that go through the network with gradients, each (b, ...)."""

    @abstractmethod
    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """The unsupervised loss, a scalar, weight included.

        Args:
            logits: of each of `views`, shape (b, m).
            batch: the images.
            step: updates made so far.
        """

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """All images once, in a new order, each batch beside a draw of labelled ones; what fills no batch waits.

        Few images come in smaller batches, and several times over: a network learns by steps, not by images.
        """
        rng = np.random.default_rng([self.options.seed, epoch])
        n, size, steps = len(self.examples), self._batch_size(), self.steps()
        passes = [rng.permutation(n) for _ in range(-(-steps * size // n))]
        every = np.concatenate(passes)[: steps * size].reshape(steps, size)
        beside = max(1, round(self.options.labelled_batch * size / self.options.unlabelled_batch))
        return list(zip(rng.choice(self.examples.labelled, (steps, beside)), every, strict=True))

    def steps(self) -> int:
        """How many batches an epoch's plan has."""
        return max(len(self.examples) // self._batch_size(), self.options.least_steps)

    def _batch_size(self) -> int:
        n = len(self.examples)
        return min(n, self.options.unlabelled_batch, max(LEAST_BATCH, n // 8))

    def load(self, item: tuple[Rows, Rows], rng: np.random.Generator) -> Batch:
        """Positions only: views are made or kept on the device."""
        labelled, every = item
        return Batch(
            torch.from_numpy(labelled), torch.from_numpy(self.examples.codes[labelled]), torch.from_numpy(every)
        )

    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Cross-entropy on the labelled images and disagreement on the others, from one pass of the network."""
        views = [self.looks.weak(batch.labelled), *self.views(batch)]
        logits = model(torch.cat(views)).float().split([len(view) for view in views])
        labelled = F.cross_entropy(logits[0], batch.codes)
        unlabelled = self.disagreement(logits[1:], batch, step)
        return {"loss": labelled + unlabelled, "labelled": labelled, "unlabelled": unlabelled}

    @torch.no_grad()
    def teacher(self, views: Tensor) -> Tensor:
        """What the averaged network believes of some views: distributions, shape (b, m)."""
        with self.autocast():
            return F.softmax(self.average.module(views).float(), dim=1)

    def ramp(self, step: int) -> float:
        """A weight that rises from nearly 0 to 1 in the first `ramp_steps`, exp(-5 (1 - t)^2)."""
        done = 1.0 if step >= self.options.ramp_steps else step / self.options.ramp_steps
        return float(np.exp(-5.0 * (1.0 - done) ** 2))

    def after_step(self, step: int) -> None:
        """The average follows the weights, with the main process's statistics: a checkpoint holds no others."""
        _share_statistics(self.model)
        super().after_step(step)

    def prepare(self, device: torch.device) -> None:
        """Images that fit go to the GPU."""
        super().prepare(device)
        self.looks.move(device)

    def parameter_groups(self) -> list[dict[str, Any]]:
        """The head learns faster than the body."""
        return [
            {"params": list(self.model.body.parameters())},
            {"params": list(self.model.head.parameters()), "lr_scale": self.options.head_rate},
        ]

    def config(self) -> dict[str, Any]:
        """SemiSupervisedMethod, options and labels."""
        labels = hashlib.blake2b(self.examples.codes.tobytes(), digest_size=8).hexdigest()
        return {"method": type(self).__name__, **asdict(self.options), "images": self.looks.digest(), "labels": labels}


@torch.no_grad()
def _share_statistics(model: nn.Module) -> None:
    """Give all processes the main one's running statistics, in one message: a teacher's answers depend on them."""
    statistics = [value for value in model.buffers() if value.is_floating_point()]
    if not statistics or not dist.is_initialized() or dist.get_world_size() == 1:
        return
    together = torch.cat([value.flatten() for value in statistics])
    dist.broadcast(together, src=0)
    for value, shared in zip(statistics, torch.split(together, [value.numel() for value in statistics]), strict=True):
        value.copy_(shared.view_as(value))


THRESHOLD = 0.95  # Pseudo-Label's first version trusted every answer; later comparisons of it have this


class WeightedMethod(SemiSupervisedMethod):
    """A method whose disagreement has a weight.

    Args:
        network, examples, options: as for `SemiSupervisedMethod`.
        weight: of the difference, when it has grown; None: the `usual` one.

    Attributes:
        usual: what is of use to the method where labels are few.
    """

    usual: ClassVar[float]

    def __init__(
        self,
        network: ImageNetwork,
        examples: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        weight: float | None = None,
    ) -> None:
        super().__init__(network, examples, options)
        self.weight = self.usual if weight is None else weight
        if not is_number(self.weight) or not self.weight >= 0:
            raise ValueError(f"weight is {weight!r}; expected 0 or more")

    def config(self) -> dict[str, Any]:
        """With the weight."""
        return {**super().config(), "weight": self.weight}


class ConfidenceThresholdMethod(SemiSupervisedMethod):
    """A method that believes answers it is sure of.

    Args:
        network, examples, options: as for `SemiSupervisedMethod`.
        threshold: how sure an answer must be.
    """

    def __init__(
        self,
        network: ImageNetwork,
        examples: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        threshold: float = THRESHOLD,
    ) -> None:
        super().__init__(network, examples, options)
        if not is_number(threshold) or not 0 <= threshold <= 1:
            raise ValueError(f"threshold is {threshold!r}; expected a share of 0 to 1")
        self.threshold = threshold

    def config(self) -> dict[str, Any]:
        """With the threshold."""
        return {**super().config(), "threshold": self.threshold}
