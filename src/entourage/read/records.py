"""Records of the pages of a run that are read, so that an interrupted run resumes with the remaining pages."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from entourage.detect import Detections
from entourage.detect.preprocessing.reading import page_source
from entourage.io.files import read_json_object, write_json
from entourage.io.fingerprint import fingerprint
from entourage.read.formats.score_json import from_json, measures_from_json, symbols_to_list, to_json
from entourage.read.parts import SystemMusic
from entourage.read.reader import PageReading
from entourage.read.score import PageInfo
from entourage.read.text.attach import Headings
from entourage.runs.directory import RunDirectory
from entourage.runs.records import RecordStore

STATE = ".read"  # folder of records and settings below the output folder
RESULTS = ("report.html", "summary.json")
_OUTPUTS = "."  # outputs lie directly in the output folder


@dataclass(frozen=True)
class PageTask:
    """A page to read.

    Attributes:
        file: its file.
        number: number of the page in a file of several pages, from 1; else None.
    """

    file: Path
    number: int | None

    @property
    def source(self) -> str:
        """File and number of the page, such as "scan.tif#2"."""
        return page_source(self.file, self.number)


class PageRecords:
    """Records of the pages of a run that are finished; `open_records` makes one.

    Args:
        out: output folder.
        inputs: files that are never deleted.
    """

    def __init__(self, out: Path, inputs: Collection[Path]) -> None:
        self.out = out
        self._inputs = inputs
        folder = out / STATE / "pages"
        self._store: RecordStore[dict[str, Any]] = RecordStore(
            folder, ".json", _read_record, _write_record, root=out, folders=(_OUTPUTS,)
        )

    def get(self, task: PageTask) -> PageReading | None:
        """Return what was read on a page, or None if the page is not finished or its file has changed."""
        record = self._store.get(_key(task))
        if record is None or record.get("source") != task.source or record.get("file_state") != file_state(task.file):
            return None
        try:
            return _to_reading(record)
        except (KeyError, TypeError, ValueError):
            return None  # damaged, or of another version

    def put(self, task: PageTask, reading: PageReading) -> None:
        """Write the record of a page."""
        record = {"source": task.source, "file_state": file_state(task.file), **_from_reading(reading)}
        self._store.put(_key(task), record)

    def reserve(self, name: str, files: Collection[str]) -> None:
        """Note the output files of a score before they are written, so that a later run can delete them.

        Files that an earlier run wrote for the score, and that are not among them, are deleted.
        """
        key = f"score {fingerprint(os.fsencode(name))}"
        for file in set(self._store.reserved(key)) - set(files):
            (self.out / file).unlink(missing_ok=True)
        self._store.reserve(key, files)

    def restart(self) -> None:
        """Delete the results of an earlier run, and no other files."""
        summary = read_json_object(self.out / "summary.json")
        if summary.get("made_by") == "read":
            scores = summary.get("scores", [])
            files = [file for score in scores if isinstance(score, dict) for file in score.get("files", [])]
            self._store.reserve("earlier run", [file for file in files if isinstance(file, str) and "/" not in file])
            for name in RESULTS:
                (self.out / name).unlink(missing_ok=True)
        self._store.remove_stale((), self._inputs)

    def delete_state(self) -> None:
        """Delete all records, because the run is complete."""
        shutil.rmtree(self.out / STATE)


@contextmanager
def open_records(out: Path, config: Mapping[str, Any], inputs: Sequence[Path]) -> Iterator[PageRecords]:
    """Lock the output folder of a run and open its records.

    A run with the same configuration resumes with the pages that have no record. Any other run starts from scratch and
    deletes the results of the earlier run, but no other files.

    Args:
        out: output folder.
        config: values that the results depend on, except for the pages.
        inputs: files of the pages.

    Yields:
        The records.

    Raises:
        ValueError: another process is writing to the folder.
    """
    with RunDirectory(out, config, file=f"{STATE}/settings.json", on_mismatch="restart") as run:
        records = PageRecords(out, inputs)
        if not run.resumed:
            records.restart()
            run.commit()
        yield records


def file_state(file: Path) -> list[int]:
    """Return size and modification time of a file; [] if it is missing."""
    try:
        status = file.stat()
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


def _from_reading(reading: PageReading) -> dict[str, Any]:
    systems = [{"sizes": system.sizes, "parts": to_json(system.parts)} for system in reading.systems]
    return {
        "info": to_json(reading.info),
        "headings": to_json(reading.headings),
        "systems": systems,
        "symbols": symbols_to_list(reading.symbols),
    }


def _to_reading(record: Mapping[str, Any]) -> PageReading:
    systems = [SystemMusic(s["sizes"], [measures_from_json(row) for row in s["parts"]]) for s in record["systems"]]
    headings = from_json(Headings, record["headings"])
    return PageReading(from_json(PageInfo, record["info"]), systems, _to_symbols(record["symbols"]), headings)


def _to_symbols(rows: Sequence[Mapping[str, Any]]) -> Detections:
    classes = tuple(dict.fromkeys(row["class"] for row in rows))
    number = {name: index for index, name in enumerate(classes, start=1)}
    return Detections(
        torch.from_numpy(np.array([row["box"] for row in rows], dtype=np.float32).reshape(-1, 4)),
        torch.tensor([number[row["class"]] for row in rows], dtype=torch.int64),
        torch.tensor([row["score"] for row in rows], dtype=torch.float32),
        classes,
    )


def _key(task: PageTask) -> str:
    """Return the name of the record of a page: a digest, because paths may be longer than names of files."""
    return fingerprint(os.fsencode(task.source), size=12)


def _read_record(path: Path) -> dict[str, Any] | None:
    value = json.loads(path.read_text(encoding="utf-8"))
    return value if isinstance(value, dict) else None


def _write_record(path: Path, record: Mapping[str, Any]) -> None:
    write_json(path, record, indent=None)
