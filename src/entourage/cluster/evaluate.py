"""Measuring a network, or any other method, on sets that are always the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from entourage.cluster.measures import Scores, score
from entourage.cluster.sampling.episodes import Episode, EpisodeSampler

VALIDATION_SEED = 1_000_003
PAIRS = 4_000_000  # that are looked at together, to keep memory in bounds


def draw_sets(
    sampler: EpisodeSampler,
    sets: int,
    n: int,
    k_max: int | None = None,
    *,
    seed: int = VALIDATION_SEED,
    batch: int | None = None,
) -> Iterator[Episode]:
    """Draws sets in batches, always on the CPU: the same arguments give the same sets, whoever is to cluster them.

    Args:
        sampler: of the sets.
        sets: how many.
        n: items of each.
        k_max: the most clusters of each, if fewer than the sampler's.
        seed: of the sets.
        batch: how many at a time; by default as many as have some million pairs together, at most 50.
    """
    batch = batch or max(1, min(50, PAIRS // n**2))
    for first in range(0, sets, batch):
        yield sampler.draw(min(batch, sets - first), n, torch.Generator().manual_seed(seed + first), k_max)


@torch.no_grad()
def evaluate(
    model: nn.Module | Callable[[Tensor], Tensor],
    sampler: EpisodeSampler,
    sets: int,
    n: int,
    k_max: int | None = None,
    *,
    device: torch.device | None = None,
    seed: int = VALIDATION_SEED,
    batch: int | None = None,
) -> list[Scores]:
    """Measures a network on sets that are always the same.

    Args:
        model: the network, or any function from sets (b, n, ...) to clusters (b, n).
        sampler: of the sets; where it knows pairs alone, see `Episode.clusters`. For the others see `draw_sets`.
        device: where the network is; the sets are drawn on the CPU and moved there.

    Returns:
        The scores of each set.
    """
    scores = []
    for episode in draw_sets(sampler, sets, n, k_max, seed=seed, batch=batch):
        answer = model(episode.x if device is None else episode.x.to(device))
        found = answer if isinstance(answer, Tensor) else answer.clusters()
        truth = episode.clusters().cpu().numpy()
        scores += [score(t, f) for t, f in zip(truth, found.cpu().numpy(), strict=True)]
    return scores
