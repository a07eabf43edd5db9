import csv
import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest
from PIL import Image
from tests.engrave.conftest import run_in_process
from tests.engrave.engines.test_fonts import square_font
from tests.engrave.small_runs import read_files, small_options

from entourage.engrave.dataset import pipeline
from entourage.engrave.dataset.pipeline import engrave
from entourage.engrave.dataset.pool import run_tasks
from entourage.engrave.dataset.state import STATE
from entourage.engrave.dataset.worker import Outcome
from entourage.engrave.engines.fonts import convert_font
from entourage.engrave.options import EngraveOptions, EngraveTask, MusicFont
from entourage.extras import MissingExtraError

pytestmark = pytest.mark.usefixtures("in_this_process")


def test_all_files_of_the_data_set_are_written(tmp_path: Path, songs: Path) -> None:
    out = tmp_path / "out"
    manifest = engrave(small_options(out, songs))
    assert manifest["counts"]["scores"] == manifest["counts"]["pages"] == 3
    assert manifest["failed"] == {}
    pages = {p.stem for p in (out / "images").iterdir()}
    assert pages == {"One-leipzig-1", "Two-leipzig-1", "Three-leipzig-1"}
    assert Image.open(out / "images" / "One-leipzig-1.png").size == (700, 500)
    for folder, end in (("segmentation", "_seg.png"), ("instances", "_inst.png"), ("xml_annotations", ".xml")):
        assert {p.name.removesuffix(end) for p in (out / folder).iterdir()} == pages
    assert {p.name for p in (out / "sources").iterdir()} == {f"{n}-leipzig.mxl" for n in ("One", "Two", "Three")}
    table = pd.read_parquet(out / "symbols.parquet")
    assert len(table) == manifest["counts"]["symbols"]
    assert table.groupby("work")["split"].nunique().max() == 1
    assert set(table["split"]) == {"train", "val", "test"}
    annotated = [json.loads((out / f"deepscores_{split}.json").read_text()) for split in ("train", "val", "test")]
    assert sum(len(data["annotations"]) for data in annotated) == (table["label"] != "").sum()
    sources = [image["source"] for data in annotated for image in data["images"]]
    assert len(sources) == 3
    assert all((out / source).is_file() for source in sources)
    assert (
        len(pd.read_parquet(out / "patches.parquet"))
        == (~table["label"].isin(["staff", ""]) | (table["v1"] != "")).sum()
    )
    written = json.loads((out / "manifest.json").read_text())
    assert set(written["files"]) == {n for n in read_files(out) if not n.startswith(".state") and n != "manifest.json"}
    assert written["versions"]["verovio"]
    assert written["options"]["page"]["interline"] == 10


def test_written_sources_give_the_same_page(tmp_path: Path, songs: Path) -> None:
    engrave(small_options(tmp_path / "out", songs))
    again = tmp_path / "again"
    engrave(small_options(again, tmp_path / "out" / "sources"))
    first = (tmp_path / "out" / "images" / "One-leipzig-1.png").read_bytes()
    assert (again / "images" / "One-leipzig-leipzig-1.png").read_bytes() == first


