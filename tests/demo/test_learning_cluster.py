from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from entourage.cluster import ClusterNetwork, ModelOptions, save_network
from entourage.cluster.models import network as shipped
from entourage.demo import learning as demo


def test_the_section_compares_three_methods_on_the_same_sets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    tiny = ModelOptions(k_max=4, width=8, depth=1, heads=2, code=4, frequencies=2)
    save_network(ClusterNetwork((2,), tiny), tmp_path / "cluster-points.safetensors")
    monkeypatch.setattr(shipped, "WEIGHTS", tmp_path)
    monkeypatch.setattr(demo, "SETS", 4)
    monkeypatch.setattr(demo, "SHOWN_SETS", 2)
    section = demo.cluster_section()
    figure, table = section.wide
    assert figure.figure.startswith("<svg")
    assert [row[0] for row in table.table] == ["method", "k-means, k by silhouette", "DBSCAN", "the network"]
    assert section.lead.startswith("4 sets of 150 points")


def test_the_figure_states_the_fraction_of_misclassified_points() -> None:
    points = np.random.default_rng(0).normal(size=(2, 10, 2))
    truth = np.repeat([[0, 1]], 5, axis=1).repeat(2, axis=0).reshape(2, 10)
    svg = demo.cluster_picture(points, truth, {"good": [truth[0], truth[1]], "bad": [truth[0] * 0, truth[1] * 0 - 1]})
    assert svg.count("all right") == 2
    assert svg.count("50.0% wrong") == 2
