"""What every network of this room says about a set: how many clusters, and for every number who is in which."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


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
