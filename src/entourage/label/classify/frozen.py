"""Rivals that leave the network as it is: classifiers on its features."""

from __future__ import annotations

from typing import Any

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.svm import SVC, LinearSVC

FROZEN = ("linear", "linear-svm", "kernel-svm")


def frozen_classifier(name: str) -> Any:
    """A scikit-learn classifier for features (n, d), which it first scales to length 1.

    Args:
        name: "linear" (logistic regression: transfer learning), "linear-svm" or "kernel-svm" (Gaussian kernel).

    Raises:
        ValueError: the name is unknown.
    """
    makers = {
        # Unit features of 1,280 dimensions are small numbers: with the usual C = 1 nothing would be learnt from them.
        "linear": lambda: LogisticRegression(C=100.0, max_iter=1000),
        "linear-svm": lambda: LinearSVC(C=1.0, max_iter=5000, random_state=0),
        "kernel-svm": lambda: SVC(C=10.0, gamma="scale"),
    }
    if name not in makers:
        raise ValueError(f"classifier {name!r} is unknown; expected one of {', '.join(FROZEN)}")
    return make_pipeline(Normalizer(), makers[name]())
