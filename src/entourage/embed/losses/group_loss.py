"""What the game's outcome and the classifier are judged by: labels, agreement within a class, or class by class.

Anchors: the few samples of each class whose label the game is told (thesis, chapter 4, "Initialization").

The Group Loss (thesis, chapter 4, Algorithm 1): samples of a batch agree on their labels before they are judged.
"""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.embed.losses.batch_graph import (
    BatchGraph,
    CrossBatchMemory,
    batch_similarity,
    check_shapes,
    check_types,
    check_values,
)
from entourage.embed.losses.options import AnchorChoice, GroupLossOptions, Negatives, Objective, Similarity, loss_preset
from entourage.game.dynamics import log_replicator

PROXY_MARGIN = 3.2  # the paper's margin of 0.1 between cosines times its scale of 32


def label_loss(log_x: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Cross-entropy J(X(T), y) of each player (thesis, Algorithm 1, step 5).

    Args:
        log_x: logarithms of the strategies, shape (n, m).
        labels: shape (n,).
        smoothing: share of the target that goes to all m labels evenly.

    Returns:
        Shape (n,).
    """
    loss = -log_x.gather(1, labels[:, None]).squeeze(1)  # (n,)
    return loss if smoothing == 0 else torch.lerp(loss, -log_x.mean(dim=1), smoothing)


def agreement_loss(log_x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Mean Kullback-Leibler divergence between strategies of one class (thesis, "Alternative loss formulation").

    Args:
        log_x: logarithms of the strategies, shape (n, m), finite where players take part.
        labels: shape (n,).
        mask: players whose pairs count, shape (n,), boolean; pairs are ordered, and of different players.

    Returns:
        A scalar; 0 where there is no pair. Costs O(n^2 m) time.
    """
    log_x = torch.where(mask[:, None], log_x, -math.log(log_x.shape[1]))  # (n, m), finite everywhere
    x = log_x.exp()
    divergence = (x * log_x).sum(dim=1, keepdim=True) - x @ log_x.T  # (n, n), D(x_i || x_j)
    pairs = (labels[:, None] == labels[None, :]) & mask[:, None] & mask[None, :]  # (n, n)
    pairs = pairs & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return (divergence * pairs).sum() / pairs.sum().clamp_min(1)


def proxy_loss(logits: Tensor, labels: Tensor, margin: float = PROXY_MARGIN) -> Tensor:
    """Proxy-Anchor (Kim et al., 2020) in terms of logits: class by class instead of sample by sample.

    Each class pulls its samples, the worst most of all, until their logits are above the margin, and pushes all others
    until theirs are below minus the margin. On cosines times a scale, with the scale times its margin, it is the
    original loss whose proxies are the classifier's rows.

    Args:
        logits: shape (n, m).
        labels: shape (n,), int64.
        margin: how far logits shall be from 0.

    Returns:
        A scalar. Costs O(n m) time.
    """
    positive = torch.zeros_like(logits, dtype=torch.bool).scatter(1, labels[:, None], True)  # (n, m)
    zero = logits.new_zeros(1, logits.shape[1])  # the 1 of log(1 + sum exp)
    pull = torch.cat([zero, (margin - logits).masked_fill(~positive, -math.inf)]).logsumexp(dim=0)  # (m,)
    push = torch.cat([zero, (margin + logits).masked_fill(positive, -math.inf)]).logsumexp(dim=0)  # (m,)
    return pull.sum() / positive.any(dim=0).sum() + push.mean()


def add_floor(log_x: Tensor, floor: float) -> Tensor:
    """log(x + floor) from log x, same shape; its slope is x / (x + floor), so what is far below the floor has none."""
    return log_x if floor == 0 else torch.logaddexp(log_x, log_x.new_full((), math.log(floor)))


def sample_anchors(labels: Tensor, per_class: int, *, random: bool = True) -> tuple[Tensor, Tensor]:
    """Marks anchors in a batch, without the host having to look at the labels.

    Args:
        labels: shape (n,), integers.
        per_class: anchors in each class; a class that has no more samples than this is all anchors.
        random: drawn by torch's generator of the labels' device; otherwise those that come first in the batch.

    Returns:
        Whether each sample is an anchor, shape (n,), and the size of its class in the batch, shape (n,). Costs O(n^2).
    """
    n, device = len(labels), labels.device
    same = labels[:, None] == labels[None, :]  # (n, n)
    rank = torch.randperm(n, device=device) if random else torch.arange(n, device=device)  # (n,)
    before = same & (rank[None, :] < rank[:, None])  # (n, n)
    return before.sum(dim=1) < per_class, same.sum(dim=1)


MAX_LOGIT = 1e9  # larger ones count as this, so that at any temperature sums and slopes are finite in float32


class GroupLossTerms(NamedTuple):
    """The parts of the loss, all scalars; `GroupLoss` adds them up with their weights.

    Attributes:
        game: how well the samples label each other.
        cross_entropy: of the logits.
        proxy: of the logits class by class; 0 where its weight is.
    """

    game: Tensor
    cross_entropy: Tensor
    proxy: Tensor


class GroupLoss(nn.Module):
    """Judges embeddings by how well the samples of a batch label each other.

    The classifier's opinions are the players' first strategies, embeddings say who listens to whom, and a few anchors
    of each class know their label. After some rounds of replicator dynamics (`entourage.game`) the cross-entropy of the
    strategies is taken, so that samples of one class must become similar for the batch to be labelled well.

    Everything is computed in float32, or float64 where the inputs are; half precision and autocast are lifted. Costs
    O(n^2 (d + m)) time for n samples, d dimensions and m classes.

    Args:
        iterations: rounds of the game.
        temperature: the prior is softmax(logits / temperature).
        anchors_per_class: samples of each class whose label the game is told; they are left out of the game's loss.
        anchor_choice: drawn at random by torch's generator, or the first of each class in the batch.
        similarity: between embeddings: "pearson", "cosine" or "gaussian".
        negatives: negative similarities are set to 0 ("clamp"), or all of them are lifted ("shift").
        sharpness: power that similarities are raised to after that; the higher, the more the nearest are listened to.
        zero_diagonal: no sample supports itself.
        objective: "labels", or "agreement" for the divergence between the strategies of one class.
        cross_entropy_weight: of the plain cross-entropy of the logits, which is added.
        proxy_weight: of the Proxy-Anchor loss of the logits (`objectives.proxy_loss`), which is added; it wants logits
            that are cosines times 32.
        count_anchors: whether the mean over the batch counts the anchors, whose own loss is 0.
        floor: added to a probability before its logarithm is taken.
        label_smoothing: share of the target that goes to all classes evenly, in the game and in the cross-entropy.
        class_players: how many samples' voices the classifier's row of each class has in the game; 0 for none.
        memory: how many earlier batches go on playing, labelled. In evaluation mode there is none: call `eval()` before
            the loss of other data is taken. A sample that comes again while it is remembered tells itself its label,
            so keep it well below an epoch. `state_dict` has nothing of it: a checkpoint keeps
            `loss.memory.state_dict()` and gives it back to `loss.memory.load_state_dict`.

    Example:
        >>> import torch
        >>> from entourage.embed import GroupLoss
        >>> embeddings = torch.eye(4).repeat_interleave(3, dim=0)
        >>> labels = torch.arange(4).repeat_interleave(3)
        >>> loss = GroupLoss(anchors_per_class=1, cross_entropy_weight=0.0)
        >>> loss(embeddings, torch.zeros(12, 4), labels).item() < 0.5  # a guess would cost log 4 = 1.39
        True
    """

    def __init__(
        self,
        iterations: int = 1,
        temperature: float = 1.0,
        anchors_per_class: int = 1,
        *,
        anchor_choice: AnchorChoice = "random",
        similarity: Similarity = "pearson",
        negatives: Negatives = "clamp",
        sharpness: float = 1.0,
        zero_diagonal: bool = True,
        objective: Objective = "labels",
        cross_entropy_weight: float = 3.0,
        proxy_weight: float = 0.0,
        count_anchors: bool = False,
        floor: float = 0.0,
        label_smoothing: float = 0.0,
        class_players: float = 0.0,
        memory: int = 0,
    ) -> None:
        super().__init__()
        self.options = GroupLossOptions(
            iterations=iterations,
            temperature=temperature,
            anchors_per_class=anchors_per_class,
            anchor_choice=anchor_choice,
            similarity=similarity,
            negatives=negatives,
            sharpness=sharpness,
            zero_diagonal=zero_diagonal,
            objective=objective,
            cross_entropy_weight=cross_entropy_weight,
            proxy_weight=proxy_weight,
            count_anchors=count_anchors,
            floor=floor,
            label_smoothing=label_smoothing,
            class_players=class_players,
            memory=memory,
        )
        self.memory = CrossBatchMemory(memory)

    @classmethod
    def from_preset(cls, name: str, **changes: Any) -> Self:
        """The loss as a preset has it ("default", "thesis", "original-cub"...), with any argument changed by name."""
        return cls(**{**asdict(loss_preset(name)), **changes})

    def forward(
        self, embeddings: Tensor, logits: Tensor, labels: Tensor, class_vectors: Tensor | None = None
    ) -> Tensor:
        """The loss of a batch.

        Args:
            embeddings: shape (n, d).
            logits: what the classifier says, shape (n, m), before any softmax.
            labels: shape (n,), integers from 0 to m - 1.
            class_vectors: the classifier's weight, shape (m, d); needed if, and only if, class vectors play.

        Returns:
            A scalar, float32 or float64.

        Raises:
            ValueError: on shapes that do not fit, labels out of range, values that are not finite, a class with fewer
                samples than anchors, a batch of nothing but anchors, or one that the remembered ones do not fit.
        """
        return self.total(self.terms(embeddings, logits, labels, class_vectors, update_memory=self.training))

    def total(self, terms: GroupLossTerms) -> Tensor:
        """The sum of the parts with their weights."""
        total = terms.game
        weights = (self.options.cross_entropy_weight, self.options.proxy_weight)
        for weight, term in zip(weights, (terms.cross_entropy, terms.proxy), strict=True):
            total = total + weight * term if weight else total  # not 0 times infinity
        return total

    def terms(
        self,
        embeddings: Tensor,
        logits: Tensor,
        labels: Tensor,
        class_vectors: Tensor | None = None,
        *,
        update_memory: bool = False,
    ) -> GroupLossTerms:
        """The same in parts, for a log that shows them; `update_memory` lets the next batches play with this one."""
        options = self.options
        check_types(embeddings, logits, labels)
        earlier = self.memory.nodes(embeddings.device) if self.training else None
        check_shapes(embeddings, logits, labels, class_vectors, earlier, needs_class_vectors=options.class_players > 0)
        random = options.anchor_choice == "random"
        anchors, sizes = sample_anchors(labels, options.anchors_per_class, random=random)  # (n,), (n,)
        with torch.autocast(embeddings.device.type, enabled=False):
            precise = torch.promote_types(torch.promote_types(embeddings.dtype, logits.dtype), torch.float32)
            nodes, prior_logits = embeddings.to(precise), logits.to(precise)
            vectors = class_vectors.to(precise) if class_vectors is not None and options.class_players > 0 else None
            max_logit = check_values(nodes, prior_logits, vectors, labels, sizes, earlier, options.anchors_per_class)
            labels = labels.long()
            if max_logit > MAX_LOGIT:
                prior_logits = prior_logits.clamp(-MAX_LOGIT, MAX_LOGIT)
            graph = batch_similarity(nodes, prior_logits.shape[1], options, vectors, earlier)
            log_x = refine_labels(graph, prior_logits, labels, anchors, options)
            game = _dynamics_loss(log_x, labels, ~anchors, options)
            cross_entropy = F.cross_entropy(prior_logits, labels, label_smoothing=options.label_smoothing)
            proxy = proxy_loss(prior_logits, labels) if options.proxy_weight else torch.zeros_like(game)
        if update_memory and options.memory:
            self.memory.add(graph.inputs, labels)
        return GroupLossTerms(game, cross_entropy, proxy)

    def extra_repr(self) -> str:
        """The options that differ from the default, for `print`."""
        default = asdict(GroupLossOptions())
        return ", ".join(f"{name}={value!r}" for name, value in asdict(self.options).items() if value != default[name])


def refine_labels(
    graph: BatchGraph, logits: Tensor, labels: Tensor, anchors: Tensor, options: GroupLossOptions
) -> Tensor:
    """The strategies after the game (thesis, Algorithm 1, steps 2 to 4).

    Args:
        graph: who listens to whom, of n samples.
        logits: shape (n, m), float32 or float64.
        labels: shape (n,), int64.
        anchors: who is told its label, shape (n,), boolean.
        options: of the game.

    Returns:
        Logarithms of the final strategies, shape (n, m); anchors have 0 and minus infinity.
    """
    prior = torch.log_softmax(logits / options.temperature, dim=1)  # (n, m)
    log_one_hot = torch.full_like(prior, -math.inf).scatter(1, labels[:, None], 0)  # (n, m)
    log_x = torch.where(anchors[:, None], log_one_hot, prior)
    return log_replicator(graph.w, log_x, fixed_payoffs=graph.field, n_iter=options.iterations)


def _dynamics_loss(log_x: Tensor, labels: Tensor, free: Tensor, options: GroupLossOptions) -> Tensor:
    log_x = add_floor(log_x, options.floor)
    if options.objective == "agreement":
        return agreement_loss(log_x, labels, free)
    losses = label_loss(log_x, labels, options.label_smoothing).where(free, 0)  # (n,)
    return losses.mean() if options.count_anchors else losses.sum() / free.sum()
