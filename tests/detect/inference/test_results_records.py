from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from entourage.detect.detections import Detections
from entourage.detect.inference.results import STATE, PageRecords, PageResult, model_digest, open_records, write_xml

CLASSES = ("stem", "beam")
CONFIG = {"threshold": 0.3, "draw": False}


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / name for name in ("b.tif", "a.png")]
    for path in paths:
        path.write_bytes(b"page")
    return paths


def page(file: Path, number: int | None = None, count: int = 2) -> PageResult:
    name = file.stem if number is None else f"{file.stem}-{number}"
    boxes = torch.rand(count, 4, generator=torch.Generator().manual_seed(0)) * 1000
    found = Detections(boxes, torch.arange(count) % 2 + 1, torch.linspace(0.9, 0.31, count), CLASSES)
    return PageResult(name, str(file), 300, 200, found, None if number else 20.3, 0.1, "a note", number)


def open_unlocked(out: Path, config: dict[str, object], classes: tuple[str, ...], files: list[Path]) -> PageRecords:
    """Return the records of a run whose lock is released, as after a kill."""
    with open_records(out, config, classes, files) as records:
        return records


def save_all(records: PageRecords, *pages: PageResult) -> None:
    for one in pages:
        records.reserve(one)
        write_xml(records.out, one)
        records.add(one)


