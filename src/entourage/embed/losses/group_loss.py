"""The Group Loss (thesis, chapter 4, Algorithm 1), its terms and the choice of anchors."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.embed.losses.batch_graph import (
    BatchGraph,
    batch_similarity,
    check_shapes,
    check_types,
    check_values,
)
from entourage.embed.losses.cross_batch_memory import CrossBatchMemory
from entourage.embed.losses.options import AnchorChoice, GroupLossOptions, Negatives, Objective, Similarity, loss_preset
from entourage.game.dynamics import log_replicator

PROXY_MARGIN = 3.2  # the paper's margin of 0.1 between cosines times its scale of 32
MAX_LOGIT = 1e9  # larger logits are clamped: sums and derivatives are then finite in float32 at any temperature


def label_loss(log_x: Tensor, labels: Tensor, smoothing: float = 0.0) -> Tensor:
    """Compute the cross-entropy J(X(T), y) of each sample (thesis, Algorithm 1, step 5).

    Args:
        log_x: logarithms of the label distributions, shape (n, m).
        labels: shape (n,).
        smoothing: fraction of the target that is distributed evenly over all m labels.

    Returns:
        Losses, shape (n,).
    """
    loss = -log_x.gather(1, labels[:, None]).squeeze(1)  # (n,)
    return loss if smoothing == 0 else torch.lerp(loss, -log_x.mean(dim=1), smoothing)


def agreement_loss(log_x: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    """Compute the mean Kullback-Leibler divergence within classes (thesis, "Alternative loss formulation").

    Args:
        log_x: logarithms of the label distributions, shape (n, m), finite where the mask is True.
        labels: shape (n,).
        mask: samples to compare, shape (n,), boolean. All ordered pairs of different samples of one class count.

    Returns:
        A scalar; 0 if there is no pair. Costs O(n^2 m) time.
    """
    log_x = torch.where(mask[:, None], log_x, -math.log(log_x.shape[1]))  # (n, m), finite everywhere
    x = log_x.exp()
    divergence = (x * log_x).sum(dim=1, keepdim=True) - x @ log_x.T  # (n, n), D(x_i || x_j)
    pairs = (labels[:, None] == labels[None, :]) & mask[:, None] & mask[None, :]  # (n, n)
    pairs = pairs & ~torch.eye(len(labels), dtype=torch.bool, device=labels.device)
    return (divergence * pairs).sum() / pairs.sum().clamp_min(1)


def proxy_loss(logits: Tensor, labels: Tensor, margin: float = PROXY_MARGIN) -> Tensor:
    """Compute the Proxy-Anchor loss (Kim et al., 2020) from logits.

    The loss of a class is a soft maximum over its samples, whose logits should exceed the margin, and over all other
    samples, whose logits should be below minus the margin. For logits that are cosines times a scale, and the paper's
    margin times the same scale, this is the original loss with the rows of the classifier as proxies.

    Args:
        logits: shape (n, m).
        labels: shape (n,), int64.
        margin: required distance of the logits from 0.

    Returns:
        A scalar. Costs O(n m) time.
    """
    positive = torch.zeros_like(logits, dtype=torch.bool).scatter(1, labels[:, None], True)  # (n, m)
    zero = logits.new_zeros(1, logits.shape[1])  # the 1 of log(1 + sum exp)
    pull = torch.cat([zero, (margin - logits).masked_fill(~positive, -math.inf)]).logsumexp(dim=0)  # (m,)
    push = torch.cat([zero, (margin + logits).masked_fill(positive, -math.inf)]).logsumexp(dim=0)  # (m,)
    return pull.sum() / positive.any(dim=0).sum() + push.mean()


def add_floor(log_x: Tensor, floor: float) -> Tensor:
    """Return log(x + floor) from log x; its derivative x / (x + floor) vanishes far below the floor."""
    return log_x if floor == 0 else torch.logaddexp(log_x, log_x.new_full((), math.log(floor)))


def sample_anchors(labels: Tensor, per_class: int, *, random: bool = True) -> tuple[Tensor, Tensor]:
    """Choose the anchors of a batch: samples with a fixed label (thesis, chapter 4, "Initialization").

    Args:
        labels: shape (n,), integers; they are not copied to the CPU.
        per_class: anchors per class; all samples of a class that has no more than this are anchors.
        random: draw them by torch's generator of the labels' device; otherwise take the first of each class.

    Returns:
        Whether each sample is an anchor, shape (n,), and the number of samples of its class, shape (n,). Costs O(n^2).
    """
    n, device = len(labels), labels.device
    same = labels[:, None] == labels[None, :]  # (n, n)
    rank = torch.randperm(n, device=device) if random else torch.arange(n, device=device)  # (n,)
    before = same & (rank[None, :] < rank[:, None])  # (n, n)
    return before.sum(dim=1) < per_class, same.sum(dim=1)


class GroupLossTerms(NamedTuple):
    """Unweighted terms of the loss, all scalars.

    Attributes:
        game: loss of the label distributions after the replicator dynamics.
        cross_entropy: cross-entropy of the logits.
        proxy: Proxy-Anchor loss of the logits; 0 if its weight is 0.
    """

    game: Tensor
    cross_entropy: Tensor
    proxy: Tensor


class GroupLoss(nn.Module):
    """Group Loss: cross-entropy of labels that the samples of a batch propagate to each other.

    The softmax of the logits gives the initial label distributions, similarities of embeddings the weights of a graph,
    and a few anchors of each class have their label fixed. After some iterations of the replicator dynamics
    (`entourage.game`), the cross-entropy of the distributions is computed. It is only low if samples of one class have
    similar embeddings.

    All computations are in float32, or in float64 if an input is float64; autocast is disabled. Costs O(n^2 (d + m))
    time for n samples, d dimensions and m classes.

    Args:
        iterations: iterations of the replicator dynamics.
        temperature: the initial distributions are softmax(logits / temperature).
        anchors_per_class: samples of each class with a fixed label; the loss of the dynamics excludes them.
        anchor_choice: "random", drawn by torch's generator, or the "first" of each class in the batch.
        similarity: similarity of embeddings: "pearson", "cosine" or "gaussian".
        negatives: "clamp" sets negative similarities to 0, "shift" subtracts the minimum from all similarities.
        sharpness: power of the non-negative similarities; above 1, the nearest samples have more weight.
        zero_diagonal: whether the similarity of a sample to itself is set to 0.
        objective: "labels" for the cross-entropy, "agreement" for the divergence of distributions within a class.
        cross_entropy_weight: weight of the cross-entropy of the logits, which is added.
        proxy_weight: weight of the Proxy-Anchor loss of the logits (`proxy_loss`), which is added; it requires logits
            that are cosines times 32.
        count_anchors: whether the mean over the batch includes the anchors, with a loss of 0.
        floor: constant added to probabilities before the logarithm.
        label_smoothing: fraction of the target that is distributed evenly over all classes, in both cross-entropies.
        class_players: weight of the class vectors, which join the graph as labelled nodes: the number of samples that
            each one counts as; 0: they do not join.
        memory: number of earlier batches that join the graph as labelled nodes, in training mode only: call `eval()`
            before computing the loss of other data. A sample supports its own label if an earlier copy is in the
            memory, so that the memory must be much shorter than an epoch. `state_dict` does not contain it; checkpoints
            store `loss.memory.state_dict()` and restore it with `loss.memory.load_state_dict`.

    Examples:
        >>> import torch
        >>> from entourage.embed import GroupLoss
        >>> embeddings = torch.eye(4).repeat_interleave(3, dim=0)
        >>> labels = torch.arange(4).repeat_interleave(3)
        >>> loss = GroupLoss(anchors_per_class=1, cross_entropy_weight=0.0)
        >>> loss(embeddings, torch.zeros(12, 4), labels).item() < 0.5  # log 4 = 1.39 for random labels
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
        """Create the loss of a preset.

        Args:
            name: "default", "thesis", "original-cub", "original-cars" or "original-sop".
            changes: arguments that replace those of the preset.

        Returns:
            The loss.
        """
        return cls(**{**asdict(loss_preset(name)), **changes})

    def forward(
        self, embeddings: Tensor, logits: Tensor, labels: Tensor, class_vectors: Tensor | None = None
    ) -> Tensor:
        """Compute the loss of a batch.

        Args:
            embeddings: shape (n, d).
            logits: output of the classifier before the softmax, shape (n, m).
            labels: shape (n,), integers from 0 to m - 1.
            class_vectors: weight of the classifier, shape (m, d); required if `class_players` is above 0, else ignored.

        Returns:
            A scalar, float32 or float64.

        Raises:
            ValueError: shapes do not match, also those of the batches in the memory; labels are out of range; values
                are not finite; a class has fewer samples than anchors; or all samples are anchors.
        """
        return self.total(self.terms(embeddings, logits, labels, class_vectors, update_memory=self.training))

    def total(self, terms: GroupLossTerms) -> Tensor:
        """Return the weighted sum of the terms."""
        total = terms.game
        weights = (self.options.cross_entropy_weight, self.options.proxy_weight)
        for weight, term in zip(weights, (terms.cross_entropy, terms.proxy), strict=True):
            total = total + weight * term if weight else total  # 0 times infinity would be NaN
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
        """Compute the terms of the loss; see `forward`. `update_memory` adds the batch to the memory."""
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
        """Return the options that differ from the defaults, for `print`."""
        default = asdict(GroupLossOptions())
        return ", ".join(f"{name}={value!r}" for name, value in asdict(self.options).items() if value != default[name])


