"""The optional metric block: explicit distances d_A^2(x, y) = (x - y)^T A (x - y) between embeddings (appendix A)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entourage.cluster.models.options import Metric

FEW = 8  # columns up to which differences are formed one by one, which is exact, instead of by a matrix product


def squared_distances(z: Tensor) -> Tensor:
    """Squared Euclidean distances between all items of each set, shape (b, n, d) to (b, n, n), never below 0.

    Costs O(b n^2 d) time and O(b n^2) memory (O(b n^2 d) for few columns).
    """
    if z.shape[-1] <= FEW:
        return (z.unsqueeze(-2) - z.unsqueeze(-3)).square().sum(-1)
    norm = z.square().sum(-1)  # (b, n)
    return (norm.unsqueeze(-1) + norm.unsqueeze(-2) - 2 * z @ z.transpose(-1, -2)).clamp_min(0)


class MetricBlock(nn.Module):
    """Distances under a matrix A that is learned with everything else.

    Args:
        width: dimensions of an embedding, d.
        kind: "euclidean" for the fixed identity, "diagonal" for a learned diagonal (the appendix calls that
            Mahalanobis), "full" for the whole of A.

    Attributes:
        a: the diagonal (d,) or the matrix (d, d).
    """

    def __init__(self, width: int, kind: Metric) -> None:
        super().__init__()
        if kind == "none":
            raise ValueError("a metric block needs a metric; expected euclidean, diagonal or full")
        self.kind = kind
        start = torch.eye(width) if kind == "full" else torch.ones(width)
        if kind == "euclidean":
            self.register_buffer("a", start)
        else:
            self.a = nn.Parameter(start)

    def forward(self, z: Tensor) -> Tensor:
        """d_A^2 between all items of each set, shape (b, n, d) to (b, n, n)."""
        if self.kind != "full":
            return squared_distances(z) if self.kind == "euclidean" else self._diagonal(z)
        symmetric = (self.a + self.a.T) / 2  # the skew part of A has no say in a quadratic form
        lifted = z @ symmetric  # (b, n, d)
        norm = (lifted * z).sum(-1)  # (b, n)
        return (norm.unsqueeze(-1) + norm.unsqueeze(-2) - 2 * lifted @ z.transpose(-1, -2)).clamp_min(0)

    def _diagonal(self, z: Tensor) -> Tensor:
        weighted = z * self.a  # not the root of A: its gradient at 0 is infinite, and projection ends there
        norm = (weighted * z).sum(-1)
        return (norm.unsqueeze(-1) + norm.unsqueeze(-2) - 2 * weighted @ z.transpose(-1, -2)).clamp_min(0)

    @torch.no_grad()
    def project(self) -> None:
        """Moves A to the nearest positive semidefinite matrix; to be called after every step. Costs O(d^3) if full."""
        if self.kind == "diagonal":
            self.a.clamp_(min=0)
        elif self.kind == "full":
            self.a.copy_(nearest_semidefinite(self.a))


def nearest_semidefinite(a: Tensor) -> Tensor:
    """The positive semidefinite matrix nearest to a square one in the Frobenius norm: negative eigenvalues become 0."""
    values, vectors = torch.linalg.eigh((a + a.T) / 2)
    nearest: Tensor = (vectors * values.clamp_min(0)) @ vectors.T
    return nearest
