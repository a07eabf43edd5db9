"""Annotation formats: the table of symbols, from which COCO and DeepScoresV2 are written, and DeepScores' XML.

- symbols.parquet: one row per symbol with all of its attributes.
- COCO: boxes and masks of the extended list.
- DeepScoresV2: both annotation sets, axis-aligned and oriented boxes; musical attributes are in the comments.
- XML, one file per page, as in the first DeepScores: classes of V1, boxes as fractions of the page size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from entourage.engrave.render.page import Page
from entourage.io.files import atomic_path
from entourage.io.safe_formats import parquet_errors
from entourage.symbols import EXTENDED_IDS, FULL_IDS, MUSCIMA_IDS, V1_IDS, muscima_id

SCHEMA = pa.schema(
    [
        ("score", pa.string()),  # the score's name in this data set
        ("source", pa.string()),  # its file in this data set
        ("work", pa.string()),  # all pages of a work are in the same split
        ("page", pa.string()),  # name of the image, without suffix
        ("number", pa.int32()),  # of the page in its score, from 1
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("font", pa.string()),
        ("complete", pa.bool_()),  # every glyph on the page has a class
        ("symbol", pa.int32()),  # value in the instance image, from 1
        ("label", pa.string()),  # class in the extended list, or ""
        ("label_id", pa.int32()),  # 0 if none
        ("v1", pa.string()),  # class in V1, or ""
        ("v1_id", pa.int32()),
        ("muscima_id", pa.int32()),
        ("full", pa.string()),  # class in the full list, or ""
        ("full_id", pa.int32()),
        *[(name, pa.int32()) for name in ("x0", "y0", "x1", "y1")],  # x1, y1 are exclusive
        ("oriented", pa.list_(pa.float32(), 8)),  # corners x, y of the oriented box
        ("area", pa.int32()),  # pixels, hidden ones included
        ("mask", pa.string()),  # COCO's compressed run lengths, hidden pixels included
        ("element", pa.string()),  # id in the source
        ("notes", pa.list_(pa.string())),  # ids of the notes to which it belongs
        ("heads", pa.list_(pa.int32())),  # the same notes as values of the instance image
        ("onset", pa.float64()),  # quarter notes from the beginning of the score
        ("duration", pa.float64()),
        ("measure", pa.int32()),  # from 1 in the score; 0 if none, as in the following
        ("system", pa.int32()),  # from 1 at the top of the page
        ("staff", pa.int32()),  # from 1 at the top of a system
        ("voice", pa.int32()),  # on its staff, as numbered in the score
        ("position", pa.int32()),  # steps above the middle of the staff
        ("pitch", pa.string()),
        ("midi", pa.int32()),
    ]
)


def page_table(page: Page, *, score: str, source: str, work: str, name: str, font: str) -> pa.Table:
    """Convert the symbols of a page to rows of the table `symbols.parquet`.

    Args:
        page: the page.
        score: name of the score in the data set.
        source: path of the score in the data set.
        work: key of the musical work.
        name: name of the page's image, without suffix.
        font: name of the music font.

    Returns:
        A table with the columns of `SCHEMA`, one row per symbol.
    """
    height, width = page.image.shape
    symbols = page.symbols
    heads = {s.notes[0]: i for i, s in enumerate(symbols, start=1) if s.label.startswith("notehead") and s.notes}
    n_symbols = len(symbols)
    columns = {
        "score": [score] * n_symbols,
        "source": [source] * n_symbols,
        "work": [work] * n_symbols,
        "page": [name] * n_symbols,
        "number": [page.number] * n_symbols,
        "width": [width] * n_symbols,
        "height": [height] * n_symbols,
        "font": [font] * n_symbols,
        "complete": [page.complete] * n_symbols,
        "symbol": range(1, n_symbols + 1),
        "label": [s.extended for s in symbols],
        "label_id": [EXTENDED_IDS.get(s.extended, 0) for s in symbols],
        "v1": [s.v1 for s in symbols],
        "v1_id": [V1_IDS.get(s.v1, 0) for s in symbols],
        "muscima_id": [(muscima_id(s.extended) or 0) if s.extended else 0 for s in symbols],
        "full": [s.label for s in symbols],
        "full_id": [FULL_IDS.get(s.label, 0) for s in symbols],
        **{name: page.boxes[:, k] for k, name in enumerate(("x0", "y0", "x1", "y1"))},
        "oriented": list(page.oriented.reshape(-1, 8).round(2)),
        "area": page.areas,
        "mask": page.masks,
        "element": [s.element for s in symbols],
        "notes": [s.notes for s in symbols],
        "heads": [[heads[n] for n in s.notes if n in heads] for s in symbols],
        "onset": [None if s.onset is None else round(s.onset, 6) for s in symbols],
        "duration": [None if s.duration is None else round(s.duration, 6) for s in symbols],
        **{name: [getattr(s, name) for s in symbols] for name in ("measure", "system", "staff", "voice")},
        "position": [s.position for s in symbols],
        "pitch": [s.pitch for s in symbols],
        "midi": [s.midi for s in symbols],
    }
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in SCHEMA}, schema=SCHEMA)


def read_table(folder: Path, columns: list[str]) -> pd.DataFrame:
    """Read columns of the table `symbols.parquet` of a data set.

    Args:
        folder: folder of the data set.
        columns: names of the columns.

    Returns:
        The columns, one row per symbol.

    Raises:
        ValueError: the folder is not a data set, or its table is damaged.
    """
    path = folder / "symbols.parquet"
    if not path.is_file():
        raise ValueError(f"{folder}: has no symbols.parquet; expected a data set from `entourage engrave`")
    with parquet_errors(path, "entourage engrave"):
        return pq.read_table(path, columns=columns).to_pandas()  # type: ignore[no-any-return]


Rows = list[dict[str, Any]]  # the symbols of one page, as rows of the table


def write_coco(path: Path, pages: Iterable[Rows], description: str) -> None:
    """Write COCO's JSON page by page, with the annotations of one page in memory.

    Args:
        path: the file.
        pages: symbols of each page, as rows of the table.
        description: description of the data set.
    """
    categories = [{"id": n, "name": name, "supercategory": "music"} for name, n in EXTENDED_IDS.items()]
    head = {"info": {"description": description, "version": "1"}, "licenses": [], "categories": categories}
    images: list[dict[str, Any]] = []
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(head)[:-1] + ', "annotations": [')
        number = 1
        for image, rows in enumerate(pages, start=1):
            first = rows[0]
            attributes = {name: first[name] for name in ("width", "height", "source", "complete")}
            images.append({"id": image, "file_name": f"{first['page']}.png", **attributes})
            annotations = [_annotation(row, image, 0) for row in rows if row["label_id"]]
            for annotation in annotations:
                annotation["id"] = number
                number += 1
            if annotations:
                comma = ", " if number > 1 + len(annotations) else ""
                stream.write(comma + json.dumps(annotations)[1:-1])
        stream.write('], "images": ' + json.dumps(images) + "}\n")


def _annotation(row: dict[str, Any], image: int, number: int) -> dict[str, Any]:
    x0, y0, x1, y1 = (row[name] for name in ("x0", "y0", "x1", "y1"))
    return {
        "id": number,
        "image_id": image,
        "category_id": row["label_id"],
        "bbox": [x0, y0, x1 - x0, y1 - y0],
        "area": row["area"],
        "iscrowd": 0,
        "segmentation": {"size": [row["height"], row["width"]], "counts": row["mask"]},
        "attributes": {name: row[name] for name in ("onset", "duration", "staff", "position", "pitch", "element")},
    }


def page_xml(page: Page, filename: str) -> str:
    """Return the XML annotation of a page; the corners of boxes are relative to width and height.

    Args:
        page: the page.
        filename: name of the image.

    Returns:
        The XML document.
    """
    height, width = page.image.shape
    lines = [
        "<annotation>",
        f"  <filename>{escape(filename)}</filename>",
        f"  <size><width>{width}</width><height>{height}</height><depth>1</depth></size>",
    ]
    for symbol, (x0, y0, x1, y1) in zip(page.symbols, page.boxes.tolist(), strict=True):
        if symbol.v1:
            box = f"<xmin>{x0 / width:.8f}</xmin><xmax>{x1 / width:.8f}</xmax>"
            box += f"<ymin>{y0 / height:.8f}</ymin><ymax>{y1 / height:.8f}</ymax>"
            lines.append(f"  <object><name>{symbol.v1}</name><bndbox>{box}</bndbox></object>")
    return "\n".join([*lines, "</annotation>", ""])


def write_deepscores(path: Path, pages: Iterable[Rows], description: str) -> None:
    """Write DeepScoresV2's JSON page by page, with the annotations of one page in memory.

    Args:
        path: the file.
        pages: symbols of each page, as rows of the table; annotations are numbered from 1 in this order.
        description: description of the data set.
    """
    info = {"description": description, "version": "2.0", "annotation_format": "DeepScoresV2"}
    head = {"info": info, "annotation_sets": ["deepscores", "muscima++"], "categories": _categories()}
    images: list[Mapping[str, Any]] = []
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(head)[:-1] + ', "annotations": {')
        first, number = True, 1
        for image, rows in enumerate(pages, start=1):
            annotations = dict(_annotations(rows, image, number))
            images.append(_image(rows, image, list(annotations)))
            number += len(annotations)
            if annotations:
                stream.write(("" if first else ", ") + json.dumps(annotations)[1:-1])
                first = False
        stream.write('}, "images": ' + json.dumps(images) + "}\n")


def _categories() -> dict[str, dict[str, Any]]:
    """Return name, annotation set and value in the segmentation images of each class."""
    extended = {str(n): {"name": name, "annotation_set": "deepscores", "color": n} for name, n in EXTENDED_IDS.items()}
    return extended | {
        str(n): {"name": name, "annotation_set": "muscima++", "color": n - 136} for name, n in MUSCIMA_IDS.items()
    }


def _image(rows: Rows, number: int, annotations: list[str]) -> dict[str, Any]:
    first = rows[0]
    return {
        "id": number,
        "filename": f"{first['page']}.png",
        "width": first["width"],
        "height": first["height"],
        "ann_ids": annotations,
        "source": first["source"],
        "complete": first["complete"],
    }


def _annotations(rows: Rows, image: int, number: int) -> Iterator[tuple[str, dict[str, Any]]]:
    for row in rows:
        if row["label_id"]:
            muscima = str(row["muscima_id"]) if row["muscima_id"] else None
            yield (
                str(number),
                {
                    "a_bbox": [row["x0"], row["y0"], row["x1"], row["y1"]],
                    "o_bbox": [round(v, 2) for v in row["oriented"]],
                    "cat_id": [str(row["label_id"]), muscima],
                    "area": row["area"],
                    "img_id": str(image),
                    "comments": _comments(row),
                },
            )
            number += 1


def _comments(row: Mapping[str, Any]) -> str:
    comments = {"instance": f"#{row['symbol']:06x}"}
    for name, key in (("onset", "onset"), ("duration", "duration"), ("rel_position", "position")):
        if row[key] is not None:
            comments[name] = f"{round(row[key], 6):.15g}"  # six decimals as in the table, also for large onsets
    for name in ("staff", "pitch", "element"):
        if row[name]:
            comments[name] = str(row[name])
    if row["heads"]:
        comments["heads"] = ",".join(f"#{head:06x}" for head in row["heads"])
    return "".join(f"{name}:{value};" for name, value in comments.items())


__all__ = ["SCHEMA", "page_table", "page_xml", "read_table", "write_coco", "write_deepscores"]
