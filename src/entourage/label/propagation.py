"""Label propagation, the oldest rival of the game."""

from __future__ import annotations

import warnings

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning

from entourage.game.graph import to_torch
from entourage.label.base import GraphLabeller, Problem
from entourage.label.distributions import with_prior
from entourage.label.targets import Floats


class LabelPropagation(GraphLabeller):
    """Label propagation (Zhu and Ghahramani, 2002): every point takes the mean of its neighbours, round after round.

    Labelled points are held. Given enough rounds it ends where `LabelHarmonic` does; `tol` bounds the share of the
    whole way that the last round still moves. For the arguments see `GraphLabeller`.
    """

    def _distribute(self, problem: Problem) -> Floats:
        w = to_torch(problem.w, problem.device)
        start = torch.from_numpy(problem.targets.one_hot().astype(problem.w.dtype)).to(problem.device)
        held = torch.from_numpy(problem.targets.labelled).to(problem.device)[:, None]  # (n, 1)
        f, way, settled, self.n_iter_ = start, 0.0, False, 0
        while self.n_iter_ < self.max_iter and not settled:
            mean = w @ f  # (n, m)
            total = mean.sum(dim=1, keepdim=True)
            mean = torch.where(held, start, mean / torch.where(total > 0, total, 1))
            step = float((mean - f).abs().sum())
            way += step
            f, settled = mean, self.tol is not None and step <= self.tol * way
            self.n_iter_ += 1
        if self.tol is not None and not settled:
            warnings.warn(f"labels still move after {self.max_iter} rounds", ConvergenceWarning, stacklevel=4)
        return with_prior(np.asarray(f.cpu().numpy()), problem)
