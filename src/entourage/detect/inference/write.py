"""What was found, for other programs: COCO's JSON, a table, and the XML files of the first DeepScores."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO
from xml.sax.saxutils import escape

from entourage.detect.detections import Detections
from entourage.detect.preprocessing.read import page_source
from entourage.io.writing import atomic_path, write_text


@dataclass(frozen=True)
class PageResult:
    """A page and what was found on it.

    Attributes:
        name: of the page, unlike that of any other.
        file: where it came from.
        number: of the page, from 1, where its file has several; else None.
        width, height: in pixels.
        found: in these pixels.
        interline: pixels between staff lines, or None.
        seconds: it took.
        note: what is to be said of it, or nothing.
        unnamed: how many symbols were found besides, for which the list of classes has no name.
    """

    name: str
    file: str
    width: int
    height: int
    found: Detections
    interline: float | None
    seconds: float
    note: str = ""
    number: int | None = None
    unnamed: int = 0

    @property
    def source(self) -> str:
        """File and number, which lead back to the page, unlike those of any other: "scan.tif#2"."""
        return page_source(self.file, self.number)


class ResultFiles:
    """`coco.json`, `detections.csv` and `pages.csv`, written page by page; see `open_results`."""

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
        rows = zip(page.found.names, page.found.scores.tolist(), page.found.boxes.tolist(), strict=True)
        for name, score, box in rows:
            x0, y0, x1, y1 = (round(value, 2) for value in box)
            bbox = [x0, y0, round(x1 - x0, 2), round(y1 - y0, 2)]
            row = {"id": self._count + 1, "image_id": number, "category_id": self._ids[name], "bbox": bbox}
            row |= {"area": round(bbox[2] * bbox[3], 2), "iscrowd": 0, "score": round(score, 4)}
            self._coco.write((", " if self._count else "") + json.dumps(row))
            self._count += 1
            self._table.writerow([page.name, name, f"{score:.4f}", *(f"{value:g}" for value in (x0, y0, x1, y1))])
        interline = "" if page.interline is None else f"{page.interline:.2f}"
        cells = [page.width, page.height, len(page.found), interline, f"{page.seconds:.3f}", page.note]
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
    rows = zip(page.found.names, page.found.scores.tolist(), page.found.boxes.tolist(), strict=True)
    for name, score, (x0, y0, x1, y1) in rows:
        box = f"<xmin>{x0 / page.width:.8f}</xmin><xmax>{x1 / page.width:.8f}</xmax>"
        box += f"<ymin>{y0 / page.height:.8f}</ymin><ymax>{y1 / page.height:.8f}</ymax>"
        found = f"<name>{escape(name)}</name><score>{score:.4f}</score><bndbox>{box}</bndbox>"
        lines.append(f"  <object>{found}</object>")
    return "\n".join([*lines, "</annotation>", ""])
