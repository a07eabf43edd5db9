"""Results of a detection run: COCO's JSON, tables and XML files, and records that let an interrupted run resume."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from xml.sax.saxutils import escape

import numpy as np
import torch
from torch import nn

from entourage.backbones.backbone import digest_weights
from entourage.detect.detections import Detections
from entourage.detect.preprocessing.reading import page_source
from entourage.io.files import UnreadableFileError, atomic_path, read_json_object, write_json, write_text
from entourage.runs.directory import RunDirectory
from entourage.runs.records import RecordStore

STATE = ".detect"  # folder of the records, below the output folder, until a run is complete
RESULTS = ("coco.json", "detections.csv", "pages.csv", "report.html", "summary.json")
_FOLDERS = ("xml", "drawn")  # output folders with one file per page
_RECORD_FIELDS = ("name", "file", "width", "height", "interline", "seconds", "message", "number", "unnamed")


@dataclass(frozen=True)
class PageResult:
    """The detections on a page, as they are written to the result files.

    Attributes:
        name: unique name of the page.
        file: the file that contains the page.
        width, height: size in pixels.
        detections: objects, in pixels of the page.
        interline: pixels between staff lines; None: the page has no staves.
        seconds: processing time.
        message: warnings for the user, or "".
        number: number of the page, from 1, in a file of several pages; else None.
        unnamed: number of detections that are omitted because the class list has no name for them.
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
        """File and number of the page, such as "scan.tif#2"."""
        return page_source(self.file, self.number)


class ResultFiles:
    """Writer of `coco.json`, `detections.csv` and `pages.csv`, page by page; `open_results` makes one."""

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
        """Append the detections on a page to `coco.json`, `detections.csv` and `pages.csv`."""
        image_id = len(self._images) + 1
        size = {"width": page.width, "height": page.height}
        self._images.append({"id": image_id, "file_name": page.source, "name": page.name, **size})
        for name, score, box in _rows(page):
            x0, y0, x1, y1 = (round(value, 2) for value in box)
            bbox = [x0, y0, round(x1 - x0, 2), round(y1 - y0, 2)]
            row = {"id": self._count + 1, "image_id": image_id, "category_id": self._ids[name], "bbox": bbox}
            row |= {"area": round(bbox[2] * bbox[3], 2), "iscrowd": 0, "score": round(score, 4)}
            self._coco.write((", " if self._count else "") + json.dumps(row))
            self._count += 1
            self._table.writerow([page.name, name, f"{score:.4f}", *(f"{value:g}" for value in (x0, y0, x1, y1))])
        interline = "" if page.interline is None else f"{page.interline:.2f}"
        cells = [page.width, page.height, len(page.detections), interline, f"{page.seconds:.3f}", page.message]
        self._pages.writerow([page.name, page.source, *cells])

    def finish(self) -> None:
        """Write the end of `coco.json` after the last page."""
        self._coco.write('], "images": ' + json.dumps(self._images) + "}\n")


