"""DeepScoresV2's JSON: both annotation sets, upright and oriented boxes, and the music in the comments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from entourage.engrave.dataset.coco import Rows
from entourage.io.writing import atomic_path
from entourage.symbols import EXTENDED_IDS, MUSCIMA_IDS


def write_deepscores(path: Path, pages: Iterable[Rows], description: str) -> None:
    """Writes the file page by page, so that memory does not grow with the data set.

    Args:
        path: the file.
        pages: the symbols of each page; annotations are numbered from 1 in this order.
        description: of the data set.
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
    """Name, annotation set and the value of the class in segmentation images of this data set."""
    ours = {str(n): {"name": name, "annotation_set": "deepscores", "color": n} for name, n in EXTENDED_IDS.items()}
    return ours | {
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
    known = {"instance": f"#{row['symbol']:06x}"}
    for name, key in (("onset", "onset"), ("duration", "duration"), ("rel_position", "position")):
        if row[key] is not None:
            known[name] = (
                f"{round(row[key], 6):.15g}"  # the table has six decimals, and late onsets many digits before them
            )
    for name in ("staff", "pitch", "element"):
        if row[name]:
            known[name] = str(row[name])
    if row["heads"]:
        known["heads"] = ",".join(f"#{head:06x}" for head in row["heads"])
    return "".join(f"{name}:{value};" for name, value in known.items())
