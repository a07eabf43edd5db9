"""Clusters from the codes of items: greedy selection of seeds, P(k), soft k-means; and the networks' output type.

Each seed is the item with the largest expected number of cluster members that are not assigned to earlier seeds. The
probability of a further cluster is computed from the same features for every seed, so P(k) is a chain of conditional
probabilities and needs no parameters that depend on k. Since seeds are items, the result does not depend on the order
of the items.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

IMPOSSIBLE = -100.0  # log odds of a cluster whose seed is not distinct
SEED_FEATURES = 8  # features of a seed, from which the probability of a further cluster is computed
_EPSILON = 1e-6


@torch.no_grad()
def choose_seeds(distance: Tensor, seeds: int) -> Tensor:
    """Select items as seeds of clusters, the largest cluster first.

    With P(same) = exp(-distance), an item is not explained by earlier seeds with probability u_i = prod_l (1 - P_il);
    the next seed maximises u_i sum_j u_j P_ij.

    Args:
        distance: squared distances of the codes, shape (b, n, n).
        seeds: number of seeds, K; if K > n, items are repeated.

    Returns:
        Indices of the seeds, shape (b, K). Costs O(b K n^2) time.
    """
    affinity = torch.exp(-distance)
    unexplained = torch.ones_like(affinity[:, 0])  # (b, n)
    chosen = []
    for _ in range(seeds):
        score = unexplained * _product(affinity, unexplained)
        best = score.argmax(-1)  # (b,)
        chosen.append(best)
        near = affinity[torch.arange(len(best), device=best.device), best]  # (b, n)
        unexplained = unexplained * (1 - near)
    return torch.stack(chosen, dim=1)


def _product(matrix: Tensor, vector: Tensor) -> Tensor:
    """Multiply matrices (b, n, n) and vectors (b, n) by the fastest method on their device."""
    if matrix.is_cuda:  # batched products of small matrices and vectors are ten times slower than the sum
        return (matrix * vector.unsqueeze(1)).sum(-1)
    return torch.einsum("bij,bj->bi", matrix, vector)


def seed_features(distance: Tensor, chosen: Tensor) -> Tensor:
    """Compute features from which the probability is predicted that a seed is a further cluster.

    Differentiable with respect to the distances.

    Args:
        distance: squared distances of the codes, shape (b, n, n).
        chosen: seeds in order of selection, shape (b, K).

    Returns:
        Shape (b, K, SEED_FEATURES): log odds that no earlier seed explains this one; log distance to the nearest
        earlier seed; expected number of items that only this seed explains (log, fraction of n, log ratio to the mean
        of earlier seeds); fraction of items unexplained before this seed; apparent number of clusters minus that of
        earlier seeds; log n.
    """
    n = distance.shape[-1]
    rows = distance.gather(1, chosen.unsqueeze(-1).expand(-1, -1, n))  # (b, K, n)
    log_unexplained = torch.log(-torch.expm1(-rows.clamp_min(_EPSILON)))  # (b, K, n), log (1 - P)
    unexplained = (log_unexplained.cumsum(1) - log_unexplained).exp()  # (b, K, n), before each seed
    mutual = rows.gather(2, chosen.unsqueeze(1).expand(-1, chosen.shape[1], -1))  # (b, K, K)
    earlier = torch.ones_like(mutual[0], dtype=torch.bool).tril(-1)  # than the seed of the row
    log_unexplained_total = torch.where(earlier, torch.log(-torch.expm1(-mutual.clamp_min(_EPSILON))), 0).sum(
        -1
    )  # (b, K), log u
    log_unexplained_total = log_unexplained_total.clamp(-10, -1e-5)
    odds = log_unexplained_total - torch.log(-torch.expm1(log_unexplained_total))  # log u / (1 - u)
    nearest = torch.where(earlier, mutual, 100.0).amin(-1).clamp_min(_EPSILON).log()  # (b, K)
    mass = (unexplained * torch.exp(-rows)).sum(-1)  # (b, K)
    positions = torch.arange(1, chosen.shape[1] + 1, device=distance.device)
    mean_mass = (mass.cumsum(1) - mass) / (positions - 1).clamp_min(1)  # (b, K), the mean before each seed
    ratio = (mass + 0.5).log() - torch.where(positions > 1, mean_mass + 0.5, mass + 0.5).log()
    apparent = (1 / torch.exp(-distance).sum(-1)).sum(-1, keepdim=True)  # (b, 1), the sum over items of 1 / size
    beyond = (apparent - (positions - 1)).clamp(-5, 5)  # (b, K)
    size = torch.full_like(mass, float(n)).log()
    return torch.stack([odds, nearest, mass.log1p(), mass / n, ratio, unexplained.mean(-1), beyond, size], dim=-1)


@torch.no_grad()
def is_distinct(distance: Tensor, chosen: Tensor) -> Tensor:
    """Return a mask of the seeds, shape (b, K), that are not equal to an earlier seed or at distance 0 from one.

    Args:
        distance: squared distances of the codes, shape (b, n, n).
        chosen: seeds in order of selection, shape (b, K).
    """
    sets = torch.arange(len(chosen), device=chosen.device)[:, None, None]
    mutual = distance[sets, chosen.unsqueeze(2), chosen.unsqueeze(1)]  # (b, K, K)
    same = (mutual <= _EPSILON) | (chosen.unsqueeze(2) == chosen.unsqueeze(1))
    return ~same.tril(-1).any(-1)


def count_log_probabilities(scores: Tensor) -> Tensor:
    """Compute log P(k) from the log odds of a further cluster, given all earlier ones.

    P(k) = prod_{m <= k} h_m (1 - h_{k + 1}) with h = sigmoid(score), h_1 = 1 and h_{K + 1} = 0.

    Args:
        scores: log odds, shape (b, K); the first is ignored.

    Returns:
        Shape (b, K), logarithms of probabilities that sum to 1.
    """
    log_more = torch.nn.functional.logsigmoid(scores[:, 1:])  # (b, K - 1)
    log_stop = torch.nn.functional.logsigmoid(-scores[:, 1:])
    zeros = scores.new_zeros(len(scores), 1)
    return torch.cat([zeros, log_more.cumsum(1)], dim=1) + torch.cat([log_stop, zeros], dim=1)


def soft_k_means(code: Tensor, chosen: Tensor, n_iter: int, sharpness: Tensor) -> Tensor:
    """Compute P(l | x_i, k) for all k at once by soft k-means, initialised by the first k seeds.

    Args:
        code: codes of the items, shape (b, n, d).
        chosen: seeds, shape (b, K).
        n_iter: number of updates of the centres.
        sharpness: factor of the squared distances in the softmax, a scalar.

    Returns:
        Shape (b, n, K, K), as in `SetPrediction`. Costs O(b n K^2 d) time and O(b n K^2) memory per iteration.
    """
    k_max = chosen.shape[1]
    seeds = code.gather(1, chosen.unsqueeze(-1).expand(-1, -1, code.shape[-1]))  # (b, K, d)
    centers = seeds.unsqueeze(1).expand(-1, k_max, -1, -1).flatten(1, 2)  # (b, K * K, d), all seeds for each k
    valid = torch.ones(k_max, k_max, dtype=torch.bool, device=code.device).tril()  # l < k
    assignment = _assign(code, centers, valid, sharpness)
    for _ in range(n_iter):
        weights = assignment.flatten(2).transpose(1, 2)  # (b, K * K, n)
        centers = weights @ code / weights.sum(-1, keepdim=True).clamp_min(_EPSILON)
        assignment = _assign(code, centers, valid, sharpness)
    return assignment


def _assign(code: Tensor, centers: Tensor, valid: Tensor, sharpness: Tensor) -> Tensor:
    near = 2 * code @ centers.transpose(1, 2) - centers.square().sum(-1).unsqueeze(1)  # (b, n, K * K), without |code|^2
    scores: Tensor = (sharpness * near).reshape(*near.shape[:2], *valid.shape)
    return scores.masked_fill(~valid, -torch.inf).softmax(-1)


@dataclass(frozen=True)
class SetPrediction:
    """Output of a network: P(k) and P(l | x_i, k) of appendix A, and inputs of the centre and pairwise losses.

    Attributes:
        count: log P(k) for k = 1, ..., k_max, shape (b, k_max).
        assignment: P(l | x_i, k), shape (b, n, k_max, k_max); [..., k - 1, l] is for k clusters and 0 for l >= k.
        embedding: final embedding of each item, shape (b, n, d).
        distance: squared distances of the pairwise probability P(same) = exp(-distance), shape (b, n, n); None for
            networks without it.
    """

    count: Tensor
    assignment: Tensor
    embedding: Tensor
    distance: Tensor | None = None

    @property
    def k_max(self) -> int:
        """Maximum number of clusters."""
        return self.count.shape[-1]

    def same(self) -> Tensor:
        """Compute P_ij, the probability over all k that two items share a cluster (appendix A), shape (b, n, n).

        The sum over k and l is one matrix product: O(b n^2 k_max^2) time, O(b n (n + k_max^2)) memory.
        """
        root = (self.count / 2).exp()[:, None, :, None]  # (b, 1, k, 1), square root of P(k) for each factor
        weighted = (self.assignment * root).flatten(2)  # (b, n, k * k)
        return weighted @ weighted.transpose(1, 2)

    def clusters(self, k: Tensor | None = None) -> Tensor:
        """Return the cluster of each item, shape (b, n), for k, shape (b,); if k is None, for the most probable k."""
        best = self.count.argmax(-1) + 1 if k is None else k
        chosen = self.assignment[torch.arange(len(best), device=best.device), :, best - 1]  # (b, n, k_max)
        return chosen.argmax(-1)
