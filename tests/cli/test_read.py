from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from entourage.cli.main import app
from entourage.read import pipeline
from entourage.read.pipeline import ReadConfig

SUMMARY: dict[str, Any] = {
    "pages": 2,
    "notes": 1,
    "measures": 3,
    "marked": 1,
    "scores": [
        {"pages": [{"source": "a.png", "message": "no staves found"}]},
        {"pages": [{"source": "b.png", "message": ""}]},
    ],
    "skipped": [],
}


@pytest.fixture
def configs(monkeypatch: pytest.MonkeyPatch) -> list[ReadConfig]:
    """Return the configurations that the command passes on, instead of running them."""
    found: list[ReadConfig] = []

    def run(config: ReadConfig) -> dict[str, Any]:
        found.append(config)
        return SUMMARY

    monkeypatch.setattr(pipeline, "run_reading", run)
    return found


def test_options_are_passed_on(configs: list[ReadConfig], tmp_path: Path) -> None:
    (tmp_path / "c.toml").write_text('tempo = 60.0\nrepeats = false\ntranspose = "M3"\n')
    arguments = ["read", "a.png", "b.pdf", "--out", "o", "--join", "--format", "mei", "--transpose", "-m3"]
    arguments += ["--workers", "3", "--device", "cpu", "--config", str(tmp_path / "c.toml")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    expected = ReadConfig([Path("a.png"), Path("b.pdf")], Path("o"), join=True, extra_format="mei", transpose="-m3")
    expected.workers, expected.device, expected.tempo, expected.repeats = 3, "cpu", 60.0, False
    assert configs == [expected]


def test_the_summary_is_one_line_with_notes(configs: list[ReadConfig]) -> None:
    result = CliRunner().invoke(app, ["read", "a.png"])
    assert result.stdout == "2 pages, 1 note: scores/report.html\n"
    assert result.stderr.splitlines() == [
        "entourage: note: a.png: no staves found",
        "entourage: note: 1 of 3 measures do not add up; report.html marks them",
    ]
    assert configs == [ReadConfig([Path("a.png")], Path("scores"))]


def test_the_summary_can_be_json(configs: list[ReadConfig]) -> None:
    result = CliRunner().invoke(app, ["read", "a.png", "--json"])
    assert json.loads(result.stdout) == SUMMARY


def test_skipped_pages_have_exit_code_1(configs: list[ReadConfig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SUMMARY, "skipped", [{"item": "c.png", "reason": "not an image"}])
    result = CliRunner().invoke(app, ["read", "a.png"])
    assert result.exit_code == 1
    assert result.stderr.splitlines()[-1] == "entourage: skipped c.png: not an image"


def test_a_page_without_music_is_read_to_the_end(tmp_path: Path) -> None:
    Image.new("L", (200, 200), 255).save(tmp_path / "a.png")
    out = tmp_path / "o"
    result = CliRunner().invoke(app, ["read", str(tmp_path / "a.png"), "--out", str(out), "--device", "cpu"])
    assert result.exit_code == 0, result.output
    assert result.stderr.strip() == f"entourage: note: {tmp_path / 'a.png'}: no staves found"
    assert sorted(path.name for path in out.iterdir()) == ["a.json", "report.html", "summary.json"]


@pytest.mark.parametrize("arguments", [["--tempo", "0"], ["--workers", "0"], ["--format", "pdf"], []])
def test_wrong_arguments_are_errors(arguments: list[str]) -> None:
    pages = ["a.png"] if arguments else []
    assert CliRunner().invoke(app, ["read", *pages, *arguments]).exit_code == 2
