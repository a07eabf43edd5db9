"""Classes as frequent as among the given labels, for the game and for every propagator in its place alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from entourage.label.base import GraphLabeller
from entourage.label.targets import Floats
from entourage.label.transduction import GraphTransduction

ROUNDS = 20  # of scaling columns and rows in turn; means are then within a percent or so of what is wanted


def fit_labeller(
    labeller: GraphLabeller,
    w: sparse.csr_matrix,
    codes: NDArray[np.int64],
    prior: Floats | None = None,
    *,
    balance: bool = False,
) -> GraphLabeller:
    """Fit a labeller to a graph, and hold what it finds to the frequencies of the given labels if that is asked for.

    The game keeps to them while it is played; the distributions of other labellers are scaled when they are done (much
    as by the class mass normalisation that Zhu, Ghahramani and Lafferty have for harmonic functions). New points hear
    of it from those that were fitted; an SVM, which asks none of them, answers as without.

    Args:
        labeller: it is fitted.
        w: as for `GraphLabeller.fit_graph`.
        codes: labels from 0, -1 where unknown, shape (n,).
        prior: what is known beforehand of each point, shape (n, m), or None.
        balance: whether to.
    """
    if not balance:
        return labeller.fit_graph(w, codes, prior)
    if isinstance(labeller, GraphTransduction):
        labeller.shares = "given" if labeller.shares is None else labeller.shares
        return labeller.fit_graph(w, codes, prior)
    labeller.fit_graph(w, codes, prior)
    decided = np.ones(len(codes), dtype=bool)
    decided[labeller.undecided_] = False
    counts = np.bincount(codes[codes >= 0], minlength=len(labeller.classes_))
    x = labeller.label_distributions_.copy()
    x[decided] = held_to_shares(x[decided], counts / counts.sum())
    return labeller.settle(x)


def held_to_shares(x: Floats, shares: Floats) -> Floats:
    """Distributions whose mean is, as far as they are sure and can be moved, that of the shares.

    Labels that are certain are as frequent as the shares say; distributions that prefer nothing have the same mean
    whatever the shares are. What is held to lies between the two, as sure as the distributions are. Held to the shares
    themselves, those of Poisson learning or of an SVM, which are nearly flat, would all prefer the most frequent class.

    Columns are scaled so that their means are what is wanted, then rows so that they sum to 1, in turn. Certainty stays
    certain and what is ruled out stays so.

    Args:
        x: distributions, shape (n, m).
        shares: how frequent each class is, shape (m,), summing to 1; a class of share 0 is left alone.
    """
    tiny = np.finfo(np.float64).tiny
    scaled = np.asarray(x, dtype=np.float64)
    wanted = _blurred(shares, scaled)
    for _ in range(ROUNDS):
        mean = scaled.mean(axis=0)
        scaled = scaled * np.where((mean > tiny) & (shares > 0), wanted / np.maximum(mean, tiny), 1)
        scaled = scaled / np.maximum(scaled.sum(axis=1, keepdims=True), tiny)
    return scaled.astype(x.dtype)


def _blurred(shares: Floats, x: Floats) -> Floats:
    """The mean of distributions as sure as these (n, m) whose labels are as frequent as the shares say, shape (m,)."""
    m = len(shares)
    sure = (m * x.max(axis=1).mean() - 1) / max(m - 1, 1) if len(x) else 1.0  # 1: certain, 0: flat
    return sure * shares + (1 - sure) / m
