"""Pages of `entourage detect run` as scores without music: their symbols are shown and corrected."""

from __future__ import annotations

import csv
import json
from functools import lru_cache
from pathlib import Path
from typing import Any

from entourage.data.labels import read_csv_table
from entourage.io.safe_formats import READ_ERRORS
from entourage.read.score import PageInfo, Score

COCO_FILE = "coco.json"
PAGES_FILE = "pages.csv"


def page_names(folder: Path) -> list[str]:
    """Return the names of the pages of a run.

    Raises:
        ValueError: `coco.json` or `pages.csv` is missing or damaged, or there is no page.
    """
    names = list(_read(folder))
    if not names:
        raise ValueError(f"{folder / COCO_FILE}: has no page; expected one or more")
    return names


def page_sources(folder: Path) -> list[str]:
    """Return the file and number of each page, such as "scan.tif#2"."""
    return [score.pages[0].source for score, _ in _read(folder).values()]


def read_page_symbols(folder: Path, name: str) -> tuple[Score, list[dict[str, Any]]]:
    """Return a page without music, and its symbols.

    Args:
        folder: output folder of `entourage detect run`.
        name: name of the page.

    Returns:
        The score, and "class", "score" and "box" of each symbol.

    Raises:
        ValueError: there is no such page, or a file is damaged.
    """
    pages = _read(folder)
    if name not in pages:
        raise ValueError(f"{folder / COCO_FILE}: has no page {name!r}; expected one of {', '.join(list(pages)[:5])}")
    return pages[name]


@lru_cache(maxsize=1)
def _read(folder: Path) -> dict[str, tuple[Score, list[dict[str, Any]]]]:
    try:
        coco = json.loads((folder / COCO_FILE).read_bytes())
        table = read_csv_table(folder / PAGES_FILE)
        page, interline = table.column("page"), table.column("interline")
        spacing = {cells[page]: float(cells[interline] or 0) for _, cells in table.lines}
        names = {category["id"]: str(category["name"]) for category in coco["categories"]}
        symbols: dict[int, list[dict[str, Any]]] = {image["id"]: [] for image in coco["images"]}
        for row in coco["annotations"]:
            x0, y0, width, height = (float(side) for side in row["bbox"])
            box = [x0, y0, round(x0 + width, 2), round(y0 + height, 2)]
            found = {"class": names[row["category_id"]], "score": float(row["score"]), "box": box}
            symbols[row["image_id"]].append(found)
        pages = {}
        for image in coco["images"]:
            size = int(image["width"]), int(image["height"])
            info = PageInfo(str(image["file_name"]), *size, spacing.get(image["name"], 0.0))
            pages[str(image["name"])] = (Score([], [info], str(image["name"])), symbols[image["id"]])
    except (*READ_ERRORS, csv.Error, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{folder}: damaged: {error}; expected the results of `entourage detect run`") from error
    return pages
