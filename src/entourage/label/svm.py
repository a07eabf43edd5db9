"""The first-order rival of the game: a linear support vector machine that looks at no neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import softmax
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted, validate_data

from entourage.label.base import GraphLabeller, Problem
from entourage.label.distributions import with_prior
from entourage.label.targets import Floats, Targets, few_of_a_class


class LinearSVMLabeller(GraphLabeller):
    """Labels every point with a linear SVM trained on the labelled ones (chapter 3's alternative to the game).

    With affinity="precomputed" a point's features are its similarities to all others. Distributions are the softmax of
    the margins. Of the arguments of `GraphLabeller` it heeds `affinity`, `negatives`, `classes` and `max_iter`.
    """

    def _relate(self, X: Any, device: torch.device) -> sparse.csr_matrix:
        if self.affinity == "precomputed":
            return super()._relate(X, device)
        self._features, self._by_similarities = X, False
        return sparse.csr_matrix((len(X), len(X)))

    def _adopt(self, graph: sparse.csr_matrix, lift: float) -> sparse.csr_matrix:
        self._features, self._by_similarities = graph, True
        return super()._adopt(graph, lift)

    def _reach(self, targets: Targets, start: Floats, *, informed: bool) -> NDArray[np.bool_]:
        return np.ones(len(targets.codes), dtype=bool)

    def _distribute(self, problem: Problem) -> Floats:
        labelled, codes = problem.targets.labelled, problem.targets.codes
        self._seen = np.unique(codes[labelled])
        self._machine, self.n_iter_ = None, 1
        if len(self._seen) > 1:
            self._machine = LinearSVC(max_iter=self.max_iter, random_state=0)
            with few_of_a_class():
                self._machine.fit(self._features[labelled], codes[labelled])
            self.n_iter_ = int(np.max(self._machine.n_iter_))
        x = with_prior(self._margins(self._features), problem)
        del self._features
        return np.where(labelled[:, None], problem.start, x)

    def _votes(self, X: ArrayLike | sparse.spmatrix) -> Floats:
        check_is_fitted(self)
        features = validate_data(
            self, X, reset=False, accept_sparse=self._by_similarities, dtype=[np.float32, np.float64]
        )
        return self._margins(features)

    def _margins(self, features: Any) -> Floats:
        x = np.zeros((features.shape[0], len(self.classes_)), dtype=np.float32)
        if self._machine is None:
            x[:, self._seen] = 1
            return x
        margins = self._machine.decision_function(features)
        x[:, self._seen] = softmax(np.stack([-margins, margins], 1) if margins.ndim == 1 else margins, axis=1)
        return x
