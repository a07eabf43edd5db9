"""The game of competing readings: each chord or rest of a measure is a player, its readings are its strategies.

The payoff of a reading is high if it is consistent with the readings of the neighbouring players: all chords of a
beamed group are in a tuplet or none is, chords that begin and end together on two staves have equal durations, the
distance to the next chord increases with the duration, and the durations of a staff with one voice add up to the
measure. The initial distributions are the plausibilities of the printed durations. After the replicator dynamics,
readings that are consistent with each other have high probabilities. The search for a consistent reading then adds a
cost for improbable readings.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from math import exp, log

import torch
from torch import Tensor

from entourage.game.dynamics import replicator_step
from entourage.read.rhythm.durations import TICKS, Choice
from entourage.read.rhythm.readings import MeasureInput, columns_of, readings_of

_TEMPERATURE = 1.0  # of the plausibility of a reading at the beginning
_ROUNDS = 12
_OWN = 1.0  # payoff of every reading, so that none dies out at once
_TUPLET = 1.0  # payoff between neighbours in a beamed group that are both in a tuplet or both not
_EQUAL = 1.0  # payoff between chords that begin and end together and last equally long
_DISTANCE = 0.5  # payoff of a duration that suits the distance to the next chord
_SUM = 1.0  # payoff of a duration with which a staff adds up to the measure
_WEIGHT = 0.12  # of the equilibrium in the cost of a reading
_MAX_COST = 0.6  # that the equilibrium adds
_MIN_SHARE = 1e-6


def play(measure: MeasureInput) -> MeasureInput:
    """Add a cost to each reading of a measure, which is higher for lower probabilities in the equilibrium of the game.

    Args:
        measure: chords, rests and the expected length.

    Returns:
        The same measure with `choices`. Time grows with the square of the number of its chords.
    """
    choices = readings_of(measure)
    if not choices:
        return measure
    shares = _equilibrium(measure, choices)
    weighed = []
    for row, share in zip(choices, shares.tolist(), strict=True):
        best = max(share[: len(row)])
        added = [min(_MAX_COST, _WEIGHT * (log(best) - log(max(p, _MIN_SHARE)))) for p in share[: len(row)]]
        paid = [
            choice if choice.dropped else replace(choice, cost=choice.cost + more)
            for choice, more in zip(row, added, strict=True)
        ]
        weighed.append(sorted(paid, key=lambda choice: choice.cost))
    return replace(measure, choices=weighed)


def _equilibrium(measure: MeasureInput, choices: list[list[Choice]]) -> Tensor:
    """Return the share of each reading after the dynamics, shape (players, strategies)."""
    n, m = len(choices), max(len(row) for row in choices)
    x = torch.zeros(n, m, dtype=torch.float64)
    ticks = torch.zeros(n, m, dtype=torch.float64)
    for i, row in enumerate(choices):
        x[i, : len(row)] = torch.tensor([exp(-choice.cost / _TEMPERATURE) for choice in row])
        ticks[i, : len(row)] = torch.tensor([choice.ticks / TICKS for choice in row])
    x /= x.sum(dim=1, keepdim=True)
    alone = _OWN + _distance_payoffs(measure, choices, m)
    pairs = _pair_payoffs(measure, choices, m)
    chains = _single_voices(measure)
    length = measure.length / TICKS if measure.length else None
    for _ in range(_ROUNDS):
        payoff = alone.clone()
        for (i, j), matrix in pairs.items():
            payoff[i] += matrix @ x[j]
            payoff[j] += matrix.T @ x[i]
        if length is not None:
            expected = (x * ticks).sum(dim=1)
            for chain in chains:
                others = expected[chain].sum() - expected[chain]
                payoff[chain] += _SUM * torch.exp(-2 * (others[:, None] + ticks[chain] - length).abs())
        x, _ = replicator_step(x, payoff)
    return x


def _distance_payoffs(measure: MeasureInput, choices: list[list[Choice]], m: int) -> Tensor:
    """Return the payoffs of durations that suit the distance to the next chord, shape (players, m)."""
    payoffs = torch.zeros(len(choices), m, dtype=torch.float64)
    for staff in range(measure.n_staves):
        chain = _chain(measure, staff)
        ratios = []
        for i, j in itertools.pairwise(chain):
            distance = measure.events[j].x - measure.events[i].x
            ratios.append((i, [distance * TICKS / choice.ticks if choice.ticks else 0.0 for choice in choices[i]]))
        known = sorted(row[0] for _, row in ratios if row[0])
        for i, row in ratios:
            for a, ratio in enumerate(row):
                if ratio and known:
                    payoffs[i, a] = _DISTANCE * exp(-abs(log(ratio / known[len(known) // 2])))
    return payoffs


def _chain(measure: MeasureInput, staff: int) -> list[int]:
    own = [i for i in range(len(measure.events)) if measure.staff_of[i] == staff]
    return sorted(own, key=lambda i: measure.events[i].x)


def _pair_payoffs(measure: MeasureInput, choices: list[list[Choice]], m: int) -> dict[tuple[int, int], Tensor]:
    """Return the payoff matrices, shape (m, m), between pairs of players."""
    pairs: dict[tuple[int, int], Tensor] = {}
    column_of = {i: k for k, column in enumerate(columns_of(measure)) for i in column}
    following: dict[int, int] = {}
    for staff in range(measure.n_staves):
        for i, j in itertools.pairwise(_chain(measure, staff)):
            following[i] = column_of[j]
            group = measure.events[i].beam_group
            if group is not None and group == measure.events[j].beam_group:
                pairs[i, j] = _matrix(choices[i], choices[j], m, _same_tuplet)
    for i, j in itertools.combinations(column_of, 2):
        together = column_of[i] == column_of[j] and measure.staff_of[i] != measure.staff_of[j]
        if together and i in following and following[i] == following.get(j):
            pairs[i, j] = _matrix(choices[i], choices[j], m, _same_length)
    return pairs


def _same_tuplet(a: Choice, b: Choice) -> float:
    return _TUPLET if a.tuplet == b.tuplet else 0.0


def _same_length(a: Choice, b: Choice) -> float:
    return _EQUAL if a.ticks == b.ticks else 0.0


def _matrix(first: list[Choice], second: list[Choice], m: int, payoff: Callable[[Choice, Choice], float]) -> Tensor:
    matrix = torch.zeros(m, m, dtype=torch.float64)
    for (a, one), (b, other) in itertools.product(enumerate(first), enumerate(second)):
        matrix[a, b] = payoff(one, other)
    return matrix


def _single_voices(measure: MeasureInput) -> list[list[int]]:
    """Return the chords of each staff on which no two begin together."""
    columns = columns_of(measure)
    found = []
    for staff in range(measure.n_staves):
        chain = _chain(measure, staff)
        if chain and all(sum(i in chain for i in column) <= 1 for column in columns):
            found.append(chain)
    return found
