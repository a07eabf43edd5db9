from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer
from benchmarks.kill_commands import Ended, check_message, compare, digest_tree, without_times
from benchmarks.kill_inputs import CASES

from entourage.cli.main import app, leaf_commands

ROOT = Path(__file__).parents[2]


def test_every_command_that_writes_files_has_a_case() -> None:
    commands = {name for name, _ in leaf_commands(typer.main.get_command(app))}
    without = {"demo", "doctor", "serve"}  # one report; no files; a server, whose store has tests of its own
    assert {case.name.removesuffix(" --train") for case in CASES} == commands - without


def test_compare_names_each_difference() -> None:
    expected = {"a": "1", "b": "2", "c": "3"}
    assert compare(expected, expected) == []
    assert compare(expected, {"a": "1", "b": "9", ".d": "4"}) == ["lacks c", "leaves .d", "changes b"]


def test_durations_are_not_compared_and_all_else_is(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text(json.dumps({"seconds": 1.25, "items": 3}))
    first = digest_tree(tmp_path)
    path.write_text(json.dumps({"seconds": 0.5, "items": 3}))
    assert digest_tree(tmp_path) == first
    path.write_text(json.dumps({"seconds": 0.5, "items": 4}))
    assert digest_tree(tmp_path) != first
    pages = tmp_path / "pages.csv"
    pages.write_text("page,seconds,note\na,0.31,x\n")
    assert without_times(pages) == b"page,note\na,x"


@pytest.mark.parametrize(
    ("code", "errors", "problem"),
    [
        (2, "entourage: out/a.csv: no space left on device; expected free space, or another folder\n", None),
        (2, "entourage: out: cannot be written to (Read-only file system); expected a folder to write to\n", None),
        (1, "entourage: out/a.csv: permission denied; expected permission\n", "exit code 1"),
        (2, "entourage: [Errno 28] No space left on device\n", "without file or remedy"),
        (2, "Traceback: KeyError('x')\n", "traceback"),
        (2, "", "0 lines"),
    ],
)
def test_messages_need_a_file_and_a_remedy(code: int, errors: str, problem: str | None) -> None:
    found = check_message(Ended(code, errors, 0.0))
    assert (found == []) if problem is None else (problem in found[0])


@pytest.mark.skipif(sys.platform != "linux", reason="forks of a process with loaded libraries")
def test_a_command_survives_all_trials() -> None:
    command = [sys.executable, "-m", "benchmarks.kill_commands", "--kills", "1", "--commands", "cluster run"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "0 problems" in done.stdout
