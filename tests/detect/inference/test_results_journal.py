from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
from torch import nn

from entourage.detect.detections import Detections
from entourage.detect.inference.results import STATE, PageRecords, PageResult, model_digest, write_xml

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


def save_all(records: PageRecords, *pages: PageResult) -> None:
    for one in pages:
        records.reserve(one)
        write_xml(records.out, one)
        records.add(one)


def test_a_run_goes_on_with_all_that_is_done_in_the_order_of_its_files(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    pages = [page(files[1], count=0), page(files[0], 2), page(files[0], 1)]
    first = PageRecords(out, CONFIG, CLASSES, files)
    save_all(first, *pages)
    again = PageRecords(out, CONFIG, CLASSES, files)
    assert len(again) == len(first) == 3
    assert again.done(files[0]) == {1, 2}
    assert again.done(files[1]) == {None}
    assert again.names == {"a", "b-1", "b-2"}
    found = list(again.pages())
    assert [one.source for one in found] == [f"{files[0]}#1", f"{files[0]}#2", str(files[1])]
    for one, before in zip(found, (pages[2], pages[1], pages[0]), strict=True):
        assert torch.equal(one.detections.boxes, before.detections.boxes)  # to the last digit, through JSON
        assert torch.equal(one.detections.scores, before.detections.scores)
        assert one.detections.names == before.detections.names
        assert (one.interline, one.message, one.width) == (before.interline, before.message, before.width)
    again.close()
    assert not (out / STATE).exists()
    assert len(list((out / "xml").iterdir())) == 3


@pytest.mark.parametrize("why", ["changed", "not asked for", "no xml"])
def test_pages_that_are_not_as_they_were_are_taken_away(tmp_path: Path, files: list[Path], why: str) -> None:
    out = tmp_path / "out"
    save_all(PageRecords(out, CONFIG, CLASSES, files), page(files[0], 1), page(files[1]))
    if why == "changed":
        os.utime(files[1], ns=(1, 1))
    elif why == "no xml":
        (out / "xml" / "a.xml").unlink()
    again = PageRecords(out, CONFIG, CLASSES, files[:1] if why == "not asked for" else files)
    assert [one.name for one in again.pages()] == ["b-1"]
    assert [path.name for path in (out / "xml").iterdir()] == ["b-1.xml"]
    assert again.names == {"b-1"}


def test_a_drawn_page_is_done_only_with_its_drawing(tmp_path: Path, files: list[Path]) -> None:
    config = {**CONFIG, "draw": True}
    save_all(PageRecords(tmp_path / "out", config, CLASSES, files), page(files[1]))
    assert len(PageRecords(tmp_path / "out", config, CLASSES, files)) == 0


def test_other_settings_begin_anew(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    save_all(PageRecords(out, CONFIG, CLASSES, files), page(files[1]))
    (out / "coco.json").write_text("{}")
    assert len(PageRecords(out, {**CONFIG, "threshold": 0.5}, CLASSES, files)) == 0
    assert [path.name for path in out.iterdir()] == [STATE]


@pytest.mark.parametrize("left", ["", "{'", "[]", '{"name": "a"}', "short"])
def test_a_page_whose_record_is_damaged_is_looked_at_again(tmp_path: Path, files: list[Path], left: str) -> None:
    out = tmp_path / "out"
    save_all(PageRecords(out, CONFIG, CLASSES, files), page(files[0], 1), page(files[1]))
    record = out / STATE / "pages" / "a.json"
    if left == "short":
        left = json.dumps({**json.loads(record.read_text()), "scores": [0.5]})  # of two boxes
    record.write_text(left)
    again = PageRecords(out, CONFIG, CLASSES, files)
    assert [one.name for one in again.pages()] == ["b-1"]
    assert again.done(files[1]) == set()
    assert [path.name for path in (out / "xml").iterdir()] == ["b-1.xml"]
    save_all(again, page(files[1]))
    record.write_text(left)
    with pytest.raises(ValueError, match=r"cannot read file .*a\.json: it is damaged; the same command looks at"):
        list(again.pages())


@pytest.mark.parametrize("left", ["", "{", "[1]"])
def test_damaged_settings_begin_anew_and_say_so(tmp_path: Path, files: list[Path], left: str) -> None:
    out = tmp_path / "out"
    save_all(PageRecords(out, CONFIG, CLASSES, files), page(files[1]))
    (out / "drawn").mkdir()
    (out / "drawn" / "a.png").write_text("of a user")  # whether that run drew pages cannot be known any more
    (out / STATE / "settings.json").write_text(left)
    with pytest.warns(UserWarning, match=r"settings\.json is damaged: pages that were done are looked at again"):
        assert len(PageRecords(out, CONFIG, CLASSES, files)) == 0
    assert {path.name for path in out.rglob("*") if path.is_file()} == {"a.png", "settings.json"}
    assert len(PageRecords(out, CONFIG, CLASSES, files)) == 0  # nor does what was done under other settings come back


def test_without_settings_a_run_begins_anew(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    save_all(PageRecords(out, CONFIG, CLASSES, files), page(files[1]))
    (out / STATE / "settings.json").unlink()
    for _ in range(2):
        assert len(PageRecords(out, {**CONFIG, "threshold": 0.5}, CLASSES, files)) == 0


def test_what_a_kill_left_half_written_goes_and_what_others_wrote_stays(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    (out / "xml").mkdir(parents=True)
    (out / "xml" / "mine.xml").write_text("of a user")
    (out / "summary.json").write_text(json.dumps({"pages": 3, "steps": 7}))  # of a training
    save_all(PageRecords(out, CONFIG, CLASSES, files), page(files[1]))
    (out / "xml" / ".b.0123456789abcdef.xml").write_text("half")
    PageRecords(out, CONFIG, CLASSES, files)
    assert {path.name for path in (out / "xml").iterdir()} == {"mine.xml", "a.xml"}
    assert (out / "summary.json").is_file()


@pytest.mark.parametrize("config", [CONFIG, {**CONFIG, "threshold": 0.5}])
def test_files_of_a_page_that_a_kill_kept_from_being_done_go_too(
    tmp_path: Path, files: list[Path], config: dict[str, object]
) -> None:
    out = tmp_path / "out"
    records = PageRecords(out, CONFIG, CLASSES, files)
    records.reserve(page(files[1]))
    write_xml(out, page(files[1]))
    assert len(PageRecords(out, config, CLASSES, files)) == 0
    assert not list(out.glob("xml/*"))


def test_a_run_that_begins_anew_takes_away_only_what_an_earlier_one_wrote(tmp_path: Path, files: list[Path]) -> None:
    out = tmp_path / "out"
    records = PageRecords(out, CONFIG, CLASSES, files)
    save_all(records, page(files[1]))
    (out / "drawn").mkdir()
    for mine in ("xml/mine.xml", "drawn/a.png", "b.xml"):  # that run drew no page
        (out / mine).write_text("of a user")
    (out / "summary.json").write_text(json.dumps({"list": "own", "draw": False, "symbols": 2, "skipped": []}))
    (out / "pages.csv").write_text("page,file\na,a.png\n../b,b.png\n")  # no name of a page leads out of its folder
    records.close()
    PageRecords(out, CONFIG, CLASSES, files)
    left = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and STATE not in path.parts}
    assert left == {"xml/mine.xml", "drawn/a.png", "b.xml"}


def test_other_weights_have_another_fingerprint() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    before = model_digest(model)
    assert model_digest(model) == before
    with torch.no_grad():
        model.bias[1] += 1e-6
    assert model_digest(model) != before
