"""Tests of the names of shipped networks, and of the shipped network for points on the documented examples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_circles, make_moons

from entourage.cluster import LearnedClustering
from entourage.cluster.evaluation import score
from entourage.cluster.models import network as shipped


def test_the_shipped_network_solves_the_examples_of_the_documentation() -> None:
    points = LearnedClustering("points", device="cpu")
    for x, truth in (
        make_moons(200, noise=0.05, random_state=0),
        make_circles(400, noise=0.05, factor=0.5, random_state=0),
        make_blobs(90, centers=np.array([[0, 0], [6, 1], [2, 7]]), random_state=0),
    ):
        assert score(truth, points.fit_predict(x)).mr == 0


@pytest.mark.parametrize(("positions", "copies"), [(1, 2), (2, 1), (3, 1), (3, 30), (9, 5)])
def test_there_are_no_more_clusters_than_distinct_points(positions: int, copies: int) -> None:
    X = np.repeat(np.random.default_rng(0).normal(size=(positions, 2)), copies, axis=0)
    points = LearnedClustering("points", device="cpu")
    points.fit_predict(X)
    assert points.count_probabilities_[positions:].sum() < 1e-6
    assert points.count_probabilities_[points.n_clusters_ - 1] > 0.5


def test_more_points_than_one_set_are_clustered_correctly() -> None:
    centers = np.array([[column, row] for column in (0, 10, 20, 30) for row in (0, 10)])
    x, truth = make_blobs(1500, centers=centers, random_state=0)
    points = LearnedClustering("points", device="cpu", set_size=500)
    assert score(truth, points.fit_predict(x)).mr == 0


@pytest.mark.parametrize(("scale", "origin"), [(1.0, 5e6), (1e30, 0.0), (1e-30, 0.0), (1e-3, -40.0)])
def test_the_shipped_network_is_invariant_to_units_and_origin(scale: float, origin: float) -> None:
    x, truth = make_moons(100, noise=0.04, random_state=0)
    points = LearnedClustering("points", device="cpu")
    assert score(truth, points.fit_predict(scale * x + origin)).mr == 0


def test_names_are_those_of_the_files_and_others_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    (tmp_path / "cluster-stars.safetensors").write_bytes(b"")
    assert shipped.shipped_networks() == ["stars"]
    with pytest.raises(ValueError, match="model 'moons': no such file; expected a file, or one of: stars"):
        shipped.find_weights("moons")
    assert shipped.find_weights("stars") == tmp_path / "cluster-stars.safetensors"


def test_a_name_has_priority_over_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("points").write_bytes(b"something else")
    assert shipped.find_weights("points") == shipped.WEIGHTS / "cluster-points.safetensors"
    assert shipped.find_weights("./points") == Path("points")
    assert shipped.find_weights(Path("points")) == Path("points")
