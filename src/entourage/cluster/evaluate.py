"""Measuring a network, or any other method, on sets that are always the same."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from entourage.cluster.episodes import EpisodeSampler
from entourage.cluster.measures import Scores, score

PAIRS = 4_000_000


@torch.no_grad()
def evaluate(
    model: nn.Module | Callable[[Tensor], Tensor],
    sampler: EpisodeSampler,
    sets: int,
    n: int,
    k_max: int | None = None,
    *,
    device: torch.device | None = None,
    seed: int = 1_000_003,
    batch: int | None = None,
) -> list[Scores]:
    """Measures a network on sets that are always the same.

    Args:
        model: the network, or any function from sets (b, n, ...) to clusters (b, n).
        sampler: of the sets; it must give labels.
        sets: how many.
        n: items of each.
        k_max: the most clusters of each, if fewer than the sampler's.
        device: where to draw them.
        seed: of the sets.
        batch: how many at a time; by default as many as have some million pairs together, at most 50. It is part of
            what makes the sets: they are drawn a batch at a time.

    Returns:
        The scores of each set.
    """
    batch = batch or max(1, min(50, PAIRS // n**2))
    scores = []
    for first in range(0, sets, batch):
        generator = torch.Generator(device or "cpu").manual_seed(seed + first)
        episode = sampler.draw(min(batch, sets - first), n, generator, k_max)
        if episode.labels is None:
            raise ValueError("the sets have no labels to compare with; expected a sampler of labelled items")
        answer = model(episode.x)
        found = answer if isinstance(answer, Tensor) else answer.clusters()
        scores += [score(t, f) for t, f in zip(episode.labels.cpu().numpy(), found.cpu().numpy(), strict=True)]
    return scores
