"""Experiments go on where they were stopped, measure nothing twice, and keep failures apart."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from experiments.cells import Cell, Experiment, Ledger, Table, markdown, mean_and_spread, pace, plan, run_experiment

from experiments import cells


class Work:
    """Cells that count how often they are asked."""

    def __init__(self, names: str = "abc") -> None:
        self.names = names
        self.asked: list[str] = []
        self.stop_at = ""

    def cell(self, name: str) -> Cell:
        def work(ledger: Ledger) -> Mapping[str, Any]:
            if name == self.stop_at:
                raise KeyboardInterrupt
            self.asked.append(name)
            if name == "f":
                raise ValueError("the loss is not finite")
            before = ledger.values(chr(ord(name) - 1))
            return {"value": 1.0 if before is None else before["value"] + 1, "curve": [1, 2]}

        return Cell(name, work, seconds=60.0)

    def experiment(self, **settings: Any) -> Experiment:
        def tables(ledger: Ledger) -> list[Table]:
            rows = [(name, str((ledger.values(name) or {}).get("value"))) for name in self.names]
            return [Table("Values", [("cell", "value"), *rows], "What was measured.")]

        return Experiment(
            "toy", "A toy", [self.cell(name) for name in self.names], tables, settings, "How it was done."
        )


def test_an_interrupted_run_goes_on_where_it_was(tmp_path: Path) -> None:
    work = Work()
    work.stop_at = "c"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(work.experiment(), tmp_path)
    assert sorted(json.loads((tmp_path / "toy.json").read_text())["cells"]) == ["a", "b"]
    assert "1 of 3 cells are still to be measured" in (tmp_path / "toy.md").read_text()
    work.stop_at = ""
    ledger = run_experiment(work.experiment(), tmp_path)
    assert work.asked == ["a", "b", "c"]
    assert ledger.values("c") == {"value": 3.0, "curve": [1, 2]}  # from what the first run had written
    assert run_experiment(work.experiment(), tmp_path).cells == ledger.cells
    assert work.asked == ["a", "b", "c"]


def test_a_failure_is_kept_and_the_rest_goes_on(tmp_path: Path) -> None:
    work = Work("efg")
    ledger = run_experiment(work.experiment(), tmp_path)
    assert "f" in ledger
    assert ledger.values("f") is None
    assert ledger.cells["f"]["values"] == {"failed": "the loss is not finite"}
    assert ledger.values("g") == {"value": 1.0, "curve": [1, 2]}
    run_experiment(work.experiment(), tmp_path)
    assert work.asked == ["e", "f", "g"]


def test_no_cell_is_begun_that_would_end_too_late(tmp_path: Path) -> None:
    work = Work()
    run_experiment(work.experiment(), tmp_path, minutes=0.5)
    assert work.asked == []  # each is planned to take a minute
    assert not (tmp_path / "toy.json").exists()
    run_experiment(work.experiment(), tmp_path, minutes=1.5)
    assert work.asked == ["a", "b", "c"]  # the first took far less than planned, so the others are let in
    assert pace(work.experiment().cells, Ledger(tmp_path / "toy.json", {})) < 0.1


def test_the_plan_says_what_is_left(tmp_path: Path) -> None:
    work = Work()
    assert plan(work.experiment(), tmp_path) == "toy: 3 of 3 cells left, about 3.0 minutes"
    Ledger(tmp_path / "toy.json", {}).add("a", {}, 120.0)
    assert plan(work.experiment(), tmp_path) == "toy: 2 of 3 cells left, about 4.0 minutes"  # twice as slow as planned
    assert work.asked == []


def test_other_settings_are_refused(tmp_path: Path) -> None:
    work = Work()
    run_experiment(work.experiment(epochs=5, sets=("cub", "cars")), tmp_path)
    run_experiment(work.experiment(epochs=5, sets=("cub", "cars")), tmp_path)
    with pytest.raises(
        ValueError, match=r"toy.json was made with epochs 5, now 6; use the same, or move the file away"
    ):
        run_experiment(work.experiment(epochs=6, sets=("cub", "cars")), tmp_path)
    assert sorted(Ledger(tmp_path / "toy.json").cells) == ["a", "b", "c"]  # to read it, any will do
    (tmp_path / "toy.json").write_text("[]")
    with pytest.raises(ValueError, match="holds no results of an experiment"):
        Ledger(tmp_path / "toy.json", {})


def test_the_page_tells_command_machine_and_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cells, "machine", lambda: "an abacus")
    ledger = Ledger(tmp_path / "toy.json", {})
    ledger.add("a", {"value": 7}, 90.0)
    cells.write_page(Work("a").experiment(), ledger, tmp_path, "python -m experiments.toy --fast")
    assert (tmp_path / "toy.md").read_text() == (
        "## A toy\n\n`python -m experiments.toy --fast`\n\nHow it was done.\n\n### Values\n\nWhat was measured.\n\n"
        "| cell | value |\n|---|---|\n| a | 7 |\n\n1.5 minutes on an abacus.\n"
    )


def test_tables_and_numbers() -> None:
    assert markdown([("a", "b|c")]) == "| a | b\\|c |\n|---|---|"
    assert mean_and_spread([]) == ""
    assert mean_and_spread([0.5], scale=100) == "50.0"
    assert mean_and_spread([1.0, 2.0, 3.0], digits=2) == "2.00 ± 1.00"  # of a sample, divided by n - 1


def test_the_command_leaves_out_what_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["/x/experiments/toy.py", "--minutes", "3", "--seeds", "2", "--out=/tmp/x"])
    assert cells.command_line() == "python -m experiments.toy --seeds 2"


def test_options_run_or_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["toy.py"])
    work = Work()
    cells.main(work.experiment(), cells.arguments("").parse_args(["--plan", "--out", str(tmp_path)]))
    assert capsys.readouterr().out == "toy: 3 of 3 cells left, about 3.0 minutes\n"
    cells.main(work.experiment(), cells.arguments("").parse_args(["--out", str(tmp_path)]))
    shown = capsys.readouterr().out
    assert shown.startswith("a: value 1 (")
    assert "## A toy" in shown
