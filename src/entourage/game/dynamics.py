"""Replicator dynamics on a similarity graph, its differentiable form in logarithms, and a warm start.

Both label (chapter 3) and embed (chapter 4) are a game in which each node of the graph is a player: an item of a data
set, or a sample of a mini-batch. Row i of X is the mixed strategy of player i, a distribution over labels. W holds the
similarities, S the similarities of labels. One iteration is

    Pi = W X S^T,    x_ih <- x_ih pi_ih / sum_l x_il pi_il    (thesis, eq. RD of chapter 3, eq. rd of chapter 4).

For symmetric non-negative W and S, the Baum-Eagon inequality guarantees that no iteration decreases the consistency
F(X) = sum_ij w_ij x_i S x_j. The dynamics therefore needs no step size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

SIMPLEX_TOLERANCE = 1e-3  # accepts rows computed by a softmax in float16
PRIOR_STEP = 0.3  # fraction of the logarithmic distance to the class prior that one iteration covers


@dataclass(frozen=True)
class ReplicatorResult:
    """Result of `replicator`.

    Attributes:
        x: final distributions, shape (n, m), every row on the simplex.
        n_iter: number of iterations.
        converged: whether the tolerance was reached; always False without a tolerance.
        consistency: F(X) before each iteration and after the last, shape (n_iter + 1,), float64; empty without `trace`.
    """

    x: Tensor
    n_iter: int
    converged: bool
    consistency: Tensor


def payoffs(w: Tensor, x: Tensor, class_similarity: Tensor | None = None) -> Tensor:
    """Compute the payoff of each label for each node: Pi = W X S^T (thesis, eq. pi).

    The partial payoffs are A_ij = w_ij S.

    Args:
        w: similarities of q nodes to n nodes, shape (q, n), dense or sparse CSR.
        x: distributions of the n nodes, shape (n, m).
        class_similarity: S, shape (m, m); s_hl is the payoff of label h against label l. The identity when None.

    Returns:
        Payoffs, shape (q, m). Costs O(nnz(w) m), and O(n m^2) more with S.
    """
    label_payoffs = x if class_similarity is None else x @ class_similarity.T  # (n, m)
    return w @ label_payoffs


def consistency(w: Tensor, x: Tensor, class_similarity: Tensor | None = None) -> Tensor:
    """Compute the average consistency F(X) = sum_ij w_ij x_i S x_j (thesis, eq. avgconsistency).

    Args:
        w: similarities, shape (n, n), dense or sparse CSR.
        x: distributions, shape (n, m).
        class_similarity: S, shape (m, m); the identity when None.

    Returns:
        F(X), a float64 scalar.
    """
    return (x * payoffs(w, x, class_similarity)).sum(dtype=torch.float64)


def replicator_step(x: Tensor, payoff: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply each distribution by its payoffs and normalise it: one iteration for all nodes.

    A node whose average payoff is 0, such as an isolated one, keeps its distribution; 0/0 never becomes NaN.

    Args:
        x: distributions, shape (n, m).
        payoff: payoff of each label, shape (n, m), non-negative.

    Returns:
        The new distributions, shape (n, m), and the average payoff of each node before the iteration, shape (n, 1).
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
    """Iterate the replicator dynamics until it converges.

    The tolerance is relative to the path: the iteration stops when one step changes all distributions together by less
    than `tol` times the sum of all changes so far. Unlike a bound on the sum over nodes, this criterion does not depend
    on n. Unlike a bound on the mean, it does not stop early while a few labels still spread through a large graph.

    Gradients flow to `w`, `x` and `class_similarity` where they require them (torch makes the gradient of a sparse w
    dense: O(n^2) memory). Without gradients, two arrays of the size of x are allocated in all.

    Args:
        w: similarities, shape (n, n), non-negative, dense or sparse CSR; the diagonal counts, too.
        x: initial distributions, shape (n, m), rows on the simplex.
        fixed: mask of nodes that keep their distribution, shape (n,), boolean.
        class_similarity: S of the partial payoffs A_ij = w_ij S, shape (m, m), non-negative; the identity when None.
        class_priors: prior probability of each label, shape (m,), positive for labels of positive probability. Each
            iteration then scales up the labels that are less frequent than their prior (`match_class_priors`); F(X) may
            decrease. Nodes without payoff count towards the frequencies and keep their distribution.
        max_iter: maximum number of iterations.
        tol: relative tolerance; None runs exactly `max_iter` iterations.
        trace: record F(X) of every iteration, at the cost of one extra product at the end.

    Returns:
        The final distributions, the number of iterations and whether they converged.

    Raises:
        ValueError: shapes do not match, similarities are negative or not finite, or rows are not distributions.
    """
    _check(w, x, fixed, class_similarity, class_priors, max_iter)
    dtype = torch.promote_types(torch.promote_types(w.dtype, x.dtype), torch.float32)  # float16 has too few digits
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
            x, average = _differentiable_step(w, x, s, class_priors, fixed_index)
        else:
            # The new distributions replace those before `previous`.
            (x, average), buffer = _buffered_step(w, x, s, class_priors, fixed_index, buffer), previous
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
    """Compute the factors that move the frequency of each label towards its prior.

    Args:
        x: distributions, shape (n, m).
        class_priors: prior probability of each label, shape (m,), summing to 1.

    Returns:
        (prior / mean of x) ^ PRIOR_STEP, shape (m,); 1 where both are 0.
    """
    frequency = x.mean(dim=0)  # (m,)
    tiny = torch.finfo(x.dtype).tiny
    return torch.where(
        frequency > tiny, (class_priors / frequency.clamp_min(tiny)) ** PRIOR_STEP, torch.ones_like(frequency)
    )


def _differentiable_step(
    w: Tensor, x: Tensor, class_similarity: Tensor | None, class_priors: Tensor | None, fixed_index: Tensor | None
) -> tuple[Tensor, Tensor]:
    new_x, average = replicator_step(x, payoffs(w, x, class_similarity))
    if class_priors is not None:
        matched, _ = replicator_step(new_x, match_class_priors(new_x, class_priors).expand_as(new_x))
        new_x = torch.where(average > torch.finfo(x.dtype).tiny, matched, new_x)  # nodes without payoff stay unchanged
    return (new_x if fixed_index is None else new_x.index_copy(0, fixed_index, x[fixed_index])), average


def _buffered_step(
    w: Tensor,
    x: Tensor,
    class_similarity: Tensor | None,
    class_priors: Tensor | None,
    fixed_index: Tensor | None,
    buffer: Tensor,
) -> tuple[Tensor, Tensor]:
    """Run one iteration in the memory of `buffer`: allocation would double the time at a million nodes."""
    label_payoffs = x if class_similarity is None else x @ class_similarity.T  # (n, m)
    payoff = torch.addmm(buffer, w, label_payoffs, beta=0, out=buffer).mul_(x)  # (n, m)
    average = payoff.sum(dim=1, keepdim=True)  # (n, 1)
    tiny = torch.finfo(x.dtype).tiny
    no_payoff = (average <= tiny).flatten().nonzero().flatten()  # (l,)
    new_x = payoff.div_(average.clamp_min(tiny))
    if class_priors is not None:
        new_x.index_copy_(0, no_payoff, x[no_payoff])  # they count towards the frequencies
        new_x.mul_(match_class_priors(new_x, class_priors))
        new_x.div_(new_x.sum(dim=1, keepdim=True).clamp_min(tiny))
    fixed_index = no_payoff if fixed_index is None else torch.cat([fixed_index, no_payoff])
    return new_x.index_copy_(0, fixed_index, x[fixed_index]), average


def _check(
    w: Tensor,
    x: Tensor,
    fixed: Tensor | None,
    class_similarity: Tensor | None,
    class_priors: Tensor | None,
    max_iter: int,
) -> None:
    if x.ndim != 2:
        raise ValueError(f"x has shape {tuple(x.shape)}; expected (nodes, labels)")
    n, m = x.shape
    _check_shape("w", w, (n, n))
    _check_shape("fixed", fixed, (n,))
    _check_shape("class_similarity", class_similarity, (m, m))
    _check_shape("class_priors", class_priors, (m,))
    if w.layout not in (torch.strided, torch.sparse_csr):
        raise ValueError(f"w is {w.layout}; expected a dense tensor or sparse CSR: see `to_sparse_csr`")
    if fixed is not None and fixed.dtype != torch.bool:
        raise ValueError(f"fixed has type {fixed.dtype}; expected bool")
    if max_iter < 0:
        raise ValueError(f"max_iter is {max_iter}; expected 0 or more iterations")
    _check_similarities("w", w.values() if w.layout == torch.sparse_csr else w)
    _check_similarities("class_similarity", class_similarity)
    with torch.no_grad():
        if n and not _are_distributions(x):
            raise ValueError("x has rows that are not distributions; expected non-negative rows that sum to 1")
    if class_priors is not None and not _are_distributions(class_priors):
        raise ValueError("class_priors is not a distribution; expected non-negative numbers that sum to 1")


def _check_shape(name: str, values: Tensor | None, shape: tuple[int, ...]) -> None:
    if values is not None and values.shape != shape:
        raise ValueError(f"{name} has shape {tuple(values.shape)}; expected {shape}")


def _are_distributions(x: Tensor) -> bool:
    return bool(((x.sum(dim=-1) - 1).abs().max() <= SIMPLEX_TOLERANCE) & (x.min() >= 0))


def _check_similarities(name: str, values: Tensor | None) -> None:
    if values is None or values.numel() == 0:
        return
    low, high = (float(v) for v in values.detach().aminmax())
    if low < 0:
        raise ValueError(f"{name} has a negative entry ({low:.3g}); expected values >= 0: see `clamp` and `shift`")
    if not (low >= 0 and high < float("inf")):
        raise ValueError(f"{name} has an entry that is not finite; expected values in [0, inf)")


# Lower bound of payoffs: in float32 their logarithm and, in the backward pass, 1/Pi stay finite.
MIN_PAYOFF = 1e-30


def log_replicator(w: Tensor, log_x: Tensor, *, fixed_payoffs: Tensor | None = None, n_iter: int = 1) -> Tensor:
    """Run a fixed number of iterations on logarithms of distributions (thesis, chapter 4, eq. rd), for use in losses.

    Each iteration computes log x <- log_softmax(log x + log Pi). Gradients therefore stay finite for probabilities
    below the range of float32. Arguments are not validated, so that a GPU does not have to synchronise.

    A one-hot distribution (0 for one label, minus infinity for the others) never changes. Neither does that of a node
    without payoff.

    Args:
        w: similarities, shape (n, n), non-negative, dense; float32 or float64.
        log_x: logarithms of the initial distributions, shape (n, m).
        fixed_payoffs: payoffs that are added in every iteration, shape (n, m), non-negative: those of nodes with fixed
            distributions that are not among the n.
        n_iter: number of iterations.

    Returns:
        Logarithms of the final distributions, shape (n, m). Costs O(n^2 m) time per iteration.
    """
    for _ in range(n_iter):
        payoff = payoffs(w, log_x.exp())  # (n, m)
        if fixed_payoffs is not None:
            payoff = payoff + fixed_payoffs
        log_x = torch.log_softmax(log_x + payoff.clamp_min(MIN_PAYOFF).log(), dim=1)
    return log_x


# Average strength of the warm start relative to the initial distributions, for one label per class; it is divided by
# the square root of the number of labels per class. With larger values, the walks determine labels before the dynamics
# starts, which is more accurate with many labels; with smaller values, remote nodes adopt the first label that reaches
# them.
WALK_WEIGHT = 0.03


def diffuse(w: Tensor, x: Tensor, steps: int) -> Tensor:
    """Diffuse values over the graph by random walks: sum_t (D^-1 W)^t X for t from 0 to `steps`.

    Args:
        w: similarities, shape (n, n), non-negative, dense or sparse CSR.
        x: values, shape (n, m).
        steps: length of the longest walk.

    Returns:
        Diffused values, shape (n, m). Nodes without neighbours keep their values. Costs O(steps nnz(w) m) time and two
        arrays of the size of x.
    """
    degree = (w @ torch.ones_like(x[:, :1])).clamp_min(torch.finfo(x.dtype).tiny)  # (n, 1)
    walk, total = x, x.clone()
    for _ in range(steps):
        walk = (w @ walk) / degree
        total += walk
    return total


def diffuse_twice(w: Tensor, x: Tensor, steps: int) -> tuple[Tensor, Tensor]:
    """Diffuse values by walks of `steps` and of twice as many steps: see `diffuse`.

    Args:
        w: similarities, shape (n, n), non-negative, dense or sparse CSR.
        x: values, shape (n, m).
        steps: length of the longest of the short walks.

    Returns:
        Values diffused by the short and by the long walks, each of shape (n, m). Costs O(steps nnz(w) m).
    """
    short = diffuse(w, x, steps)
    degree = (w @ torch.ones_like(x[:, :1])).clamp_min(torch.finfo(x.dtype).tiny)  # (n, 1)
    walk = short - x  # walks of 1 to `steps`
    for _ in range(steps):
        walk = (w @ walk) / degree
    return short, short + walk


def warm_start(x: Tensor, w: Tensor, labelled: Tensor, steps: int, reached: Tensor | None = None) -> Tensor:
    """Bias the initial distributions towards the labels that random walks reach.

    The labels are diffused by `diffuse`. Each class is divided by the square root of its total, so that a class with
    four times as many labels weighs twice as much: equal weights favour rare classes, proportional weights frequent
    ones. Nodes that no walk reaches keep their distribution.

    Args:
        x: initial distributions, shape (n, m); labelled rows are one-hot.
        w: similarities, shape (n, n), non-negative, dense or sparse CSR.
        labelled: mask of the labelled nodes, shape (n,), boolean.
        steps: length of the longest walk; 0 returns `x` unchanged.
        reached: labels that `diffuse` has diffused by these walks, shape (n, m), if they are known.

    Returns:
        Distributions, shape (n, m); labelled rows are unchanged. Costs O(steps nnz(w) m).
    """
    if steps == 0 or not labelled.any():
        return x
    reached = diffuse(w, x * labelled[:, None], steps) if reached is None else reached
    biased = bias_to_labels(x, reached, x[labelled].sum(dim=0))
    return torch.where(labelled[:, None], x, biased)


def bias_to_labels(x: Tensor, reached: Tensor, label_counts: Tensor) -> Tensor:
    """Bias distributions towards labels that were diffused by `diffuse`; see `warm_start`.

    Args:
        x: initial distributions, shape (n, m).
        reached: diffused labels, shape (n, m), non-negative, at least one positive value.
        label_counts: number of labels of each class, shape (m,), at least one positive value.

    Returns:
        Distributions, shape (n, m); rows that no label reaches are unchanged. Costs O(n m).
    """
    reached = reached / reached.sum(dim=0).clamp_min(torch.finfo(reached.dtype).tiny).sqrt()
    weight = WALK_WEIGHT / (label_counts.sum() / (label_counts > 0).sum()).sqrt()
    biased = x * (1 + weight * reached / reached.mean())
    return biased / biased.sum(dim=1, keepdim=True)
