"""Options that commands share."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from entourage.cli.common import MAX_SEED
from entourage.cli.main import app

COMMANDS = (
    ("cluster", "run", "x.csv"),
    ("cluster", "train", "x", "--out", "y"),
    ("detect", "train", "x", "--out", "y"),
    ("embed", "train", "x", "--out", "y"),
    ("engrave", "run", "x"),
    ("label", "x", "--labels", "y", "--out", "z", "--train"),
)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("seed", [-1, MAX_SEED + 1])
def test_seed_has_the_same_bounds_in_all_commands(words: tuple[str, ...], seed: int) -> None:
    result = CliRunner().invoke(app, [*words, "--seed", str(seed)])
    assert result.exit_code == 2
    assert "--seed" in result.output


@pytest.mark.parametrize("words", [words[:2] for words in COMMANDS[:4]], ids=" ".join)
def test_device_has_the_same_help_in_all_commands(words: tuple[str, ...]) -> None:
    output = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).output
    (line,) = (line for line in output.splitlines() if "--device" in line)
    assert "auto, cpu, cuda, ..." in line
