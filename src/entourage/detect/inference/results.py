"""What was found, for other programs: COCO's JSON, a table, and the XML files of the first DeepScores.

What a run has found so far, kept page by page, so that one that was stopped goes on where it was.
"""

from __future__ import annotations

import csv
import json
import shutil
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from xml.sax.saxutils import escape

import torch
from torch import nn

from entourage.backbones.backbone import digest_weights
from entourage.detect.detections import Detections
from entourage.detect.preprocessing.reading import page_source
from entourage.io.files import UnreadableFileError, atomic_path, is_unfinished, read_json_object, write_json, write_text


@dataclass(frozen=True)
class PageResult:
    """A page and what was found on it.

    Attributes:
        name: of the page, unlike that of any other.
        file: where it came from.
        number: of the page, from 1, where its file has several; else None.
        width, height: in pixels.
        detections: in these pixels.
        interline: pixels between staff lines, or None.
        seconds: it took.
        message: warnings for the user, or "".
        unnamed: how many symbols were found besides, for which the list of classes has no name.
    """

    name: str
    file: str
    width: int
    height: int
    detections: Detections
    interline: float | None
    seconds: float
    message: str = ""
    number: int | None = None
    unnamed: int = 0

    @property
    def source(self) -> str:
        """File and number, which lead back to the page, unlike those of any other: "scan.tif#2"."""
        return page_source(self.file, self.number)


class ResultFiles:
    """`coco.json`, `detections.csv` and `pages.csv`, written page by page; detect_prepared `open_results`."""

    def __init__(self, ids: Mapping[str, int], coco: TextIO, table: TextIO, pages: TextIO) -> None:
        self._ids, self._coco = ids, coco
        self._table, self._pages = (csv.writer(stream, lineterminator="\n") for stream in (table, pages))
        self._images: list[dict[str, Any]] = []
        self._count = 0
        self._table.writerow(["page", "class", "score", "x0", "y0", "x1", "y1"])
        self._pages.writerow(["page", "file", "width", "height", "symbols", "interline", "seconds", "note"])
        categories = [{"id": n, "name": name, "supercategory": "music"} for name, n in ids.items()]
        head = {"info": {"description": "found by entourage detect"}, "licenses": [], "categories": categories}
        coco.write(json.dumps(head)[:-1] + ', "annotations": [')

    def add(self, page: PageResult) -> None:
        """Writes a page into all of them."""
        number = len(self._images) + 1
        size = {"width": page.width, "height": page.height}
        self._images.append({"id": number, "file_name": page.source, "name": page.name, **size})
        rows = zip(page.detections.names, page.detections.scores.tolist(), page.detections.boxes.tolist(), strict=True)
        for name, score, box in rows:
            x0, y0, x1, y1 = (round(value, 2) for value in box)
            bbox = [x0, y0, round(x1 - x0, 2), round(y1 - y0, 2)]
            row = {"id": self._count + 1, "image_id": number, "category_id": self._ids[name], "bbox": bbox}
            row |= {"area": round(bbox[2] * bbox[3], 2), "iscrowd": 0, "score": round(score, 4)}
            self._coco.write((", " if self._count else "") + json.dumps(row))
            self._count += 1
            self._table.writerow([page.name, name, f"{score:.4f}", *(f"{value:g}" for value in (x0, y0, x1, y1))])
        interline = "" if page.interline is None else f"{page.interline:.2f}"
        cells = [page.width, page.height, len(page.detections), interline, f"{page.seconds:.3f}", page.message]
        self._pages.writerow([page.name, page.source, *cells])

    def finish(self) -> None:
        """Closes what is open in the JSON."""
        self._coco.write('], "images": ' + json.dumps(self._images) + "}\n")


@contextmanager
def open_results(folder: Path, ids: Mapping[str, int]) -> Iterator[ResultFiles]:
    """Opens the files of a run; they appear when the block succeeds, and memory does not grow with their length.

    Args:
        folder: where they go.
        ids: the classes and their numbers in COCO's JSON.
    """
    with (
        atomic_path(folder / "coco.json") as coco,
        atomic_path(folder / "detections.csv") as table,
        atomic_path(folder / "pages.csv") as pages,
        coco.open("w", encoding="utf-8") as coco_stream,
        table.open("w", newline="", encoding="utf-8") as table_stream,
        pages.open("w", newline="", encoding="utf-8") as pages_stream,
    ):
        files = ResultFiles(ids, coco_stream, table_stream, pages_stream)
        yield files
        files.finish()