def test_any_number_of_workers_gives_the_same_bytes(
    tmp_path: Path, songs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engrave(small_options(tmp_path / "one", songs))
    monkeypatch.setattr(pipeline, "run_tasks", run_tasks)
    engrave(small_options(tmp_path / "two", songs, workers=2))
    assert read_files(tmp_path / "one") == read_files(tmp_path / "two")


def test_invalid_scores_are_listed_and_skipped(tmp_path: Path, songs: Path) -> None:
    (songs / "Bad.xml").write_text("<score-partwise><part>")
    (songs / "Bomb.xml").write_text('<!DOCTYPE x [<!ENTITY a "a">]><score-partwise>&a;</score-partwise>')
    manifest = engrave(small_options(tmp_path / "out", songs))
    assert manifest["counts"] | {"symbols": 0} == {"scores": 3, "pages": 3, "symbols": 0, "failures": 2}
    with (tmp_path / "out" / "failures.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["score"] for row in rows] == ["Bad-leipzig", "Bomb-leipzig"]
    assert "not well-formed" in rows[0]["reason"]
    assert "declares entities" in rows[1]["reason"]


def test_nothing_is_written_outside_the_output_folder(tmp_path: Path, songs: Path) -> None:
    import zipfile

    archive = tmp_path / "evil.zip"
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("../../outside.xml", (songs / "One.xml").read_text())
        opened.writestr("/absolute.xml", (songs / "Two.xml").read_text())
    before = set(read_files(tmp_path))
    manifest = engrave(small_options(tmp_path / "out", archive))
    assert len(manifest["failed"]) == 2
    assert {name for name in set(read_files(tmp_path)) - before if not name.startswith("out/")} == set()


def test_pages_with_few_symbols_are_omitted(tmp_path: Path, songs: Path) -> None:
    manifest = engrave(small_options(tmp_path / "out", songs, min_symbols=1000))
    assert manifest["counts"]["pages"] == 0
    assert all("no page has 1000 symbols" in reason for reason in manifest["failed"].values())


def test_a_second_run_in_the_same_folder_raises_an_error(
    tmp_path: Path, songs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first = small_options(out, songs)

    def run_while_locked(options: EngraveOptions, tasks: list[EngraveTask]) -> Iterator[Outcome]:
        with pytest.raises(ValueError, match=f"{out}: .*choose another folder"):
            engrave(first)
        return run_in_process(options, tasks)

    monkeypatch.setattr(pipeline, "run_tasks", run_while_locked)
    assert engrave(first)["counts"]["pages"] == 3


def test_a_missing_engine_raises_an_error(tmp_path: Path, songs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lilypond", None)
    with pytest.raises(MissingExtraError, match=r"lilypond .*; expected: pip install 'entourage\[lilypond\]'"):
        engrave(small_options(tmp_path / "out", songs, engine="lilypond"))
    assert not (tmp_path / "out").exists()


def test_a_folder_of_other_options_raises_an_error(tmp_path: Path, songs: Path) -> None:
    out = tmp_path / "out"
    engrave(small_options(out, songs))
    with pytest.raises(ValueError, match=f"{out} .*seed 0, now 1"):
        engrave(small_options(out, songs, seed=1))
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ValueError, match=r"full: .*expected an empty folder"):
        engrave(small_options(tmp_path / "full", songs))


def test_scores_in_the_output_folder_are_not_engraved(tmp_path: Path, songs: Path) -> None:
    out = songs / "engraved"
    engrave(small_options(out, songs))
    first = read_files(out)
    assert engrave(small_options(out, songs))["counts"]["scores"] == 3
    assert read_files(out) == first
    with pytest.raises(ValueError, match=r"sources: .*songs.engraved; expected scores outside"):
        engrave(small_options(out, out / "sources"))
    assert read_files(out) == first


def test_a_custom_font_is_copied_to_the_folder(tmp_path: Path, songs: Path) -> None:
    def convert_square_font(*codes: int) -> tuple[MusicFont, ...]:
        return (convert_font(square_font(tmp_path / "Square.otf", codes), tmp_path / "converted"),)

    out = tmp_path / "out"
    manifest = engrave(small_options(out, songs, fonts=convert_square_font(0xE0A4, 0xE0A2)))
    assert manifest["options"]["fonts"] == [f"Square {convert_square_font(0xE0A4, 0xE0A2)[0].digest}"]
    (kept,) = (out / STATE).rglob("Square.zip")
    (tmp_path / "converted" / "Square.zip").unlink()
    assert kept.is_file()
    with pytest.raises(ValueError, match=r"fonts\[0\] 'Square .*', now 'Square "):  # another font of the same name
        engrave(small_options(out, songs, fonts=convert_square_font(0xE0A4)))


def test_the_progress_bar_counts_tasks(tmp_path: Path, songs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from contextlib import contextmanager

    steps: list[int] = []

    @contextmanager
    def bar(title: str, total: int) -> Iterator[object]:
        assert total == 3
        yield steps.append

    monkeypatch.setattr(pipeline, "progress_bar", bar)
    engrave(small_options(tmp_path / "out", songs))
    assert steps == [1, 1, 1]


def test_a_score_in_several_fonts_is_one_score(tmp_path: Path, songs: Path) -> None:
    fonts = (MusicFont("Leipzig"), MusicFont("Bravura"))
    counts = engrave(small_options(tmp_path / "out", songs / "One.xml", fonts=fonts, all_fonts=True))["counts"]
    assert (counts["scores"], counts["pages"]) == (1, 2)


def test_scores_without_substitution_give_a_warning(tmp_path: Path, songs: Path) -> None:
    (songs / "tune.abc").write_text("X:1\nT:Tune\nM:4/4\nL:1/4\nK:C\nCDEF|GABc|\n")
    with pytest.warns(UserWarning, match="substitute: 1 score is not MusicXML"):
        engrave(small_options(tmp_path / "out", songs, substitute=0.5))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engrave(small_options(tmp_path / "other", songs))