@contextmanager
def open_results(folder: Path, ids: Mapping[str, int]) -> Iterator[ResultFiles]:
    """Open the result files, which are written page by page and appear when the block succeeds.

    Args:
        folder: the folder to write to.
        ids: class names and their ids in COCO's JSON.

    Yields:
        The writer.
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
    """Write the detections on a page to `xml/NAME.xml`."""
    write_text(folder / "xml" / f"{page.name}.xml", page_xml(page))


def page_xml(page: PageResult) -> str:
    """Return the XML annotation of a page as in DeepScores V1, with scores; corners are fractions of the page size."""
    lines = [
        "<annotation>",
        f"  <filename>{escape(Path(page.source).name)}</filename>",
        f"  <size><width>{page.width}</width><height>{page.height}</height><depth>1</depth></size>",
    ]
    for name, score, (x0, y0, x1, y1) in _rows(page):
        box = f"<xmin>{x0 / page.width:.8f}</xmin><xmax>{x1 / page.width:.8f}</xmax>"
        box += f"<ymin>{y0 / page.height:.8f}</ymin><ymax>{y1 / page.height:.8f}</ymax>"
        content = f"<name>{escape(name)}</name><score>{score:.4f}</score><bndbox>{box}</bndbox>"
        lines.append(f"  <object>{content}</object>")
    return "\n".join([*lines, "</annotation>", ""])


def _rows(page: PageResult) -> Iterator[tuple[str, float, list[float]]]:
    """Yield class name, score and box of each detection on a page."""
    found = page.detections
    yield from zip(found.names, found.scores.tolist(), found.boxes.tolist(), strict=True)


class PageRecords:
    """Records of the finished pages of a run, below its output folder; `open_records` makes one.

    Args:
        out: the output folder.
        classes: class list of the results.
        files: files of the run, in order.
        draw: whether pages are drawn.
    """

    def __init__(self, out: Path, classes: tuple[str, ...], files: Sequence[Path], *, draw: bool) -> None:
        self.out, self.classes, self.files = out, classes, list(files)
        self._draw = draw
        self._names: dict[str, dict[int | None, str]] = {str(file): {} for file in files}
        folder = out / STATE / "pages"
        self._store = RecordStore(folder, ".json", self._read_record, _write_record, root=out, folders=_FOLDERS)

    def __len__(self) -> int:
        """Return the number of finished pages in the records."""
        return sum(map(len, self._names.values()))

    @property
    def names(self) -> set[str]:
        """Names of the finished pages."""
        return {name for names in self._names.values() for name in names.values()}

    def done(self, file: Path) -> set[int | None]:
        """Return the numbers of the finished pages of a file; the only page of a file has the number None."""
        return set(self._names[str(file)])

    def reserve(self, page: PageResult) -> None:
        """Note the files of a page before they are written, so that a later run can delete them."""
        self._store.reserve(_record_key(page.name), _page_files([page.name], draw=self._draw))

    def add(self, page: PageResult) -> None:
        """Write the record of a page after all of its files have been written."""
        self._store.put(_record_key(page.name), (page, _file_state(Path(page.file))))
        self._names[page.file][page.number] = page.name

    def pages(self) -> Iterator[PageResult]:
        """Yield the results of the finished pages one at a time, ordered by file and page number.

        Raises:
            UnreadableFileError: a record has been damaged since the run was opened.
        """
        for file in self.files:
            names = self._names[str(file)]
            for number in sorted(names, key=lambda n: n or 0):
                key = _record_key(names[number])
                record = self._store.get(key)
                if record is None:
                    raise UnreadableFileError(self._store.path(key), "it is damaged; repeat the command to replace it")
                yield record[0]

    def delete_state(self) -> None:
        """Delete all records, which are not needed after the run is complete."""
        shutil.rmtree(self.out / STATE)

    def resume(self) -> None:
        """Keep the records that are still valid; delete all other records and the files of their pages."""
        kept = []
        for key in self._store.keys():  # noqa: SIM118 - not a dict
            record = self._store.get(key)
            if record is not None and self._is_valid(*record):
                page = record[0]
                self._names[page.file][page.number] = page.name
                kept.append(key)
        self._store.remove_stale(kept)

    def restart(self, *, incomplete: bool) -> None:
        """Delete the results of an earlier run; files from other sources remain.

        The files of an incomplete run are reserved; those of a complete run are listed in its table of pages.
        """
        summary = _run_summary(self.out)
        if summary:
            draw = summary.get("draw", True)
            self._store.reserve("earlier run", _page_files(_names_in_table(self.out), draw=draw))
        incomplete |= bool(self._store.keys())
        if self._store.remove_stale(()) or incomplete or summary:
            for folder in _FOLDERS:
                with suppress(OSError):  # the folder is missing or contains other files
                    (self.out / folder).rmdir()
            for name in RESULTS:
                (self.out / name).unlink(missing_ok=True)

    def _is_valid(self, page: PageResult, file_state: object) -> bool:
        """Return whether the input file of a page is listed and unchanged, and all output files of the page exist."""
        complete = all((self.out / file).is_file() for file in _page_files([page.name], draw=self._draw))
        return complete and page.file in self._names and file_state == _file_state(Path(page.file))

    def _read_record(self, path: Path) -> tuple[PageResult, object]:
        record = json.loads(path.read_text(encoding="utf-8"))
        boxes = torch.from_numpy(np.array(record["boxes"], np.float32).reshape(-1, 4))
        labels = torch.from_numpy(np.array(record["labels"], np.int64))
        scores = torch.from_numpy(np.array(record["scores"], np.float32))
        detections = Detections(boxes, labels, scores, self.classes)
        page = PageResult(detections=detections, **{name: record[name] for name in _RECORD_FIELDS})
        return page, record["file_state"]


@contextmanager
def open_records(
    out: Path, config: Mapping[str, Any], classes: tuple[str, ...], files: Sequence[Path]
) -> Iterator[PageRecords]:
    """Lock the output folder of a run and open its records.

    A run with the same configuration resumes with the pages whose records are intact, whose input has not changed and
    whose output exists. Any other run starts from scratch and deletes the results of the earlier run, but no other
    files.

    Args:
        out: the output folder.
        config: values that the results depend on, except for the pages; "draw": whether pages are drawn.
        classes: class list of the results.
        files: files of the run, in order.

    Yields:
        The records.

    Raises:
        ValueError: another process is writing to the folder.
    """
    with RunDirectory(out, config, file=f"{STATE}/settings.json", on_mismatch="restart", folders=_FOLDERS) as run:
        records = PageRecords(out, classes, files, draw=bool(config.get("draw")))
        if run.resumed:
            records.resume()
        else:
            records.restart(incomplete=run.restarted)
            run.commit()
        yield records


def model_digest(model: nn.Module) -> str:
    """Return a digest of the weights of a model."""
    return digest_weights(model.state_dict())


def _write_record(path: Path, record: tuple[PageResult, object]) -> None:
    page, file_state = record
    fields = {name: getattr(page, name) for name in _RECORD_FIELDS}
    fields |= {name: value.tolist() for name, value in page.detections.to_dict().items()}
    write_json(path, {**fields, "file_state": file_state}, indent=None)


def _page_files(names: Iterable[str], *, draw: bool) -> list[str]:
    """Return the paths of the files of pages, relative to the output folder."""
    return [file for name in names for file in (f"xml/{name}.xml", *([f"drawn/{name}.png"] if draw else []))]


def _record_key(name: str) -> str:
    """Return the name of a page with escaped backslashes, which file names may contain but keys may not."""
    return name.replace("%", "%25").replace("\\", "%5C")


def _names_in_table(out: Path) -> set[str]:
    """Return the names of the pages in `pages.csv`, without those that are not plain file names."""
    try:
        with (out / "pages.csv").open(newline="", encoding="utf-8") as table:
            names = {row.get("page") or "" for row in csv.DictReader(table)}
    except (OSError, ValueError, csv.Error):
        return set()
    return {name for name in names if name and Path(name).name == name}


def _run_summary(out: Path) -> dict[str, Any]:
    """Return the summary that a detection run wrote; {} if it is missing or written by another command."""
    summary = read_json_object(out / "summary.json")
    return summary if {"list", "symbols", "skipped"} <= set(summary) else {}


def _file_state(file: Path) -> list[int]:
    """Return size and modification time of a file."""
    status = file.stat()
    return [status.st_size, status.st_mtime_ns]
