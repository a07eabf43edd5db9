"""Options that verbs share."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from entourage.cli.common import MOST_SEED
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
@pytest.mark.parametrize("seed", [-1, MOST_SEED + 1])
def test_a_seed_has_the_same_bounds_everywhere(words: tuple[str, ...], seed: int) -> None:
    result = CliRunner().invoke(app, [*words, "--seed", str(seed)])
    assert result.exit_code == 2
    assert "--seed" in result.output


@pytest.mark.parametrize("words", [words[:2] for words in COMMANDS[:4]], ids=" ".join)
def test_a_device_is_described_alike_everywhere(words: tuple[str, ...]) -> None:
    told = CliRunner().invoke(app, [*words, "--help"], env={"COLUMNS": "200"}).output
    (line,) = (line for line in told.splitlines() if "--device" in line)
    assert "auto, cpu, cuda, ..." in line
