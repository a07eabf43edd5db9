"""`python -m entourage` is the command line."""

from __future__ import annotations

import runpy
import sys

import pytest
from typer.testing import CliRunner

from entourage.cli.main import app


def run_module(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Run the package as a module; return the exit code."""
    monkeypatch.setattr(sys, "argv", ["entourage", *arguments])
    with pytest.raises(SystemExit) as stopped:
        runpy.run_module("entourage", run_name="__main__")
    return int(stopped.value.code or 0)


def test_the_module_prints_the_version_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_module(monkeypatch, "--version") == 0
    assert capsys.readouterr().out == CliRunner().invoke(app, ["--version"]).output != ""


def test_invalid_input_has_the_exit_code_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_module(monkeypatch, "nonsense") == 2
    assert "nonsense" in capsys.readouterr().err
