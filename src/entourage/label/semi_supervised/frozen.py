"""Rivals that leave the network as it is: classifiers on its features."""

from __future__ import annotations

from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import SVC, LinearSVC

FROZEN = ("linear", "linear-svm", "kernel-svm")


# Unit features of 1,280 dimensions are small numbers: with the usual C = 1 little would be learnt from them.
USUAL = {"linear": 100.0, "linear-svm": 1.0, "kernel-svm": 10.0}


def frozen_classifier(name: str, c: float | None = None) -> Any:
    """A scikit-learn classifier for features (n, d), which it first scales to length 1.

    Args:
        name: "linear" (logistic regression: transfer learning), "linear-svm" or "kernel-svm" (Gaussian kernel).
        c: how much an error costs, against simplicity; by default as in `USUAL`.

    Raises:
        ValueError: the name is unknown.
    """
    if name not in USUAL:
        raise ValueError(f"classifier {name!r} is unknown; expected one of {', '.join(FROZEN)}")
    cost = USUAL[name] if c is None else c
    makers = {
        "linear": lambda: LogisticRegression(C=cost, max_iter=1000),
        "linear-svm": lambda: LinearSVC(C=cost, max_iter=5000, random_state=0),
        "kernel-svm": lambda: SVC(C=cost, gamma="scale"),
    }
    return make_pipeline(Normalizer(), makers[name]())
