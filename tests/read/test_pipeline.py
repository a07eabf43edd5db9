from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image
from tests.read.small import melody, page_of

from entourage.read import pipeline as module
from entourage.read.pipeline import ReadConfig, run_reading
from entourage.read.reader import PageReading, ScoreReader


@pytest.fixture
def folder(tmp_path: Path, melody_page: NDArray[np.uint8]) -> Path:
    """Return a folder with a page, a file of two pages and a page without music."""
    folder = tmp_path / "pages"
    folder.mkdir()
    image = Image.fromarray(melody_page)
    image.save(folder / "a.png")
    image.save(folder / "b.tif", save_all=True, append_images=[image])
    Image.new("L", (300, 300), 255).save(folder / "title.png")
    return folder


_READINGS: dict[bytes, PageReading] = {}


@pytest.fixture(autouse=True)
def _read_each_picture_once(reader: ScoreReader, monkeypatch: pytest.MonkeyPatch) -> None:
    """Load the detector once, and read equal pictures once."""
    read_page = ScoreReader.read_page

    def read(self: ScoreReader, image: NDArray[np.uint8], source: str = "") -> PageReading:
        key = repr(image.shape).encode() + image.tobytes()
        if key not in _READINGS:
            _READINGS[key] = read_page(self, image, source)
        reading = copy.deepcopy(_READINGS[key])
        reading.info.source = source
        return reading

    monkeypatch.setattr(ScoreReader, "load", lambda model, device, text=None: reader)
    monkeypatch.setattr(ScoreReader, "read_page", read)


def run(folder: Path, out: Path, **options: Any) -> dict[str, Any]:
    return run_reading(ReadConfig([folder], out, workers=1, device="cpu", text=False, progress=False, **options))


def contents(out: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in out.iterdir()}


