"""DeepScoresV2: its pages with their annotations, from a folder or a zip archive.

An archive may be anybody's: only tables are unpacked, no larger ones than the data set has; images when asked for.
"""

from __future__ import annotations

import json
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.data.datasets.muscima import _STAFF_INTERLINES
from entourage.io.files import reason_of

MOST_TABLE = 2**30  # bytes of a table, unpacked
MOST_IMAGE = 2**26  # bytes of an image file
STAFF = 135  # the category of a staff, whose height tells the interline
_TABLES = "deepscores*.json"
_SPLIT = re.compile(r"[_-](train|val|test)$")  # deepscores_train.json; a sample's table has no such ending


@dataclass(frozen=True)
class DeepScoresPage:
    """A page.

    Attributes:
        name: of its image, without the suffix.
        path: the image, or the archive that it is in.
        member: the image's name in the archive; None in a folder.
        interline: pixels between staff lines, from its staves.
        categories: the number of each symbol's class in DeepScoresV2's own list.
        boxes: float32, shape (n, 4): x0, y0, x1, y1 in pixels of the image.
    """

    name: str
    path: Path
    member: str | None
    interline: float
    categories: list[int]
    boxes: NDArray[np.float32]


def holds_deepscores(path: Path) -> bool:
    """Whether there may be DeepScoresV2: a zip archive, or a folder with its tables."""
    return path.suffix == ".zip" or any(path.glob(f"**/{_TABLES}"))


def read_deepscores(path: Path, split: str | None = None) -> list[DeepScoresPage]:
    """Reads the pages of an archive or folder, by name.

    Args:
        path: of the archive, or of a folder with `deepscores*.json` and `images/` anywhere below.
        split: "train", "val" or "test", as the tables' names end; a table without such an ending is "test"; None: all.

    Raises:
        ValueError: one line: it cannot be read, is too large, or is not as DeepScoresV2 is.
    """
    names = _names(path)
    tables = _tables(names)
    if not tables:
        raise ValueError(f"{path}: has no table of DeepScoresV2; expected {_TABLES} in it")
    images = {Path(name).name: name for name in names if "/images/" in f"/{name}"}
    pages: list[DeepScoresPage] = []
    for table in tables:
        if split in (None, split_of(table)):
            pages += _pages(path, table, images)
    return sorted(pages, key=lambda page: page.name)


def deepscores_splits(path: Path) -> set[str]:
    """The splits that the tables of an archive or folder tell."""
    return set(map(split_of, _tables(_names(path))))


def split_of(table: str) -> str:
    """The split that a table's name tells."""
    found = _SPLIT.search(Path(table).stem)
    return "test" if found is None else found[1]


def unpack(path: Path, member: str, most: int = MOST_IMAGE) -> bytes:
    """A file out of an archive.

    Raises:
        ValueError: it cannot be read, or has more bytes than `most`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo(member).file_size  # no more is unpacked, whatever is packed
            if size > most:
                raise ValueError(f"{path}: {member} has {size} bytes, unpacked; expected at most {most}")
            return archive.read(member)
    except (OSError, KeyError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: {member} cannot be unpacked ({reason_of(error)})") from error


def _tables(names: list[str]) -> list[str]:
    return [name for name in names if Path(name).match(_TABLES)]


def _names(path: Path) -> list[str]:
    """The files below a folder, or of an archive."""
    if path.is_dir():
        return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    try:
        with zipfile.ZipFile(path) as archive:
            return [name for name in archive.namelist() if not name.endswith("/")]
    except (OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path}: cannot be read as a zip archive ({error})") from error


def _pages(path: Path, table: str, images: dict[str, str]) -> list[DeepScoresPage]:
    content = (path / table).read_bytes() if path.is_dir() else unpack(path, table, MOST_TABLE)
    try:
        read = json.loads(content)
        return [_page(path, image, read["annotations"], images) for image in read["images"]]
    except (KeyError, TypeError, IndexError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {table} is not as DeepScoresV2 writes it ({error!r:.100})") from error


def _page(
    path: Path, image: dict[str, Any], annotations: dict[str, dict[str, Any]], images: dict[str, str]
) -> DeepScoresPage:
    file = image["filename"]
    if file not in images:
        raise ValueError(f"{path}: image {file} is missing")
    rows = [annotations[number] for number in image["ann_ids"]]
    categories = [int(row["cat_id"][0]) for row in rows]
    boxes = np.array([row["a_bbox"] for row in rows], dtype=np.float32).reshape(-1, 4)
    staves = [box[3] - box[1] for box, category in zip(boxes, categories, strict=True) if category == STAFF]
    if not staves:
        raise ValueError(f"{path}: page {file} has no staff; expected one to know its interline by")
    where, member = (path / images[file], None) if path.is_dir() else (path, images[file])
    interline = float(np.median(staves)) / _STAFF_INTERLINES
    return DeepScoresPage(Path(file).stem, where, member, interline, categories, boxes)
