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


def trained() -> LearnedClustering:
    """A clusterer whose network was set, not trained: clusters are what lies close together."""
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


def test_clusters_their_number_and_their_probabilities_are_found() -> None:
    X, truth = blobs()
    clusterer = trained()
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


def test_order_does_not_matter() -> None:
    X, _ = blobs()
    order = np.random.default_rng(1).permutation(len(X))
    straight, shuffled = trained().predict(X), trained().predict(X[order])
    assert score(straight[order], shuffled).mr == 0


def test_data_larger_than_a_set_are_clustered_as_a_whole() -> None:
    X, truth = blobs(450, 4)
    clusterer = trained().set_params(k_max=5)
    assert score(truth, clusterer.predict(X)).mr == 0
    assert clusterer.n_clusters_ == 4


def test_a_set_is_as_large_as_the_network_was_trained_with() -> None:
    X, _ = blobs(90, 3)
    sizes: list[int] = []
    clusterer = trained().set_params(set_size=None)
    clusterer.network_.register_forward_pre_hook(lambda _, inputs: sizes.append(inputs[0].shape[1]))
    clusterer.predict(X)
    assert sizes == [90]
    clusterer.network_.notes["set_size"] = "40"
    clusterer.predict(X)
    assert max(sizes[1:]) == 40
    clusterer.set_params(set_size=60).predict(X)
    assert 60 in sizes


def test_a_known_number_can_be_given_and_a_larger_one_asked_for() -> None:
    X, _ = blobs()
    assert trained().set_params(n_clusters=2).predict(X).max() == 1
    wide = trained().set_params(k_max=7)
    wide.predict(X)
    assert wide.count_probabilities_.shape == (7,)
    with pytest.raises(ValueError, match="61 clusters were asked for; expected 1 to 60, the items there are"):
        trained().set_params(n_clusters=61).predict(X)


