import re
from pathlib import Path

import numpy as np
import pytest
from tests.engrave.conftest import run_in_process
from typer.testing import CliRunner

from entourage.cli.engrave import _FORMATS_HELP
from entourage.cli.main import app
from entourage.engrave.align import Alignment, DeformationField
from entourage.engrave.dataset import pipeline
from entourage.engrave.options import FORMATS

SCORE = """<score-partwise><part-list><score-part id="P1"><part-name>V</part-name></score-part></part-list>
<part id="P1">
<measure number="1"><attributes><divisions>1</divisions><clef><sign>G</sign><line>2</line></clef></attributes>
<note><pitch><step>A</step><octave>4</octave></pitch><duration>2</duration><type>half</type></note></measure></part>
</score-partwise>"""


def run(*arguments: str | Path) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["engrave", *map(str, arguments)])
    return result.exit_code, result.output if not result.exception else result.output + str(result.exception)


@pytest.fixture(autouse=True)
def small_pages_in_this_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "run_tasks", run_in_process)
    monkeypatch.chdir(tmp_path)
    Path("small.toml").write_text("workers = 1\n[page]\nwidth = 600\nheight = 400\ninterline = 10\n")
    Path("tiny.toml").write_text("[page]\ninterline = 1\n")


@pytest.fixture
def scores(tmp_path: Path) -> Path:
    (tmp_path / "scores").mkdir()
    (tmp_path / "scores" / "a.xml").write_text(SCORE)
    return tmp_path / "scores"


SIZE = ("--config", "small.toml", "--fonts", "Leipzig")


def test_the_word_run_is_optional(tmp_path: Path, scores: Path) -> None:
    code, text = run(scores, "--out", tmp_path / "one", *SIZE)
    assert code == 0
    assert "1 page of 1 score," in text
    code, _ = run("run", scores, "--out", tmp_path / "two", *SIZE)
    assert code == 0
    first = (tmp_path / "one" / "symbols.parquet").read_bytes()
    assert first == (tmp_path / "two" / "symbols.parquet").read_bytes()


def test_broken_scores_are_skipped_with_exit_code_1(tmp_path: Path, scores: Path) -> None:
    (scores / "bad.xml").write_text("<")
    code, text = run(scores, "--out", tmp_path / "out", *SIZE, "--formats", "coco")
    assert code == 1
    assert "skipped bad-leipzig" in text
    assert not (tmp_path / "out" / "segmentation").exists()


def test_formats_may_be_spaced_and_are_listed_in_the_help(tmp_path: Path, scores: Path) -> None:
    code, _ = run(scores, "--out", tmp_path / "out", *SIZE, "--formats", "coco, instances")
    assert code == 0
    assert (tmp_path / "out" / "instances").is_dir()
    assert (tmp_path / "out" / "coco_train.json").is_file()
    assert not (tmp_path / "out" / "segmentation").exists()
    assert all(name in _FORMATS_HELP for name in FORMATS)
    code, _ = run(scores, "--out", tmp_path / "table", *SIZE, "--formats", "parquet")
    found = {p.name for p in (tmp_path / "table").iterdir()}
    assert found == {".state", "images", "sources", "symbols.parquet", "pages.csv", "failures.csv", "manifest.json"}


def test_invalid_options_raise(tmp_path: Path, scores: Path) -> None:
    for arguments, message in (
        (("--formats", "pdf"), "format 'pdf' is unknown"),
        (("--fonts", "Comic"), "font 'Comic' is unknown"),
        (("--config", "tiny.toml"), "tiny.toml: page: interline is 1.0"),
        (("--seed", "-3"), "--seed"),
    ):
        code, text = run(scores, "--out", tmp_path / "out", *arguments)
        assert code != 0
        assert message in text
    assert not (tmp_path / "out").exists()


def test_stats_and_show(tmp_path: Path, scores: Path) -> None:
    out = tmp_path / "out"
    run(scores, "--out", out, *SIZE)
    code, text = run("stats", out)
    assert code == 0
    assert re.search(r"symbols (a|per) page", text)
    assert "rarest: 0" in text
    assert re.search(r"classes without symbols: (\w+, ){9}\w+ and \d+ more\n", text)
    assert (out / "stats" / "contact_sheet.png").is_file()
    page = out / "images" / "a-leipzig-1.png"
    code, text = run("show", page, "--out", tmp_path / "truth.png")
    assert code == 0
    assert (tmp_path / "truth.png").is_file()
    before = page.read_bytes(), (out / "symbols.parquet").read_bytes()
    (out / "images" / "other.png").write_bytes(page.read_bytes())
    for target in (page, out / "images" / "other.png", out / "symbols.parquet"):
        code, text = run("show", page, "--out", target)
        assert code != 0
        assert "expected" in text
    assert (page.read_bytes(), (out / "symbols.parquet").read_bytes()) == before
    code, text = run("show", page, "--layers", "colours")
    assert code != 0
    assert "layer 'colours' is unknown" in text


def test_crops_of_rare_symbols(tmp_path: Path) -> None:
    out = tmp_path / "out"
    code, _ = run("--compose", "1", "--out", out, *SIZE, "--formats", "coco")
    assert code == 0
    code, text = run("crops", out, "--out", tmp_path / "crops.parquet", "--max-frequency", "0.05")
    assert code == 0
    assert "crops of" in text


def test_align_prints_residuals_and_missing_symbols(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[Path] = []

    def write_alignment(scan: Path, page: Path, out: Path) -> Alignment:
        received.extend((scan, page, out))
        field = DeformationField(np.zeros(2), np.ones(2), np.zeros((2, 6, 6)))
        return Alignment(np.eye(3), field, np.zeros((9, 9), np.uint8), 200, 190, 0.24, 1.26, 0.97, (3,))

    monkeypatch.setattr("entourage.engrave.align.write_alignment", write_alignment)
    code, text = run("align", tmp_path / "photo.jpg", tmp_path / "page.png")
    assert code == 0
    assert received == [tmp_path / "photo.jpg", tmp_path / "page.png", Path("aligned/photo")]
    assert "190 of 200 patches match (median 0.2 pixels, 95th percentile 1.3): aligned/photo" in text
    assert "note: 1 symbol of the page does not match the scan" in text
