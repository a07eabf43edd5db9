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
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


def test_version_and_help() -> None:
    assert run("--version").stdout.strip() == __version__
    shown = run("--help")
    assert shown.returncode == 0
    assert {"label", "demo"} <= set(shown.stdout.split())


def test_of_several_processes_only_the_main_one_speaks() -> None:
    result = run("--version", rank=1)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


def test_bad_input_is_one_line_and_exit_code_two(tmp_path: Path) -> None:
    result = run("label", tmp_path / "nowhere", "--labels", tmp_path / "l.csv", "--out", tmp_path / "out")
    assert result.returncode == 2
    assert result.stderr.startswith("entourage: ")
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("detekt", "no such command 'detekt'"),
        ("detect run", "missing argument 'PAGES'"),
        ("detect run page.png --threshold 2", "invalid value for '--threshold'"),
        ("label photos --labelz known.csv", "no such option: --labelz"),
    ],
)
def test_words_that_are_none_are_one_line_that_leads_to_the_help(words: str, said: str) -> None:
    result = run(*words.split())
    verb = " ".join(words.split()[: 2 if "detect run" in words else int("label" in words)])
    command = f"entourage {verb}".strip()  # behind "python -m", as the test calls it
    assert result.returncode == 2
    assert result.stderr.startswith(f"entourage: {said}")
    assert result.stderr.endswith(f"{command} --help` tells what is expected)\n")
    assert (result.stderr.count("\n"), result.stdout) == (1, "")


def test_a_verb_without_words_shows_its_help() -> None:
    result = run("detect")
    assert result.returncode == 2
    assert "Find every symbol on pages of music." in result.stdout + result.stderr


def test_debug_shows_where_an_error_came_from(tmp_path: Path) -> None:
    result = run("label", tmp_path / "nowhere", "--labels", "l.csv", "--out", tmp_path / "out", debug=True)
    assert "Traceback" in result.stderr


def test_warnings_are_notes_of_one_line_and_bars_are_silent_in_pipes(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[0.0], [0.1], [9.0], [9.1]]))
    (tmp_path / "l.csv").write_text("item,label\n0,low\n")
    result = run(
        *("label", tmp_path / "x.npy", "--labels", tmp_path / "l.csv", "--out", tmp_path / "out", "--n-neighbors", 1)
    )
    assert result.returncode == 0
    notes = ["no label reaches 2 of 4 points: they stay undecided"]
    notes += ["a single class is labelled, so that all items that it reaches are 'low'"]
    assert result.stderr == "".join(f"entourage: note: {note}\n" for note in notes)
    assert result.stdout.startswith("1 label given, 1 found")


@pytest.mark.parametrize("option", ["--preset", "--metric", "--n-neighbors"])
def test_options_out_of_range_are_refused(tmp_path: Path, option: str) -> None:
    result = run("label", tmp_path, "--labels", "l.csv", "--out", "o", option, "0")
    assert result.returncode == 2
    assert option in result.stderr


def test_a_name_that_is_not_utf_8_goes_out_as_it_is() -> None:
    code = r"import sys, typer, entourage.cli; m = sys.modules['entourage.cli.main']"
    code += r"; m.app = lambda **_: typer.echo('caf\udce9'); m.main()"
    strict = {**os.environ, "PYTHONIOENCODING": "utf-8:strict"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=120, env=strict, check=True)
    assert result.stdout == b"caf\xe9\n"
