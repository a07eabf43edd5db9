"""Experiments resume, measure nothing twice and store failures."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiments.cells import Cell, Experiment, FailedError, Table, plan, run_experiment, slowdown
from experiments.ledger import Ledger

from entourage.embed.losses.batch_graph import NonFiniteInputError
from entourage.training import NonFiniteLossError
from experiments import cells, ledger


class Work:
    """Cells that record their calls."""

    def __init__(self, names: str = "abc") -> None:
        self.names = names
        self.asked: list[str] = []
        self.stop_at = ""
        self.failure: Exception = NonFiniteLossError("the loss is not finite")

    def cell(self, name: str) -> Cell:
        def work(ledger: Ledger) -> Mapping[str, Any]:
            if name == self.stop_at:
                raise KeyboardInterrupt
            self.asked.append(name)
            if name == "f":
                raise self.failure
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


def test_an_interrupted_run_resumes(tmp_path: Path) -> None:
    work = Work()
    work.stop_at = "c"
    with pytest.raises(KeyboardInterrupt):
        run_experiment(work.experiment(), tmp_path)
    assert sorted(json.loads((tmp_path / "toy.json").read_text())["rows"]) == ["a", "b"]
    assert "1 of 3 cells are not measured yet" in (tmp_path / "toy.md").read_text()
    work.stop_at = ""
    ledger = run_experiment(work.experiment(), tmp_path)
    assert work.asked == ["a", "b", "c"]
    assert ledger.values("c") == {"value": 3.0, "curve": [1, 2]}  # from what the first run had written
    assert run_experiment(work.experiment(), tmp_path).rows == ledger.rows
    assert work.asked == ["a", "b", "c"]


def test_what_is_no_failure_of_the_cell_is_measured_by_the_next_run(tmp_path: Path) -> None:
    work = Work("efg")
    work.failure = ValueError("/data/cifar10: no such file or folder")
    for _ in range(2):
        with pytest.raises(ValueError, match="/data/cifar10: "):
            run_experiment(work.experiment(), tmp_path)
        assert plan(work.experiment(), tmp_path).startswith("toy: 2 of 3 cells left")
    assert work.asked == ["e", "f", "f"]


@pytest.mark.parametrize("kind", [NonFiniteLossError, NonFiniteInputError, FailedError])
def test_a_failure_is_kept_and_the_rest_resumes(tmp_path: Path, kind: type[ValueError]) -> None:
    work = Work("efg")
    work.failure = kind("the loss is not finite")
    ledger = run_experiment(work.experiment(), tmp_path)
    assert "f" in ledger
    assert ledger.values("f") is None
    assert ledger.rows["f"]["failed"] == "the loss is not finite"
    assert ledger.values("g") == {"value": 1.0, "curve": [1, 2]}
    run_experiment(work.experiment(), tmp_path)
    assert work.asked == ["e", "f", "g"]


def test_no_cell_is_started_that_would_end_too_late(tmp_path: Path) -> None:
    work = Work()
    run_experiment(work.experiment(), tmp_path, minutes=0.5)
    assert work.asked == []  # each is planned to take a minute
    assert not (tmp_path / "toy.json").exists()
    run_experiment(work.experiment(), tmp_path, minutes=1.5)
    assert work.asked == ["a", "b", "c"]  # the first took far less than planned, so the others are let in
    assert slowdown(work.experiment().cells, Ledger("toy", tmp_path, {})) < 0.1


def test_a_cell_that_is_too_long_is_passed_over_with_all_that_need_it(tmp_path: Path) -> None:
    work = Work("abcd")
    toy = work.experiment()
    first, second, third, last = toy.cells
    cells = [replace(first, seconds=600.0), replace(second, seconds=1.0, needs=("a",)), third]
    toy = replace(toy, cells=[*cells, replace(last, needs=("c",))])
    ledger = run_experiment(toy, tmp_path, minutes=2.0)
    assert work.asked == ["c", "d"]
    assert sorted(ledger.rows) == ["c", "d"]
    assert "2 of 4 cells are not measured yet" in (tmp_path / "toy.md").read_text()


def test_the_slowdown_is_that_of_this_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger, cells = Ledger("toy", tmp_path, {}), Work().experiment().cells
    ledger.add("a", {}, 30.0)
    monkeypatch.setattr("experiments.ledger.machine", lambda: "an abacus")
    ledger.add("b", {}, 6000.0)
    assert slowdown(cells, ledger) == pytest.approx(0.5)


def test_the_plan_says_what_is_left(tmp_path: Path) -> None:
    work = Work()
    assert plan(work.experiment(), tmp_path) == "toy: 3 of 3 cells left, about 3.0 minutes"
    Ledger("toy", tmp_path, {}).add("a", {}, 120.0)
    assert plan(work.experiment(), tmp_path) == "toy: 2 of 3 cells left, about 4.0 minutes"  # twice as slow as planned
    assert work.asked == []


def test_the_page_has_tables_command_machine_and_minutes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.ledger.machine", lambda: "an abacus")
    ledger = Ledger("toy", tmp_path, {}, command="python -m experiments.toy --fast")
    ledger.add("a", {"value": 7}, 90.0)
    cells.write_page(Work("ab").experiment(), ledger)
    assert (tmp_path / "toy.md").read_text() == (
        "## A toy\n\nHow it was done.\n\n### Values\n\nWhat was measured.\n\n"
        "| cell | value |\n| --- | --- |\n| a | 7 |\n| b | None |\n\n1 of 2 cells are not measured yet.\n\n"
        "`python -m experiments.toy --fast`: 1.5 minutes, summed over all rows, on an abacus.\n"
    )


def test_settings_are_those_of_the_ledger(tmp_path: Path) -> None:
    work = Work()
    run_experiment(work.experiment(epochs=5), tmp_path)
    with pytest.raises(ValueError, match=r"toy.json: .*epochs 5, now 6; expected the same settings or another folder"):
        run_experiment(work.experiment(epochs=6), tmp_path)


def test_a_cell_may_need_only_cells_before_it() -> None:
    late = replace(Work().cell("a"), needs=("b",))
    with pytest.raises(ValueError, match="'a' needs b; expected earlier cells"):
        Experiment("toy", "A toy", [late, Work().cell("b")], lambda ledger: [])


def test_what_another_process_measures_is_passed_over(tmp_path: Path) -> None:
    work = Work()
    with Ledger("toy", tmp_path, {}).lock("b"):  # a lock knows no difference between processes and open files
        ledger = run_experiment(work.experiment(), tmp_path)
    assert work.asked == ["a", "c"]
    assert sorted(ledger.rows) == ["a", "c"]


def test_a_cell_whose_need_is_being_measured_is_come_back_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work("abcd")
    toy = work.experiment()
    toy = replace(toy, cells=[*toy.cells[:1], replace(toy.cells[1], needs=("a",)), *toy.cells[2:]])
    other = Ledger("toy", tmp_path, {})
    waits: list[float] = []

    def finish(seconds: float) -> None:
        waits.append(seconds)
        assert work.asked == ["c", "d"]  # all that is free has been done
        other.add("a", {"value": 41.0}, 1.0)

    monkeypatch.setattr("time.sleep", finish)
    with other.lock("a"):
        ledger = run_experiment(toy, tmp_path)
    assert len(waits) == 1
    assert work.asked == ["c", "d", "b"]
    assert ledger.values("b") == {"value": 42.0, "curve": [1, 2]}


def test_a_need_whose_process_died_is_measured_after_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work("ab")
    toy = work.experiment()
    toy = replace(toy, cells=[toy.cells[0], replace(toy.cells[1], needs=("a",))])
    with ExitStack() as other:
        other.enter_context(Ledger("toy", tmp_path, {}).lock("a"))
        monkeypatch.setattr("time.sleep", lambda seconds: other.close())
        run_experiment(toy, tmp_path)
    assert work.asked == ["a", "b"]


def test_no_need_is_waited_for_longer_than_there_is_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    work = Work("ab")
    toy = work.experiment()
    toy = replace(toy, cells=[replace(toy.cells[0], seconds=0.0), replace(toy.cells[1], needs=("a",))])
    hours = iter(range(0, 36000, 60))
    monkeypatch.setattr("time.perf_counter", lambda: next(hours))
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    with Ledger("toy", tmp_path, {}).lock("a"):
        assert run_experiment(toy, tmp_path, minutes=10.0).rows == {}
    assert work.asked == []


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


def test_a_rehearsal_has_a_folder_of_its_own_unless_one_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["toy.py"])
    monkeypatch.setattr(ledger, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(ledger, "REHEARSED", tmp_path / "rehearsed")
    parser = cells.arguments("")
    parser.add_argument("--small", action="store_true")
    cells.main(Work().experiment(), parser.parse_args(["--small"]))
    assert {path.parent.name for path in tmp_path.rglob("toy.*")} == {"rehearsed"}
    cells.main(Work().experiment(), parser.parse_args([]))
    assert (tmp_path / "results" / "toy.md").exists()
    named = tmp_path / "named"
    assert cells.results_folder(parser.parse_args(["--small", "--out", str(named)])) == named
