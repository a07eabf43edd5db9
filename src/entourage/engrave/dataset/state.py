"""What a data set remembers of its tasks, in `.state`: the rows of those that are finished, the places they wrote to.

`NAME.parquet` is there once a task is finished: the rows of its pages, where they came from, who made them, its files.
`NAME.begun` is there while it is not: the places that may hold something of it, each noted before it is written to.

Files of a data set that nothing names any more: pages a score no longer has, and scores that are no longer given.

Only what a task has noted that it writes is removed. Whatever else lies in the data set is not touched, however it is
called.
"""

from __future__ import annotations

import io
import json
from collections.abc import Collection, Iterable
from importlib.metadata import version
from pathlib import Path, PurePosixPath
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from entourage import __version__
from entourage.engrave.dataset.formats import SCHEMA
from entourage.engrave.options import Engine
from entourage.io.files import atomic_path

STATE = ".state"  # folder of what is remembered, inside the output
OUTPUT_FOLDERS = ("images", "segmentation", "instances", "xml_annotations", "sources")  # that tasks write to
RULES_VERSION = 1  # of annotation: one more with every change of what the same score becomes
_BEGUN = ".begun"
_META = b"entourage"
_TEXT_FIELDS = ("name", "work", "source_sha256", "title", "composer", "source", "font")
_PAGE_FIELDS = {"page": str, "number": int, "unlabelled": list}


class UnwritableError(OSError):
    """The output cannot be written, which is no fault of the score: the run has to stop."""


def software_versions(engine: Engine) -> dict[str, str]:
    """The versions that decide what a score becomes: of this package, of the engraver, of the rules of annotation."""
    return {"entourage": __version__, engine: version(engine), "rules": str(RULES_VERSION)}


def record_path(out: Path, name: str) -> Path:
    """Where the rows of a finished task lie."""
    return out / STATE / f"{name}.parquet"


def reservation_path(out: Path, name: str) -> Path:
    """Where the places are noted that a task writes to."""
    return out / STATE / f"{name}{_BEGUN}"


def record_paths(out: Path) -> dict[str, Path]:
    """The rows of all tasks that were ever finished here, by name."""
    return {path.stem: path for path in (out / STATE).glob("*.parquet")}


def reservation_paths(out: Path) -> dict[str, Path]:
    """The notes of all tasks that were begun since the last run that came to its end, by name."""
    return {path.name.removesuffix(_BEGUN): path for path in (out / STATE).glob(f"*{_BEGUN}")}


def write_record(path: Path, table: pa.Table, meta: dict[str, Any]) -> None:
    """Writes the rows of a task, with what else is known of it; once this file is there, the task is done."""
    table = table.replace_schema_metadata({_META: json.dumps(meta, sort_keys=True).encode()})
    stream = io.BytesIO()
    pq.write_table(table, stream, compression="zstd")
    write_file(path, stream.getvalue())


def read_record(path: Path) -> dict[str, Any] | None:
    """What is known of a finished task; None if it is not finished, or its file is damaged or of another make."""
    schema, meta = _read(path)
    if schema is None or not schema.equals(SCHEMA) or not all(isinstance(meta.get(name), str) for name in _TEXT_FIELDS):
        return None
    pages = meta.get("pages")
    if not isinstance(pages, list) or not pages or not all(_is_page(page) for page in pages):
        return None
    return meta if _is_texts(meta.get("files")) and _is_texts(meta.get("makers")) else None


def recorded_files(path: Path) -> list[str]:
    """The places that a finished task wrote to, whatever version of this package noted them."""
    files = _read(path)[1].get("files")
    return [file for file in files if isinstance(file, str)] if isinstance(files, dict) else []


def reserve_files(path: Path, files: Iterable[str]) -> None:
    """Adds places to those that a task writes to, before it does.

    Raises:
        UnwritableError: the note cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a", encoding="utf-8") as stream:
            # The line ends come first: what a kill has cut short then spoils no other line.
            stream.write("".join(f"\n{json.dumps(file)}" for file in files))
    except OSError as error:
        raise UnwritableError(f"{path} cannot be written: {error.strerror or error}") from error


def reserved_files(path: Path) -> list[str]:
    """The places that were noted; a line that was cut short is none, for nothing had been written there."""
    files = []
    for line in path.read_bytes().splitlines():
        try:
            file = json.loads(line)
        except ValueError:
            continue
        if isinstance(file, str):
            files.append(file)
    return files


def write_file(path: Path, data: bytes) -> None:
    """Writes a file of the data set, whole or not at all.

    Raises:
        UnwritableError: it cannot be written.
    """
    try:
        with atomic_path(path) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise UnwritableError(f"{path} cannot be written: {error.strerror or error}") from error


def _read(path: Path) -> tuple[pa.Schema | None, dict[str, Any]]:
    try:
        schema = pq.read_schema(path)
        meta = json.loads((schema.metadata or {})[_META])
    except (OSError, pa.ArrowException, KeyError, ValueError):
        return None, {}
    return (schema, meta) if isinstance(meta, dict) else (None, {})


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())


def _is_page(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(value.get(name), kind) for name, kind in _PAGE_FIELDS.items())


def remove_stale_files(
    out: Path, done: Collection[str], files: Collection[str], sources: Iterable[Path] = ()
) -> list[str]:
    """Removes what tasks have left that no finished task names.

    Args:
        out: the data set.
        done: the names of the finished tasks.
        files: the files of finished tasks, as paths in the data set.
        sources: the files that scores were read from; they stay, even if an earlier run has written them.

    Returns:
        The files of pages and sources that were removed, as paths in the data set, in order.
    """
    records, reservations = record_paths(out), reservation_paths(out)
    written = {file for path in records.values() for file in recorded_files(path)}
    written |= {file for path in reservations.values() for file in reserved_files(path)}
    inputs = {path.resolve() for path in sources}
    removed = sorted(file for file in written.difference(files) if _is_removable(out, file, inputs))
    for file in removed:
        (out / file).unlink(missing_ok=True)
    for name, path in records.items():
        if name not in done:
            path.unlink(missing_ok=True)
    for path in reservations.values():  # last of all: a run that is killed here still knows the places
        path.unlink(missing_ok=True)
    return removed


def _is_removable(out: Path, file: str, inputs: Collection[Path]) -> bool:
    """Whether something is to be removed there: a damaged note must lead to nothing outside the folders of tasks."""
    path = out / file
    inside = len(PurePosixPath(file).parts) == 2 and PurePosixPath(file).parts[0] in OUTPUT_FOLDERS
    return inside and path.is_file() and not path.is_symlink() and path.resolve() not in inputs
