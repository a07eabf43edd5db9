from pathlib import Path

import pytest

from entourage.engrave.dataset.formats import SCHEMA
from entourage.engrave.dataset.state import (
    STATE,
    record_path,
    remove_stale_files,
    reservation_path,
    reserve_files,
    write_record,
)


def write(out: Path, *files: str) -> None:
    for place in files:
        (out / place).parent.mkdir(parents=True, exist_ok=True)
        (out / place).write_text("x")


def write_finished_task(out: Path, name: str, *files: str) -> None:
    """As much of a finished task as matters here."""
    write_record(record_path(out, name), SCHEMA.empty_table(), {"files": dict.fromkeys(files, "checksum")})


def list_files(out: Path) -> set[str]:
    return {path.relative_to(out).as_posix() for path in out.rglob("*") if path.is_file()}


def test_only_what_was_noted_goes(tmp_path: Path) -> None:
    expected = ["images/a-f-1.png", "segmentation/a-f-2_seg.png", "sources/a-f.mxl", "xml_annotations/b-f-1.xml"]
    unrelated = ["images/a-f-2.png", "images/a-f-2024.png", "sources/a-f.mei", "sources/b-f.mxl", "a-f-2.png"]
    write(tmp_path, *expected, *unrelated)
    write_finished_task(tmp_path, "a-f", "images/a-f-1.png", "sources/a-f.mxl")
    reserve_files(reservation_path(tmp_path, "a-f"), ["images/a-f-1.png", "segmentation/a-f-2_seg.png"])
    write_finished_task(tmp_path, "b-f", "xml_annotations/b-f-1.xml", "xml_annotations/lost.xml")
    kept = {"images/a-f-1.png", "sources/a-f.mxl"}
    assert remove_stale_files(tmp_path, {"a-f"}, kept) == ["segmentation/a-f-2_seg.png", "xml_annotations/b-f-1.xml"]
    assert list_files(tmp_path) == {*unrelated, *kept, f"{STATE}/a-f.parquet"}
    assert remove_stale_files(tmp_path, {"a-f"}, kept) == []


def test_what_a_task_began_is_known_by_its_notes_alone(tmp_path: Path) -> None:
    write(tmp_path, "images/c-f-10.png", "images/c-f-11.png")
    reserve_files(reservation_path(tmp_path, "c-f"), ["images/c-f-10.png"])
    assert remove_stale_files(tmp_path, (), ()) == ["images/c-f-10.png"]
    assert list_files(tmp_path) == {"images/c-f-11.png"}


def test_what_scores_were_read_from_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "sources/a-f.mxl", "sources/b-f.mxl")
    write_finished_task(tmp_path, "a-f", "sources/a-f.mxl", "sources/b-f.mxl")
    monkeypatch.chdir(tmp_path)
    assert remove_stale_files(tmp_path, (), (), [Path("images/../sources/a-f.mxl")]) == ["sources/b-f.mxl"]
    assert list_files(tmp_path) == {"sources/a-f.mxl"}


def test_a_damaged_note_leads_nowhere_else(tmp_path: Path) -> None:
    out = tmp_path / "out"
    write(out, "mine.png", "images/deep/mine.png", "stats/mine.png", "images/a-f-1.png")
    write(tmp_path, "images/mine.png", "mine.png")
    (out / "images" / "link.png").symlink_to(out / "mine.png")
    files = ["mine.png", "images/deep/mine.png", "stats/mine.png", "../images/mine.png", "images/..", "images", ""]
    files += ["../mine.png", str(tmp_path / "mine.png"), "images/link.png", "images/a-f-1.png"]
    reserve_files(reservation_path(out, "a-f"), files)
    before = list_files(tmp_path)
    assert remove_stale_files(out, (), ()) == ["images/a-f-1.png"]
    assert list_files(tmp_path) == before - {"out/images/a-f-1.png", f"out/{STATE}/a-f.begun"}
    assert (out / "images" / "link.png").is_symlink()


def test_an_empty_folder_has_none(tmp_path: Path) -> None:
    assert remove_stale_files(tmp_path, (), ()) == []