def test_each_file_gives_a_score(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    summary = run(folder, out)
    names = {"a.json", "a.mid", "a.musicxml", "b.json", "b.mid", "b.musicxml", "title.json"}
    assert set(contents(out)) == names | {"report.html", "summary.json"}
    assert json.loads((out / "summary.json").read_text()) == summary
    assert [(s["name"], len(s["pages"]), s["notes"], s["measures"]) for s in summary["scores"]] == [
        ("a", 1, 6, 2),
        ("b", 2, 12, 4),
        ("title", 1, 0, 0),
    ]
    assert (summary["pages"], summary["notes"], summary["without_notes"]) == (4, 18, ["title"])
    assert summary["scores"][2]["pages"] == [{"source": str(folder / "title.png"), "message": "no staves found"}]
    assert summary["complete"]


def test_all_pages_can_be_joined(folder: Path, tmp_path: Path) -> None:
    summary = run(folder, tmp_path / "out", join=True, extra_format="mei")
    assert [(s["name"], s["notes"], len(s["pages"])) for s in summary["scores"]] == [("pages", 18, 4)]
    assert summary["scores"][0]["files"] == ["pages.json", "pages.musicxml", "pages.mid", "pages.mei"]


def test_scores_are_transposed(folder: Path, tmp_path: Path) -> None:
    run(folder, tmp_path / "out", transpose="M2")
    assert "<fifths>3</fifths>" in (tmp_path / "out" / "a.musicxml").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"transpose": "big"}, "transpose: 'big' is not an interval; expected semitones such as -3 or an"),
        ({"tempo": 2.0}, "tempo is 2; expected 10 to 1000"),
        ({"model": "none"}, r"none.*; expected a detector that `entourage detect train`"),
    ],
)
def test_wrong_options_are_errors_before_any_work(
    folder: Path, tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        run(folder, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def test_bad_pages_are_skipped(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "broken.png").write_bytes(b"no image")
    read_page = ScoreReader.read_page

    def fail_on_second(self: ScoreReader, image: NDArray[np.uint8], source: str = "") -> Any:
        if source.endswith("#2"):
            raise ValueError("page of 1 x 1 pixels; expected\nmore")
        return read_page(self, image, source)

    monkeypatch.setattr(ScoreReader, "read_page", fail_on_second)
    summary = run(folder, tmp_path / "out")
    assert summary["skipped"] == [
        {"item": str(folder / "broken.png"), "reason": "not an image, or of an unknown format"},
        {"item": f"{folder / 'b.tif'}#2", "reason": "page of 1 x 1 pixels; expected more"},
    ]
    assert [(s["name"], s["notes"]) for s in summary["scores"]] == [("a", 6), ("b", 6), ("title", 0)]


def test_an_unforeseen_error_costs_one_page(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: ScoreReader, image: NDArray[np.uint8], source: str = "") -> Any:
        raise IndexError("list index out of range")

    monkeypatch.setattr(ScoreReader, "read_page", fail)
    monkeypatch.delenv("ENTOURAGE_DEBUG", raising=False)
    (skipped,) = run(folder / "a.png", tmp_path / "out")["skipped"]
    assert skipped["reason"] == "unexpected IndexError: list index out of range"
    monkeypatch.setenv("ENTOURAGE_DEBUG", "1")
    with pytest.raises(IndexError):
        run(folder / "a.png", tmp_path / "out")


def test_a_stopped_run_resumes_with_the_remaining_pages(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(folder, tmp_path / "whole")
    read_page = ScoreReader.read_page
    seen: list[str] = []

    def stop_at_third(self: ScoreReader, image: NDArray[np.uint8], source: str = "") -> Any:
        if len(seen) == 2:
            raise KeyboardInterrupt
        seen.append(source)
        return read_page(self, image, source)

    monkeypatch.setattr(ScoreReader, "read_page", stop_at_third)
    with pytest.raises(KeyboardInterrupt), pytest.warns(UserWarning, match="contains 1 score; repeat the command"):
        run(folder, tmp_path / "out")
    partial = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert (partial["complete"], [s["name"] for s in partial["scores"]]) == (False, ["a"])
    resumed: list[str] = []

    def count(self: ScoreReader, image: NDArray[np.uint8], source: str = "") -> Any:
        resumed.append(source)
        return read_page(self, image, source)

    monkeypatch.setattr(ScoreReader, "read_page", count)
    run(folder, tmp_path / "out")
    assert resumed == [f"{folder / 'b.tif'}#2", str(folder / "title.png")]
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_a_changed_page_or_option_is_read_again(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    write_results = module._write_results

    def stop(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_write_results", stop)
    with pytest.raises(KeyboardInterrupt):
        run(folder, out)
    assert (out / "a.musicxml").is_file()
    monkeypatch.setattr(module, "_write_results", write_results)
    Image.new("L", (400, 300), 255).save(folder / "a.png")
    summary = run(folder, out)
    assert summary["without_notes"] == ["a", "title"]
    run(folder, out, join=True)
    assert set(contents(out)) == {"pages.json", "pages.mid", "pages.musicxml", "report.html", "summary.json"}


def test_files_of_others_stay(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    run(folder, out)
    run(folder, out, join=True)
    assert (out / "notes.txt").read_text() == "mine"
    assert not (out / "a.musicxml").exists()


def test_names_are_unique(tmp_path: Path, melody_page: NDArray[np.uint8]) -> None:
    image = Image.fromarray(melody_page[:200, :300])
    for path in ("one/a.png", "one/a.jpg", "two/a.png", "two/summary.png"):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        image.save(tmp_path / path)
    config = ReadConfig([tmp_path / "one", tmp_path / "two"], tmp_path / "out")
    documents = module.find_documents(module.list_pages(config.pages), config, [])
    assert [document.name for document in documents] == ["a", "a_png", "a_png_2", "summary_2"]


def test_missing_pages_are_listed(folder: Path, tmp_path: Path) -> None:
    config = ReadConfig([folder / "a.png", folder / "c.png"], tmp_path / "out", workers=1, device="cpu", progress=False)
    assert run_reading(config)["skipped"] == [{"item": str(folder / "c.png"), "reason": "does not exist"}]
    with pytest.raises(ValueError, match=r"c\.png: .*; expected an image, a PDF file or a"):
        run_reading(ReadConfig([folder / "c.png"], tmp_path / "out"))


def test_processes_give_the_same_files(folder: Path, tmp_path: Path) -> None:
    run(folder, tmp_path / "one")
    two = ReadConfig([folder], tmp_path / "two", workers=2, device="cpu", text=False, progress=False)
    run_reading(two)
    names = {"a.musicxml", "b.musicxml", "a.mid", "b.mid", "summary.json"}
    one = contents(tmp_path / "one")
    assert {name: contents(tmp_path / "two")[name] for name in names} == {name: one[name] for name in names}


def test_a_process_that_dies_is_an_error_that_names_the_option(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "m.safetensors").write_bytes(b"")
    tasks = [module.PageTask(folder / "a.png", None)] * 2
    with pytest.raises(ValueError, match="workers: a process ended unexpectedly"):
        list(module._read_tasks(tasks, (tmp_path / "m.safetensors", "cpu", False), 2))


def test_a_resumed_run_has_the_threads_of_its_processes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def count(self: ScoreReader, image: NDArray[np.uint8], source: str = "") -> Any:
        seen.append(torch.get_num_threads())
        raise ValueError("no music")

    monkeypatch.setattr(ScoreReader, "read_page", count)
    monkeypatch.setattr(module, "count_threads", lambda workers: 6 if workers is None else workers)
    assert module._count_processes(None, torch.device("cpu"), 100) == 4
    assert module._count_processes(None, torch.device("cuda"), 100) == 1
    assert module._count_processes(8, torch.device("cpu"), 3) == 3
    before = torch.get_num_threads()
    tasks = [module.PageTask(folder / "a.png", None)]
    assert list(module._read_tasks(tasks, (tmp_path, "cpu", False), 2)) == [(tasks[0], "no music")]
    assert (seen, torch.get_num_threads()) == ([3], before)


def test_the_report_shows_the_same_measures_twice(folder: Path, tmp_path: Path) -> None:
    run(folder, tmp_path / "out")
    html = (tmp_path / "out" / "report.html").read_text()
    assert html.count('class="measure" data-m="') == html.count('<g class="m ') == 6
    assert html.count("data:image/jpeg;base64,") == 4
    assert "no staves found" in html


def test_a_page_larger_than_its_music(tmp_path: Path) -> None:
    page = page_of(melody(), width=1500, height=700)
    Image.fromarray(page).save(tmp_path / "a.png")
    summary = run(tmp_path / "a.png", tmp_path / "out")
    assert summary["notes"] == 6