def write_xml(folder: Path, page: PageResult) -> None:
    """Writes `xml/NAME.xml` for a page."""
    write_text(folder / "xml" / f"{page.name}.xml", page_xml(page))


def page_xml(page: PageResult) -> str:
    """The annotation of a page as in DeepScores: corners as shares of its size; scores are an addition."""
    lines = [
        "<annotation>",
        f"  <filename>{escape(Path(page.source).name)}</filename>",
        f"  <size><width>{page.width}</width><height>{page.height}</height><depth>1</depth></size>",
    ]
    rows = zip(page.detections.names, page.detections.scores.tolist(), page.detections.boxes.tolist(), strict=True)
    for name, score, (x0, y0, x1, y1) in rows:
        box = f"<xmin>{x0 / page.width:.8f}</xmin><xmax>{x1 / page.width:.8f}</xmax>"
        box += f"<ymin>{y0 / page.height:.8f}</ymin><ymax>{y1 / page.height:.8f}</ymax>"
        found = f"<name>{escape(name)}</name><score>{score:.4f}</score><bndbox>{box}</bndbox>"
        lines.append(f"  <object>{found}</object>")
    return "\n".join([*lines, "</annotation>", ""])


STATE = ".detect"  # folder inside the output while a run is not complete
RESULTS = ("coco.json", "detections.csv", "pages.csv", "report.html", "summary.json")
_PAGE_FILES = {"xml": ".xml", "drawn": ".png"}  # folders of files that each page has for itself, and their endings
_RECORD_FIELDS = ("name", "file", "width", "height", "interline", "seconds", "message", "number", "unnamed")


class PageRecords:
    """The pages of a run that are done, in the folder that the run writes to.

    A run with the same config goes on with what it finds there; pages of files that have changed since, that are not
    asked for any more, or whose records are damaged, are taken away. Any other run begins anew, and takes away what an
    earlier one has left, but nothing that others have put beside it; so does one that finds the config damaged.

    Args:
        out: the folder.
        config: what the results depend on besides the pages, as JSON has it; without "draw" no page is drawn.
        classes: under whose names results are kept.
        files: that the run looks at, in order.
    """

    def __init__(self, out: Path, config: Mapping[str, Any], classes: tuple[str, ...], files: Sequence[Path]) -> None:
        self.out, self.classes, self.files = out, classes, list(files)
        self._folders = tuple(name for name in _PAGE_FILES if name != "drawn" or config.get("draw"))
        self._records: dict[str, dict[int | None, Path]] = {str(file): {} for file in files}
        config_file = out / STATE / "settings.json"
        stored = read_json_object(config_file)
        if stored == config:
            self._resume()
            return
        if config_file.is_file() and not stored:
            warnings.warn(f"{config_file} is damaged: pages that were done are looked at again", stacklevel=2)
        _clear(out)
        write_json(config_file, config)

    def __len__(self) -> int:
        """How many pages are done."""
        return sum(map(len, self._records.values()))

    @property
    def names(self) -> set[str]:
        """The names of the pages that are done."""
        return {_page_name(path) for records in self._records.values() for path in records.values()}

    def done(self, file: Path) -> set[int | None]:
        """Which pages of a file are done, by number; that of a file of one page is None."""
        return set(self._records[str(file)])

    def reserve(self, page: PageResult) -> None:
        """Says that files of a page are about to be written, so that a later run finds them if this one is killed."""
        record = {"name": page.name, "file": page.file, "number": page.number}
        write_json(self._path(page), {**record, "file_state": None}, indent=None)

    def add(self, page: PageResult) -> None:
        """Keeps a page of which all else has been written."""
        record = {name: getattr(page, name) for name in _RECORD_FIELDS}
        record |= {name: value.tolist() for name, value in page.detections.to_dict().items()}
        write_json(self._path(page), {**record, "file_state": _file_state(Path(page.file))}, indent=None)
        self._records[page.file][page.number] = self._path(page)

    def pages(self) -> Iterator[PageResult]:
        """The pages that are done, in the order of their files and their numbers; one at a time is in memory.

        Raises:
            UnreadableFileError: the record of one was damaged since.
        """
        for file in self.files:
            records = self._records[str(file)]
            for number in sorted(records, key=lambda n: n or 0):
                page = self._page(read_json_object(records[number]))
                if page is None:
                    message = "it is damaged; the same command looks at the page again"
                    raise UnreadableFileError(records[number], message)
                yield page

    def close(self) -> None:
        """Forgets all of it, for the run is complete."""
        shutil.rmtree(self.out / STATE)

    def _path(self, page: PageResult) -> Path:
        return self.out / STATE / "pages" / f"{page.name}.json"

    def _resume(self) -> None:
        _clear_unfinished(self.out)
        for path in _record_files(self.out):
            record = read_json_object(path)
            page = self._page(record)
            page_files = [self.out / folder / f"{_page_name(path)}{_PAGE_FILES[folder]}" for folder in self._folders]
            if page is not None and self._is_current(page, record.get("file_state"), page_files):
                self._records[page.file][page.number] = path
                continue
            for stale in (path, *page_files):
                stale.unlink(missing_ok=True)

    def _is_current(self, page: PageResult, file_state: object, page_files: Sequence[Path]) -> bool:
        """Whether a page is asked for, its file has not changed since, and its own files are there."""
        complete = all(file.is_file() for file in page_files)
        return complete and page.file in self._records and file_state == _file_state(Path(page.file))

    def _page(self, record: dict[str, Any]) -> PageResult | None:
        """The page of a record; None if it was only reserved, or the record is damaged."""
        try:
            boxes = torch.tensor(record["boxes"], dtype=torch.float32).reshape(-1, 4)
            labels, scores = torch.tensor(record["labels"], dtype=torch.int64), torch.tensor(record["scores"])
            detections = Detections(boxes, labels, scores.float(), self.classes)
            return PageResult(detections=detections, **{name: record[name] for name in _RECORD_FIELDS})
        except (KeyError, TypeError, ValueError, RuntimeError):
            return None


