from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from entourage.cli.main import app
from entourage.cli.serve import StrategyName
from entourage.label.active_learning import Strategy
from entourage.serve import server
from entourage.serve.labelling.session import SessionConfig


def run(*arguments: str) -> Exception | None:
    error = CliRunner().invoke(app, list(arguments)).exception
    assert error is None or isinstance(error, Exception)
    return error


def test_a_folder_of_no_command_raises(tmp_path: Path) -> None:
    assert "expected the output folder of a command" in str(run("serve", str(tmp_path)))


def test_the_strategies_are_those_of_the_library() -> None:
    assert StrategyName == Strategy


def test_label_requires_labels_and_a_folder_unless_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[SessionConfig] = []
    monkeypatch.setattr(server, "serve_labelling", lambda config, options: opened.append(config))
    source = tmp_path / "photos.csv"
    source.touch()
    assert "--labels and --out: missing; expected" in str(run("label", str(source)))
    assert "--out: missing; expected" in str(run("label", str(source), "--labels", "x.csv"))
    assert "--serve" in str(run("label", str(source), "--serve", "--train"))
    assert run("label", str(source), "--serve", "--n-neighbors", "5", "--no-browser") is None
    assert (opened[0].out, opened[0].initial) == (Path("photos-labels"), None)
    assert opened[0].transduction["n_neighbors"] == 5
