from dataclasses import dataclass

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from entourage.label import (
    GraphTransduction,
    LabelHarmonic,
    LabelPropagation,
    LabelSpreading,
    LinearSVMLabeller,
    PoissonLearning,
)
from entourage.label.base import GraphLabeller

Method = type[GraphLabeller]
GRAPH_METHODS = [GraphTransduction, LabelHarmonic, LabelPropagation, LabelSpreading, PoissonLearning]
METHODS = [*GRAPH_METHODS, LinearSVMLabeller]


@pytest.fixture(params=METHODS, ids=lambda method: method.__name__)
def method(request: pytest.FixtureRequest) -> Method:
    """All labellers: the game and its baselines."""
    return request.param


@pytest.fixture(params=GRAPH_METHODS, ids=lambda method: method.__name__)
def graph_method(request: pytest.FixtureRequest) -> Method:
    """The labellers that use a graph."""
    return request.param


def assert_sound(found: GraphLabeller, n: int) -> None:
    """Check that all fitted attributes are finite, have the right shape, and that distributions are normalised."""
    x = found.label_distributions_
    assert x.shape == (n, len(found.classes_))
    assert np.isfinite(x).all()
    assert (x >= 0).all()
    np.testing.assert_allclose(x.sum(axis=1), 1, rtol=1e-5)
    assert found.transduction_.shape == found.confidence_.shape == (n,)
    assert np.isfinite(found.confidence_).all()
    assert (found.confidence_ >= 0).all()
    assert (found.confidence_ <= 1).all()
    assert found.graph_.shape == (n, n)
    assert np.isfinite(found.graph_.data).all()
    assert found.n_iter_ >= 1


@dataclass(frozen=True)
class Data:
    """Points in well separated clusters, with one label per cluster."""

    X: NDArray[np.float64]
    truth: NDArray[np.int64]
    y: NDArray[np.int64]


def clusters(*centres: tuple[float, float]) -> Data:
    rng = np.random.default_rng(0)
    truth = np.repeat(np.arange(len(centres)), 20)
    X = np.array(centres, dtype=float)[truth] + 0.3 * rng.normal(size=(len(truth), 2))
    y = np.where(np.arange(len(truth)) % 20 == 0, truth, -1)
    return Data(X, truth, y)


@pytest.fixture
def three() -> Data:
    """Three clusters of twenty points."""
    return clusters((0, 0), (6, 0), (0, 6))


@pytest.fixture
def lost() -> Data:
    """Three labelled clusters, and a fourth (points 60 to 79) without a label."""
    data = clusters((0, 0), (6, 0), (0, 6), (60, 60))
    return Data(data.X, data.truth, np.where(data.truth == 3, -1, data.y))


@pytest.fixture
def graph() -> NDArray[np.float64]:
    """A connected graph of 24 points with random weights, dense, symmetric, zero diagonal."""
    rng = np.random.default_rng(1)
    w = rng.random((24, 24)) * (rng.random((24, 24)) < 0.3)
    w = np.maximum(w, w.T) + np.eye(24, k=1) * 0.2 + np.eye(24, k=-1) * 0.2
    np.fill_diagonal(w, 0)
    return w


@pytest.fixture
def few_labels() -> NDArray[np.int64]:
    """Three, two and one labels of three classes, for the points of `graph`."""
    y = np.full(24, -1)
    y[[0, 5, 9, 12, 18, 23]] = [0, 0, 0, 1, 1, 2]
    return y


@pytest.fixture
def two_components() -> tuple[sparse.csr_matrix, NDArray[np.int64]]:
    """Two components: points 0 to 4 with labels of classes 0 and 1, points 5 to 9 with labels of class 1 only."""
    rng = np.random.default_rng(2)
    blocks = [w + w.T for w in rng.random((2, 5, 5))]
    return sparse.csr_matrix(sparse.block_diag(blocks)), np.array([0, -1, -1, -1, 1, 1, -1, -1, 1, -1])
