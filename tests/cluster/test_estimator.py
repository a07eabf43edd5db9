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
    load_network,
    save_network,
    score,
    train_clustering,
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
    return LearnedClustering(network, device="cpu", set_size=100)


def blobs(n: int = 60, k: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.sort(rng.integers(0, k, n))
    return np.array([[0, 0], [3, 0], [0, 3], [3, 3]])[truth] + 0.1 * rng.normal(size=(n, 2)), truth


def test_predict_sets_clusters_number_and_probabilities() -> None:
    X, truth = blobs()
    clusterer = hand_set_clusterer()
    labels = clusterer.fit_predict(X)
    assert score(truth, labels).mr == 0
    assert clusterer.n_clusters_ == 3
    assert np.bincount(labels).tolist() == sorted(np.bincount(truth).tolist(), reverse=True)
    np.testing.assert_allclose(clusterer.probabilities_.sum(1), 1)
    np.testing.assert_array_equal(clusterer.probabilities_.argmax(1), labels)
    assert clusterer.count_probabilities_.shape == (4,)
    assert clusterer.count_probabilities_.argmax() == 2
    assert clusterer.count_probabilities_.sum() == pytest.approx(1)
    np.testing.assert_allclose(clusterer.predict_proba(X), clusterer.probabilities_, atol=1e-3)
    np.testing.assert_array_equal(clusterer.predict(X), labels)
    np.testing.assert_array_equal(clusterer.fit_predict(X), labels)
    np.testing.assert_array_equal(clusterer.labels_, labels)


def test_predict_is_invariant_to_the_order_of_items() -> None:
    X, _ = blobs()
    order = np.random.default_rng(1).permutation(len(X))
    straight, shuffled = hand_set_clusterer().fit_predict(X), hand_set_clusterer().fit_predict(X[order])
    assert score(straight[order], shuffled).mr == 0


def test_more_items_than_set_size_are_clustered_consistently() -> None:
    X, truth = blobs(450, 4)
    clusterer = hand_set_clusterer().set_params(k_max=5)
    assert score(truth, clusterer.fit_predict(X)).mr == 0
    assert clusterer.n_clusters_ == 4


def test_the_default_set_size_is_that_of_the_training() -> None:
    X, _ = blobs(90, 3)
    sizes: list[int] = []
    clusterer = hand_set_clusterer().set_params(set_size=None)
    clusterer.model.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[1]))
    clusterer.fit_predict(X)
    assert sizes == [90]
    clusterer.model.notes["set_size"] = "40"
    clusterer.fit_predict(X)
    assert max(sizes[1:]) == 40
    clusterer.set_params(set_size=60).fit_predict(X)
    assert 60 in sizes


def test_n_clusters_and_a_larger_k_max_are_supported() -> None:
    X, _ = blobs()
    assert hand_set_clusterer().set_params(n_clusters=2).fit_predict(X).max() == 1
    wide = hand_set_clusterer().set_params(k_max=7)
    wide.fit_predict(X)
    assert wide.count_probabilities_.shape == (7,)
    with pytest.raises(ValueError, match=r"n_clusters: .*expected 1 to 60, the number of items"):
        hand_set_clusterer().set_params(n_clusters=61).fit_predict(X)


