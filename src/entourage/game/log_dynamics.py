"""The game in logarithms, for losses: the same rounds as `replicator`, with gradients that stay finite.

A loss asks for the logarithm of a probability that may be far below what float32 can hold, and its gradient divides by
it. In logarithms a round is a sum and a normalisation, log x <- log_softmax(log x + log Pi), and nothing is divided by
anything small. Nothing is checked either, so that a GPU never has to wait for the answer: who calls it knows the data.
"""

from __future__ import annotations

import torch
from torch import Tensor

from entourage.game.dynamics import support

# Support below this counts as this: its logarithm is finite, and so is 1/Pi in the backward pass, in float32.
FAINTEST_SUPPORT = 1e-30


def log_replicator(w: Tensor, log_x: Tensor, *, field: Tensor | None = None, rounds: int = 1) -> Tensor:
    """Plays a fixed number of rounds (thesis, chapter 4, eq. rd) on logarithms of strategies.

    A player that is certain (0 for one label, minus infinity for the others) never moves. A player whom nobody supports
    keeps its strategy.

    Args:
        w: similarities, shape (n, n), non-negative, dense; float32 or float64.
        log_x: logarithms of the initial strategies, shape (n, m).
        field: support that is the same in every round, shape (n, m), non-negative: that of players who never move and
            are not among the n. None for none.
        rounds: how many to play.

    Returns:
        Logarithms of the final strategies, shape (n, m). Costs O(n^2 m) time a round.
    """
    for _ in range(rounds):
        supported = support(w, log_x.exp())  # (n, m)
        if field is not None:
            supported = supported + field
        log_x = torch.log_softmax(log_x + supported.clamp_min(FAINTEST_SUPPORT).log(), dim=1)
    return log_x
