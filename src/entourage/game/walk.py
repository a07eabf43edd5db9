"""Voices that walk: what is heard over a graph of those who know something, before anybody decides."""

from __future__ import annotations

import torch
from torch import Tensor

# Of what players know, how much they hear on average, where each class has one label; less by the root of their number
# where there are more. Loud, walks decide before the game does, and with many labels it knows better; too soft, and far
# players are decided by the first neighbour who happens to be.
WHISPER = 0.03


def heard(w: Tensor, voices: Tensor, steps: int) -> Tensor:
    """What everybody hears of some voices that walk over the graph, near ones more often: sum_t (D^-1 W)^t V.

    Args:
        w: similarities, shape (n, n), non-negative, dense or sparse CSR.
        voices: what each says, shape (n, m).
        steps: the longest walk; t is from 0 to it.

    Returns:
        Shape (n, m). Who has no neighbours hears nobody but himself. Costs O(steps nnz(w) m) time and two arrays of the
        voices' size.
    """
    degree = (w @ torch.ones_like(voices[:, :1])).clamp_min(torch.finfo(voices.dtype).tiny)  # (n, 1)
    walker, total = voices, voices.clone()
    for _ in range(steps):
        walker = (w @ walker) / degree
        total += walker
    return total


def informed(start: Tensor, w: Tensor, labelled: Tensor, steps: int) -> Tensor:
    """Strategies to start a game from: what players know, and what they have heard of the labels.

    Every label walks over the graph. A class with four times as many labels speaks twice as loud: as loud, and what is
    rare would be found everywhere; four times, and frequent classes would swallow the others. It is a whisper, which
    counts where nobody near knows better; who is out of earshot keeps to what he knows.

    Args:
        start: strategies, shape (n, m), those of labelled players one-hot.
        w: as for `heard`.
        labelled: who they are, shape (n,), boolean.
        steps: the longest walk; 0 leaves the strategies as they are.

    Returns:
        Strategies, shape (n, m), those of labelled players as they were.
    """
    if steps == 0 or not labelled.any():
        return start
    found = heard(w, start * labelled[:, None], steps)
    found = found / found.sum(dim=0).clamp_min(torch.finfo(found.dtype).tiny).sqrt()
    labels = start[labelled].sum(dim=0)  # (m,), of each class
    loudness = WHISPER / (labels.sum() / (labels > 0).sum()).sqrt()
    x = start * (1 + loudness * found / found.mean())
    return torch.where(labelled[:, None], start, x / x.sum(dim=1, keepdim=True))
