"""How items hang together: the longest step on the best way from one to another, where lengths of steps are learned.

Two ends of a moon lie far apart and yet belong together, because a chain of neighbours leads from one to the other.
Single linkage sees that, and nothing else: one stray item is a bridge for it. Here the length of a step is learned from
all that is known of the two items, in several ways at once, and how the items hang together is but one more thing that
attention looks at.
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

INITIAL_SCALE = 0.1  # of the learned part of lengths, so that steps begin as long as they are


class MinimaxPaths(nn.Module):
    """Learned lengths of steps, and what they say of all pairs.

    Args:
        features: that describe a pair; the first is the logarithm of the distance.
        n_distances: how many lengths are learned, each on its own.
        hidden: units that look at a pair.
    """

    def __init__(self, features: int, n_distances: int, hidden: int) -> None:
        super().__init__()
        self.look = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, hidden), nn.GELU())
        self.length = nn.Linear(hidden, n_distances)
        with torch.no_grad():
            self.length.weight *= INITIAL_SCALE

    def forward(self, pairs: Tensor) -> Tensor:
        """From features of pairs, shape (b, n, n, features), to (b, n, n, 2 kinds).

        For each kind the length of the bridge, and by how much the step from one to the other is longer than that.
        """
        learned = self.length(self.look(pairs)).float()
        step = pairs[..., :1] + (learned + learned.transpose(1, 2)) / 2  # (b, n, n, kinds), the same both ways
        bridge = minimax_distances(step.permute(0, 3, 1, 2).flatten(0, 1))  # (b kinds, n, n)
        bridge = bridge.view(len(pairs), -1, *bridge.shape[1:]).permute(0, 2, 3, 1)
        return torch.cat([bridge, step - bridge], dim=-1)


def minimax_distances(step: Tensor) -> Tensor:
    """The longest step between every two items, on the way on which it is shortest.

    Args:
        step: lengths, the same in both directions, shape (b, n, n).

    Returns:
        The same shape; an item reaches itself by its step to itself. Every value is one of the lengths, which its
        gradient goes to. Costs O(b n^2) time and memory, in n operations one after the other (a GPU with Triton: one).
    """
    n = step.shape[-1]
    order = _prim_order(step)  # (b, n)
    rows = order.unsqueeze(-1).expand(-1, -1, n)
    ordered = step.gather(1, rows).gather(2, rows.transpose(1, 2))  # (b, n, n), items as they were reached
    earlier = torch.ones(n, n, dtype=torch.bool, device=step.device).tril(-1)
    reached = torch.where(earlier, ordered, torch.inf)[:, 1:].amin(-1)  # (b, n - 1), how each item but the first was
    # Whoever is reached later than i and no later than j is reached before anything farther, so that between i and j
    # no way does better than the longest of these steps.
    later = torch.where(earlier.T[:, 1:], reached.unsqueeze(1), -torch.inf)  # (b, n, n - 1)
    longest = torch.cat([ordered[..., :1], later.cummax(-1).values], dim=-1)  # (b, n, n), right of the diagonal
    longest = torch.where(earlier.T, longest, 0)
    longest = longest + longest.transpose(1, 2) + torch.diag_embed(ordered.diagonal(dim1=1, dim2=2))
    position = order.argsort(1).unsqueeze(-1).expand(-1, -1, n)
    return longest.gather(1, position).gather(2, position.transpose(1, 2))


@torch.no_grad()
def _prim_order(step: Tensor) -> Tensor:
    """Items in the order in which they are reached from the first, always by the shortest step there is (Prim)."""
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
    """The same as one kernel, where Triton works: n small operations one after the other keep a GPU waiting."""
    if find_spec("triton") is None:
        return None
    try:
        module = import_module("entourage.cluster.models.minimax_paths_triton")
        prim_order: Callable[[Tensor], Tensor] = module.prim_order
        prim_order(torch.zeros(1, 2, 2, device="cuda"))  # it is compiled now, for which a C compiler has to be there
    except Exception as error:  # whatever Triton lacks on this machine, the plain way is there
        warnings.warn(f"Triton cannot be used, clustering on this GPU is slower: {error_reason(error)}", stacklevel=2)
        return None
    return prim_order