def test_a_known_number_may_be_larger_than_any_the_network_was_trained_with() -> None:
    rng = np.random.default_rng(0)
    truth = np.arange(72) % 6  # the network counts to four
    X = 3.0 * np.stack([truth % 3, truth // 3], axis=1) + 0.1 * rng.normal(size=(72, 2))
    assert score(truth, trained().set_params(n_clusters=6).predict(X)).mr == 0
    options = ModelOptions(network="lstm", k_max=3, units=8, layers=1, recurrent_units=4)
    clusterer = LearnedClustering(n_clusters=4, device="cpu")
    clusterer.network_ = ClusterNetwork((2,), options).eval()
    with pytest.raises(ValueError, match="4 clusters were asked for; expected 1 to 3, the most this network finds"):
        clusterer.predict(X)


def test_where_counting_ended_too_early_it_is_told() -> None:
    X, truth = blobs(60, 4)
    with pytest.warns(UserWarning, match=r"number of clusters is 4, the largest .* raise k_max \(--max-clusters\)"):
        trained().predict(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert score(truth, trained().set_params(k_max=5).predict(X)).mr == 0
        trained().set_params(n_clusters=4).predict(X)  # known, so nothing is to be found
        trained().predict([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0], [3.0, 3.0]])  # there cannot be more


def test_fit_learns_from_a_sampler_and_a_file_keeps_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = Curriculum(
        base_size=12, base_clusters=3, base_fraction=1.0, min_size=12, max_size=12, sets=4, min_cluster_size=4
    )
    recipe = Recipe(steps=3, curriculum=sizes, validation=2, epoch=3)
    monkeypatch.setitem(PRESETS, "tiny", Preset(SMALL))
    before = torch.get_rng_state()
    clusterer = LearnedClustering("tiny", recipe=recipe, device="cpu").fit(PointSampler(3), progress=False)
    assert torch.equal(torch.get_rng_state(), before)  # what others draw is not its business
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


def test_the_lines_of_the_documentation_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[2] / "docs" / "cluster.md").read_text(encoding="utf-8")
    lines = text.split("```python\n")[1].split("```")[0]
    assert lines.count(", minutes=1") == 1
    lines = lines.replace(", minutes=1", "")  # two steps are enough here
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(PRESETS, "default", Preset(SMALL))
    monkeypatch.setattr(task_module, "DEFAULT_STEPS", 2)
    names: dict[str, Any] = {}
    exec(lines, names)
    assert names["model"].n_clusters_ == 2
    assert names["mine"].training_result_.steps == 2
    assert LearnedClustering.load("mine.safetensors").network_.shape == (64,)


def test_pairs_alone_are_enough_to_learn_from_and_to_validate_with() -> None:
    sizes = Curriculum(
        base_size=6, base_clusters=2, base_fraction=1.0, min_size=6, max_size=6, sets=2, min_cluster_size=2
    )
    recipe = Recipe(steps=2, curriculum=sizes, validation=2, epoch=2)
    X, truth = blobs(12)
    pairs = [(i, j) for i in range(12) for j in range(i)]
    must, cannot = ([p for p in pairs if (truth[p[0]] == truth[p[1]]) == same] for same in (True, False))
    clusterer = LearnedClustering(recipe=recipe, device="cpu").fit(ConstraintSampler(X, must, cannot), progress=False)
    assert 0 <= clusterer.training_result_.metrics["mr"] <= 1


def test_images_are_learned_and_clustered_too() -> None:
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
        ([[0.0, 1.0, 2.0]] * 3, "the network was trained for"),
        ([0.0, 1.0], "expected .items, 2."),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_bad_data_are_refused(X: object, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        trained().predict(X)  # type: ignore[arg-type]


def test_it_clones_and_says_when_it_has_not_learned() -> None:
    fresh = clone(trained())
    assert fresh.get_params()["set_size"] == 100
    with pytest.raises(NotFittedError, match="call fit, or load"):
        fresh.predict([[0.0, 1.0]] * 3)


def test_ties_leave_no_cluster_empty() -> None:
    probabilities = np.array([[0.5, 0.5, 0.0], [0.0, 0.6, 0.4], [0.1, 0.6, 0.3], [0.2, 0.2, 0.6]])
    labels, ordered = module._order_by_size(probabilities)
    assert labels.tolist() == [1, 0, 0, 2]
    np.testing.assert_allclose(ordered, probabilities[:, [1, 0, 2]])
    labels, ordered = module._order_by_size(np.array([[0.6, 0.1, 0.3], [0.6, 0.2, 0.2]]))
    assert labels.tolist() == [0, 0]
    assert ordered.tolist() == [[1], [1]]


def test_fewer_clusters_than_asked_for_are_told_of() -> None:
    X = np.array([[0.0, 0.0]] * 5 + [[3.0, 0.0]] * 5)
    clusterer = trained().set_params(n_clusters=3)
    with pytest.warns(UserWarning, match="3 clusters were asked for, 2 have members"):
        clusterer.predict(X)
    assert clusterer.n_clusters_ == 2


def test_fewer_clusters_than_are_likeliest_are_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    clusterer = trained()
    cluster_codes = clusterer.network_.clustering.forward

    def sees_three(z: Tensor, k_max: int | None = None) -> SetPrediction:
        return replace(cluster_codes(z, k_max), count=torch.tensor([[0.1, 0.2, 0.6, 0.1]]).log())

    monkeypatch.setattr(clusterer.network_.clustering, "forward", sees_three)
    X = np.array([[0.0, 0.0]] * 5 + [[3.0, 0.0]] * 5)
    with pytest.warns(UserWarning, match="3 clusters are likeliest, 2 have members"):
        clusterer.predict(X)


def test_a_network_that_reads_distances_has_its_own_size_of_sets() -> None:
    torch.manual_seed(0)
    options = ModelOptions(network="lstm", metric="full", set_size=20, k_max=3, units=8, layers=1, recurrent_units=4)
    clusterer = LearnedClustering(device="cpu")
    clusterer.network_ = ClusterNetwork((2,), options).eval()
    X, _ = blobs(96)
    assert clusterer.predict(X).shape == (96,)
    assert clusterer.n_subsets_ == 9
    assert clusterer.predict(X[:20]).shape == (20,)
    assert clusterer.n_subsets_ == 1
    with pytest.raises(ValueError, match="X has 19 items; this network reads sets of 20, expected as many or more"):
        clusterer.predict(X[:19])
    with pytest.raises(ValueError, match="set_size is 30; this network reads sets of 20"):
        clusterer.set_params(set_size=30).predict(X)


@pytest.mark.parametrize("k_max", [0, -1, 2.5, "3", True])
def test_options_out_of_range_are_refused(k_max: int) -> None:
    message = f"k_max is {k_max!r}; expected a whole number, 1 or more, or None"
    with pytest.raises(ValueError, match=message):
        LearnedClustering.load("points", k_max=k_max)
    with pytest.raises(ValueError, match=message):
        trained().set_params(k_max=k_max).predict(blobs()[0])
    with pytest.raises(ValueError, match=message):
        LearnedClustering(k_max=k_max).fit(PointSampler(3))
    for name in ("set_size", "n_clusters"):
        with pytest.raises(ValueError, match=f"{name} is {k_max!r}; expected a whole number"):
            trained().set_params(**{name: k_max}).predict(blobs()[0])


@pytest.mark.parametrize("seed", [-1, 0.5])
def test_a_random_state_that_is_none_is_refused(seed: object) -> None:
    with pytest.raises(ValueError, match=f"random_state is {seed}; expected a whole number, 0 or more, or None"):
        trained().set_params(random_state=seed).predict(blobs()[0])


def test_chance_needs_no_seed() -> None:
    X = blobs()[0]
    assert trained().set_params(random_state=None).predict(X).tolist() == trained().predict(X).tolist()


def test_more_clusters_than_there_may_be_are_refused() -> None:
    with pytest.raises(ValueError, match="n_clusters is 5; expected 3 or less"):
        trained().set_params(n_clusters=5, k_max=3).predict(blobs()[0])


def test_numbers_of_numpy_are_whole_numbers_too() -> None:
    assert trained().set_params(n_clusters=np.int64(2)).predict(blobs()[0]).max() == 1


def test_items_are_no_sampler() -> None:
    with pytest.raises(ValueError, match="fit was given a ndarray; expected a sampler"):
        LearnedClustering().fit(blobs()[0])  # type: ignore[arg-type]
