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
    STATE,
    TaskRecord,
    UnwritableError,
    open_records,
    recorded_files,
    software_versions,
    unwritable_errors,
    write_file,
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


def put(out: Path, meta: dict[str, Any], table: pa.Table | None = None) -> None:
    open_records(out).put("a-f", TaskRecord(meta, SCHEMA.empty_table() if table is None else table))


def test_a_record_is_read_as_written(tmp_path: Path) -> None:
    records = open_records(tmp_path)
    assert records.get("a-f") is None
    put(tmp_path, META)
    assert records.get("a-f") == TaskRecord(META)
    assert recorded_files(records.path("a-f")) == ["images/a-f-1.png", "sources/a-f.mxl"]
    assert records.path("a-f") == tmp_path / STATE / "a-f.parquet"


@pytest.mark.parametrize("lost", META)
def test_a_record_without_a_field_is_ignored(tmp_path: Path, lost: str) -> None:
    put(tmp_path, {name: value for name, value in META.items() if name != lost})
    assert open_records(tmp_path).get("a-f") is None
    put(tmp_path, META | {lost: 7})
    assert open_records(tmp_path).get("a-f") is None


@pytest.mark.parametrize(
    "damage", [{"pages": []}, {"pages": [{"page": "a-f-1"}]}, {"pages": ["a-f-1"]}, {"files": {"images/a-f-1.png": 1}}]
)
def test_a_record_with_an_invalid_field_is_ignored(tmp_path: Path, damage: dict[str, Any]) -> None:
    put(tmp_path, META | damage)
    assert open_records(tmp_path).get("a-f") is None


def test_files_of_a_record_with_other_columns_are_listed(tmp_path: Path) -> None:
    put(tmp_path, META, pa.table({"page": ["a-f-1"]}))
    assert open_records(tmp_path).get("a-f") is None
    assert recorded_files(open_records(tmp_path).path("a-f")) == [*META["files"]]


def test_missing_and_damaged_records_list_no_files(tmp_path: Path) -> None:
    path = open_records(tmp_path).path("a-f")
    assert recorded_files(path) == []
    path.parent.mkdir()
    path.write_bytes(b"PAR1")
    assert (recorded_files(path), open_records(tmp_path).get("a-f")) == ([], None)
    put(tmp_path, META | {"files": ["images/a-f-1.png"]})
    assert recorded_files(path) == []


def test_reserved_files_are_lines_of_a_file_and_truncated_lines_are_skipped(tmp_path: Path) -> None:
    records = open_records(tmp_path)
    records.reserve("a-f", [])
    assert records.reserved("a-f") == []
    records.reserve("a-f", ["images/é\n.png", "sources/a"])
    path = tmp_path / STATE / "a-f.begun"
    assert path.read_text() == '\n"images/\\u00e9\\n.png"\n"sources/a"'
    with path.open("ab") as stream:
        stream.write(b'\n"images/cut\xc3')
    records.reserve("a-f", ["images/b.png"])
    assert records.reserved("a-f") == ["images/é\n.png", "sources/a", "images/b.png"]


def test_software_versions(monkeypatch: pytest.MonkeyPatch) -> None:
    assert software_versions("verovio") == {
        "entourage": __version__,
        "verovio": version("verovio"),
        "rules": str(state_module.RULES_VERSION),
    }
    monkeypatch.setattr(state_module, "version", lambda package: f"version of {package}")
    assert software_versions("lilypond")["lilypond"] == "version of lilypond"


def test_errors_of_writing_name_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *rest: object, **more: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(UnwritableError, match=r"No space left on device: .*a\.png"):
        write_file(tmp_path / "a.png", b"a")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UnwritableError, match=r"No space left on device: .*a-f\.begun"), unwritable_errors():
        open_records(tmp_path).reserve("a-f", ["images/a.png"])
