"""Replicator dynamics: players revise their mixed strategies in favour of what their neighbours support.

The one idea behind label (chapter 3: players are the items of a data set) and embed (chapter 4: players are the samples
of a mini-batch). X holds one probability distribution a row, W the similarities, and a round of the game is

    Pi = W X S,    x_ih <- x_ih pi_ih / sum_l x_il pi_il    (thesis, eq. RD of chapter 3, eq. rd of chapter 4).

For symmetric non-negative W (and S) the Baum-Eagon inequality says that no round lowers the consistency
F(X) = sum_ij w_ij x_i S x_j, so the play climbs to a consistent labelling without a step size to choose.

The game in logarithms, for losses: the same rounds as `replicator`, with gradients that stay finite.

A loss asks for the logarithm of a probability that may be far below what float32 can hold, and its gradient divides by
it. In logarithms a round is a sum and a normalisation, log x <- log_softmax(log x + log Pi), and nothing is divided by
anything small. Nothing is checked either, so that a GPU never has to wait for the answer: who calls it knows the data.

Voices that walk: what is heard over a graph of those who know something, before anybody decides.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SIMPLEX_TOLERANCE = 1e-3  # rows that a float16 softmax made are still distributions
PRIOR_STEP = 0.3  # of a label's distance to its share, on a logarithmic scale, that each round makes up for


@dataclass(frozen=True)
class ReplicatorResult:
    """How a game ended.

    Attributes:
        x: the final strategies, shape (n, m), every row on the simplex.
        n_iter: rounds played.
        converged: whether the tolerance was met; always False when none was given.
        consistency: F(X) before each round and after the last, shape (n_iter + 1,); empty unless traced.
    """

    x: Tensor
    n_iter: int
    converged: bool
    consistency: Tensor


def payoffs(w: Tensor, x: Tensor, class_similarity: Tensor | None = None) -> Tensor:
    """What the neighbours say: Pi = W X S (thesis, eq. pi), with partial payoffs A_ij = w_ij S.

    Args:
        w: similarities, shape (q, n), dense or sparse CSR. q players ask, n players answer.
        x: strategies of those who answer, shape (n, m).
        class_similarity: S, shape (m, m), how much label l speaks for label h; the identity when None.

    Returns:
        Support of each label for each player, shape (q, m). Costs O(nnz(w) m), and O(q m^2) more with S.
    """
    votes = x if class_similarity is None else x @ class_similarity.T  # (n, m)
    return w @ votes


def consistency(w: Tensor, x: Tensor, class_similarity: Tensor | None = None) -> Tensor:
    """How well neighbours agree: F(X) = sum_ij w_ij x_i S x_j (thesis, eq. avgconsistency), a float64 scalar."""
    return (x * payoffs(w, x, class_similarity)).sum(dtype=torch.float64)


def replicator_step(x: Tensor, payoff: Tensor) -> tuple[Tensor, Tensor]:
    """One round for every player: each label grows with its support relative to the player's average.

    A player to whom nobody gives support for a label it still considers (an isolated point, say) keeps its
    distribution: the 0/0 of the formula never becomes a NaN.

    Args:
        x: strategies, shape (n, m).
        payoff: support of each label, shape (n, m), non-negative.

    Returns:
        The new strategies, shape (n, m), and the average payoff of each player before the round, shape (n, 1).
    """
    weighted = x * payoff  # (n, m)
    average = weighted.sum(dim=1, keepdim=True)  # (n, 1)
    tiny = torch.finfo(x.dtype).tiny
    return torch.where(average > tiny, weighted / average.clamp_min(tiny), x), average


def replicator(
    w: Tensor,
    x: Tensor,
    *,
    fixed: Tensor | None = None,
    class_similarity: Tensor | None = None,
    class_priors: Tensor | None = None,
    max_iter: int = 1000,
    tol: float | None = 1e-4,
    trace: bool = False,
) -> ReplicatorResult:
    """Plays the game until it settles.

    The tolerance is a share of the way: the play ends when a round moves all players together less than `tol` times
    what they have moved so far. Unlike a bound on the sum over players it means the same for ten players and for ten
    million, and unlike a mean it does not stop at once while a handful of labels is still on its way into a large
    graph.

    Gradients flow to w and x where they ask for it (torch makes that of a sparse w dense: O(n^2) memory); without, two
    arrays of x's size are all the memory a play needs.

    Args:
        w: similarities, shape (n, n), non-negative, dense or sparse CSR; its diagonal is used as it is.
        x: initial strategies, shape (n, m), rows on the simplex.
        fixed: players that never move, shape (n,), boolean.
        class_similarity: S of the partial payoffs A_ij = w_ij S, shape (m, m), non-negative; the identity when None.
        class_priors: frequency of each label, if known, shape (m,), positive for labels of positive probability. Each
            round then favours the labels that are too rare (`match_class_priors`); F(X) may fall. Nodes without
            support count towards the frequencies and keep their distribution.
        max_iter: the most rounds to play.
        tol: when to stop; None plays exactly `max_iter` rounds.
        trace: keep F(X) of every round (F comes out of the round itself: the trace costs one extra round at the end).

    Returns:
        The final strategies and how they came about.

    Raises:
        ValueError: on shapes that do not fit, negative or non-finite similarities, rows off the simplex.
    """
    _check(w, x, fixed, class_similarity, max_iter)
    _check_class_priors(class_priors, x)
    dtype = torch.promote_types(torch.promote_types(w.dtype, x.dtype), torch.float32)  # half has too few digits
    w, x = w.to(dtype), x.to(dtype)
    s = None if class_similarity is None else class_similarity.to(x)
    class_priors = None if class_priors is None else class_priors.to(x)
    fixed_index = None if fixed is None else fixed.nonzero().flatten()  # (f,)
    differentiable = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in (w, x, s))
    x, buffer = (x, x) if differentiable else (x.clone(), torch.empty_like(x))
    consistencies: list[Tensor] = []
    n_iter, total_change, converged = 0, 0.0, False
    while n_iter < max_iter and not converged:
        previous = x
        if differentiable:
            x, average = _differentiable_round(w, x, s, class_priors, fixed_index)
        else:
            # The strategies before the previous are needed no more: their memory takes this round.
            (x, average), buffer = _buffered_round(w, x, s, class_priors, fixed_index, buffer), previous
        n_iter += 1
        if trace:
            consistencies.append(average.detach().sum(dtype=torch.float64))
        if tol is not None:
            change = x.detach() - previous.detach() if differentiable else buffer.sub_(x)
            last_change = float(change.abs_().sum())
            total_change += last_change
            converged = last_change <= tol * total_change
    if trace:
        consistencies.append(consistency(w, x, s).detach())
    return ReplicatorResult(
        x, n_iter, converged, torch.stack(consistencies).cpu() if consistencies else torch.empty(0, dtype=torch.float64)
    )


def match_class_priors(x: Tensor, class_priors: Tensor) -> Tensor:
    """What each label is multiplied by to come nearer to its share of the followers.

    Args:
        x: strategies, shape (n, m).
        class_priors: how frequent each label is known to be, shape (m,), summing to 1.

    Returns:
        (share / mean of x) ^ PACE, shape (m,); 1 where a label has neither.
    """
    frequency = x.mean(dim=0)  # (m,)
    tiny = torch.finfo(x.dtype).tiny
    return torch.where(
        frequency > tiny, (class_priors / frequency.clamp_min(tiny)) ** PRIOR_STEP, torch.ones_like(frequency)
    )


def _differentiable_round(
    w: Tensor, x: Tensor, class_similarity: Tensor | None, class_priors: Tensor | None, fixed_index: Tensor | None
) -> tuple[Tensor, Tensor]:
    new_x, average = replicator_step(x, payoffs(w, x, class_similarity))
    if class_priors is not None:
        matched, _ = replicator_step(new_x, match_class_priors(new_x, class_priors).expand_as(new_x))
        new_x = torch.where(average > torch.finfo(x.dtype).tiny, matched, new_x)  # who is lonely stays as it is
    return (new_x if fixed_index is None else new_x.index_copy(0, fixed_index, x[fixed_index])), average


def _buffered_round(
    w: Tensor,
    x: Tensor,
    class_similarity: Tensor | None,
    class_priors: Tensor | None,
    fixed_index: Tensor | None,
    buffer: Tensor,
) -> tuple[Tensor, Tensor]:
    """The same round in the memory of `buffer`: fresh memory for each would double the time at a million players."""
    votes = x if class_similarity is None else x @ class_similarity.T
    payoff = torch.addmm(buffer, w, votes, beta=0, out=buffer).mul_(x)  # (n, m)
    average = payoff.sum(dim=1, keepdim=True)  # (n, 1)
    tiny = torch.finfo(x.dtype).tiny
    without_payoff = (average <= tiny).flatten().nonzero().flatten()  # (l,), nobody supports them
    new_x = payoff.div_(average.clamp_min(tiny))
    if class_priors is not None:
        new_x.index_copy_(0, without_payoff, x[without_payoff])  # who does not move has followed a label too
        new_x.mul_(match_class_priors(new_x, class_priors))
        new_x.div_(new_x.sum(dim=1, keepdim=True).clamp_min(tiny))
    fixed_index = without_payoff if fixed_index is None else torch.cat([fixed_index, without_payoff])
    return new_x.index_copy_(0, fixed_index, x[fixed_index]), average


def _check(w: Tensor, x: Tensor, fixed: Tensor | None, class_similarity: Tensor | None, max_iter: int) -> None:
    n, m = x.shape if x.ndim == 2 else (-1, -1)
    if n < 0:
        raise ValueError(f"x has shape {tuple(x.shape)}; expected (players, labels)")
    if w.shape != (n, n):
        raise ValueError(f"w has shape {tuple(w.shape)}; expected ({n}, {n}), one row and column a player")
    if w.layout not in (torch.strided, torch.sparse_csr):
        raise ValueError(f"w is {w.layout}; expected a dense tensor or sparse CSR: see `to_sparse_csr`")
    if fixed is not None and (fixed.shape != (n,) or fixed.dtype != torch.bool):
        raise ValueError(f"fixed has shape {tuple(fixed.shape)} and type {fixed.dtype}; expected ({n},) and bool")
    if class_similarity is not None and class_similarity.shape != (m, m):
        raise ValueError(
            f"class_similarity has shape {tuple(class_similarity.shape)}; expected ({m}, {m}), a row and column a label"
        )
    if max_iter < 0:
        raise ValueError(f"max_iter is {max_iter}; expected 0 or more rounds")
    for name, values in (
        ("w", w.values() if w.layout == torch.sparse_csr else w),
        ("class_similarity", class_similarity),
    ):
        _check_payoffs(name, values)
    with torch.no_grad():
        if n and not bool(((x.sum(dim=1) - 1).abs().max() <= SIMPLEX_TOLERANCE) & (x.min() >= 0)):
            raise ValueError("x has rows that are no distributions; expected non-negative rows that sum to 1")


def _check_class_priors(class_priors: Tensor | None, x: Tensor) -> None:
    if class_priors is None:
        return
    m = x.shape[1]
    if class_priors.shape != (m,):
        raise ValueError(f"class_priors has shape {tuple(class_priors.shape)}; expected ({m},), one a label")
    if not bool((class_priors >= 0).all() & ((class_priors.sum() - 1).abs() <= SIMPLEX_TOLERANCE)):
        raise ValueError("class_priors is no distribution; expected non-negative numbers that sum to 1")


def _check_payoffs(name: str, values: Tensor | None) -> None:
    if values is None or values.numel() == 0:
        return
    low, high = (float(v) for v in values.detach().aminmax())
    if low < 0:
        raise ValueError(
            f"{name} has a negative entry ({low:.3g}); expected similarities >= 0: see `clamp` and `shift`"
        )
    if not (low >= 0 and high < float("inf")):
        raise ValueError(f"{name} has an entry that is not finite; expected similarities in [0, inf)")


# Support below this counts as this: its logarithm is finite, and so is 1/Pi in the backward pass, in float32.
MIN_PAYOFF = 1e-30


def log_replicator(w: Tensor, log_x: Tensor, *, fixed_payoffs: Tensor | None = None, n_iter: int = 1) -> Tensor:
    """Plays a fixed number of rounds (thesis, chapter 4, eq. rd) on logarithms of strategies.

    A player that is certain (0 for one label, minus infinity for the others) never moves. A player whom nobody supports
    keeps its strategy.

    Args:
        w: similarities, shape (n, n), non-negative, dense; float32 or float64.
        log_x: logarithms of the initial strategies, shape (n, m).
        fixed_payoffs: payoffs that are the same in every round, shape (n, m), non-negative: those of fixed nodes that
            are not among the n. None for none.
        n_iter: how many to play.

    Returns:
        Logarithms of the final strategies, shape (n, m). Costs O(n^2 m) time a round.
    """
    for _ in range(n_iter):
        payoff = payoffs(w, log_x.exp())  # (n, m)
        if fixed_payoffs is not None:
            payoff = payoff + fixed_payoffs
        log_x = torch.log_softmax(log_x + payoff.clamp_min(MIN_PAYOFF).log(), dim=1)
    return log_x


# Of what players know, how much they hear on average, where each class has one label; less by the root of their number
# where there are more. Loud, walks decide before the game does, and with many labels it knows better; too soft, and far
# players are decided by the first neighbour who happens to be.
WALK_WEIGHT = 0.03


def diffuse(w: Tensor, x: Tensor, steps: int) -> Tensor:
    """What everybody hears of some voices that walk over the graph, near ones more often: sum_t (D^-1 W)^t V.

    Args:
        w: similarities, shape (n, n), non-negative, dense or sparse CSR.
        x: what each says, shape (n, m).
        steps: the longest walk; t is from 0 to it.

    Returns:
        Shape (n, m). Who has no neighbours hears nobody but himself. Costs O(steps nnz(w) m) time and two arrays of the
        voices' size.
    """
    degree = (w @ torch.ones_like(x[:, :1])).clamp_min(torch.finfo(x.dtype).tiny)  # (n, 1)
    walk, total = x, x.clone()
    for _ in range(steps):
        walk = (w @ walk) / degree
        total += walk
    return total


def warm_start(x: Tensor, w: Tensor, labelled: Tensor, steps: int) -> Tensor:
    """Strategies to start a game from: what players know, and what they have heard of the labels.

    Every label walks over the graph. A class with four times as many labels speaks twice as loud: as loud, and what is
    rare would be found everywhere; four times, and frequent classes would swallow the others. It is a whisper, which
    counts where nobody near knows better; who is out of earshot keeps to what he knows.

    Args:
        x: strategies, shape (n, m), those of labelled players one-hot.
        w: as for `diffuse`.
        labelled: who they are, shape (n,), boolean.
        steps: the longest walk; 0 leaves the strategies as they are.

    Returns:
        Strategies, shape (n, m), those of labelled players as they were.
    """
    if steps == 0 or not labelled.any():
        return x
    reached = diffuse(w, x * labelled[:, None], steps)
    reached = reached / reached.sum(dim=0).clamp_min(torch.finfo(reached.dtype).tiny).sqrt()
    labels = x[labelled].sum(dim=0)  # (m,), of each class
    weight = WALK_WEIGHT / (labels.sum() / (labels > 0).sum()).sqrt()
    biased = x * (1 + weight * reached / reached.mean())
    return torch.where(labelled[:, None], x, biased / biased.sum(dim=1, keepdim=True))
