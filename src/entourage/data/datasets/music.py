"""MUSCIMA++: 140 pages of handwritten music with every symbol, from its archive or its official layout.

DeepScoresV2: its pages with their annotations, from a folder or a zip archive.

An archive may be anybody's: only tables are unpacked, no larger ones than the data set has; images when asked for.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from lxml import etree
from numpy.typing import NDArray

from entourage.io.files import error_reason

SPLITS = ("train", "val", "test")
N_HELD_OUT = 15  # pages of validation and as many of test; 110 of 140 are left for training
HOMEPAGE = "https://ufal.mff.cuni.cz/muscima"
_NAMES = ("muscima_pp", "muscima-pp", "MUSCIMA-pp", "MUSCIMA-pp_v2.0", "muscima")
_STAFF_HEIGHT = 4.13  # height of a staff's box: four spaces and the thickness of a line


@dataclass(frozen=True)
class MuscimaPage:
    """A page.

    Attributes:
        name: e.g. CVC-MUSCIMA_W-01_N-10_D-ideal.
        path: the image, or the archive that it is in.
        split: "train", "val" or "test".
        interline: pixels between staff lines, from its staves.
        labels: the class of each symbol, by MUSCIMA++'s own name.
        boxes: float32, shape (n, 4): x0, y0, x1, y1; x1, y1 lie beyond the last pixel.
        packed: the image file itself, where it comes out of an archive.
        inverted: ink is light in its images.
    """

    name: str
    path: Path
    split: str
    interline: float
    labels: list[str]
    boxes: NDArray[np.float32]
    packed: bytes | None = field(default=None, repr=False)
    inverted: bool = True


def find_muscima(root: str | Path | None = None) -> Path:
    """The folder or archive of MUSCIMA++ below a root.

    Args:
        root: where the data sets are; None: the folder in the environment variable ENTOURAGE_DATA.

    Raises:
        ValueError: there is none, with where it was looked for and where it comes from.
    """
    chosen = os.environ.get("ENTOURAGE_DATA") if root is None else root
    if not chosen:
        raise ValueError(f"MUSCIMA++ cannot be looked for: ENTOURAGE_DATA is not set; it comes from {HOMEPAGE}")
    folder = Path(chosen).expanduser()
    for candidate in (folder, *(folder / name for name in _NAMES), *sorted(folder.glob("muscima*.tar.*"))):
        if holds_muscima(candidate):
            return candidate
    raise ValueError(
        f"MUSCIMA++ is missing: looked in {folder} for {', '.join(_NAMES[:2])} or muscima*.tar.xz;"
        f" it comes from {HOMEPAGE}"
    )


def holds_muscima(path: Path) -> bool:
    """Whether there is MUSCIMA++: an archive of that name, or a folder with its annotations."""
    if path.is_file():
        return path.name.lower().startswith("muscima") and ".tar" in path.name
    return path.is_dir() and any(path.glob("**/annotations/CVC-MUSCIMA_W-*.xml"))


def read_muscima(path: str | Path, seed: int = 0) -> list[MuscimaPage]:
    """Reads all pages of which there is an image.

    Args:
        path: the archive, or a folder with the annotations and the images anywhere below.
        seed: of the split: 15 pages for validation, 15 for test and the others for training, at random as in the
            thesis. Smaller sets are divided in the same proportions.

    Returns:
        The pages by name.

    Raises:
        ValueError: the data set cannot be read, or an annotation is not as it should be.
    """
    path = Path(path)
    files = dict(_files(path))
    tables = {name: file for name, file in files.items() if name.suffix == ".xml"}
    images = {name.stem: file for name, file in files.items() if name.suffix == ".png"}
    found = {name.stem: file for name, file in tables.items() if name.stem in images}
    if not found:
        raise ValueError(f"{path}: no page of MUSCIMA++ with both annotation (.xml) and image (.png)")
    pages = sorted(found)
    splits = _split(len(pages), seed)
    return [
        _muscima_page(name, found[name], images[name], path, split) for name, split in zip(pages, splits, strict=True)
    ]


def _files(path: Path) -> Iterator[tuple[PurePosixPath, bytes | Path]]:
    """Annotations and images: content out of an archive, paths in a folder."""
    if path.is_dir():
        for file in sorted(path.rglob("CVC-MUSCIMA_W-*_D-ideal.*")):
            yield PurePosixPath(file.as_posix()), file
        return
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = PurePosixPath(member.name)
                if member.isfile() and name.name.startswith("CVC-MUSCIMA_W-"):
                    content = archive.extractfile(member)
                    assert content is not None
                    yield name, content.read()
    except (OSError, tarfile.TarError, EOFError) as error:
        raise ValueError(f"{path}: cannot be read as an archive ({error})") from error


def _split(pages: int, seed: int) -> list[str]:
    held = max(1, round(pages * N_HELD_OUT / 140)) if pages > 2 else 0
    order = np.random.default_rng(seed).permutation(pages)
    splits = np.full(pages, "train", dtype=object)
    splits[order[:held]] = "val"
    splits[order[held : 2 * held]] = "test"
    return [str(split) for split in splits]


def _muscima_page(name: str, table: bytes | Path, image: bytes | Path, path: Path, split: str) -> MuscimaPage:
    content = table.read_bytes() if isinstance(table, Path) else table
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False)
    try:
        root = etree.fromstring(content, parser)
        nodes = [{child.tag: child.text or "" for child in node} for node in root.iter("Node")]
        labels = [node["ClassName"] for node in nodes]
        corners = [[int(node[key]) for key in ("Left", "Top", "Width", "Height")] for node in nodes]
    except (etree.XMLSyntaxError, KeyError, ValueError) as error:
        raise ValueError(f"{path}: the annotation of {name} is not as MUSCIMA++ 2.0 writes it ({error!r})") from error
    boxes = np.array(corners, dtype=np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    staves = [box[3] - box[1] for box, label in zip(boxes, labels, strict=True) if label == "staff"]
    if not staves:
        raise ValueError(f"{path}: {name} has no staff; expected one to know its interline by")
    interline = float(np.median(staves)) / _STAFF_HEIGHT
    where, packed = (image, None) if isinstance(image, Path) else (path, image)
    return MuscimaPage(name, where, split, interline, labels, boxes, packed)


MAX_TABLE_BYTES = 2**30  # bytes of a table, unpacked
MAX_IMAGE_BYTES = 2**26  # bytes of an image file
STAFF_CATEGORY = 135  # the category of a staff, whose height tells the interline
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


def read_member(path: Path, member: str, max_bytes: int = MAX_IMAGE_BYTES) -> bytes:
    """A file out of an archive.

    Raises:
        ValueError: it cannot be read, or has more bytes than `max_bytes`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo(member).file_size  # no more is unpacked, whatever is packed
            if size > max_bytes:
                raise ValueError(f"{path}: {member} has {size} bytes, unpacked; expected at most {max_bytes}")
            return archive.read(member)
    except (OSError, KeyError, RuntimeError, NotImplementedError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{path}: {member} cannot be unpacked ({error_reason(error)})") from error


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
    content = (path / table).read_bytes() if path.is_dir() else read_member(path, table, MAX_TABLE_BYTES)
    try:
        read = json.loads(content)
        return [_deepscores_page(path, image, read["annotations"], images) for image in read["images"]]
    except (KeyError, TypeError, IndexError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {table} is not as DeepScoresV2 writes it ({error!r:.100})") from error


def _deepscores_page(
    path: Path, image: dict[str, Any], annotations: dict[str, dict[str, Any]], images: dict[str, str]
) -> DeepScoresPage:
    file = image["filename"]
    if file not in images:
        raise ValueError(f"{path}: image {file} is missing")
    rows = [annotations[number] for number in image["ann_ids"]]
    categories = [int(row["cat_id"][0]) for row in rows]
    boxes = np.array([row["a_bbox"] for row in rows], dtype=np.float32).reshape(-1, 4)
    staves = [box[3] - box[1] for box, category in zip(boxes, categories, strict=True) if category == STAFF_CATEGORY]
    if not staves:
        raise ValueError(f"{path}: page {file} has no staff; expected one to know its interline by")
    where, member = (path / images[file], None) if path.is_dir() else (path, images[file])
    interline = float(np.median(staves)) / _STAFF_HEIGHT
    return DeepScoresPage(Path(file).stem, where, member, interline, categories, boxes)
