from dataclasses import replace
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import Tensor

from entourage.game import NeighborGraph
from entourage.game.similarity import normalize_rows
from entourage.label import GraphTransduction, LabelSpreading, LinearSVMLabeller, base, exclusion_prior
from entourage.label.semi_supervised import AugmentOptions
from entourage.label.semi_supervised import pseudo_labels as module
from entourage.label.semi_supervised.pseudo_labels import build_graph, fit_graph_labels

OPTIONS = AugmentOptions(n_neighbors=5)


def blobs(truth: np.ndarray, noise: float = 0.1) -> Tensor:
    """Features of three classes with Gaussian noise."""
    drawn = torch.randn(len(truth), 3, generator=torch.Generator().manual_seed(0))
    return torch.eye(3)[torch.from_numpy(truth)] + noise * drawn


def same(one: sparse.csr_matrix, other: sparse.csr_matrix) -> bool:
    return bool(one.shape == other.shape and abs(one - other).max() <= 1e-6)


def test_labels_are_inferred_over_the_graph_of_features(toys: ModuleType) -> None:
    examples, truth = toys.examples()
    features, labeller = blobs(truth), GraphTransduction()
    found, score, fitted = fit_graph_labels(features, examples, labeller, OPTIONS)
    assert np.array_equal(found.codes, truth)
    assert np.array_equal(fitted.transduction_, truth)
    assert found.distributions.shape == (30, 3)
    assert score == 1.0
    assert labeller.classes is None  # not changed
    assert not hasattr(labeller, "transduction_")
    lengths = torch.linspace(0.01, 100, 30)[:, None]  # only the direction of features matters
    assert np.array_equal(fit_graph_labels(lengths * features, examples, labeller, OPTIONS).pseudo_labels.codes, truth)
    assert np.array_equal(fit_graph_labels(features, examples, LabelSpreading(), OPTIONS).pseudo_labels.codes, truth)
    fit_graph_labels(features, examples, labeller, replace(OPTIONS, n_neighbors=1000))  # more than the number of images


def test_the_graph_follows_the_arguments_of_the_labeller(toys: ModuleType) -> None:
    features = blobs(toys.images()[1])
    points = normalize_rows(features)
    arguments: dict[str, Any] = {"affinity": "gaussian", "symmetrize": "max", "normalize": False}
    assert same(
        build_graph(features, GraphTransduction(3, **arguments), OPTIONS), NeighborGraph(points, 3, **arguments).w
    )
    unsquared = build_graph(features, GraphTransduction(squared=False), OPTIONS)
    assert same(unsquared, NeighborGraph(points, 5, squared=False).w)
    assert not same(unsquared, NeighborGraph(points, 5).w)
    shifted = build_graph(features, LabelSpreading(affinity="cosine", negatives="shift", n_neighbors=None), OPTIONS)
    assert same(shifted, NeighborGraph(points, None, affinity="cosine", negatives="shift").w)


def test_auto_neighbours_are_replaced_by_the_options(toys: ModuleType) -> None:
    features = blobs(toys.images()[1])
    for n_neighbors in (2, "auto"):
        graph = build_graph(features, GraphTransduction(), AugmentOptions(n_neighbors=n_neighbors))
        assert same(graph, NeighborGraph(normalize_rows(features), n_neighbors).w)
    assert build_graph(features, GraphTransduction(n_neighbors=None), OPTIONS).nnz == 30 * 29


def test_euclidean_metric_keeps_the_length_of_features(toys: ModuleType) -> None:
    features = torch.linspace(0.1, 10, 30)[:, None] * blobs(toys.images()[1])
    graph = build_graph(features, GraphTransduction(), replace(OPTIONS, metric="euclidean"))
    assert same(graph, NeighborGraph(features, 5).w)
    assert not same(graph, build_graph(features, GraphTransduction(), OPTIONS))


@pytest.mark.parametrize("name", ["thesis", "original"])
def test_the_graph_follows_the_preset(toys: ModuleType, name: str) -> None:
    features = blobs(toys.images()[1])
    game = GraphTransduction.from_preset(name)
    expected = (
        GraphTransduction.from_preset(name).fit(normalize_rows(features).numpy(), toys.examples()[0].codes).graph_
    )
    assert same(build_graph(features, game, AugmentOptions.from_preset(name)), expected)


@pytest.mark.filterwarnings("ignore:1 of 30 points end in a tie")  # the two remaining classes are equally far
def test_labellers_use_the_prior(toys: ModuleType) -> None:
    examples, truth = toys.examples()
    prior = exclusion_prior(30, [0, 1, 2], {20: [int(truth[20])]})
    for labeller in (GraphTransduction(), LabelSpreading(), LinearSVMLabeller()):
        found = fit_graph_labels(blobs(truth), examples, labeller, OPTIONS, prior).pseudo_labels
        assert found.codes[20] != truth[20]
        assert np.array_equal(np.delete(found.codes, 20), np.delete(truth, 20))


@pytest.mark.parametrize("balance", [False, True])
def test_cross_validation_uses_prior_and_balance(
    toys: ModuleType, balance: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[object, bool]] = []

    def record(labeller: object, graph: object, codes: object, prior: object = None, *, balance: bool = False) -> float:
        calls.append((prior, balance))
        return 0.25

    monkeypatch.setattr(module, "held_out_accuracy", record)
    examples, truth = toys.examples()
    prior = np.full((30, 3), 1 / 3)
    options = replace(OPTIONS, balance=balance)
    assert fit_graph_labels(blobs(truth), examples, GraphTransduction(), options, prior).score == 0.25
    assert len(calls) == 1
    assert calls[0][0] is prior
    assert calls[0][1] is balance


def test_the_graph_of_a_linear_svm_is_the_features(toys: ModuleType) -> None:
    examples, truth = toys.examples()
    features = blobs(truth)
    np.testing.assert_array_equal(
        build_graph(features, LinearSVMLabeller(), OPTIONS).toarray(), normalize_rows(features)
    )
    found = fit_graph_labels(features, examples, LinearSVMLabeller(), OPTIONS).pseudo_labels
    alone = LinearSVMLabeller().fit(normalize_rows(features).numpy(), examples.codes)
    # Sparse and dense rows round differently.
    np.testing.assert_allclose(found.distributions, alone.label_distributions_, atol=1e-3)


def test_the_graph_is_validated_once_for_all_folds(toys: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    examples, truth = toys.examples()
    validated: list[object] = []
    real = module.check_graph
    for patched in (module, base):
        monkeypatch.setattr(patched, "check_graph", lambda w, kind: (validated.append(w), real(w, kind))[1])
    fit_graph_labels(blobs(truth), examples, GraphTransduction(), OPTIONS)
    assert len(validated) == 1


def test_a_class_without_labels_only_warns(toys: ModuleType) -> None:
    examples, truth = toys.examples()
    codes = np.where(examples.codes == 2, -1, examples.codes)
    options = replace(OPTIONS, n_neighbors=29)
    with pytest.warns(UserWarning, match="no point is labelled 2: this is never predicted"):
        found = fit_graph_labels(
            blobs(truth, 0.0), replace(examples, codes=codes), GraphTransduction(), options
        ).pseudo_labels
    assert set(found.codes) <= {-1, 0, 1}
    assert found.distributions.shape == (30, 3)


def test_a_precomputed_graph_raises(toys: ModuleType) -> None:
    with pytest.raises(ValueError, match="affinity of LabelSpreading is 'precomputed'; expected one that builds"):
        build_graph(blobs(toys.images()[1]), LabelSpreading(affinity="precomputed"), OPTIONS)
