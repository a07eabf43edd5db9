"""COCO's JSON: boxes and masks of the extended list."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from entourage.io.writing import atomic_path
from entourage.symbols import EXTENDED_IDS

Rows = list[dict[str, Any]]  # the symbols of one page, as rows of the table


def write_coco(path: Path, pages: Iterable[Rows], description: str) -> None:
    """Writes the file page by page, so that memory does not grow with the data set.

    Args:
        path: the file.
        pages: the symbols of each page, as rows of the table.
        description: of the data set.
    """
    categories = [{"id": n, "name": name, "supercategory": "music"} for name, n in EXTENDED_IDS.items()]
    head = {"info": {"description": description, "version": "1"}, "licenses": [], "categories": categories}
    images: list[dict[str, Any]] = []
    with atomic_path(path) as temporary, temporary.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(head)[:-1] + ', "annotations": [')
        number = 1
        for image, rows in enumerate(pages, start=1):
            first = rows[0]
            known = {name: first[name] for name in ("width", "height", "source", "complete")}
            images.append({"id": image, "file_name": f"{first['page']}.png", **known})
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
