"""From codes to clusters: items that stand for a cluster are picked one after the other, and k-means follows.

The next seed is the item with the most company that no earlier seed accounts for. Whether there is one more cluster
is then the same question at every step, so P(k) needs no table over k: it is a chain of such answers. And since seeds
are items, neither their choice nor what follows depends on the order of the items.

What every network of this room says about a set: how many clusters, and for every number who is in which.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

IMPOSSIBLE = -100.0  # log odds of what cannot be
SEED_FEATURES = 8  # numbers that tell whether a seed is a cluster of its own
_EPSILON = 1e-6


@torch.no_grad()
def choose_seeds(distance: Tensor, seeds: int) -> Tensor:
    """Picks items that stand for clusters, the largest cluster first.

    With P(same) = exp(-distance), an item is left over by earlier seeds with probability u_i = prod_l (1 - P_il), and
    the next seed has the largest u_i sum_j u_j P_ij.

    Args:
        distance: squared distances of the codes, shape (b, n, n).
        seeds: how many to pick, K; where n is smaller the rest repeats items.

    Returns:
        Positions, shape (b, K). Costs O(b K n^2) time.
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
    """The product of each set's matrix (b, n, n) and vector (b, n), the way that is fast where they are."""
    if matrix.is_cuda:  # whose product of many small matrices with vectors is ten times slower than the sum
        return (matrix * vector.unsqueeze(1)).sum(-1)
    return torch.einsum("bij,bj->bi", matrix, vector)


def seed_features(distance: Tensor, chosen: Tensor) -> Tensor:
    """What speaks for each seed being a cluster of its own; gradients reach the distances.

    Args:
        distance: squared distances of the codes, shape (b, n, n).
        chosen: the seeds in order, shape (b, K).

    Returns:
        Shape (b, K, EVIDENCE): the log odds that no earlier seed accounts for it, the log distance to the nearest of
        them, the items it alone accounts for (log, share of n, and log ratio to the mean of earlier seeds), the share
        of n left before it, how many clusters there seem to be beyond those before it, and log n.
    """
    n = distance.shape[-1]
    rows = distance.gather(1, chosen.unsqueeze(-1).expand(-1, -1, n))  # (b, K, n)
    log_unexplained = torch.log(-torch.expm1(-rows.clamp_min(_EPSILON)))  # (b, K, n), log (1 - P)
    unexplained = (log_unexplained.cumsum(1) - log_unexplained).exp()  # (b, K, n), before each seed
    mutual = rows.gather(2, chosen.unsqueeze(1).expand(-1, chosen.shape[1], -1))  # (b, K, K)
    earlier = torch.ones_like(mutual[0], dtype=torch.bool).tril(-1)  # of a row's seed
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
    """Which seeds, shape (b, K), are neither earlier ones again nor copies of them: others can be no further cluster.

    Args:
        distance: squared distances of the codes, shape (b, n, n).
        chosen: the seeds in order, shape (b, K).
    """
    sets = torch.arange(len(chosen), device=chosen.device)[:, None, None]
    mutual = distance[sets, chosen.unsqueeze(2), chosen.unsqueeze(1)]  # (b, K, K)
    same = (mutual <= _EPSILON) | (chosen.unsqueeze(2) == chosen.unsqueeze(1))
    return ~same.tril(-1).any(-1)


def count_log_probabilities(scores: Tensor) -> Tensor:
    """log P(k) from the log odds that, all earlier clusters given, there is one more.

    P(k) = prod_{m <= k} h_m (1 - h_{k + 1}) with h = sigmoid(score); the first cluster is certain, and so is that there
    are at most K.

    Args:
        scores: shape (b, K); the first is ignored.

    Returns:
        Shape (b, K), log probabilities that sum to 1.
    """
    log_more = torch.nn.functional.logsigmoid(scores[:, 1:])  # (b, K - 1)
    log_stop = torch.nn.functional.logsigmoid(-scores[:, 1:])
    zeros = scores.new_zeros(len(scores), 1)
    return torch.cat([zeros, log_more.cumsum(1)], dim=1) + torch.cat([log_stop, zeros], dim=1)


def soft_k_means(code: Tensor, chosen: Tensor, n_iter: int, sharpness: Tensor) -> Tensor:
    """P(l | x_i, k) for every k at once: k-means with soft assignments, from the first k seeds.

    Args:
        code: shape (b, n, d).
        chosen: seeds, shape (b, K).
        n_iter: how often centres move to the mean of their items.
        sharpness: what squared distances are multiplied with, a scalar.

    Returns:
        Shape (b, n, K, K), as in `SetPrediction`. Costs O(b n K^2 d) time and O(b n K^2) memory a round.
    """
    k_max = chosen.shape[1]
    seeds = code.gather(1, chosen.unsqueeze(-1).expand(-1, -1, code.shape[-1]))  # (b, K, d)
    centers = seeds.unsqueeze(1).expand(-1, k_max, -1, -1).flatten(1, 2)  # (b, K * K, d), all for each k
    valid = torch.ones(k_max, k_max, dtype=torch.bool, device=code.device).tril()  # l < k
    assignment = _assign(code, centers, valid, sharpness)
    for _ in range(n_iter):
        weights = assignment.flatten(2).transpose(1, 2)  # (b, K * K, n)
        centers = weights @ code / weights.sum(-1, keepdim=True).clamp_min(_EPSILON)
        assignment = _assign(code, centers, valid, sharpness)
    return assignment


def _assign(code: Tensor, centers: Tensor, valid: Tensor, sharpness: Tensor) -> Tensor:
    near = 2 * code @ centers.transpose(1, 2) - centers.square().sum(-1).unsqueeze(1)  # (b, n, K * K), less |code|^2
    scores: Tensor = (sharpness * near).reshape(*near.shape[:2], *valid.shape)
    return scores.masked_fill(~valid, -torch.inf).softmax(-1)


@dataclass(frozen=True)
class SetPrediction:
    """The two outputs of the appendix, and what the losses of some presets look at besides.

    Attributes:
        count: log P(k) for k = 1, ..., k_max, shape (b, k_max).
        assignment: P(l | x_i, k), shape (b, n, k_max, k_max); [..., k - 1, l] is for k clusters and 0 for l >= k.
        embedding: where the network puts each item in the end, shape (b, n, d).
        distance: squared distances on which a pairwise opinion P(same) = exp(-distance) rests, shape (b, n, n), or
            None where the network has none.
    """

    count: Tensor
    assignment: Tensor
    embedding: Tensor
    distance: Tensor | None = None

    @property
    def k_max(self) -> int:
        """The most clusters there can be."""
        return self.count.shape[-1]

    def same(self) -> Tensor:
        """P_ij: that two items belong together, over all k (thesis, appendix A), shape (b, n, n).

        The sum over k and l is one matrix product: O(b n^2 k_max^2) time, O(b n (n + k_max^2)) memory.
        """
        root = (self.count / 2).exp()[:, None, :, None]  # (b, 1, k, 1), the root of P(k) in each factor
        weighted = (self.assignment * root).flatten(2)  # (b, n, k * k)
        return weighted @ weighted.transpose(1, 2)

    def clusters(self, k: Tensor | None = None) -> Tensor:
        """The cluster of each item, shape (b, n), for the likeliest k or for given ones, shape (b,)."""
        best = self.count.argmax(-1) + 1 if k is None else k
        chosen = self.assignment[torch.arange(len(best), device=best.device), :, best - 1]  # (b, n, k_max)
        return chosen.argmax(-1)
