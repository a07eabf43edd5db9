"""Batch for tests of the loss."""

import torch
from torch import Tensor

CLASSES = 6
LABELS = torch.tensor([4, 0, 2, 0, 4, 2, 4, 0, 2, 4, 2, 0, 2, 0, 4, 4])


def batch(n: int = 16, d: int = 12, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    """Return embeddings and logits of a batch in which many correlations are negative."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(n, d, generator=generator, dtype=torch.float64) + 0.3
    logits = 4 * torch.randn(n, CLASSES, generator=generator, dtype=torch.float64)
    return embeddings.to(dtype).requires_grad_(), logits.to(dtype).requires_grad_()
