"""Cost, the whole way on toys."""

from __future__ import annotations

from pathlib import Path

from experiments.cells import run_experiment
from experiments.embed_cost import cost_experiment, first_epoch_near_the_last
from experiments.embed_trials import Bench


def test_cost_tells_seconds_and_epochs_and_on_a_cpu_no_memory(one_set: Bench, tmp_path: Path) -> None:
    ledger = run_experiment(cost_experiment(one_set), tmp_path, say=False)
    timed = ledger.values("cub200/proxy-nca/time 0")
    assert timed is not None
    assert timed.keys() == {"seconds"}  # the peak of a program never falls: it would be another loss'
    (row,) = [line for line in (tmp_path / "embed_cost.md").read_text().splitlines() if "| proxy-nca |" in line]
    assert row.split("|")[3].strip() == ""


def test_nearly_the_last_is_the_first_epoch_that_comes_close() -> None:
    assert first_epoch_near_the_last([0.1, 0.48, 0.6, 0.5]) == 2
    assert first_epoch_near_the_last([0.1, 0.2, 0.5]) == 3
