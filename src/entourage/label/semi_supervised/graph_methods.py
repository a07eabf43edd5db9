"""Training on found labels: a network that takes what a graph said for granted (thesis, chapter 3).

Consistency training that starts from a graph's labels and ends with the network's own.

A graph knows which images resemble each other; a network that has seen many views knows which differences do not
matter. Each is a witness with its own mistakes, so their beliefs are multiplied: an image counts as far as both agree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.method import Batch, MethodOptions, Rows, SemiSupervisedMethod
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.options import PseudoLabelMode
from entourage.label.semi_supervised.pseudo_labels import PseudoLabels
from entourage.training.task import Losses


class Augmented(SemiSupervisedMethod):
    """Cross-entropy with found labels on weak views.

    Args:
        network, examples, options: as for `SemiSupervisedMethod`.
        found: a label for every image.
        trust: how far they are trusted.
        alike: given and found labels are one set to train on, as in the thesis; otherwise each batch has given ones of
            its own beside it, which count as much as all others together.
    """

    def __init__(
        self,
        network: ImageNetwork,
        examples: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        found: PseudoLabels,
        trust: PseudoLabelMode = "weighted",
        alike: bool = False,
    ) -> None:
        super().__init__(network, examples, options)
        found.check(len(examples), examples.classes)
        self.trust = trust
        self.alike = alike
        self.found = found.digest()
        self.targets, self.weights = found.targets(trust)  # (n, m), (n,)

    def prepare(self, device: torch.device) -> None:
        """The found labels go to the device too."""
        super().prepare(device)
        self.targets, self.weights = self.targets.to(device), self.weights.to(device)

    def plan(self, epoch: int) -> Sequence[tuple[Rows, Rows]]:
        """As for every method; without the labelled images beside each batch where all are alike."""
        plan = super().plan(epoch)
        return [(labelled[:0], rows) for labelled, rows in plan] if self.alike else plan

    def loss(self, model: nn.Module, batch: Batch, step: int) -> Losses:
        """Cross-entropy on given and found labels: two means, or one over all where they are alike."""
        if not self.alike:
            return super().loss(model, batch, step)
        (views,) = self.views(batch)
        return {"loss": self.disagreement([model(views).float()], batch, step)}

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """One weak view."""
        return (self.looks.weak(batch.unlabelled),)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Weighted cross-entropy with the found labels."""
        return weighted_cross_entropy(logits[0], self.targets[batch.unlabelled], self.weights[batch.unlabelled])

    def config(self) -> dict[str, Any]:
        """With what was found."""
        return {**super().config(), "trust": self.trust, "alike": self.alike, "found": self.found}


def weighted_cross_entropy(logits: Tensor, targets: Tensor, weights: Tensor) -> Tensor:
    """Mean over a batch of w_i H(t_i, softmax(logits_i)), the sum of weights taken as the batch's size.

    Args:
        logits: shape (b, m).
        targets: distributions, shape (b, m).
        weights: shape (b,), not negative; if all are 0, so is the result.
    """
    each = -(targets * F.log_softmax(logits, dim=1)).sum(dim=1)  # (b,)
    return (weights * each).sum() / weights.sum().clamp_min(1e-6)


FLOOR = 1e-3  # no witness can rule a class out alone
INDIFFERENT = 1e-6  # a belief whose classes differ by less prefers none: it is no label
MEMORY = 0.98  # of the running mean of the network's answers


class Consistency(SemiSupervisedMethod):
    """Strong views should be answered as the graph and the averaged network together label the image.

    Args:
        network, examples, options: as for `SemiSupervisedMethod`.
        found: what the graph says.
        warmup_steps: in which only the graph is heard; the network's answers mean nothing yet.
        shares: how frequent each class is, if that is known, shape (m,); the network's answers are held to it, so that
            an easy class does not swallow the others. None: answers are taken as they are.
    """

    def __init__(
        self,
        network: ImageNetwork,
        examples: SemiSupervisedData,
        options: MethodOptions | None = None,
        *,
        found: PseudoLabels,
        warmup_steps: int = 100,
        shares: Tensor | None = None,
    ) -> None:
        super().__init__(network, examples, options)
        found.check(len(examples), examples.classes)
        if shares is not None and (shares.shape != (examples.classes,) or not (shares > 0).all()):
            raise ValueError(f"shares is {shares.tolist()}; expected {examples.classes} numbers above 0, one a class")
        self.warmup_steps = warmup_steps
        self.found = found.digest()
        self.belief = found.belief()  # (n, m)
        self.shares = shares  # (m,)
        start = torch.full((examples.classes,), 1 / examples.classes) if shares is None else shares
        self.answers = start.clone()  # (m,), running mean of the teacher's answers

    def prepare(self, device: torch.device) -> None:
        """The beliefs go to the device too."""
        super().prepare(device)
        self.belief, self.answers = self.belief.to(device), self.answers.to(device)
        self.shares = None if self.shares is None else self.shares.to(device)

    def views(self, batch: Batch) -> Sequence[Tensor]:
        """One strong view; the teacher sees a weak one."""
        return (self.looks.strong(batch.unlabelled),)

    def disagreement(self, logits: Sequence[Tensor], batch: Batch, step: int) -> Tensor:
        """Cross-entropy with what both witnesses think, weighted by the square of how sure they are together."""
        belief = self.belief[batch.unlabelled]  # (b, m)
        if step >= self.warmup_steps:
            answer = self.teacher(self.looks.weak(batch.unlabelled))  # (b, m)
            if self.shares is not None:
                answer = self._aligned(answer, self.shares)
            belief = belief.clamp_min(FLOOR) * answer.clamp_min(FLOOR)
            if self.shares is not None:  # both witnesses have counted it
                belief = belief / self.shares
            belief = belief / belief.sum(dim=1, keepdim=True)
        sure, label = belief.max(dim=1)
        prefers = sure - belief.amin(dim=1) > INDIFFERENT
        return weighted_cross_entropy(logits[0], F.one_hot(label, belief.shape[1]).float(), prefers * sure**2)

    def _aligned(self, answer: Tensor, shares: Tensor) -> Tensor:
        """The teacher's answers (b, m), held to the classes' shares on average (distribution alignment)."""
        self.answers = MEMORY * self.answers + (1 - MEMORY) * _mean_over_processes(answer.mean(dim=0))
        aligned = answer * (shares / self.answers)
        return aligned / aligned.sum(dim=1, keepdim=True)

    def extra_state(self) -> dict[str, Tensor]:
        """The average and the running mean of answers."""
        return {**super().extra_state(), "answers": self.answers}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        """Take both back."""
        self.answers = state["answers"].to(self.answers.device)
        super().load_extra_state({name: value for name, value in state.items() if name != "answers"})

    def config(self) -> dict[str, Any]:
        """With what the graph said, and how frequent classes are."""
        shares = None if self.shares is None else [round(share, 6) for share in self.shares.tolist()]
        return {**super().config(), "warmup_steps": self.warmup_steps, "found": self.found, "shares": shares}


def _mean_over_processes(mean: Tensor) -> Tensor:
    """The mean of all processes' means: what steers the training must be the same for all, and so in a checkpoint."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return mean
    total = mean.contiguous()
    dist.all_reduce(total)
    return total / dist.get_world_size()
