"""Each network is trained by one process, and tables show the measured seeds."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import pytest
from experiments.cluster_rows import (
    TEST_SETS,
    Data,
    chosen_networks,
    measure_networks,
    open_ledger,
    run_dir_name,
    scores_table,
    trained,
)
from experiments.ledger import RESULTS, Ledger
from experiments.locks import BusyError, exclusive

from entourage.cluster import Curriculum, PointSampler, Recipe

OPTIONS = Namespace(networks="default,thesis", seeds="0,1", small=True, minutes=1e-4, device="cpu", start=None)


def test_a_network_that_another_process_is_at_is_left_to_it(tmp_path: Path) -> None:
    ledger, measured = Ledger("toy", tmp_path), []
    with Ledger("toy", tmp_path).lock("all of thesis, seed 0"):
        measure_networks(ledger, OPTIONS, lambda name, seed: measured.append((name, seed)))
    assert measured == [("default", 0), ("default", 1), ("thesis", 1)]  # seed by seed


def test_a_network_that_is_busy_is_come_back_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, measured, waits = Ledger("toy", tmp_path), [], []
    monkeypatch.setattr("time.sleep", waits.append)

    def measure(name: str, seed: int) -> None:
        if (name, seed) == ("default", 0) and not waits:
            raise BusyError
        measured.append((name, seed))

    measure_networks(ledger, OPTIONS, measure)
    assert measured == [("thesis", 0), ("default", 1), ("thesis", 1), ("default", 0)]
    assert len(waits) == 1


def test_a_run_has_one_process_and_its_network_is_kept(tmp_path: Path) -> None:
    points = PointSampler(5)
    sizes = replace(Curriculum(), sets=2, max_size=80)
    recipe = Recipe(curriculum=sizes, validation=2, epoch=2, warmup=1)
    run = tmp_path / "run"
    with exclusive(run), pytest.raises(BusyError, match="run: locked by another process; expected"):
        trained("default", Data(points, points, points), recipe, run, OPTIONS)
    first = trained("default", Data(points, points, points), recipe, run, OPTIONS)
    written = (run / "network.safetensors").stat().st_mtime_ns
    again = trained("default", Data(points, points, points), recipe, run, OPTIONS)
    assert (run / "network.safetensors").stat().st_mtime_ns == written  # loaded, not trained again
    assert again.notes == first.notes
    options = Namespace(**{**vars(OPTIONS), "start": str(run / "network.safetensors")})
    longer = trained("default", Data(points, points, points), recipe, tmp_path / "longer", options)
    assert int(longer.notes["steps"]) > int(first.notes["steps"])  # those of both
    assert longer.notes["from"].startswith("network.safetensors, ")
    with pytest.raises(ValueError, match=r"network.safetensors: another network than 'thesis'; expected"):
        trained("thesis", Data(points, points, points), recipe, tmp_path / "other", options)


def test_a_table_is_made_of_the_seeds_that_are_known(tmp_path: Path) -> None:
    ledger = Ledger("toy", tmp_path)
    assert scores_table(ledger, "", {}) == ""
    for seed, mr in enumerate((0.1, 0.3)):
        figures = dict.fromkeys(("greedy_mr", "nmi", "nmi_geometric", "ari", "k_right", "k_error"), 0.5)
        ledger.add(f"default, seed {seed}", {"steps": 100 + 50 * seed, "mr": mr, **figures}, 1.0)
    rows = scores_table(ledger, "", {"default": ("0.004", "0.993")}).splitlines()[2:]
    half = "0.500 ± 0.000"
    expected = ("default (attention)", "2", "125", "0.200 ± 0.141", *(half,) * 6, "0.004", "0.993")
    assert rows == ["| " + " | ".join(expected) + " |"]


def make_options(**more: object) -> Namespace:
    return Namespace(**{"small": False, "sets": TEST_SETS, "results": None, **more})


def test_rows_of_a_rehearsal_and_real_ones_do_not_mix(tmp_path: Path) -> None:
    real, small = make_options(results=tmp_path), make_options(results=tmp_path, small=True)
    open_ledger("real", real).add("a", {}, 1.0)
    open_ledger("small", small).add("a", {}, 1.0)
    assert "a" in open_ledger("real", real)
    assert "a" in open_ledger("small", small)
    for name, options in (("real", small), ("small", real), ("real", make_options(results=tmp_path, sets=4))):
        with pytest.raises(ValueError, match="expected the same settings"):
            open_ledger(name, options)
    assert (
        open_ledger("other", make_options()).path.parent
        == RESULTS
        != open_ledger("other", make_options(small=True)).path.parent
    )
    assert run_dir_name("t", "default", 0, real) == "t-default-0"  # as ever
    assert run_dir_name("t", "default", 0, small) == "small-t-default-0"


@pytest.mark.parametrize("name", ["cluster_points", "cluster_images", "cluster_speakers"])
def test_what_was_measured_can_be_added_to(name: str) -> None:
    assert "thesis, seed 0" in open_ledger(name, make_options())
    with pytest.raises(ValueError, match="small None, now True; expected the same settings or another folder"):
        open_ledger(name, make_options(small=True, results=RESULTS))


def test_unknown_networks_are_bad_input() -> None:
    assert chosen_networks(Namespace(networks="none", seeds="0")) == []
    with pytest.raises(ValueError, match="--networks: a, b unknown; expected some of default, "):
        chosen_networks(Namespace(networks="b,default,a", seeds="0"))
