from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor

from entourage.cluster import (
    ConstraintSampler,
    Curriculum,
    LabelledSampler,
    LearnedClustering,
    PointSampler,
    Recipe,
    score,
)
from entourage.cluster import estimator as module
from entourage.cluster import (
    task as task_module,
)
from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.network import ClusterNetwork
from entourage.cluster.models.options import PRESETS, ModelOptions, Preset, preset
from entourage.cluster.task import default_recipe, resolve_model_options

SMALL = ModelOptions(k_max=4, width=16, depth=2, heads=2, code=8, frequencies=8)


def hand_set_clusterer() -> LearnedClustering:
    """Return a clusterer whose weights are set by hand, so that close points form a cluster."""
    torch.manual_seed(0)
    network = ClusterNetwork((2,), SMALL).eval()
    cluster_codes = network.clustering.cluster_codes
    network.embedding = torch.nn.Identity()  # type: ignore[assignment]
    network.clustering.forward = lambda z, k_max=None: cluster_codes(3 * z, k_max or 4)  # type: ignore[method-assign, assignment]
    first, _, second, _, last = network.clustering.hazard  # type: ignore[union-attr, misc]
    with torch.no_grad():
        for layer in (first, second, last):
            layer.weight.zero_()
            layer.bias.zero_()
        first.weight[0, 0] = second.weight[0, 0] = 1.0  # the log odds that no earlier seed accounts for it...
        first.bias[0] = 3.0
        last.weight[0, 0], last.bias[0] = 5.0, -17.0  # ...must be above 0.4
    clusterer = LearnedClustering(device="cpu", set_size=100)
    clusterer.network_ = network
    return clusterer


def blobs(n: int = 60, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.sort(rng.integers(0, k, n))
    return np.array([[0, 0], [3, 0], [0, 3], [3, 3]])[truth] + 0.1 * rng.normal(size=(n, 2)), truth


def test_predict_sets_clusters_number_and_probabilities() -> None:
    X, truth = blobs()
    clusterer = hand_set_clusterer()
    labels = clusterer.predict(X)
    assert score(truth, labels).mr == 0
    assert clusterer.n_clusters_ == 3
    assert np.bincount(labels).tolist() == sorted(np.bincount(truth).tolist(), reverse=True)
    np.testing.assert_allclose(clusterer.probabilities_.sum(1), 1)
    np.testing.assert_array_equal(clusterer.probabilities_.argmax(1), labels)
    assert clusterer.count_probabilities_.shape == (4,)
    assert clusterer.count_probabilities_.argmax() == 2
    assert clusterer.count_probabilities_.sum() == pytest.approx(1)
    np.testing.assert_array_equal(clusterer.predict_proba(X), clusterer.probabilities_)
    np.testing.assert_array_equal(clusterer.fit_predict(X), labels)
    np.testing.assert_array_equal(clusterer.labels_, labels)


def test_predict_is_invariant_to_the_order_of_items() -> None:
    X, _ = blobs()
    order = np.random.default_rng(1).permutation(len(X))
    straight, shuffled = hand_set_clusterer().predict(X), hand_set_clusterer().predict(X[order])
    assert score(straight[order], shuffled).mr == 0


def test_more_items_than_set_size_are_clustered_consistently() -> None:
    X, truth = blobs(450, 4)
    clusterer = hand_set_clusterer().set_params(k_max=5)
    assert score(truth, clusterer.predict(X)).mr == 0
    assert clusterer.n_clusters_ == 4


def test_the_default_set_size_is_that_of_the_training() -> None:
    X, _ = blobs(90, 3)
    sizes: list[int] = []
    clusterer = hand_set_clusterer().set_params(set_size=None)
    clusterer.network_.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[1]))
    clusterer.predict(X)
    assert sizes == [90]
    clusterer.network_.notes["set_size"] = "40"
    clusterer.predict(X)
    assert max(sizes[1:]) == 40
    clusterer.set_params(set_size=60).predict(X)
    assert 60 in sizes


def test_n_clusters_and_a_larger_k_max_are_supported() -> None:
    X, _ = blobs()
    assert hand_set_clusterer().set_params(n_clusters=2).predict(X).max() == 1
    wide = hand_set_clusterer().set_params(k_max=7)
    wide.predict(X)
    assert wide.count_probabilities_.shape == (7,)
    with pytest.raises(ValueError, match=r"n_clusters: .*expected 1 to 60, the number of items"):
        hand_set_clusterer().set_params(n_clusters=61).predict(X)


