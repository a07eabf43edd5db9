"""The loss of the appendix, L_cc + lambda L_ca, the undocumented centre loss of the original, and a pairwise one.

L_ca looks at pairs, not at cluster numbers, so it does not care which number a cluster gets; knowing y_ij suffices.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.options import LossOptions
from entourage.cluster.sampling.episodes import Episode

EPSILON = 1e-7  # probabilities are kept this far from 0 and 1: float32 has no finer 1 - p


def pair_weights(phi: float) -> tuple[float, float]:
    """phi_1 = c sqrt(1 - phi) for pairs that belong together and phi_2 = c sqrt(phi) for the others.

    c makes them sum to 2. At phi of 0 or 1 one kind of pair does not occur, and its weight is without effect.

    Args:
        phi: the a priori probability that two items of a set belong together, E[y_ij].
    """
    if not 0 <= phi <= 1:
        raise ValueError(f"phi is {phi}; expected a probability")
    together, apart = math.sqrt(1 - phi), math.sqrt(phi)
    return 2 * together / (together + apart), 2 * apart / (together + apart)


def assignment_loss(same_probability: Tensor, episode: Episode, phi: float) -> Tensor:
    """L_ca: weighted binary cross entropy over all pairs i < j of which it is known whether they belong together.

    Args:
        same_probability: P_ij, shape (b, n, n).
        episode: the truth; with every pair known the mean is that of the appendix, 2 / (n (n - 1)) over a set.
        phi: as in `pair_weights`.

    Returns:
        A scalar, the mean over sets and pairs.
    """
    # Neither the rounding of sums beyond 1 nor certainty is clamped away: what is certain and wrong must still learn.
    p = same_probability / same_probability.detach().clamp_min(1)
    p = EPSILON + (1 - 2 * EPSILON) * p
    return _mean_over_pairs(torch.where(episode.same, -p.log(), -(1 - p).log()), episode, phi)


def pairwise_loss(distance: Tensor, episode: Episode, phi: float) -> Tensor:
    """The same cross entropy for an opinion on pairs alone, P(same) = exp(-distance), shape (b, n, n) in [0, inf)."""
    apart = -torch.log(-torch.expm1(-distance.clamp_min(EPSILON)))  # -log(1 - exp(-d)), exact for small d
    return _mean_over_pairs(torch.where(episode.same, distance, apart), episode, phi)


def count_loss(count: Tensor, k: Tensor) -> Tensor:
    """L_cc: -log P(k), the mean over sets whose k is known.

    Args:
        count: log P(k), shape (b, k_max).
        k: the true number, shape (b,); 0 where it is unknown.

    Returns:
        A scalar; 0 if no k is known.
    """
    known = k > 0
    loss = -count.gather(1, (k - 1).clamp_min(0).unsqueeze(1)).squeeze(1)  # (b,)
    return torch.where(known, loss, 0).sum() / known.sum().clamp_min(1)


def center_loss(embedding: Tensor, episode: Episode) -> Tensor:
    """Mean squared distance of each coordinate from the centre of its true cluster (the original, for 2D points).

    Args:
        embedding: shape (b, n, d).
        episode: the truth; a centre is the mean over all items known to belong to the same cluster.

    Returns:
        A scalar, the mean over sets, items and coordinates.
    """
    together = episode.same if episode.known is None else episode.same & episode.known
    weights = together.to(embedding.dtype)
    centers = weights @ embedding / weights.sum(-1, keepdim=True).clamp_min(1)  # (b, n, d), each item's own
    return F.mse_loss(embedding, centers)


def total_loss(
    prediction: SetPrediction, episode: Episode, phi: float, options: LossOptions
) -> tuple[Tensor, dict[str, Tensor]]:
    """L_tot = L_cc + lambda L_ca, and what the options add.

    Returns:
        The sum, and its parts before they are weighted, by name.
    """
    parts = {
        "count": count_loss(prediction.count, episode.k),
        "assignment": assignment_loss(prediction.same(), episode, phi),
    }
    total = parts["count"] + options.assignment * parts["assignment"]
    if options.center:
        parts["centre"] = center_loss(prediction.embedding, episode)
        total = total + options.center * parts["centre"]
    if options.pairwise and prediction.distance is not None:
        parts["pairwise"] = pairwise_loss(prediction.distance, episode, phi)
        total = total + options.pairwise * parts["pairwise"]
    return total, parts


def _mean_over_pairs(loss: Tensor, episode: Episode, phi: float) -> Tensor:
    """Weighs pairs that belong together and others, and takes the mean over those that are known, i < j."""
    together, apart = pair_weights(phi)
    n = loss.shape[-1]
    pairs = torch.ones(n, n, dtype=torch.bool, device=loss.device).triu(1)
    pairs = pairs.expand_as(loss) if episode.known is None else pairs & episode.known
    weighted = torch.where(episode.same, together * loss, apart * loss)
    return torch.where(pairs, weighted, 0).sum() / pairs.sum().clamp_min(1)