def test_n_clusters_may_exceed_the_k_max_of_an_attention_network() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(72) % 6  # the network has a k_max of four
    X = 3.0 * np.stack([truth % 3, truth // 3], axis=1) + 0.1 * rng.normal(size=(72, 2))
    assert score(truth, hand_set_clusterer().set_params(n_clusters=6).fit_predict(X)).mr == 0
    options = ModelOptions(network="lstm", k_max=3, units=8, layers=1, recurrent_units=4)
    clusterer = LearnedClustering(ClusterNetwork((2,), options).eval(), n_clusters=4, device="cpu")
    with pytest.raises(ValueError, match=r"n_clusters: .*expected 1 to 3, the maximum of this network"):
        clusterer.fit_predict(X)


def test_the_largest_number_of_clusters_as_estimate_warns() -> None:
    X, truth = blobs(60, 4)
    with pytest.warns(UserWarning, match=r"number of clusters is 4, the largest .* k_max \(--max-clusters\)"):
        hand_set_clusterer().fit_predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score(truth, hand_set_clusterer().set_params(k_max=5).fit_predict(X)).mr == 0
        hand_set_clusterer().set_params(n_clusters=4).fit_predict(X)  # no estimate, no warning
        # No more than four items, no warning
        hand_set_clusterer().fit_predict([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0]])


@pytest.mark.extra("train")
def test_training_on_a_sampler_gives_a_network_that_can_be_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = Curriculum(
        base_size=12, base_clusters=3, base_fraction=1.0, min_size=12, max_size=12, sets=4, min_cluster_size=4
    )
    recipe = Recipe(steps=3, curriculum=sizes, validation=2, epoch=3)
    monkeypatch.setitem(PRESETS, "tiny", Preset(SMALL))
    before = torch.get_rng_state()
    network, result = train_clustering(PointSampler(3), "tiny", recipe=recipe, device="cpu", progress=False)
    assert torch.equal(torch.get_rng_state(), before)  # the global random state is unchanged
    assert result.steps == 3
    assert network.notes["set_size"] == "12"
    X, _ = blobs()
    save_network(network, tmp_path / "mine.safetensors")
    trained = LearnedClustering(network, device="cpu").fit(X)
    loaded = LearnedClustering(tmp_path / "mine.safetensors", device="cpu").fit(X)
    np.testing.assert_allclose(loaded.probabilities_, trained.probabilities_, atol=1e-6)


@pytest.mark.parametrize("name", ["default", "thesis"])
def test_python_trains_what_the_command_line_trains(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = []
    monkeypatch.setattr(module, "train_network", lambda task, *_, **__: tasks.append(task) or (task.network, None))
    sampler = LabelledSampler(np.zeros((20, 9)), np.arange(20) % 10, 3)
    network, _ = train_clustering(sampler, name, metric="euclidean")
    assert tasks[0].recipe == default_recipe(sampler, preset(name))
    options = resolve_model_options(sampler, preset(name), tasks[0].recipe.curriculum, metric="euclidean")
    assert network.options == options
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
    assert names["model"].n_clusters_ == 3
    assert names["result"].steps == 2
    assert load_network("mine.safetensors").shape == (64,)


@pytest.mark.extra("train")
def test_training_accepts_pairs() -> None:
    sizes = Curriculum(
        base_size=6, base_clusters=2, base_fraction=1.0, min_size=6, max_size=6, sets=2, min_cluster_size=2
    )
    recipe = Recipe(steps=2, curriculum=sizes, validation=2, epoch=2)
    X, truth = blobs(12)
    pairs = [(i, j) for i in range(12) for j in range(i)]
    must, cannot = ([p for p in pairs if (truth[p[0]] == truth[p[1]]) == same] for same in (True, False))
    _, result = train_clustering(ConstraintSampler(X, must, cannot), recipe=recipe, device="cpu", progress=False)
    assert 0 <= result.metrics["mr"] <= 1


@pytest.mark.extra("images", "train")
def test_training_and_clustering_accept_images() -> None:
    items, labels = torch.rand(12, 3, 8, 8), np.repeat([0, 1, 2], 4)
    sizes = Curriculum(
        base_size=6, base_clusters=2, base_fraction=1.0, min_size=6, max_size=6, sets=2, min_cluster_size=2
    )
    recipe = Recipe(steps=2, curriculum=sizes, validation=2, epoch=2)
    sampler = LabelledSampler(items, labels, 2)
    network, _ = train_clustering(sampler, recipe=recipe, k_max=3, device="cpu", progress=False)
    clusterer = LearnedClustering(network, device="cpu")
    assert clusterer.fit_predict(items).shape == (12,)
    assert clusterer.predict(items[:1]).shape == (1,)


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([[0.0, 1.0]], "expected two or more"),
        (np.empty((0, 2)), "expected two or more"),
        ([[0.0, 1.0], [np.nan, 1.0]], r"row 1 that is not finite; expected numbers up to 1e\+300"),
        ([[0.0, 1e301], [0.0, 1.0]], r"row 0 that is not finite; expected numbers up to 1e\+300"),
        ([[0.0, 1j], [0.0, 1.0]], r"complex.*; expected real numbers"),
        (torch.zeros(3, 2, dtype=torch.complex64), r"complex.*; expected real numbers"),
        ([[0.0, 1.0, 2.0]] * 3, "X has 3 columns; expected 2"),
        ([0.0, 1.0], "expected .items, 2."),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_invalid_items_raise(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        hand_set_clusterer().fit_predict(X)  # type: ignore[arg-type]


def test_a_clone_has_the_network_but_no_clusters() -> None:
    fresh = clone(hand_set_clusterer())
    assert fresh.get_params()["set_size"] == 100
    with pytest.raises(NotFittedError):
        fresh.predict([[0.0, 1.0]] * 3)
    X, truth = blobs()
    assert score(truth, fresh.set_params(model=hand_set_clusterer().model).fit_predict(X)).mr == 0


def test_ties_do_not_create_empty_clusters() -> None:
    probabilities = np.array([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    labels, ordered, _ = module._order_by_size(probabilities)
    assert labels.tolist() == [1, 0, 0, 2]
    np.testing.assert_allclose(ordered, probabilities[:, [1, 0, 2]])
    labels, ordered, _ = module._order_by_size(np.array([[0.6, 0.1, 0.3], [0.6, 0.2, 0.2]]))
    assert labels.tolist() == [0, 0]
    assert ordered.tolist() == [[1], [1]]


def test_fewer_clusters_than_requested_warn() -> None:
    X = np.array([[0.0, 0.0]] * 5 + [[3.0, 0.0]] * 5)
    clusterer = hand_set_clusterer().set_params(n_clusters=3)
    with pytest.warns(UserWarning, match="3 clusters were requested, but only 2 have members"):
        clusterer.fit_predict(X)
    assert clusterer.n_clusters_ == 2


def test_fewer_clusters_than_most_probable_warn(monkeypatch: pytest.MonkeyPatch) -> None:
    clusterer = hand_set_clusterer()
    cluster_codes = clusterer.model.clustering.forward

    def predict_three(z: Tensor, k_max: int | None = None) -> SetPrediction:
        return replace(cluster_codes(z, k_max), count=torch.tensor([[0.1, 0.2, 0.6, 0.1]]).log())

    monkeypatch.setattr(clusterer.model.clustering, "forward", predict_three)
    X = np.array([[0.0, 0.0]] * 5 + [[3.0, 0.0]] * 5)
    with pytest.warns(UserWarning, match="3 clusters are most probable, but only 2 have members"):
        clusterer.fit_predict(X)


def test_an_lstm_with_a_metric_has_a_fixed_set_size() -> None:
    torch.manual_seed(0)
    options = ModelOptions(network="lstm", metric="full", set_size=20, k_max=3, units=8, layers=1, recurrent_units=4)
    clusterer = LearnedClustering(ClusterNetwork((2,), options).eval(), device="cpu")
    X, _ = blobs(96)
    assert clusterer.fit_predict(X).shape == (96,)
    assert clusterer.n_subsets_ == 9
    assert clusterer.fit_predict(X[:20]).shape == (20,)
    assert clusterer.n_subsets_ == 1
    with pytest.raises(ValueError, match="X has 19 items; expected 20 or more"):
        clusterer.fit_predict(X[:19])
    with pytest.raises(ValueError, match="set_size is 30; expected 20"):
        clusterer.set_params(set_size=30).fit_predict(X)


@pytest.mark.parametrize("k_max", [0, -1, 2.5, "3", True])
def test_options_out_of_range_raise(k_max: int) -> None:
    message = f"k_max is {k_max!r}; expected an integer, 1 or more, or None"
    with pytest.raises(ValueError, match=message):
        LearnedClustering("points", k_max=k_max).fit(blobs()[0])
    with pytest.raises(ValueError, match=message):
        hand_set_clusterer().set_params(k_max=k_max).fit_predict(blobs()[0])
    with pytest.raises(ValueError, match=message):
        train_clustering(PointSampler(3), k_max=k_max)
    for name in ("set_size", "n_clusters"):
        with pytest.raises(ValueError, match=f"{name} is {k_max!r}; expected an integer"):
            hand_set_clusterer().set_params(**{name: k_max}).fit_predict(blobs()[0])


@pytest.mark.parametrize("seed", [-1, 0.5])
def test_an_invalid_random_state_raises(seed: object) -> None:
    with pytest.raises(ValueError, match=f"random_state is {seed}; expected an integer, 0 or more, or None"):
        hand_set_clusterer().set_params(random_state=seed).fit_predict(blobs()[0])


def test_random_state_may_be_none() -> None:
    X = blobs()[0]
    assert (
        hand_set_clusterer().set_params(random_state=None).fit_predict(X).tolist()
        == hand_set_clusterer().fit_predict(X).tolist()
    )


def test_n_clusters_above_k_max_raises() -> None:
    with pytest.raises(ValueError, match="n_clusters is 5; expected 3 or less"):
        hand_set_clusterer().set_params(n_clusters=5, k_max=3).fit_predict(blobs()[0])


def test_numpy_integers_are_accepted() -> None:
    assert hand_set_clusterer().set_params(n_clusters=np.int64(2)).fit_predict(blobs()[0]).max() == 1


def test_items_instead_of_a_sampler_raise() -> None:
    with pytest.raises(ValueError, match="sampler is of type ndarray; expected a sampler"):
        train_clustering(blobs()[0])  # type: ignore[arg-type]


def test_new_items_get_the_cluster_of_their_neighbours() -> None:
    X, truth = blobs(80, 4)
    seen = np.arange(80) % 4 > 0
    clusterer = hand_set_clusterer().set_params(k_max=5).fit(X[seen])
    both = np.concatenate([clusterer.labels_, clusterer.predict(X[~seen])])
    assert score(np.concatenate([truth[seen], truth[~seen]]), both).mr == 0
    assert clusterer.predict(X[:1]).tolist() == clusterer.labels_[:1].tolist()


def test_labels_for_another_number_of_clusters() -> None:
    X, truth = blobs()
    clusterer = hand_set_clusterer().fit(X)
    assert score(truth, clusterer.labels_for(3)).mr == 0
    assert len(set(clusterer.labels_for(2).tolist())) == 2
    for k in (0, 61, 1.5):
        with pytest.raises(ValueError, match="expected"):
            clusterer.labels_for(k)  # type: ignore[arg-type]


def test_noise_is_for_tables_only() -> None:
    with pytest.raises(ValueError, match="noise is True; expected False"):
        hand_set_clusterer().set_params(noise=True).fit(blobs()[0])
