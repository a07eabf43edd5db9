"""Expected retrieval metrics of rankings with ties: the mean over all orders of neighbours at equal distances."""

from __future__ import annotations

from typing import Self

import torch
from torch import Tensor


class TiedRanking:
    """Rankings of t queries, in which the neighbours of one distance form a group.

    All expectations have closed forms. Within a group of g neighbours with h hits, of which H precede the group, each
    position is a hit with probability h / g. Costs O(t r) for r ranks.

    Args:
        distances: distances of the neighbours, nearest first, shape (t, r).
        hits: whether each neighbour is of the query's class, shape (t, r).
        last_size: number of all neighbours at the last distance, those beyond rank r included, shape (t,).
        last_hits: number of hits among them, shape (t,).
    """

    def __init__(self, distances: Tensor, hits: Tensor, last_size: Tensor, last_hits: Tensor) -> None:
        t, r = distances.shape
        ranks = torch.arange(r, device=distances.device).expand(t, r)
        starts = torch.ones_like(hits)
        starts[:, 1:] = distances[:, 1:] != distances[:, :-1]
        group = starts.cumsum(dim=1) - 1  # (t, r), number of the group of each rank
        sizes = torch.zeros(t, r, device=distances.device, dtype=torch.float64)
        counts = sizes.scatter_add(1, group, hits.double())
        sizes = sizes.scatter_add(1, group, torch.ones_like(sizes))
        sizes.scatter_(1, group[:, -1:], last_size[:, None].double())
        counts.scatter_(1, group[:, -1:], last_hits[:, None].double())
        before = hits.cumsum(dim=1) - hits.long()  # hits before each rank, in the order of the list
        first = torch.where(starts, ranks, 0).cummax(dim=1).values  # rank at which the group starts, from 0
        self.ranks = ranks.double()
        self.first = first.double()
        self.size = sizes.gather(1, group)  # (t, r), g
        self.hits = counts.gather(1, group)  # (t, r), h
        self.before = before.gather(1, first).double()  # (t, r), H

    def select(self, rows: Tensor) -> Self:
        """Return the rankings of some queries."""
        selected = object.__new__(type(self))
        selected.__dict__ = {name: value[rows] for name, value in self.__dict__.items()}
        return selected

    def recall(self, k: int) -> Tensor:
        """Compute the probability of a hit among the k nearest neighbours, shape (t,)."""
        g, h, drawn = self.size[:, k - 1], self.hits[:, k - 1], k - self.first[:, k - 1]
        misses = g - h
        # Without hits before the group, none of the drawn ones is a hit with probability C(g - h, s) / C(g, s).
        log_missed = (misses + 1).lgamma() - (misses - drawn + 1).clamp_min(1).lgamma()
        log_missed = log_missed - (g + 1).lgamma() + (g - drawn + 1).lgamma()
        missed = torch.where(drawn > misses, torch.zeros_like(g), log_missed.exp())
        return torch.where(self.before[:, k - 1] > 0, torch.ones_like(g), 1 - missed)

    def r_precision(self, others: Tensor) -> Tensor:
        """Compute the expected fraction of hits among the R nearest neighbours, with R in `others`, shape (t,)."""
        within = self.ranks < others[:, None]
        return (self.hits / self.size * within).sum(dim=1) / others

    def average_precision(self, others: Tensor) -> Tensor:
        """Compute the expected sum of the precisions at the hits among the R nearest neighbours over R, shape (t,)."""
        within = self.ranks < others[:, None]
        # Given a hit at this position, each other position of the group is a hit with probability (h - 1) / (g - 1).
        earlier = (self.ranks - self.first) * (self.hits - 1).clamp_min(0) / (self.size - 1).clamp_min(1)
        precision = (self.before + 1 + earlier) / (self.ranks + 1)
        return (self.hits / self.size * precision * within).sum(dim=1) / others
