"""Embeddings of items and distances between them.

Points are standardised; images and spectrograms pass through three convolutional blocks. The optional metric block
computes distances d_A^2(x, y) = (x - y)^T A (x - y) between embeddings (appendix A).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from entourage.cluster.models.options import Metric, ModelOptions

CHANNELS = (32, 64, 128)
EMBEDDING_SIZE = 256
IMAGE_GRID, SOUND_GRID = (4, 4), (16, 1)


class PointEmbedding(nn.Module):
    """Embedding of points: the coordinates, optionally centred and scaled per set.

    Args:
        columns: number of coordinates, d.
        standardise: whether to centre and scale each set, so that the result does not depend on units and origin.
    """

    def __init__(self, columns: int, *, standardise: bool) -> None:
        super().__init__()
        self.width = columns
        self.standardise = standardise

    def forward(self, x: Tensor) -> Tensor:
        """Convert points, shape (b, n, d), to float32; with `standardise`, each set has mean 0 and mean square 1."""
        return (standardize(x) if self.standardise else x).float()


def standardize(x: Tensor) -> Tensor:
    """Scale sets of points, shape (..., n, d), to mean 0 and mean square 1; sets of equal points become 0.

    Computed in the precision of x; a distant origin requires double precision, as single precision has seven digits.
    """
    tiny = torch.finfo(x.dtype).tiny
    centered = x - x.mean(-2, keepdim=True)
    # Scaled by the maximum first, so that squares neither overflow nor underflow
    centered = centered / centered.abs().amax((-2, -1), keepdim=True).clamp_min(tiny)
    size = centered.square().mean((-2, -1), keepdim=True).sqrt()  # (..., 1, 1)
    return centered / size.clamp_min(tiny)


class ConvolutionalEmbedding(nn.Module):
    """Three blocks of convolution, LeakyReLU, batch norm and pooling, then two fully connected layers of 256.

    Args:
        shape: channels, height and width of an item.
        slope: negative slope of the LeakyReLUs.
        pooled: average the last feature maps before the first fully connected layer: images over a grid of 4 x 4,
            spectrograms (one channel) over time, but not over frequency. This layer then has a twentieth of the
            weights and needs fewer classes. Not part of the appendix.
    """

    width = EMBEDDING_SIZE

    def __init__(self, shape: tuple[int, ...], slope: float, *, pooled: bool) -> None:
        super().__init__()
        channels, height, width = shape
        if min(height, width) < 2 ** len(CHANNELS):
            raise ValueError(
                f"items are {height} x {width}; expected a height and width of {2 ** len(CHANNELS)} or more"
            )
        blocks: list[nn.Module] = []
        for before, after in zip((channels, *CHANNELS), CHANNELS, strict=False):
            blocks += [
                nn.Conv2d(before, after, 3, padding=1),
                nn.LeakyReLU(slope),
                nn.BatchNorm2d(after),
                nn.MaxPool2d(2),
            ]
        # Channels last: a GPU's batch norm takes a third of the time.
        self.blocks = nn.Sequential(*blocks).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        size_out = tuple(side // 2 ** len(CHANNELS) for side in (height, width))
        if pooled:
            grid = SOUND_GRID if channels == 1 else IMAGE_GRID
            size_out = tuple(min(pair) for pair in zip(grid, size_out, strict=True))
            self.blocks.append(nn.AdaptiveAvgPool2d(size_out))
        n_features = CHANNELS[-1] * math.prod(size_out)
        self.head = nn.Sequential(
            nn.Linear(n_features, EMBEDDING_SIZE),
            nn.LeakyReLU(slope),
            nn.BatchNorm1d(EMBEDDING_SIZE),
            nn.Linear(EMBEDDING_SIZE, EMBEDDING_SIZE),
        )

    def forward(self, x: Tensor) -> Tensor:
        """Embed items, shape (b, n, c, h, w) to (b, n, 256)."""
        b, n = x.shape[:2]
        maps = self.blocks(x.flatten(0, 1).contiguous(memory_format=torch.channels_last))  # (b * n, 128, h / 8, w / 8)
        embedded: Tensor = self.head(maps.flatten(1))
        return embedded.reshape(b, n, -1)


Embedding = PointEmbedding | ConvolutionalEmbedding


def make_embedding(shape: tuple[int, ...], options: ModelOptions) -> Embedding:
    """Return the embedding for items of a shape: (columns,), or (channels, height, width)."""
    if len(shape) == 1:
        return PointEmbedding(shape[0], standardise=options.standardise)
    if len(shape) == 3:
        return ConvolutionalEmbedding(shape, options.slope, pooled=options.pooled)
    raise ValueError(f"items have shape {shape}; expected (columns,) or (channels, height, width)")


MAX_EXACT_COLUMNS = 8  # up to this number of columns, differences are computed exactly instead of by a matrix product


def squared_distances(z: Tensor) -> Tensor:
    """Compute squared Euclidean distances between all items of each set, shape (b, n, d) to (b, n, n), >= 0.

    Costs O(b n^2 d) time and O(b n^2) memory (O(b n^2 d) for up to `MAX_EXACT_COLUMNS` columns).
    """
    if z.shape[-1] <= MAX_EXACT_COLUMNS:
        return (z.unsqueeze(-2) - z.unsqueeze(-3)).square().sum(-1)
    norm = z.square().sum(-1)  # (b, n)
    return (norm.unsqueeze(-1) + norm.unsqueeze(-2) - 2 * z @ z.transpose(-1, -2)).clamp_min(0)


class MetricBlock(nn.Module):
    """Distances d_A^2 with a matrix A that is trained with the network (appendix A).

    Args:
        width: dimension of the embeddings, d.
        kind: "euclidean" for the fixed identity, "diagonal" for a trained diagonal (Mahalanobis in the appendix),
            "full" for a trained matrix.

    Attributes:
        a: diagonal, shape (d,), or matrix, shape (d, d).
    """

    def __init__(self, width: int, kind: Metric) -> None:
        super().__init__()
        if kind == "none":
            raise ValueError("kind is 'none'; expected 'euclidean', 'diagonal' or 'full'")
        self.kind = kind
        start = torch.eye(width) if kind == "full" else torch.ones(width)
        if kind == "euclidean":
            self.register_buffer("a", start)
        else:
            self.a = nn.Parameter(start)

    def forward(self, z: Tensor) -> Tensor:
        """Compute d_A^2 between all items of each set, shape (b, n, d) to (b, n, n)."""
        if self.kind != "full":
            return squared_distances(z) if self.kind == "euclidean" else self._diagonal(z)
        symmetric = (self.a + self.a.T) / 2  # the antisymmetric part of A cancels in a quadratic form
        weighted = z @ symmetric  # (b, n, d)
        norm = (weighted * z).sum(-1)  # (b, n)
        return (norm.unsqueeze(-1) + norm.unsqueeze(-2) - 2 * weighted @ z.transpose(-1, -2)).clamp_min(0)

    def _diagonal(self, z: Tensor) -> Tensor:
        weighted = z * self.a  # not with the root of A, whose gradient is infinite at 0, where projection ends
        norm = (weighted * z).sum(-1)
        return (norm.unsqueeze(-1) + norm.unsqueeze(-2) - 2 * weighted @ z.transpose(-1, -2)).clamp_min(0)

    @torch.no_grad()
    def project(self) -> None:
        """Replace A by the nearest positive semidefinite matrix, after every step. Costs O(d^3) if full."""
        if self.kind == "diagonal":
            self.a.clamp_(min=0)
        elif self.kind == "full":
            self.a.copy_(nearest_semidefinite(self.a))


def nearest_semidefinite(a: Tensor) -> Tensor:
    """Return the nearest positive semidefinite matrix in the Frobenius norm: negative eigenvalues become 0."""
    values, vectors = torch.linalg.eigh((a + a.T) / 2)
    nearest: Tensor = (vectors * values.clamp_min(0)) @ vectors.T
    return nearest
