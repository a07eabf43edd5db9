from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from entourage import __version__


def run(*arguments: object, debug: bool = False, rank: int = 0) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "entourage", *map(str, arguments)]
    environment = {"PATH": "/usr/bin:/bin", "ENTOURAGE_DEBUG": "1" if debug else "", "RANK": str(rank)}
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    environment["ENTOURAGE_PROGRESS_SECONDS"] = "0"
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


def test_version_and_help() -> None:
    assert run("--version").stdout.strip() == __version__
    shown = run("--help")
    assert shown.returncode == 0
    listed = [line.strip("│ ").partition(" ")[0] for line in shown.stdout.partition("Commands")[2].splitlines()]
    commands = ["label", "embed", "cluster", "engrave", "detect", "read", "serve", "demo", "doctor"]
    assert [name for name in listed if name in commands] == commands


def test_only_the_main_process_prints() -> None:
    result = run("--version", rank=1)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_invalid_input_is_one_line_with_exit_code_2(tmp_path: Path) -> None:
    result = run("label", tmp_path / "nowhere", "--labels", tmp_path / "l.csv", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert result.stderr.startswith("entourage: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("detekt", "no such command 'detekt'"),
        ("detect run", "missing argument 'PAGES'"),
        ("detect run page.png --threshold 2", "invalid value for '--threshold'"),
        ("label photos --labelz known.csv", "no such option: --labelz"),
    ],
)
def test_usage_errors_are_one_line_that_names_the_help(words: str, message: str) -> None:
    result = run(*words.split())
    name = " ".join(words.split()[: 2 if "detect run" in words else int("label" in words)])
    command = f"entourage {name}".strip()  # after "python -m", as the test calls it
    assert result.returncode == 2
    assert result.stderr.startswith(f"entourage: {message}")
    assert result.stderr.endswith(f"{command} --help`)\n")
    assert (result.stderr.count("\n"), result.stdout) == (1, "")


def test_a_command_without_arguments_prints_its_help() -> None:
    result = run("detect")
    assert result.returncode == 2
    assert "Find the symbols on pages of music" in result.stdout + result.stderr


def test_debug_prints_the_traceback(tmp_path: Path) -> None:
    result = run("label", tmp_path / "nowhere", "--labels", "l.csv", "--out", tmp_path / "out", debug=True)
    assert "Traceback" in result.stderr


def test_warnings_are_notes_of_one_line_and_pipes_get_no_progress_bar(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[0.0], [0.1], [9.0], [9.1]]))
    (tmp_path / "l.csv").write_text("item,label\n0,low\n")
    result = run(
        *("label", tmp_path / "x.npy", "--labels", tmp_path / "l.csv", "--out", tmp_path / "out", "--n-neighbors", 1)
    )
    assert result.returncode == 0
    notes = result.stderr.splitlines()
    assert all(note.startswith("entourage: note: ") for note in notes)
    assert [expected in note for expected, note in zip(("2 of 4", "'low'"), notes, strict=True)] == [True, True]
    assert result.stdout.startswith("1 label given, 1 found")


@pytest.mark.parametrize("option", ["--preset", "--seed", "--n-neighbors"])
def test_options_out_of_range_raise(tmp_path: Path, option: str) -> None:
    result = run("label", tmp_path, "--labels", "l.csv", "--out", "o", option, "-1")
    assert result.returncode == 2
    assert option in result.stderr


def test_file_names_that_are_not_utf_8_are_printed_unchanged() -> None:
    code = r"import sys, typer, entourage.cli; m = sys.modules['entourage.cli.main']"
    code += r"; m.app = lambda **_: typer.echo('caf\udce9'); m.main()"
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, env=strict, check=True)
    assert result.stdout == b"caf\xe9\n"