def refine_labels(
    graph: BatchGraph, logits: Tensor, labels: Tensor, anchors: Tensor, options: GroupLossOptions
) -> Tensor:
    """Run the replicator dynamics on a batch (thesis, Algorithm 1, steps 2 to 4).

    Args:
        graph: similarities of n samples.
        logits: shape (n, m), float32 or float64.
        labels: shape (n,), int64.
        anchors: samples with a fixed label, shape (n,), boolean.
        options: temperature and iterations are used.

    Returns:
        Logarithms of the final distributions, shape (n, m); those of anchors are 0 and minus infinity.
    """
    prior = torch.log_softmax(logits / options.temperature, dim=1)  # (n, m)
    log_one_hot = torch.full_like(prior, -math.inf).scatter(1, labels[:, None], 0)  # (n, m)
    log_x = torch.where(anchors[:, None], log_one_hot, prior)
    return log_replicator(graph.w, log_x, fixed_payoffs=graph.fixed_payoffs, n_iter=options.iterations)


def _dynamics_loss(log_x: Tensor, labels: Tensor, free: Tensor, options: GroupLossOptions) -> Tensor:
    """Compute the loss of the final distributions; `free` marks all samples but the anchors."""
    log_x = add_floor(log_x, options.floor)
    if options.objective == "agreement":
        return agreement_loss(log_x, labels, free)
    losses = label_loss(log_x, labels, options.label_smoothing).where(free, 0)  # (n,)
    return losses.mean() if options.count_anchors else losses.sum() / free.sum()
