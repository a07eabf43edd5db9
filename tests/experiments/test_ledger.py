"""Rows are measured once, stored at once and never lost, with any number of processes."""

from __future__ import annotations

import json
import os
import shutil
import signal
from functools import partial
from multiprocessing import get_context
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import pytest
from experiments.ledger import RESULTS, Ledger, _without_folder, command_line, ledger_of, run_name

FORK = get_context("fork")  # see test_locks
KEYS = [f"row/{number}: a" for number in range(30)]


@pytest.fixture(autouse=True)
def abacus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.ledger.machine", lambda: "an abacus")
    monkeypatch.setattr("sys.argv", ["/x/experiments/toy.py", "--seeds", "2", "--runs", "/a/b/runs"])


def stored(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "toy.json").read_text())
    return content


def test_a_row_is_found_once_and_kept_with_its_origin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = []

    def find() -> dict[str, Any]:
        asked.append(1)
        return {"value": 0.5, "training_minutes": 3.0, "curve": [1]}

    row = Ledger("toy", tmp_path).row("a", find)
    assert row is not None
    assert row["minutes"] == pytest.approx(3.0, abs=0.1)  # what was spent earlier counts
    assert capsys.readouterr().out.startswith("a: value 0.5, training_minutes 3 (180.")
    ledger = Ledger("toy", tmp_path)
    assert ledger.row("a", find) == row
    assert asked == [1]
    assert stored(tmp_path) == {"name": "toy", "rows": {"a": row}}
    about = {"machine": "an abacus", "command": "python -m experiments.toy --seeds 2 --runs runs"}
    assert about.items() <= row.items()
    assert ledger.values("a") == {"value": 0.5, "training_minutes": 3.0, "curve": [1]}
    assert ledger.values("b") is None
    ledger.add("b", {"failed": "the loss is not finite"}, 1.0)
    assert "b" in ledger
    assert ledger.values("b") is None


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"ours": {"seconds": 1.25, "gigabytes": 2.0}, "theirs": {"seconds": 3.0}}, "ours: seconds 1.25, gigabytes 2;"),
        ({"training": [0.5, 0.25], "test": [0.5]}, "training: 2 values; test: 1 values"),
        ({"mAP": 0.5, "classes": {"stem": [1, 0.5]}}, "mAP 0.5"),  # what is single stands for the row
        ({"curves": {"test": [1, 2, 3]}, "empty": None}, "curves: test: 3 values"),
    ],
)
def test_a_line_summarises_every_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, Any], line: str
) -> None:
    Ledger("toy", tmp_path).row("a", lambda: values)
    output = capsys.readouterr().out
    assert output.startswith(f"a: {line} ")
    Ledger("toy", tmp_path).row("b", lambda: {f"loss {number}": {"seconds": 1.0} for number in range(99)})
    long = capsys.readouterr().out
    assert long.startswith("b: loss 0: seconds 1; loss 1: seconds 1;")
    assert len(long) < 150


def test_rows_of_a_rehearsal_and_real_ones_do_not_mix(tmp_path: Path) -> None:
    ledger_of("real", tmp_path).add("a", {}, 1.0)
    ledger_of("small", tmp_path, small=True).add("a", {}, 1.0)
    assert "a" in ledger_of("real", tmp_path)
    assert "a" in ledger_of("small", tmp_path, small=True)
    with pytest.raises(ValueError, match="small None, now True; expected the same settings or another folder"):
        ledger_of("real", tmp_path, small=True)
    with pytest.raises(ValueError, match="small True, now None; expected the same settings or another folder"):
        ledger_of("small", tmp_path)
    with pytest.raises(ValueError, match="sets None, now 4; expected the same settings or another folder"):
        ledger_of("small", tmp_path, {"sets": 4}, small=True)
    real, small = ledger_of("no such experiment"), ledger_of("no such experiment", small=True)
    assert real.path.parent == RESULTS
    assert RESULTS not in (small.path.parent, *small.path.parents)
    assert run_name("detect") == "detect"
    assert run_name("detect", small=True) == "small-detect"


def test_nothing_is_kept_of_a_row_that_fails(tmp_path: Path) -> None:
    ledger = Ledger("toy", tmp_path)
    with pytest.raises(ZeroDivisionError):
        ledger.row("a", lambda: {"value": 1 / 0})
    assert ledger.missing(["a"]) == ["a"]
    assert not (tmp_path / "toy.json").exists()


def test_other_settings_are_refused(tmp_path: Path) -> None:
    ledger = Ledger("toy", tmp_path, {"epochs": 5, "sets": ("cub", "cars")})
    ledger.add("a", {}, 1.0)
    Ledger("toy", tmp_path, {"epochs": 5, "sets": ["cub", "cars"]}).add("b", {}, 1.0)
    with pytest.raises(ValueError, match=r"toy.json: .*epochs 5, now 6; expected the same settings"):
        Ledger("toy", tmp_path, {"epochs": 6, "sets": ("cub", "cars")})
    Ledger("toy", tmp_path).add("c", {}, 1.0)  # any will do, and they stay
    assert stored(tmp_path)["settings"] == {"epochs": 5, "sets": ["cub", "cars"]}
    assert sorted(stored(tmp_path)["rows"]) == ["a", "b", "c"]
    for nonsense in ("[]", "{", '{"rows": 3}'):
        (tmp_path / "toy.json").write_text(nonsense)
        with pytest.raises(ValueError, match=r"toy.json: not a result file; expected JSON"):
            Ledger("toy", tmp_path)