def model_digest(model: nn.Module) -> str:
    """A short text that is another for other weights."""
    return digest_weights(model.state_dict())


def _clear(out: Path) -> None:
    """Takes away what an earlier run left in the folder, lest pages of both lie side by side, and nothing else."""
    config, summary = read_json_object(out / STATE / "settings.json"), _summary(out)
    if not (out / STATE).is_dir() and not summary:
        return
    pages = {_page_name(path) for path in _record_files(out)}
    pages |= _names_in_table(out) if summary else set()
    draws = (config or summary).get("draw", bool(config or summary))  # without either, drawings may be the user's
    for folder, ending in _PAGE_FILES.items():
        for name in pages if draws or folder != "drawn" else ():
            (out / folder / f"{name}{ending}").unlink(missing_ok=True)
    _clear_unfinished(out)
    for folder in _PAGE_FILES:
        with suppress(OSError):  # it is not there, or others have put something into it
            (out / folder).rmdir()
    shutil.rmtree(out / STATE, ignore_errors=True)
    for name in RESULTS:
        (out / name).unlink(missing_ok=True)


def _clear_unfinished(out: Path) -> None:
    """Takes away what a kill left half written."""
    for file in [path for folder in (".", *_PAGE_FILES) for path in (out / folder).glob(".*")]:
        if file.is_file() and is_unfinished(file):
            file.unlink()


def _record_files(out: Path) -> list[Path]:
    """The files that a run keeps of its pages while it is not complete."""
    return sorted(path for path in (out / STATE / "pages").glob("*.json") if not is_unfinished(path))


def _page_name(record: Path) -> str:
    """The name of the page that a record is of."""
    return record.name.removesuffix(".json")


def _names_in_table(out: Path) -> set[str]:
    """The pages that the table of a run tells of; a name that would lead out of the folder is none of a run's."""
    try:
        with (out / "pages.csv").open(newline="", encoding="utf-8") as table:
            names = {row.get("page") or "" for row in csv.DictReader(table)}
    except (OSError, ValueError, csv.Error):
        return set()
    return {name for name in names if name and Path(name).name == name}


def _summary(out: Path) -> dict[str, Any]:
    """The summary that a run has written there; nothing, if another command wrote it, or none."""
    summary = read_json_object(out / "summary.json")
    return summary if {"list", "symbols", "skipped"} <= set(summary) else {}


def _file_state(file: Path) -> list[int]:
    """What changes with a file."""
    status = file.stat()
    return [status.st_size, status.st_mtime_ns]
