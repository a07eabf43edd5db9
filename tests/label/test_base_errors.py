"""Errors of all labellers for invalid data, options and graphs."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse
from tests.label.conftest import Data, Method


def changed(values: Any, position: Any, value: float) -> Any:
    values = values.copy()
    values[position] = value
    return values


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda X, y: {"y": np.full(60, -1)}, "none of the 60 points is labelled; expected at least one label"),
        (
            lambda X, y: {"y": np.full(60, "")},
            "none of the 60 points is labelled; expected at least one label other than -1",
        ),
        (lambda X, y: {"X": changed(X, (3, 1), np.nan)}, "Input X contains NaN"),
        (lambda X, y: {"X": changed(X, (3, 1), np.inf)}, "Input X contains infinity"),
        (lambda X, y: {"y": y[:59]}, r"inconsistent numbers of samples: \[60, 59\]"),
        (lambda X, y: {"prior": np.ones((59, 3))}, r"prior has shape \(59, 3\); expected \(60, 3\)"),
        (lambda X, y: {"prior": np.ones((60, 2))}, r"prior has shape \(60, 2\); expected \(60, 3\)"),
        (
            lambda X, y: {"prior": changed(np.ones((60, 3)), (0, 0), 0)},
            "prior: the label 0 of point 0 has probability 0; expected a positive number",
        ),
        (
            lambda X, y: {"prior": changed(np.ones((60, 3)), 4, 0)},
            "prior: excludes all labels of point 4; expected one that a point has",
        ),
        (
            lambda X, y: {"prior": changed(np.ones((60, 3)), (4, 1), -1)},
            "prior: row 4 is not a distribution; expected finite numbers of 0 or more",
        ),
        (lambda X, y: {"classes": [0, 1, 7]}, "label 2 is not among the classes 0, 1, 7"),
        (lambda X, y: {"device": "abacus"}, "device 'abacus' is unknown; expected 'auto', 'cpu'"),
    ],
)
def test_invalid_data_raise(method: Method, three: Data, change: Any, message: str) -> None:
    arguments = {"X": three.X, "y": three.y, **change(three.X, three.y)}
    options = {name: arguments.pop(name) for name in ("classes", "device") if name in arguments}
    with pytest.raises((ValueError, TypeError), match=message):
        method(**options).fit(**arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_neighbors": 0}, "n_neighbors is 0; expected .* 'auto' or None"),
        ({"n_neighbors": 1.5}, "n_neighbors is 1.5; expected"),
        ({"affinity": "rbf"}, "affinity is 'rbf'; expected one of self_tuning"),
        ({"symmetrize": "min"}, "symmetrize is 'min'; expected one of"),
        (
            {"affinity": "cosine", "n_neighbors": None},
            r"cosine has .* negative similarities; expected negatives='clamp' or 'shift'",
        ),
        ({"affinity": "cosine", "negatives": "drop"}, "negatives is 'drop'; expected one of"),
    ],
)
def test_invalid_options_raise(graph_method: Method, three: Data, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        graph_method(**options).fit(three.X - 2, three.y)


SQUARE = np.array([[0.0, 0.5, 0.0], [0.5, 0.0, 0.25], [0.0, 0.25, 0.0]])


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize(
    ("w", "message"),
    [
        (SQUARE[:, :2], r"the precomputed graph has shape \(3, 2\); expected a square matrix"),
        (
            changed(SQUARE, (1, 2), 0.5),
            r"not symmetric: w\[\d, \d\] = 0.\d+ but w\[\d, \d\] = 0.\d+; expected equal weights",
        ),
        (
            changed(changed(SQUARE, (1, 2), -0.25), (2, 1), -0.25),
            "2 negative similarities; expected negatives=",
        ),
        (changed(changed(SQUARE, (1, 2), np.nan), (2, 1), np.nan), "NaN"),
        (changed(changed(SQUARE, (1, 2), np.inf), (2, 1), np.inf), "infinity"),
    ],
)
def test_invalid_graphs_raise(method: Method, w: Any, message: str, kind: Any) -> None:
    with pytest.raises(ValueError, match=message):
        method(affinity="precomputed").fit(kind(w), [0, -1, 1])