def test_of_nested_settings_only_differences_are_reported(tmp_path: Path) -> None:
    Ledger("toy", tmp_path, {"recipe": {"size": 32, "loss": {"name": "group", "rounds": 1}}}).add("a", {}, 1.0)
    with pytest.raises(ValueError, match=r"toy.json: .*recipe.loss.rounds 1, now 2; expected the same"):
        Ledger("toy", tmp_path, {"recipe": {"size": 32, "loss": {"name": "group", "rounds": 2}}})
    with pytest.raises(ValueError, match=r"toy.json: .*recipe.loss.sharp 'not set', now None; expected the same"):
        Ledger("toy", tmp_path, {"recipe": {"size": 32, "loss": {"name": "group", "rounds": 1, "sharp": None}}})


def test_rows_of_others_are_never_lost(tmp_path: Path) -> None:
    one, two = Ledger("toy", tmp_path), Ledger("toy", tmp_path)
    one.add("a", {"value": 1}, 60.0)
    two.add("b", {"value": 2}, 30.0)
    assert list(two.rows) == ["a", "b"]
    one.write_table("A toy", lambda ledger: ", ".join(ledger.rows))
    assert (tmp_path / "toy.md").read_text() == (
        "## A toy\n\na, b\n\n"
        "`python -m experiments.toy --seeds 2 --runs runs`: 1.5 minutes, summed over all rows, on an abacus.\n"
    )
    two.add("c", {}, 1.0)
    one.write(".svg", lambda ledger: str(len(ledger.rows)))
    assert (tmp_path / "toy.svg").read_text() == "3"


def test_a_row_that_another_process_measures_is_not_returned(tmp_path: Path) -> None:
    one, two = Ledger("toy", tmp_path), Ledger("toy", tmp_path)
    assert two.missing(["a", "b"]) == ["a", "b"]

    def find() -> dict[str, Any]:
        assert two.row("a", lambda: pytest.fail("it is being measured")) is None
        assert two.missing(["a", "b"]) == ["b"]
        return {"value": 1}

    row = one.row("a", find)
    assert "a" not in two.rows
    assert two.row("a", lambda: pytest.fail("it has been measured")) == row
    assert two.missing(["a", "b"]) == ["b"]


def test_stored_rows_are_read_and_stay_unchanged(tmp_path: Path) -> None:
    for path in RESULTS.glob("cluster_*.json"):
        shutil.copy(path, tmp_path)
        before = json.loads(path.read_text())
        ledger = Ledger(path.stem, tmp_path)
        assert ledger.rows == before["rows"]
        ledger.add("one more", {}, 1.0)
        after = json.loads((tmp_path / path.name).read_text())
        del after["rows"]["one more"]
        assert after == before


def work(folder: Path, trace: Path, meeting: Barrier) -> None:
    """Run the toy experiment in a process and write the measured rows to a trace."""
    ledger = Ledger("toy", folder)
    met = False

    def measure(key: str) -> dict[str, Any]:
        nonlocal met
        if not met:  # each has claimed a row before either has finished one
            meeting.wait(60)
            met = True
        with trace.open("a") as file:
            file.write(f"{os.getpid()} {key}\n")
        return {"pid": os.getpid()}

    for key in KEYS:
        ledger.row(key, partial(measure, key), verbose=False)
    ledger.write_table("A toy", lambda ledger: f"{len(ledger.rows)} rows")


def test_two_processes_share_the_rows(tmp_path: Path) -> None:
    trace, meeting = tmp_path / "trace", FORK.Barrier(2)
    children = [FORK.Process(target=work, args=(tmp_path, trace, meeting)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join(120)
    assert [child.exitcode for child in children] == [0, 0]
    lines = [line.split(maxsplit=1) for line in trace.read_text().splitlines()]
    assert sorted(key for _, key in lines) == sorted(KEYS)  # each once
    assert {key: row["pid"] for key, row in stored(tmp_path)["rows"].items()} == {key: int(pid) for pid, key in lines}
    assert len({pid for pid, _ in lines}) == 2
    assert "30 rows" in (tmp_path / "toy.md").read_text()  # by the one that ended last
    assert not list(tmp_path.glob(".*"))  # no claim is left


def test_the_row_of_a_killed_process_is_free_again(tmp_path: Path) -> None:
    started = FORK.Event()

    def hang() -> dict[str, Any]:
        started.set()
        signal.pause()
        return {}

    def start() -> None:
        ledger = Ledger("toy", tmp_path)
        ledger.row("a", lambda: {"by": "child"}, verbose=False)
        ledger.row("b", hang, verbose=False)

    child = FORK.Process(target=start)
    child.start()
    assert started.wait(60)
    ledger = Ledger("toy", tmp_path)
    assert ledger.row("b", lambda: pytest.fail("it is being measured")) is None
    assert ledger.missing(["a", "b"]) == []
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(60)
    assert ledger.missing(["a", "b"]) == ["b"]
    row = ledger.row("b", lambda: {"by": "parent"})
    assert row is not None
    assert {key: one["by"] for key, one in stored(tmp_path)["rows"].items()} == {"a": "child", "b": "parent"}


def test_commands_are_kept_without_folders_and_what_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("/a/b/c", "clean=/a/b", "--x", "a/b", "7")
    assert [_without_folder(word) for word in words] == ["c", "clean=b", "--x", "a/b", "7"]
    monkeypatch.setattr("sys.argv", ["/x/toy.py", "--minutes", "3", "--seeds", "2", "--out=/tmp/x", "a b"])
    assert command_line(("--minutes", "--out")) == "python -m experiments.toy --seeds 2 'a b'"


def test_jobs_of_other_processes_are_left_to_them(tmp_path: Path) -> None:
    done: list[str] = []
    jobs = {name: partial(done.append, name) for name in ("a", "b", "c")}
    with Ledger("x", tmp_path).lock("all of b"):
        Ledger("x", tmp_path).run_jobs(jobs)
    assert done == ["a", "c"]
