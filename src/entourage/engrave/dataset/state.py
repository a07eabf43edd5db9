"""State of a run in `.state`, below the output folder: the records of finished tasks and the files that tasks write.

`NAME.parquet` is the record of a finished task: the rows of its pages and, as metadata, their origin, the versions of
the software and the checksums of the files. `NAME.begun` lists the files of a task that may exist, see `RecordStore`.
Only files that are listed in one of the two are ever deleted.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from entourage import __version__
from entourage.engrave.dataset.formats import SCHEMA
from entourage.engrave.options import Engine
from entourage.io.files import atomic_path
from entourage.runs.records import RecordStore

STATE = ".state"
OUTPUT_FOLDERS = ("images", "segmentation", "instances", "xml_annotations", "sources")  # folders that tasks write to
RULES_VERSION = 2  # version of the annotation rules; increased whenever annotations of a score change
_META = b"entourage"
_TEXT_FIELDS = ("name", "work", "source_sha256", "title", "composer", "source", "font")
_PAGE_FIELDS = {"page": str, "number": int, "unlabelled": list}


class UnwritableError(OSError):
    """Error for output that cannot be written; it ends the run, because the score is not the cause."""


@contextmanager
def unwritable_errors(path: Path | None = None) -> Iterator[None]:
    """Convert any OSError to an `UnwritableError`; `path` is the file in its message (default: that of the OSError)."""
    try:
        yield
    except OSError as error:
        if path is not None and error.filename is None:
            error.filename = str(path)
        raise UnwritableError(error.errno, error.strerror, error.filename) from error


def write_file(path: Path, data: bytes) -> None:
    """Write a file of the data set atomically.

    Raises:
        UnwritableError: the file cannot be written, for example to a full disk.
    """
    with unwritable_errors(path), atomic_path(path) as temporary:
        temporary.write_bytes(data)


def software_versions(engine: Engine) -> dict[str, str]:
    """Return the versions on which results depend: those of this package, the engine and the annotation rules."""
    return {"entourage": __version__, engine: version(engine), "rules": str(RULES_VERSION)}


@dataclass(frozen=True)
class TaskRecord:
    """Record of a finished task, stored in `.state`.

    Attributes:
        meta: the texts "name", "work", "source_sha256", "title", "composer", "source" and "font"; "pages", a list of
            objects with "page", "number" and "unlabelled"; "files", SHA-256 by path; "makers", version by program.
        table: rows of the pages, with the columns of `SCHEMA`; None in a record that was read.
    """

    meta: dict[str, Any]
    table: pa.Table | None = None


def open_records(out: Path) -> RecordStore[TaskRecord]:
    """Return the records of the finished tasks of a data set, by the name of the task."""
    return RecordStore(
        out / STATE, ".parquet", _read_record, _write_record, root=out, folders=OUTPUT_FOLDERS, outputs=recorded_files
    )


def _write_record(path: Path, record: TaskRecord) -> None:
    assert record.table is not None
    meta = json.dumps(record.meta, sort_keys=True).encode()
    pq.write_table(record.table.replace_schema_metadata({_META: meta}), path, compression="zstd")


def _read_record(path: Path) -> TaskRecord | None:
    """Return a record without its table; None if the file is damaged or of another version of this package."""
    schema, meta = _read_schema(path)
    if schema is None or not schema.equals(SCHEMA) or not all(isinstance(meta.get(name), str) for name in _TEXT_FIELDS):
        return None
    pages = meta.get("pages")
    if not isinstance(pages, list) or not pages or not all(map(_is_page, pages)):
        return None
    return TaskRecord(meta) if _has_texts(meta.get("files")) and _has_texts(meta.get("makers")) else None


def recorded_files(path: Path) -> list[str]:
    """Return the files that a record of any version of this package lists; none if the record is damaged."""
    files = _read_schema(path)[1].get("files")
    return [file for file in files if isinstance(file, str)] if isinstance(files, dict) else []


def _read_schema(path: Path) -> tuple[pa.Schema | None, dict[str, Any]]:
    try:
        schema = pq.read_schema(path)
        meta = json.loads((schema.metadata or {})[_META])
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None, {}
    return (schema, meta) if isinstance(meta, dict) else (None, {})


def _has_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_page(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in _PAGE_FIELDS.items())
