"""Rows of networks and baselines on 2D points: which there are, what they are measured on, and what is shipped."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from experiments.cluster_rows import NETWORK, Data, scores_of
from experiments.ledger import Ledger
from torch import Tensor, nn

from entourage.cluster import ClusterNetwork, PointSampler, evaluate, load_network, save_network
from entourage.cluster.evaluation import mean_scores
from entourage.cluster.models.options import ModelOptions
from entourage.cluster.sampling.points import UNEQUAL_FRACTION, VARIED_FRACTION
from experiments import cluster_points

TINY = ModelOptions(k_max=3, width=16, depth=1, heads=2, code=8, frequencies=8)


def make_options(tmp_path: Path, **more: Any) -> Namespace:
    defaults = {"sets": 3, "large_sets": 2, "small": True, "device": "cpu", "runs": tmp_path, "ship": None}
    return Namespace(**defaults | more)


def tiny(seed: int = 0) -> ClusterNetwork:
    torch.manual_seed(seed)
    network = ClusterNetwork((2,), TINY)
    network.notes = {"steps": "7", "seconds": "60"}
    return network


@pytest.fixture
def small_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Large sets that are not."""
    monkeypatch.setattr(cluster_points, "LARGE_N", 60)
    monkeypatch.setattr(cluster_points, "SIZES", (24, 30))


@pytest.mark.usefixtures("small_sets")
def test_a_network_has_rows_of_unequal_clusters_and_of_large_sets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = tiny()
    monkeypatch.setattr(cluster_points, "trained", lambda *_: network)
    ledger, options = Ledger("toy", tmp_path), make_options(tmp_path)
    cluster_points.measure(ledger, "default", 0, options)
    cluster_points.measure(ledger, "thesis", 1, options)
    key = "default, seed 0"
    beyond = [f"{what}: {key}" for what in ("large", "twenty", "shuffled", "growth 24", "growth 30")]
    assert set(ledger.rows) == {key, f"unequal: {key}", *beyond, "thesis, seed 1", "unequal: thesis, seed 1"}
    row = ledger.rows[f"unequal: {key}"]
    expected = scores_of(network, PointSampler(5, unequal=1), 3, 200, "cpu")
    assert {name: row[name] for name in expected} == expected
    assert "training_minutes" not in row  # they count once
    assert (ledger.rows[key]["steps"], ledger.rows[key]["training_minutes"]) == (7, 1)
    page = cluster_points._text(ledger)
    assert "\nClusters of unequal size, 5 points or more, n = 200, k = 1 to 5." in page
    assert page.count("LSTM, preset thesis") == 2


def test_a_network_that_reads_sets_of_one_size_has_no_other_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lstm = ModelOptions(network="lstm", k_max=5, metric="euclidean", set_size=72, layers=1, units=8, recurrent_units=4)
    network = ClusterNetwork((2,), lstm)
    network.notes = tiny().notes
    monkeypatch.setattr(cluster_points, "trained", lambda *_: network)
    ledger = Ledger("toy", tmp_path)
    cluster_points.measure(ledger, "thesis+euclidean", 0, make_options(tmp_path))
    assert list(ledger.rows) == ["thesis+euclidean, seed 0"]
    assert "unequal" not in cluster_points._text(ledger)


def test_baselines_have_rows_of_unequal_clusters_and_a_setting_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(cluster_points, "baseline_rows", lambda ledger, *args: calls.append(args))
    monkeypatch.setattr("sys.argv", f"x --networks none --sets 3 --small --results {tmp_path}".split())
    cluster_points.main()
    (defaults, *_), (mixed, sets, n, features, prefix) = calls
    assert {one.unequal for one in (defaults.train, defaults.validation, defaults.test)} == {0}
    assert {one.unequal for one in (mixed.train, mixed.validation, mixed.test)} == {1}
    assert (sets, n, prefix) == (3, 200, "unequal: ")
    assert torch.equal(features(torch.ones(2)), torch.ones(2))
    assert (tmp_path / "cluster_points.md").is_file()


class TwoHalves(nn.Module):
    """Parts every set in two, by where points lie or by where they stand in the row."""

    def __init__(self, by_position: bool) -> None:
        super().__init__()
        self.by_position = by_position

    def forward(self, x: Tensor) -> Any:
        position = torch.arange(x.shape[1]).expand(x.shape[:2])
        labels = position < x.shape[1] // 2 if self.by_position else x[..., 0] > 0.5
        return Namespace(clusters=lambda: labels.long())


