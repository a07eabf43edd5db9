"""Minimax distances: the longest step on the best path between two items, with learned step lengths.

The ends of a moon are far apart but in one cluster, because a chain of neighbours connects them. Single linkage uses
only such chains, so that one outlier between two clusters joins them. Here step lengths are learned from all features
of a pair, several lengths at once, and the minimax distances are additional features of the attention network.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec

import torch
from torch import Tensor, nn

from entourage.io.files import error_reason

INITIAL_SCALE = 0.1  # of the learned part of step lengths, so that initial lengths are close to the distances


class MinimaxPaths(nn.Module):
    """Minimax distances of all pairs of items, one for each of several learned step lengths.

    Args:
        features: number of features of a pair; the first is the log distance.
        n_distances: number of learned step lengths.
        hidden: hidden units of the network that computes step lengths.
    """

    def __init__(self, features: int, n_distances: int, hidden: int) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.length = nn.Linear(hidden, n_distances)
        with torch.no_grad():
            self.length.weight *= INITIAL_SCALE

    def forward(self, pairs: Tensor) -> Tensor:
        """Compute path features from features of pairs, shape (b, n, n, features) to (b, n, n, 2 n_distances).

        These are, for each step length, the minimax distance and the excess of the direct step over it.
        """
        learned = self.length(self.look(pairs)).float()
        step = pairs[..., :1] + (learned + learned.transpose(1, 2)) / 2  # (b, n, n, n_distances), symmetric
        bridge = minimax_distances(step.permute(0, 3, 1, 2).flatten(0, 1))  # (b n_distances, n, n)
        bridge = bridge.view(len(pairs), -1, *bridge.shape[1:]).permute(0, 2, 3, 1)
        return torch.cat([bridge, step - bridge], dim=-1)


def minimax_distances(step: Tensor) -> Tensor:
    """Compute the longest step on the path between two items that minimises it, for all pairs.

    Args:
        step: symmetric step lengths, shape (b, n, n).

    Returns:
        Minimax distances, shape (b, n, n); the diagonal is that of `step`. Every value is one of the step lengths, and
        its gradient is that of this step. Costs O(b n^2) time and memory, in n sequential operations (one kernel on a
        GPU with Triton).
    """
    n = step.shape[-1]
    order = _prim_order(step)  # (b, n)
    rows = order.unsqueeze(-1).expand(-1, -1, n)
    ordered = step.gather(1, rows).gather(2, rows.transpose(1, 2))  # (b, n, n), in the order of Prim
    earlier = torch.ones(n, n, dtype=torch.bool, device=step.device).tril(-1)
    reached = torch.where(earlier, ordered, torch.inf)[:, 1:].amin(
        -1
    )  # (b, n - 1), the step that reaches each item but the first
    # The minimax distance of i and j is the longest of the steps that reach the items after i, up to j. When the
    # algorithm takes this step, no shorter one leaves the tree, which contains i but not j: no path avoids it.
    later = torch.where(earlier.T[:, 1:], reached.unsqueeze(1), -torch.inf)  # (b, n, n - 1)
    longest = torch.cat([ordered[..., :1], later.cummax(-1).values], dim=-1)  # (b, n, n), right of the diagonal
    longest = torch.where(earlier.T, longest, 0)
    longest = longest + longest.transpose(1, 2) + torch.diag_embed(ordered.diagonal(dim1=1, dim2=2))
    position = order.argsort(1).unsqueeze(-1).expand(-1, -1, n)
    return longest.gather(1, position).gather(2, position.transpose(1, 2))


@torch.no_grad()
def _prim_order(step: Tensor) -> Tensor:
    """Return items in the order in which Prim's algorithm adds them to a spanning tree, starting at the first."""
    if step.is_cuda and (kernel := _triton_kernel()) is not None:
        return kernel(step)
    b, n = step.shape[:2]
    unvisited = torch.ones(b, n, dtype=torch.bool, device=step.device)
    nearest = step.new_full((b, n), torch.inf)
    item = torch.zeros(b, 1, dtype=torch.long, device=step.device)
    order = [item]
    for _ in range(n - 1):
        unvisited.scatter_(1, item, False)
        row = step.gather(1, item.unsqueeze(-1).expand(-1, 1, n)).squeeze(1)  # (b, n)
        nearest = torch.where(unvisited, torch.minimum(nearest, row), torch.inf)
        item = nearest.argmin(1, keepdim=True)
        order.append(item)
    return torch.cat(order, dim=1)


@cache
def _triton_kernel() -> Callable[[Tensor], Tensor] | None:
    """Return `prim_order` as one Triton kernel, which avoids n small operations; None without Triton."""
    if find_spec("triton") is None:
        return None
    try:
        module = import_module("entourage.cluster.models.minimax_paths_triton")
        prim_order: Callable[[Tensor], Tensor] = module.prim_order
        prim_order(torch.zeros(1, 2, 2, device="cuda"))  # compiles the kernel, which requires a C compiler
    except Exception as error:  # Triton fails in many ways; the implementation in torch always works
        warnings.warn(f"Triton cannot be used, clustering on this GPU is slower: {error_reason(error)}", stacklevel=2)
        return None
    return prim_order
