"""Deletion of the files that no task of a data set has any more."""

import json
from collections.abc import Collection
from pathlib import Path

import pytest

from entourage.engrave.dataset.formats import SCHEMA
from entourage.engrave.dataset.state import STATE, TaskRecord, open_records


def write(out: Path, *files: str) -> None:
    for file in files:
        (out / file).parent.mkdir(parents=True, exist_ok=True)
        (out / file).write_text("x")


def write_finished_task(out: Path, name: str, *files: str) -> None:
    """Write the part of a task's record that these tests need."""
    meta = {"files": dict.fromkeys(files, "checksum")}
    open_records(out).put(name, TaskRecord(meta, SCHEMA.empty_table()))


def remove_stale(out: Path, done: Collection[str] = (), sources: Collection[Path] = ()) -> list[str]:
    return [path.relative_to(out).as_posix() for path in open_records(out).remove_stale(done, sources)]


def list_files(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


def test_only_recorded_and_reserved_files_are_deleted(tmp_path: Path) -> None:
    expected = ["images/a-f-1.png", "segmentation/a-f-2_seg.png", "sources/a-f.mxl", "xml_annotations/b-f-1.xml"]
    unrelated = ["images/a-f-2.png", "images/a-f-2024.png", "sources/a-f.mei", "sources/b-f.mxl", "a-f-2.png"]
    write(tmp_path, *expected, *unrelated)
    write_finished_task(tmp_path, "a-f", "images/a-f-1.png", "sources/a-f.mxl")
    open_records(tmp_path).reserve("a-f", ["images/a-f-1.png", "segmentation/a-f-2_seg.png"])
    write_finished_task(tmp_path, "b-f", "xml_annotations/b-f-1.xml", "xml_annotations/lost.xml")
    assert remove_stale(tmp_path, {"a-f"}) == ["segmentation/a-f-2_seg.png", "xml_annotations/b-f-1.xml"]
    kept = {"images/a-f-1.png", "sources/a-f.mxl"}
    assert list_files(tmp_path) == {*unrelated, *kept, f"{STATE}/a-f.parquet"}
    assert remove_stale(tmp_path, {"a-f"}) == []


def test_files_of_an_unfinished_task_are_deleted_only_if_they_are_reserved(tmp_path: Path) -> None:
    write(tmp_path, "images/c-f-10.png", "images/c-f-11.png")
    open_records(tmp_path).reserve("c-f", ["images/c-f-10.png"])
    assert remove_stale(tmp_path) == ["images/c-f-10.png"]
    assert list_files(tmp_path) == {"images/c-f-11.png"}


def test_sources_of_the_run_are_not_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "sources/a-f.mxl", "sources/b-f.mxl")
    write_finished_task(tmp_path, "a-f", "sources/a-f.mxl", "sources/b-f.mxl")
    monkeypatch.chdir(tmp_path)
    assert remove_stale(tmp_path, sources=[Path("images/../sources/a-f.mxl")]) == ["sources/b-f.mxl"]
    assert list_files(tmp_path) == {"sources/a-f.mxl"}


def test_a_damaged_reservation_deletes_nothing_outside_the_output_folders(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "mine.png", "images/deep/mine.png", "stats/mine.png", "images/a-f-1.png")
    write(tmp_path, "images/mine.png", "mine.png")
    (out / "images" / "link.png").symlink_to(out / "mine.png")
    files = ["mine.png", "images/deep/mine.png", "stats/mine.png", "../images/mine.png", "images/..", "images", ""]
    files += ["../mine.png", str(tmp_path / "mine.png"), "images/link.png", "images/a-f-1.png"]
    (out / STATE).mkdir()
    (out / STATE / "a-f.begun").write_text("".join(f"\n{json.dumps(file)}" for file in files))
    before = list_files(tmp_path)
    assert remove_stale(out) == ["images/a-f-1.png"]
    assert list_files(tmp_path) == before - {"out/images/a-f-1.png", f"out/{STATE}/a-f.begun"}
    assert (out / "images" / "link.png").is_symlink()


def test_nothing_is_deleted_in_an_empty_folder(tmp_path: Path) -> None:
    assert remove_stale(tmp_path) == []
