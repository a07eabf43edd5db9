from __future__ import annotations

import sys
from pathlib import Path

import pytest
from benchmarks.kill_inputs import CASES

from benchmarks import busy_commands


def test_run_measures_a_command_with_a_number_of_threads(tmp_path: Path) -> None:
    assert busy_commands.run(["doctor"], tmp_path) > 0
    with pytest.raises(RuntimeError, match="detect run missing"):
        busy_commands.run(["detect", "run", "missing"], tmp_path, 1)


def test_measure_starts_in_a_folder_with_the_inputs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "plane.csv").write_text("x,y\n1,2\n")
    seen: list[object] = []

    def run(words: list[str], folder: Path, threads: int | None) -> float:
        seen.append((words, [path.name for path in folder.iterdir()], threads))
        return 1.5

    monkeypatch.setattr(busy_commands, "run", run)
    case = next(case for case in CASES if case.name == "cluster run")
    assert busy_commands.measure(case, inputs, tmp_path, 1) == 1.5
    assert busy_commands.measure(case, inputs, tmp_path, None) == 1.5
    assert seen == [(case.words, ["plane.csv"], 1), (case.words, ["plane.csv"], None)]


def test_a_command_that_is_slower_than_with_one_thread_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["busy_commands", "--quiet", "--commands", "cluster run"])
    monkeypatch.setattr(busy_commands, "prepare", lambda *_: None)
    monkeypatch.setattr(busy_commands, "measure", lambda case, inputs, work, threads: 3.0 if threads is None else 1.0)
    assert busy_commands.main() == 1
    assert "3.00 x" in capsys.readouterr().out
    monkeypatch.setattr(busy_commands, "measure", lambda *_: 1.0)
    assert busy_commands.main() == 0