def test_a_run_resumes_with_all_finished_pages_in_the_order_of_its_files(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    pages = [page(files[1], count=0), page(files[0], 2), page(files[0], 1)]
    first = open_unlocked(out, CONFIG, CLASSES, files)
    save_all(first, *pages)
    again = open_unlocked(out, CONFIG, CLASSES, files)
    assert len(again) == len(first) == 3
    assert again.done(files[0]) == {1, 2}
    assert again.done(files[1]) == {None}
    assert again.names == {"a", "b-1", "b-2"}
    found = list(again.pages())
    assert [one.source for one in found] == [f"{files[0]}#1", f"{files[0]}#2", str(files[1])]
    for one, before in zip(found, (pages[2], pages[1], pages[0]), strict=True):
        assert torch.equal(one.detections.boxes, before.detections.boxes)  # JSON preserves all digits
        assert torch.equal(one.detections.scores, before.detections.scores)
        assert one.detections.names == before.detections.names
        assert (one.interline, one.message, one.width) == (before.interline, before.message, before.width)
    again.delete_state()
    assert not (out / STATE).exists()
    assert len(list((out / "xml").iterdir())) == 3


@pytest.mark.parametrize("reason", ["changed", "not in the run", "no xml"])
def test_pages_that_are_no_longer_valid_are_deleted(tmp_path: Path, files: list[Path], reason: str) -> None:
    out = tmp_path / "out"
    save_all(open_unlocked(out, CONFIG, CLASSES, files), page(files[0], 1), page(files[1]))
    if reason == "changed":
        os.utime(files[1], ns=(1, 1))
    elif reason == "no xml":
        (out / "xml" / "a.xml").unlink()
    again = open_unlocked(out, CONFIG, CLASSES, files[:1] if reason == "not in the run" else files)
    assert [one.name for one in again.pages()] == ["b-1"]
    assert [path.name for path in (out / "xml").iterdir()] == ["b-1.xml"]
    assert again.names == {"b-1"}


def test_a_page_without_its_drawing_is_not_finished(tmp_path: Path, files: list[Path]) -> None:
    config = {**CONFIG, "draw": True}
    save_all(open_unlocked(tmp_path / "out", config, CLASSES, files), page(files[1]))
    assert len(open_unlocked(tmp_path / "out", config, CLASSES, files)) == 0


def test_another_configuration_starts_from_scratch(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    save_all(open_unlocked(out, CONFIG, CLASSES, files), page(files[1]))
    (out / "coco.json").write_text("{}")
    assert len(open_unlocked(out, {**CONFIG, "threshold": 0.5}, CLASSES, files)) == 0
    assert [path.name for path in out.iterdir()] == [STATE]


@pytest.mark.parametrize("content", ["", "{'", "[]", '{"name": "a"}', "short"])
def test_a_page_whose_record_is_damaged_is_not_finished(tmp_path: Path, files: list[Path], content: str) -> None:
    out = tmp_path / "out"
    save_all(open_unlocked(out, CONFIG, CLASSES, files), page(files[0], 1), page(files[1]))
    record = out / STATE / "pages" / "a.json"
    if content == "short":
        content = json.dumps({**json.loads(record.read_text()), "scores": [0.5]})  # of two boxes
    record.write_text(content)
    again = open_unlocked(out, CONFIG, CLASSES, files)
    assert [one.name for one in again.pages()] == ["b-1"]
    assert again.done(files[1]) == set()
    assert [path.name for path in (out / "xml").iterdir()] == ["b-1.xml"]
    save_all(again, page(files[1]))
    record.write_text(content)
    with pytest.raises(ValueError, match=r"a\.json: .*; repeat the command"):
        list(again.pages())


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_a_damaged_configuration_restarts_with_a_warning(tmp_path: Path, files: list[Path], content: str) -> None:
    out = tmp_path / "out"
    save_all(open_unlocked(out, CONFIG, CLASSES, files), page(files[1]))
    (out / "drawn").mkdir()
    (out / "drawn" / "a.png").write_text("of a user")  # the run drew no pages
    (out / STATE / "settings.json").write_text(content)
    with pytest.warns(UserWarning, match=r"settings\.json is damaged"):
        assert len(open_unlocked(out, CONFIG, CLASSES, files)) == 0
    assert {path.name for path in out.rglob("*") if path.is_file()} == {"a.png", "settings.json"}
    assert len(open_unlocked(out, CONFIG, CLASSES, files)) == 0  # the deleted records stay deleted


def test_without_a_configuration_a_run_starts_from_scratch(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    save_all(open_unlocked(out, CONFIG, CLASSES, files), page(files[1]))
    (out / STATE / "settings.json").unlink()
    for _ in range(2):
        assert len(open_unlocked(out, {**CONFIG, "threshold": 0.5}, CLASSES, files)) == 0


def test_temporary_files_are_deleted_and_files_of_other_origin_stay(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    (out / "xml").mkdir(parents=True)
    (out / "xml" / "mine.xml").write_text("of a user")
    (out / "summary.json").write_text(json.dumps({"pages": 3, "steps": 7}))  # of a training
    save_all(open_unlocked(out, CONFIG, CLASSES, files), page(files[1]))
    (out / "xml" / ".b.0123456789abcdef.xml").write_text("half")
    open_unlocked(out, CONFIG, CLASSES, files)
    assert {path.name for path in (out / "xml").iterdir()} == {"mine.xml", "a.xml"}
    assert (out / "summary.json").is_file()


@pytest.mark.parametrize("config", [CONFIG, {**CONFIG, "threshold": 0.5}])
def test_files_of_an_unfinished_page_are_deleted(tmp_path: Path, files: list[Path], config: dict[str, object]) -> None:
    out = tmp_path / "out"
    records = open_unlocked(out, CONFIG, CLASSES, files)
    records.reserve(page(files[1]))
    write_xml(out, page(files[1]))
    assert len(open_unlocked(out, config, CLASSES, files)) == 0
    assert not list(out.glob("xml/*"))


def test_only_the_files_of_an_earlier_complete_run_are_deleted(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    records = open_unlocked(out, CONFIG, CLASSES, files)
    save_all(records, page(files[1]))
    (out / "drawn").mkdir()
    for mine in ("xml/mine.xml", "drawn/a.png", "b.xml"):  # the run drew no pages
        (out / mine).write_text("of a user")
    (out / "summary.json").write_text(json.dumps({"list": "own", "draw": False, "symbols": 2, "skipped": []}))
    (out / "pages.csv").write_text("page,file\na,a.png\n../b,b.png\n")  # names of pages do not lead out of the folder
    records.delete_state()
    open_unlocked(out, CONFIG, CLASSES, files)
    left = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and STATE not in path.parts}
    assert left == {"xml/mine.xml", "drawn/a.png", "b.xml"}


def test_pages_whose_names_contain_backslashes_are_recorded(tmp_path: Path) -> None:
    file = tmp_path / "a\\b%5C.png"
    file.write_bytes(b"page")
    save_all(open_unlocked(tmp_path / "out", CONFIG, CLASSES, [file]), page(file))
    assert open_unlocked(tmp_path / "out", CONFIG, CLASSES, [file]).names == {"a\\b%5C"}


def test_an_unfinished_drawing_is_deleted_by_a_run_that_draws_no_pages(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    open_unlocked(out, {**CONFIG, "draw": True}, CLASSES, files).reserve(page(files[1]))
    (out / "drawn").mkdir()
    for name in ("a", "mine"):
        (out / "drawn" / f"{name}.png").write_bytes(b"drawing")
    open_unlocked(out, CONFIG, CLASSES, files)
    assert [path.name for path in (out / "drawn").iterdir()] == ["mine.png"]


def test_a_folder_is_locked_until_the_block_ends(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    with open_records(out, CONFIG, CLASSES, files) as records:
        with pytest.raises(ValueError, match=r"out: .*; wait for it"), open_records(out, CONFIG, CLASSES, files):
            pass
        save_all(records, page(files[1]))
    assert len(open_unlocked(out, CONFIG, CLASSES, files)) == 1


def test_the_digest_depends_on_the_weights() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    before = model_digest(model)
    assert model_digest(model) == before
    with torch.no_grad():
        model.bias[1] += 1e-6
    assert model_digest(model) != before
