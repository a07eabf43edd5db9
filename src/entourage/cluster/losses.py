"""Loss of appendix A, L_cc + lambda L_ca, the undocumented centre loss of the original code, and a pairwise loss.

L_ca is defined on pairs of items, y_ij, so it is invariant to permutations of the cluster numbers.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.options import LossOptions
from entourage.cluster.sampling.episodes import Episode

EPSILON = 1e-7  # distance of probabilities from 0 and 1: the resolution of 1 - p in float32


def pair_weights(phi: float) -> tuple[float, float]:
    """Return the weights phi_1 = c sqrt(1 - phi) of pairs in one cluster and phi_2 = c sqrt(phi) of other pairs.

    c normalises the sum to 2. At phi = 0 or 1 one kind of pair does not occur, and its weight has no effect.

    Args:
        phi: prior probability that two items of a set belong to one cluster, E[y_ij].
    """
    if not 0 <= phi <= 1:
        raise ValueError(f"phi is {phi}; expected a probability, from 0 to 1")
    together, apart = math.sqrt(1 - phi), math.sqrt(phi)
    return 2 * together / (together + apart), 2 * apart / (together + apart)


def assignment_loss(same_probability: Tensor, episode: Episode, phi: float) -> Tensor:
    """Compute L_ca: weighted binary cross entropy over all known pairs i < j.

    Args:
        same_probability: P_ij, shape (b, n, n).
        episode: the true clusters; if all pairs are known, the mean is that of the appendix, 2 / (n (n - 1)).
        phi: prior of `pair_weights`.

    Returns:
        A scalar, the mean over sets and pairs.
    """
    # Sums rounded above 1 and certain predictions are scaled, not clamped, so that wrong ones still have a gradient.
    p = same_probability / same_probability.detach().clamp_min(1)
    p = EPSILON + (1 - 2 * EPSILON) * p
    return _mean_over_pairs(torch.where(episode.same, -p.log(), -(1 - p).log()), episode, phi)


def pairwise_loss(distance: Tensor, episode: Episode, phi: float) -> Tensor:
    """Compute the cross entropy of L_ca for P(same) = exp(-distance), shape (b, n, n) in [0, inf)."""
    apart = -torch.log(-torch.expm1(-distance.clamp_min(EPSILON)))  # -log(1 - exp(-d)), exact for small d
    return _mean_over_pairs(torch.where(episode.same, distance, apart), episode, phi)


def count_loss(count: Tensor, k: Tensor) -> Tensor:
    """Compute L_cc: -log P(k), the mean over sets with known k.

    Args:
        count: log P(k), shape (b, k_max).
        k: true number of clusters, shape (b,); 0 if unknown.

    Returns:
        A scalar; 0 if no k is known.
    """
    known = k > 0
    loss = -count.gather(1, (k - 1).clamp_min(0).unsqueeze(1)).squeeze(1)  # (b,)
    return torch.where(known, loss, 0).sum() / known.sum().clamp_min(1)


def center_loss(embedding: Tensor, episode: Episode) -> Tensor:
    """Compute the mean squared error between embeddings and the centres of their true clusters (original code).

    Args:
        embedding: shape (b, n, d).
        episode: the true clusters; a centre is the mean of all items known to belong to the same cluster.

    Returns:
        A scalar, the mean over sets, items and coordinates.
    """
    together = episode.same if episode.known is None else episode.same & episode.known
    weights = together.to(embedding.dtype)
    centers = weights @ embedding / weights.sum(-1, keepdim=True).clamp_min(1)  # (b, n, d), of each item's cluster
    return F.mse_loss(embedding, centers)


def total_loss(
    prediction: SetPrediction, episode: Episode, phi: float, options: LossOptions
) -> tuple[Tensor, dict[str, Tensor]]:
    """Compute L_tot = L_cc + lambda L_ca + the optional centre and pairwise losses.

    Returns:
        The weighted sum, and the unweighted terms by name.
    """
    terms = {
        "count": count_loss(prediction.count, episode.k),
        "assignment": assignment_loss(prediction.same(), episode, phi),
    }
    total = terms["count"] + options.assignment * terms["assignment"]
    if options.center:
        terms["centre"] = center_loss(prediction.embedding, episode)
        total = total + options.center * terms["centre"]
    if options.pairwise and prediction.distance is not None:
        terms["pairwise"] = pairwise_loss(prediction.distance, episode, phi)
        total = total + options.pairwise * terms["pairwise"]
    return total, terms


def _mean_over_pairs(loss: Tensor, episode: Episode, phi: float) -> Tensor:
    """Weight the loss of each pair by `pair_weights` and return the mean over known pairs i < j."""
    together, apart = pair_weights(phi)
    n = loss.shape[-1]
    pairs = torch.ones(n, n, dtype=torch.bool, device=loss.device).triu(1)
    pairs = pairs.expand_as(loss) if episode.known is None else pairs & episode.known
    weighted = torch.where(episode.same, together * loss, apart * loss)
    return torch.where(pairs, weighted, 0).sum() / pairs.sum().clamp_min(1)
