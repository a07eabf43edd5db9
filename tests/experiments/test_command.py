"""Every experiment reports errors in one line."""

from __future__ import annotations

import argparse
import ast
import runpy
import sys
from pathlib import Path

import pytest
from experiments.command import one_or_more, run_command
from experiments.ledger import RESULTS


def fails(error: Exception) -> None:
    raise error


@pytest.mark.parametrize("error", [ValueError("two\nlines"), FileNotFoundError("two lines")])
def test_bad_input_is_one_line_and_exit_code_2(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ENTOURAGE_DEBUG", raising=False)
    monkeypatch.setattr(sys, "argv", ["somewhere/label_cifar10.py"])
    with pytest.raises(SystemExit) as ended:
        run_command(lambda: fails(error))
    assert ended.value.code == 2
    assert capsys.readouterr() == ("", "label_cifar10: two lines\n")


def test_mistakes_of_our_own_and_errors_that_are_asked_for_keep_their_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(KeyError):
        run_command(lambda: fails(KeyError("a")))
    monkeypatch.setenv("ENTOURAGE_DEBUG", "1")
    with pytest.raises(ValueError, match="bad"):
        run_command(lambda: fails(ValueError("bad")))


def test_what_goes_well_is_left_alone() -> None:
    done: list[int] = []
    run_command(lambda: done.append(1))
    assert done == [1]


@pytest.mark.parametrize("name", ["label_cifar10", "label_fractions", "label_search", "cluster_images", "embed_cost"])
def test_a_missing_data_set_is_reported_in_one_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("ENTOURAGE_DEBUG", raising=False)
    monkeypatch.setenv("ENTOURAGE_DATA", str(tmp_path))
    words = ["--out" if name.startswith("embed") else "--results", str(tmp_path / "results"), "--device", "cpu"]
    monkeypatch.setattr(sys, "argv", [f"{name}.py", *words])
    monkeypatch.delitem(sys.modules, f"experiments.{name}", raising=False)
    with pytest.raises(SystemExit) as ended:
        runpy.run_module(f"experiments.{name}", run_name="__main__")
    assert ended.value.code == 2
    output = capsys.readouterr().err
    assert output.startswith(f"{name}: ")
    assert str(tmp_path) in output
    assert output.count("\n") == 1
    assert not list(tmp_path.rglob("*.json"))  # nothing was kept as measured


def test_every_experiment_is_called_so() -> None:
    for file in (RESULTS.parent / "experiments").glob("*.py"):
        blocks = [node for node in ast.parse(file.read_text()).body if isinstance(node, ast.If)]
        for block in blocks:
            assert "run_command(" in ast.unparse(block), file


def test_numbers_are_one_or_more() -> None:
    assert one_or_more("12") == 12
    for text in ("0", "-1", "1.5", "two"):
        with pytest.raises(argparse.ArgumentTypeError, match=f"'{text}': expected 1 or more"):
            one_or_more(text)
