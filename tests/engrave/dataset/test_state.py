import errno
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from entourage import __version__
from entourage.engrave.dataset import state as state_module
from entourage.engrave.dataset.formats import SCHEMA
from entourage.engrave.dataset.state import (
    UnwritableError,
    read_record,
    record_path,
    record_paths,
    recorded_files,
    reservation_path,
    reservation_paths,
    reserve_files,
    reserved_files,
    software_versions,
    write_file,
    write_record,
)

META: dict[str, Any] = {
    "name": "a-f",
    "work": "a",
    "source_sha256": "0123",
    "title": "A",
    "composer": "",
    "source": "sources/a-f.mxl",
    "font": "F",
    "pages": [{"page": "a-f-1", "number": 1, "unlabelled": []}],
    "files": {"images/a-f-1.png": "4567", "sources/a-f.mxl": "89ab"},
    "makers": {"entourage": "1"},
}


def test_what_is_known_of_a_task_comes_back(tmp_path: Path) -> None:
    path = record_path(tmp_path, "a-f")
    assert read_record(path) is None
    write_record(path, SCHEMA.empty_table(), META)
    assert read_record(path) == META
    assert recorded_files(path) == ["images/a-f-1.png", "sources/a-f.mxl"]
    assert record_paths(tmp_path) == {"a-f": path}


@pytest.mark.parametrize("lost", META)
def test_a_part_that_lacks_something_is_none(tmp_path: Path, lost: str) -> None:
    path = record_path(tmp_path, "a-f")
    write_record(path, SCHEMA.empty_table(), {name: value for name, value in META.items() if name != lost})
    assert read_record(path) is None
    write_record(path, SCHEMA.empty_table(), META | {lost: 7})
    assert read_record(path) is None


@pytest.mark.parametrize(
    "damage", [{"pages": []}, {"pages": [{"page": "a-f-1"}]}, {"pages": ["a-f-1"]}, {"files": {"images/a-f-1.png": 1}}]
)
def test_a_part_that_is_damaged_within_is_none(tmp_path: Path, damage: dict[str, Any]) -> None:
    path = record_path(tmp_path, "a-f")
    write_record(path, SCHEMA.empty_table(), META | damage)
    assert read_record(path) is None


def test_a_part_with_other_columns_is_none_and_its_places_are_known(tmp_path: Path) -> None:
    path = record_path(tmp_path, "a-f")
    write_record(path, pa.table({"page": ["a-f-1"]}), META)
    assert read_record(path) is None
    assert recorded_files(path) == [*META["files"]]


def test_no_part_and_a_broken_one_have_no_places(tmp_path: Path) -> None:
    path = record_path(tmp_path, "a-f")
    assert recorded_files(path) == []
    path.parent.mkdir()
    path.write_bytes(b"PAR1")
    assert (recorded_files(path), read_record(path)) == ([], None)
    write_record(path, SCHEMA.empty_table(), META | {"files": ["images/a-f-1.png"]})
    assert recorded_files(path) == []


def test_places_add_up_and_a_line_cut_short_is_none(tmp_path: Path) -> None:
    path = reservation_path(tmp_path, "a-f")
    reserve_files(path, [])
    assert reservation_paths(tmp_path) == {"a-f": path}
    assert reserved_files(path) == []
    reserve_files(path, ["images/é\n.png", "sources/a"])
    with path.open("ab") as stream:
        stream.write(b'\n"images/cut\xc3')
    reserve_files(path, ["images/b.png"])
    assert reserved_files(path) == ["images/é\n.png", "sources/a", "images/b.png"]


def test_what_makes_pages_has_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert software_versions("verovio") == {
        "entourage": __version__,
        "verovio": version("verovio"),
        "rules": str(state_module.RULES_VERSION),
    }
    monkeypatch.setattr(state_module, "version", lambda package: f"version of {package}")
    assert software_versions("lilypond")["lilypond"] == "version of lilypond"


def test_what_cannot_be_written_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *rest: object, **more: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UnwritableError, match=r"a\.png cannot be written: No space left on device"):
        write_file(tmp_path / "a.png", b"a")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UnwritableError, match=r"a-f\.begun cannot be written: No space left on device"):
        reserve_files(reservation_path(tmp_path, "a-f"), [])
