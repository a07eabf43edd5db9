"""The default network: attention among all items of a set, followed by seeds and soft k-means on learned codes.

The network is equivariant to permutations of the items. Cluster numbers are arbitrary and not learned: seeds are
items, see `assignment`. Therefore no parameter depends on k_max, and a network supports more clusters than it was
trained with.

Attention has a bias from features of pairs. Log distances are given with three scalings: unscaled; relative to the
nearest neighbours of either item, so that they are comparable in dense and sparse clusters; and relative to the radius
that contains an eighth of the set, so that they do not depend on the number of items. Pairs of points also have
features of direction: whether one point lies along the local direction of the other's neighbours. They separate
touching moons.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.cluster.models.assignment import (
    IMPOSSIBLE,
    SEED_FEATURES,
    SetPrediction,
    choose_seeds,
    count_log_probabilities,
    is_distinct,
    seed_features,
    soft_k_means,
)
from entourage.cluster.models.embedding import MetricBlock, squared_distances
from entourage.cluster.models.minimax_paths import MinimaxPaths
from entourage.cluster.models.options import ModelOptions

N_NEAREST = 5  # neighbours whose mean log distance is the near scale of an item
NEIGHBOR_RANKS = (1, 2, 4, 8, 16, 32)  # neighbours whose distances are features of an item, by rank...
NEIGHBOR_FRACTIONS = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # ...and by fraction of the set
WIDE_SCALE = 2  # index in NEIGHBOR_FRACTIONS of the wide scale of an item
EPSILON = 1e-6  # added to squared distances before the logarithm
PAIR_FEATURES = 5
ITEM_FEATURES = len(NEIGHBOR_RANKS) + len(NEIGHBOR_FRACTIONS)
DIRECTION_NEIGHBORS = (3, 8)  # neighbours whose distance is the width of the neighbourhood whose direction is computed
DIRECTION_FEATURES = 3 * len(DIRECTION_NEIGHBORS)


def distance_features(squared: Tensor) -> tuple[Tensor, Tensor]:
    """Compute features of pairs and of items from distances; equivariant to permutations of the items.

    Args:
        squared: squared distances, shape (b, n, n), n >= 2.

    Returns:
        Features of pairs, shape (b, n, n, PAIR_FEATURES): log d, and log d / s for the near and the wide scale s of
        either item. Features of items, shape (b, n, ITEM_FEATURES): log distances to the neighbours of
        `NEIGHBOR_RANKS` (at most the farthest item) and of `NEIGHBOR_FRACTIONS`. Costs O(b n^2) memory and
        O(b n^2 log n) time.
    """
    n = squared.shape[-1]
    log = 0.5 * (squared + EPSILON).log()  # (b, n, n)
    # The first is the item itself, or an exact duplicate, which has the same distance.
    by_rank = log.sort(dim=-1).values[..., 1:]  # (b, n, n - 1), ascending
    near = by_rank[..., : min(N_NEAREST, n - 1)].mean(-1)  # (b, n), the logarithm of a geometric mean
    positions = [min(rank, n - 1) - 1 for rank in NEIGHBOR_RANKS] + [
        math.ceil(fraction * (n - 1)) - 1 for fraction in NEIGHBOR_FRACTIONS
    ]
    items = by_rank[..., positions]  # (b, n, ranks + fractions)
    wide = items[..., len(NEIGHBOR_RANKS) + WIDE_SCALE]  # (b, n)
    scales = [scale.unsqueeze(side) for scale in (near, wide) for side in (-1, -2)]
    pairs = torch.stack([log, *(log - scale for scale in scales)], dim=-1)
    return pairs, items


def direction_features(z: Tensor, squared: Tensor) -> Tensor:
    """Compute how well pairs of points are aligned with the directions of their neighbourhoods; rotation invariant.

    The neighbourhood of point i has the matrix C_i = sum_j w_ij v_ij v_ij^T with v_ij = z_j - z_i, scaled to trace 1,
    and Gaussian weights as wide as the distance to its m-th neighbour, for each m of `DIRECTION_NEIGHBORS`.

    Args:
        z: coordinates, shape (b, n, d), d small.
        squared: squared distances of z, shape (b, n, n).

    Returns:
        Shape (b, n, n, DIRECTION_FEATURES): u^T C_i u, u^T C_j u and tr C_i C_j for each m, where u is the direction
        from i to j; each minus 1 / d, the value of an isotropic neighbourhood. Costs O(b n^2 d^2) time and O(b n^2 d)
        memory.
    """
    n, d = z.shape[-2:]
    step = z.unsqueeze(-3) - z.unsqueeze(-2)  # (b, n, n, d), from i to j
    direction = step / (squared + EPSILON).sqrt().unsqueeze(-1)  # (b, n, n, d)
    ranked = squared.sort(dim=-1).values  # the first is the item itself
    features = []
    for n_neighbors in DIRECTION_NEIGHBORS:
        radius = ranked[..., min(n_neighbors, n - 1), None] + EPSILON  # (b, n, 1)
        weights = torch.exp(-squared / radius)  # (b, n, n)
        spread = torch.einsum("bij,bijp,bijq->bipq", weights, step, step)  # (b, n, d, d)
        size = spread.diagonal(dim1=-2, dim2=-1).sum(-1)[..., None, None]  # (b, n, 1, 1)
        isotropic = torch.eye(d, device=z.device, dtype=z.dtype) / d
        spread = torch.where(size > EPSILON, spread / size.clamp_min(EPSILON), isotropic) - isotropic
        along = torch.einsum("bijp,bipq,bijq->bij", direction, spread, direction)  # (b, n, n)
        similarity = torch.einsum("bipq,bjpq->bij", spread, spread)  # (b, n, n)
        features += [along, along.transpose(1, 2), similarity]
    return torch.stack(features, dim=-1)


HIDDEN = 32  # hidden units of the networks for features of pairs and of seeds
# Cycles of sines and cosines over the standard deviation of a set. High frequencies oscillate within a cluster and
# identify points: two mirrored moons have the same distances within each, but must get different codes.
MIN_CYCLES, MAX_CYCLES = 0.1, 200.0
REFERENCE_SIZE = 64  # set size for which the scale of the attention logits is 1
CODE_SCALE = 0.2  # of the initial codes, so that P(same) is initially neither 0 nor 1 for all pairs


class AttentionNetwork(nn.Module):
    """Clustering network from embeddings to clusters, equivariant to permutations of the items.

    Args:
        width: dimension of the embeddings.
        options: sizes of the network.
        points: whether embeddings are coordinates, for which sines, cosines and directions are additional features.
    """

    waves: Tensor

    def __init__(self, width: int, options: ModelOptions, *, points: bool) -> None:
        super().__init__()
        self.options = options
        self.points = points
        frequencies = options.frequencies if points else 0
        self.register_buffer("waves", _random_waves(width, frequencies))
        self.lift = nn.Linear(width + 2 * frequencies + ITEM_FEATURES, options.width)
        self.metric = None
        if options.metric != "none":
            self.level = nn.Sequential(nn.Linear(width, options.units), nn.LeakyReLU(options.slope))
            self.metric = MetricBlock(options.units, options.metric)
        features = PAIR_FEATURES + (DIRECTION_FEATURES if points else 0)
        self.bridges = MinimaxPaths(features, options.bridges, HIDDEN) if options.bridges else None
        # Shared by all layers; each layer projects it to its own bias
        self.look = nn.Sequential(
            nn.Linear(features + 2 * options.bridges, HIDDEN),
            nn.GELU(),
            nn.Linear(HIDDEN, HIDDEN),
            nn.GELU(),
        )
        self.layers = nn.ModuleList(AttentionLayer(options.width, options.heads) for _ in range(options.depth))
        self.norm = nn.LayerNorm(options.width)
        self.code = nn.Linear(options.width, options.code)
        with torch.no_grad():
            self.code.weight *= CODE_SCALE
        self.sharpness = nn.Parameter(torch.zeros(()))
        self.hazard = nn.Sequential(
            nn.Linear(SEED_FEATURES, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.Linear(HIDDEN, 1)
        )

    def forward(self, z: Tensor, k_max: int | None = None) -> SetPrediction:
        """Cluster embeddings, shape (b, n, width), into up to k_max clusters (None for the options' k_max).

        Costs O(b n^2 (width + heads)) time and memory per layer, O(b n^2 bridges) for the minimax paths, in n
        sequential operations, and O(b n k_max^2 code) for the clusters.
        """
        with torch.autocast(z.device.type, enabled=False):  # logarithms of small distances need all digits
            z = z.float()
            squared = squared_distances(z) if self.metric is None else self.metric(self.level(z))
            pairs, items = distance_features(squared)
            if self.points:
                pairs = torch.cat([pairs, direction_features(z, squared_distances(z))], dim=-1)
            # Not a matrix product, which a GPU may round: angles are large, and their last digits matter.
            waves = (z.unsqueeze(-1) * self.waves).sum(-2)  # (b, n, frequencies)
            x = self.lift(torch.cat([z, waves.sin(), waves.cos(), items], dim=-1))  # (b, n, width)
        if self.bridges is not None:
            pairs = torch.cat([pairs, self.bridges(pairs)], dim=-1)
        # By far the largest tensor; in half precision under autocast.
        relations = self.look(pairs)  # (b, n, n, hidden)
        for layer in self.layers:
            x = layer(x, relations)
        with torch.autocast(z.device.type, enabled=False):
            return self.cluster_codes(self.code(self.norm(x)), k_max or self.options.k_max)

    def cluster_codes(self, code: Tensor, k_max: int) -> SetPrediction:
        """Cluster codes, shape (b, n, code)."""
        code = code - code.mean(1, keepdim=True)  # affects only rounding
        distance = squared_distances(code)  # (b, n, n)
        chosen = choose_seeds(distance, k_max)  # (b, k_max)
        scores = self.hazard(seed_features(distance, chosen)).squeeze(-1)  # (b, k_max)
        scores = scores.masked_fill(~is_distinct(distance, chosen), IMPOSSIBLE)
        assignment = soft_k_means(code, chosen, self.options.rounds, self.sharpness.exp())
        return SetPrediction(count_log_probabilities(scores), assignment, code, distance)

    def project(self) -> None:
        """Project the matrix of the metric block onto the cone of positive semidefinite matrices."""
        if self.metric is not None:
            self.metric.project()


class AttentionLayer(nn.Module):
    """Multi-head attention with a bias from features of pairs, and a feed-forward layer, both residual.

    Args:
        width: dimension of an item.
        heads: number of attention heads.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.ask = nn.Linear(width, 3 * width)
        self.bias = nn.Linear(HIDDEN, heads)
        self.out = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, relations: Tensor) -> Tensor:
        """Transform items, shape (b, n, width), given features of all pairs, shape (b, n, n, hidden)."""
        query, key, value = self.ask(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        bias = self.bias(relations).permute(0, 3, 1, 2).contiguous()  # (b, heads, n, n), contiguous for fast kernels
        # A softmax over more items is flatter; logits scaled by log n keep it equally sharp for all set sizes.
        scale = math.log(x.shape[1]) / math.log(REFERENCE_SIZE)
        attended = F.scaled_dot_product_attention(scale * query, key, value, attn_mask=scale * bias)  # (b, h, n, w/h)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        output: Tensor = x + self.feed(self.between(x))
        return output


def _random_waves(width: int, frequencies: int) -> Tensor:
    """Draw random directions with logarithmically spaced frequencies, in radians, shape (width, frequencies)."""
    generator = torch.Generator().manual_seed(0)  # fixed, as part of the architecture
    direction = F.normalize(torch.randn(width, frequencies, generator=generator), dim=0)
    cycles = torch.logspace(math.log10(MIN_CYCLES), math.log10(MAX_CYCLES), frequencies)
    waves: Tensor = 2 * math.pi * direction * cycles
    return waves