def test_n_clusters_may_exceed_the_k_max_of_an_attention_network() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(72) % 6  # the network has a k_max of four
    X = 3.0 * np.stack([truth % 3, truth // 3], axis=1) + 0.1 * rng.normal(size=(72, 2))
    assert score(truth, hand_set_clusterer().set_params(n_clusters=6).predict(X)).mr == 0
    options = ModelOptions(network="lstm", k_max=3, units=8, layers=1, recurrent_units=4)
    clusterer = LearnedClustering(n_clusters=4, device="cpu")
    clusterer.network_ = ClusterNetwork((2,), options).eval()
    with pytest.raises(ValueError, match=r"n_clusters: .*expected 1 to 3, the maximum of this network"):
        clusterer.predict(X)


def test_the_largest_number_of_clusters_as_estimate_warns() -> None:
    X, truth = blobs(60, 4)
    with pytest.warns(UserWarning, match=r"number of clusters is 4, the largest .* k_max \(--max-clusters\)"):
        hand_set_clusterer().predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score(truth, hand_set_clusterer().set_params(k_max=5).predict(X)).mr == 0
        hand_set_clusterer().set_params(n_clusters=4).predict(X)  # no estimate, no warning
        # No more than four items, no warning
        hand_set_clusterer().predict([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0]])


@pytest.mark.extra("train")
def test_fit_trains_on_a_sampler_and_save_stores_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Curriculum(
        base_size=12, base_clusters=3, base_fraction=1.0, min_size=12, max_size=12, sets=4, min_cluster_size=4
    )
    recipe = Recipe(steps=3, curriculum=sizes, validation=2, epoch=3)
    monkeypatch.setitem(PRESETS, "tiny", Preset(SMALL))
    before = torch.get_rng_state()
    clusterer = LearnedClustering("tiny", recipe=recipe, device="cpu").fit(PointSampler(3), progress=False)
    assert torch.equal(torch.get_rng_state(), before)  # the global random state is unchanged
    assert clusterer.training_result_.steps == 3
    assert clusterer.network_.notes["set_size"] == "12"
    X, _ = blobs()
    clusterer.save(tmp_path / "mine.safetensors")
    loaded = LearnedClustering.load(tmp_path / "mine.safetensors", device="cpu")
    np.testing.assert_allclose(loaded.predict_proba(X), clusterer.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("name", ["default", "thesis"])
def test_fit_trains_what_the_command_line_trains(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = []
    monkeypatch.setattr(module, "train_network", lambda task, *_, **__: tasks.append(task) or (task.network, None))
    sampler = LabelledSampler(np.zeros((20, 9)), np.arange(20) % 10, 3)
    clusterer = LearnedClustering(name, metric="euclidean").fit(sampler)
    assert tasks[0].recipe == default_recipe(sampler, preset(name))
    options = resolve_model_options(sampler, preset(name), tasks[0].recipe.curriculum, metric="euclidean")
    assert clusterer.network_.options == options
    assert options.metric == "euclidean"


@pytest.mark.extra("train")
def test_the_example_of_the_documentation_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    lines = text.split("```python\n")[1].split("```")[0]
    assert lines.count(", minutes=1") == 1
    lines = lines.replace(", minutes=1", "")  # the test trains for two steps instead
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "default", Preset(SMALL))
    monkeypatch.setattr(task_module, "DEFAULT_STEPS", 2)
    names: dict[str, Any] = {}
    exec(lines, names)
    assert names["model"].n_clusters_ == 2
    assert names["mine"].training_result_.steps == 2
    assert LearnedClustering.load("mine.safetensors").network_.shape == (64,)


@pytest.mark.extra("train")
def test_fit_accepts_pairs_for_training_and_validation() -> None:
    sizes = Curriculum(
        base_size=6, base_clusters=2, base_fraction=1.0, min_size=6, max_size=6, sets=2, min_cluster_size=2
    )
    recipe = Recipe(steps=2, curriculum=sizes, validation=2, epoch=2)
    X, truth = blobs(12)
    pairs = [(i, j) for i in range(12) for j in range(i)]
    must, cannot = ([p for p in pairs if (truth[p[0]] == truth[p[1]]) == same] for same in (True, False))
    clusterer = LearnedClustering(recipe=recipe, device="cpu").fit(ConstraintSampler(X, must, cannot), progress=False)
    assert 0 <= clusterer.training_result_.metrics["mr"] <= 1


@pytest.mark.extra("images", "train")
def test_fit_and_predict_accept_images() -> None:
    items, labels = torch.rand(12, 3, 8, 8), np.repeat([0, 1, 2], 4)
    sizes = Curriculum(
        base_size=6, base_clusters=2, base_fraction=1.0, min_size=6, max_size=6, sets=2, min_cluster_size=2
    )
    recipe = Recipe(steps=2, curriculum=sizes, validation=2, epoch=2)
    clusterer = LearnedClustering(recipe=recipe, k_max=3, device="cpu")
    clusterer.fit(LabelledSampler(items, labels, 2), progress=False)
    assert clusterer.predict(items).shape == (12,)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[0.0, 1.0]], "expected two or more"),
        (np.empty((0, 2)), "expected two or more"),
        ([[0.0, 1.0], [np.nan, 1.0]], "row 1 that is not finite"),
        ([[0.0, 1e301], [0.0, 1.0]], r"row 0 that is not finite; expected numbers up to 1e\+300"),
        ([[0.0, 1j], [0.0, 1.0]], "complex"),
        (torch.zeros(3, 2, dtype=torch.complex64), "complex"),
        ([[0.0, 1.0, 2.0]] * 3, "X has 3 columns; expected 2"),
        ([0.0, 1.0], "expected .items, 2."),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_invalid_items_raise(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hand_set_clusterer().predict(X)  # type: ignore[arg-type]


def test_a_clone_is_not_fitted() -> None:
    fresh = clone(hand_set_clusterer())
    assert fresh.get_params()["set_size"] == 100
    with pytest.raises(NotFittedError, match="call fit, or load"):
        fresh.predict([[0.0, 1.0]] * 3)


def test_ties_do_not_create_empty_clusters() -> None:
    probabilities = np.array([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    labels, ordered = module._order_by_size(probabilities)
    assert labels.tolist() == [1, 0, 0, 2]
    np.testing.assert_allclose(ordered, probabilities[:, [1, 0, 2]])
    labels, ordered = module._order_by_size(np.array([[0.6, 0.1, 0.3], [0.6, 0.2, 0.2]]))
    assert labels.tolist() == [0, 0]
    assert ordered.tolist() == [[1], [1]]


def test_fewer_clusters_than_requested_warn() -> None:
    X = np.array([[0.0, 0.0]] * 5 + [[3.0, 0.0]] * 5)
    clusterer = hand_set_clusterer().set_params(n_clusters=3)
    with pytest.warns(UserWarning, match="3 clusters were requested, but only 2 have members"):
        clusterer.predict(X)
    assert clusterer.n_clusters_ == 2


def test_fewer_clusters_than_most_probable_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    clusterer = hand_set_clusterer()
    cluster_codes = clusterer.network_.clustering.forward

    def predict_three(z: Tensor, k_max: int | None = None) -> SetPrediction:
        return replace(cluster_codes(z, k_max), count=torch.tensor([[0.1, 0.2, 0.6, 0.1]]).log())

    monkeypatch.setattr(clusterer.network_.clustering, "forward", predict_three)
    X = np.array([[0.0, 0.0]] * 5 + [[3.0, 0.0]] * 5)
    with pytest.warns(UserWarning, match="3 clusters are most probable, but only 2 have members"):
        clusterer.predict(X)


def test_an_lstm_with_a_metric_has_a_fixed_set_size() -> None:
    torch.manual_seed(0)
    options = ModelOptions(network="lstm", metric="full", set_size=20, k_max=3, units=8, layers=1, recurrent_units=4)
    clusterer = LearnedClustering(device="cpu")
    clusterer.network_ = ClusterNetwork((2,), options).eval()
    X, _ = blobs(96)
    assert clusterer.predict(X).shape == (96,)
    assert clusterer.n_subsets_ == 9
    assert clusterer.predict(X[:20]).shape == (20,)
    assert clusterer.n_subsets_ == 1
    with pytest.raises(ValueError, match="X has 19 items; expected 20 or more"):
        clusterer.predict(X[:19])
    with pytest.raises(ValueError, match="set_size is 30; expected 20"):
        clusterer.set_params(set_size=30).predict(X)


@pytest.mark.parametrize("k_max", [0, -1, 2.5, "3", True])
def test_options_out_of_range_raise(k_max: int) -> None:
    message = f"k_max is {k_max!r}; expected an integer, 1 or more, or None"
    with pytest.raises(ValueError, match=message):
        LearnedClustering.load("points", k_max=k_max)
    with pytest.raises(ValueError, match=message):
        hand_set_clusterer().set_params(k_max=k_max).predict(blobs()[0])
    with pytest.raises(ValueError, match=message):
        LearnedClustering(k_max=k_max).fit(PointSampler(3))
    for name in ("set_size", "n_clusters"):
        with pytest.raises(ValueError, match=f"{name} is {k_max!r}; expected an integer"):
            hand_set_clusterer().set_params(**{name: k_max}).predict(blobs()[0])


@pytest.mark.parametrize("seed", [-1, 0.5])
def test_an_invalid_random_state_raises(seed: object) -> None:
    with pytest.raises(ValueError, match=f"random_state is {seed}; expected an integer, 0 or more, or None"):
        hand_set_clusterer().set_params(random_state=seed).predict(blobs()[0])


def test_random_state_may_be_none() -> None:
    X = blobs()[0]
    assert (
        hand_set_clusterer().set_params(random_state=None).predict(X).tolist()
        == hand_set_clusterer().predict(X).tolist()
    )


def test_n_clusters_above_k_max_raises() -> None:
    with pytest.raises(ValueError, match="n_clusters is 5; expected 3 or less"):
        hand_set_clusterer().set_params(n_clusters=5, k_max=3).predict(blobs()[0])


def test_numpy_integers_are_accepted() -> None:
    assert hand_set_clusterer().set_params(n_clusters=np.int64(2)).predict(blobs()[0]).max() == 1


def test_items_instead_of_a_sampler_raise() -> None:
    with pytest.raises(ValueError, match="sampler is of type ndarray; expected a sampler"):
        LearnedClustering().fit(blobs()[0])  # type: ignore[arg-type]