def test_nothing_is_trained_for_rows_that_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, options = Ledger("toy", tmp_path), make_options(tmp_path)
    for key in cluster_points.rows_of("thesis+full", 0, options):
        ledger.add(key, {}, 1.0)
    monkeypatch.setattr(cluster_points, "trained", lambda *_: pytest.fail("trained again"))
    cluster_points.measure(ledger, "thesis+full", 0, options)
    assert list(ledger.rows) == ["thesis+full, seed 0"]


@pytest.mark.parametrize(
    ("name", "varied", "unequal"),
    [("default", VARIED_FRACTION, UNEQUAL_FRACTION), ("varied", 1, 0.5), ("thesis", 0, 0)],
)
def test_networks_train_on_the_sets_of_their_options(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, varied: float, unequal: float
) -> None:
    samplers: list[PointSampler] = []

    def trained(name: str, data: Data, *_: object) -> ClusterNetwork:
        samplers.append(data.train)  # type: ignore[arg-type]
        return tiny()

    monkeypatch.setattr(cluster_points, "trained", trained)
    cluster_points.train_or_load(name, 0, tmp_path, make_options(tmp_path))
    assert (samplers[0].varied, samplers[0].unequal) == (varied, unequal)


@pytest.mark.usefixtures("small_sets")
def test_dependence_on_the_order_is_detected(tmp_path: Path) -> None:
    fair = cluster_points.shuffled_row(TwoHalves(by_position=False), make_options(tmp_path))  # type: ignore[arg-type]
    assert fair == {"sets": 5, "sets_changed": 0, "points_moved": 0}
    swayed = cluster_points.shuffled_row(TwoHalves(by_position=True), make_options(tmp_path))  # type: ignore[arg-type]
    assert swayed["sets_changed"] == 1
    assert 0.3 < swayed["points_moved"] <= 0.5  # clusters agree only by chance


def test_time_is_measured_on_a_copy() -> None:
    network = tiny().train()
    row = cluster_points.growth_row(network, 24, "cpu")
    assert (row["n"], row["mebibytes"]) == (24, None)
    assert row["seconds"] > 0
    assert network.training


def test_the_best_seed_on_validation_sets_is_shipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {f"small-cluster_points-default-{seed}": value for seed, value in enumerate((0.3, 0.1, 0.2))}
    rates["cluster_points-default-3"] = 0.0  # a real one, not to be mixed with rehearsals
    for seed, (run, value) in enumerate(rates.items()):
        network = tiny(seed)
        network.notes["rate"] = str(value)
        save_network(network, tmp_path / run / NETWORK)

    def rate(network: ClusterNetwork, options: Namespace) -> float:
        return float(network.notes["rate"])

    monkeypatch.setattr(cluster_points, "scores_of_validation", rate)
    options = make_options(tmp_path, ship=tmp_path / "points.safetensors")
    cluster_points.ship(Ledger("cluster_points", tmp_path), options)
    shipped = load_network(options.ship)
    assert shipped.notes["run"] == "small-cluster_points-default-1"
    assert (shipped.notes["items"], shipped.notes["steps"]) == ("points", "7")
    for name, value in tiny(1).state_dict().items():
        torch.testing.assert_close(shipped.state_dict()[name], value, atol=2e-3, rtol=2e-3)  # half precision


def test_nothing_is_shipped_where_there_is_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no trained default network; expected one"):
        cluster_points.ship(
            Ledger("cluster_points", tmp_path), make_options(tmp_path, ship=tmp_path / "points.safetensors")
        )


def test_validation_sets_are_of_both_kinds_and_not_those_of_the_table(tmp_path: Path) -> None:
    network, options = tiny(), make_options(tmp_path, sets=4)
    rate = cluster_points.scores_of_validation(network, options)
    assert rate == cluster_points.scores_of_validation(network, options)
    equal, unequal = (
        mean_scores(evaluate(network, sampler, 4, n)).mr
        for sampler, n in ((PointSampler(5), 72), (PointSampler(5, unequal=1), 200))
    )
    assert rate == pytest.approx((equal + unequal) / 2)
    assert equal != scores_of(network, PointSampler(5), 4, 72, "cpu")["mr"]
