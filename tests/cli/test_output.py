"""`--json`, `--quiet` and `--verbose` of every command; exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from typer.testing import CliRunner

from entourage.cli import output
from entourage.cli.main import EXAMPLES, app, leaf_commands
from entourage.cli.output import describe_error, note, report, report_skipped
from entourage.extras import MissingExtraError
from entourage.io import progress

COMMANDS = dict(leaf_commands(typer.main.get_command(app)))


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Replace the callback of `doctor` by a function, and run it with options."""

    def run(function: Callable[[], None], *options: str) -> Any:
        group = typer.main.get_command(app)
        doctor = dict(leaf_commands(group))["doctor"]
        monkeypatch.setattr(doctor, "callback", function)
        monkeypatch.setattr("typer.testing._get_command", lambda _: group)
        return CliRunner().invoke(app, ["doctor", *options])

    return run


def example() -> None:
    typer.echo("a line")
    note("a note")
    report({"mean": np.float32(0.5), "path": Path("out"), "missing": float("nan"), "rows": np.arange(2)})
    report_skipped([("a.png", "damaged")])


@pytest.mark.parametrize("words", COMMANDS)
def test_every_command_has_the_options_and_an_example(words: str) -> None:
    names = [name for parameter in COMMANDS[words].params for name in parameter.opts]
    assert {"--json", "--quiet", "--verbose"} <= set(names)
    assert len(names) == len(set(names))
    assert EXAMPLES[words].startswith(f"entourage {words}")
    assert COMMANDS[words].epilog == f"Example: {EXAMPLES[words]}"


def test_json_is_one_object(command: Callable[..., Any]) -> None:
    result = command(example, "--json")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "mean": 0.5,
        "path": "out",
        "missing": None,
        "rows": [0, 1],
        "skipped": [{"item": "a.png", "reason": "damaged"}],
    }
    assert result.stderr == "entourage: note: a note\nentourage: skipped a.png: damaged\n"


def test_json_of_a_command_without_result_has_its_lines(command: Callable[..., Any]) -> None:
    assert json.loads(command(lambda: typer.echo("a line"), "--json").stdout) == {"lines": ["a line"]}


def test_json_of_invalid_input_has_the_error(command: Callable[..., Any]) -> None:
    def fail() -> None:
        raise ValueError("x: wrong; expected y")

    result = command(fail, "--json")
    assert json.loads(result.stdout) == {"error": "x: wrong; expected y", "exit_code": 2}


def test_without_options_lines_and_notes_are_printed(command: Callable[..., Any]) -> None:
    result = command(example)
    assert (result.stdout, result.exit_code) == ("a line\n", 1)
    assert result.stderr == "entourage: note: a note\nentourage: skipped a.png: damaged\n"


def test_quiet_prints_skipped_items_only(command: Callable[..., Any]) -> None:
    quiet: list[bool] = []

    def run() -> None:
        quiet.append(progress.quiet)
        output.data_stream().write("table\n")
        example()

    result = command(run, "--quiet")
    assert (result.stdout, result.stderr) == ("table\n", "entourage: skipped a.png: damaged\n")
    assert quiet == [True]
    assert not progress.quiet


def test_verbose_prints_the_time(command: Callable[..., Any]) -> None:
    result = command(lambda: typer.echo("a line"), "--verbose")
    assert result.stdout == "a line\n"
    assert result.stderr.startswith("entourage: doctor: ")


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (ValueError("a:\n b"), ("a: b", 2)),
        (FileNotFoundError(2, "missing", "f"), ("f: no such file or directory; expected a path that exists", 2)),
        (OSError(28, "full"), ("no space left on device; expected free space, or another folder", 2)),
        (OSError("3 requested and 2 written"), ("3 requested and 2 written", 2)),
        (MissingExtraError("cv2 is not installed"), ("cv2 is not installed", 2)),
        (KeyboardInterrupt(), ("stopped", 130)),
        (output.StoppedError(), ("stopped; repeat the command to resume", 130)),
        (typer.Exit(1), ("", 1)),
    ],
)
def test_errors_have_one_line_and_an_exit_code(error: BaseException, expected: tuple[str, int]) -> None:
    assert describe_error(error) == expected


def test_other_errors_are_those_of_the_program() -> None:
    with pytest.raises(RuntimeError, match="bug"):
        describe_error(RuntimeError("bug"))


def test_entourage_alone_lists_every_command_with_its_example() -> None:
    result = CliRunner().invoke(app, [])
    assert result.exit_code == 0
    assert all(f"$ {line}\n" in result.stdout for line in EXAMPLES.values())
    assert set(EXAMPLES) == set(COMMANDS)


@pytest.mark.parametrize("words", ["label", "embed", "cluster", "engrave", "detect"])
def test_a_bare_group_prints_its_help_with_exit_code_2(words: str) -> None:
    result = CliRunner().invoke(app, [words])
    assert result.exit_code == 2
    assert "Usage: " in result.output


def test_completion_is_offered() -> None:
    code = "import sys, entourage.cli; sys.argv = ['entourage']; entourage.cli.main()"
    environment = {"_ENTOURAGE_COMPLETE": "complete_bash", "COMP_WORDS": "entourage clu", "COMP_CWORD": "1"}
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env={**environment, "PATH": ""}, check=False
    )
    assert "cluster" in result.stdout.split()


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("label x --neighbours 3", "--n-neighbors"),
        ("embed search a b --count 3", "--top-k"),
        ("engrave crops x --most 3", "--per-class"),
    ],
)
def test_former_names_of_options_name_the_present_ones(words: str, expected: str) -> None:
    code = f"import sys, entourage.cli; sys.argv = {['entourage', *words.split()]!r}; entourage.cli.main()"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr == f"entourage: {words.split()[-2]}: no longer exists; expected {expected}\n"
