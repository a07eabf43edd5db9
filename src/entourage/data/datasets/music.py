"""Readers of MUSCIMA++ (140 handwritten pages) and DeepScoresV2, from archives or folders.

Archives may be hostile: the tables of a zip archive are unpacked only up to the size that they have in the published
data set, and images one at a time.
"""

from __future__ import annotations

import json
import os
import re
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from lxml import etree
from numpy.typing import NDArray

from entourage.io.files import error_reason
from entourage.io.safe_formats import READ_ERRORS

SPLITS = ("train", "val", "test")
N_HELD_OUT = 15  # pages for validation, and as many for testing; the other 110 of 140 are for training
HOMEPAGE = "https://ufal.mff.cuni.cz/muscima"
_NAMES = ("muscima_pp", "muscima-pp", "MUSCIMA-pp", "MUSCIMA-pp_v2.0", "muscima")
_STAFF_HEIGHT = 4.13  # height of the box of a staff in interlines: four spaces and the thickness of a line


@dataclass(frozen=True)
class MuscimaPage:
    """A page of MUSCIMA++ with its annotations.

    Attributes:
        name: such as CVC-MUSCIMA_W-01_N-10_D-ideal.
        path: the image file, or the archive that contains it.
        split: "train", "val" or "test".
        interline: pixels between staff lines, computed from the boxes of the staves.
        labels: class of each symbol, in the names of MUSCIMA++.
        boxes: float32, shape (n, 4): x0, y0, x1, y1, where x1 and y1 are exclusive.
        packed: bytes of the image file if it comes from an archive, otherwise None.
        inverted: whether ink is light and paper is dark, as in all images of MUSCIMA++.
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
    """Find the folder or archive of MUSCIMA++.

    Args:
        root: folder of the data sets; None: the folder in the environment variable ENTOURAGE_DATA.

    Returns:
        The path of the folder or archive.

    Raises:
        ValueError: the data set is missing; the message names the searched folder and the download page.
    """
    chosen = os.environ.get("ENTOURAGE_DATA") if root is None else root
    if not chosen:
        raise ValueError(f"muscima: ENTOURAGE_DATA is not set; expected the folder of MUSCIMA++ from {HOMEPAGE}")
    folder = Path(chosen).expanduser()
    for candidate in (folder, *(folder / name for name in _NAMES), *sorted(folder.glob("muscima*.tar.*"))):
        if holds_muscima(candidate):
            return candidate
    raise ValueError(
        f"muscima: missing from {folder}; expected {', '.join(_NAMES[:2])} or muscima*.tar.xz from {HOMEPAGE}"
    )


def holds_muscima(path: Path) -> bool:
    """Return whether a path contains MUSCIMA++: an archive of that name, or a folder with its annotations."""
    if path.is_file():
        return path.name.lower().startswith("muscima") and ".tar" in path.name
    return path.is_dir() and any(path.glob("**/annotations/CVC-MUSCIMA_W-*.xml"))


def read_muscima(path: str | Path, seed: int = 0) -> list[MuscimaPage]:
    """Read all pages of MUSCIMA++ that have an image.

    Args:
        path: the archive, or a folder with the annotations and the images at any depth.
        seed: seed of the random split: 15 pages for validation, 15 for testing and the others for training, as in the
            thesis. Smaller sets are split in the same proportions.

    Returns:
        The pages, sorted by name.

    Raises:
        ValueError: the data set cannot be read, or an annotation has another format.
    """
    path = Path(path)
    files = dict(_files(path))
    tables = {name.stem: file for name, file in files.items() if name.suffix == ".xml"}
    images = {name.stem: file for name, file in files.items() if name.suffix == ".png"}
    pages = sorted(tables.keys() & images.keys())
    if not pages:
        raise ValueError(f"{path}: no page of MUSCIMA++; expected annotations (.xml) and images (.png) of equal names")
    splits = _split(len(pages), seed)
    return [
        _muscima_page(name, tables[name], images[name], path, split) for name, split in zip(pages, splits, strict=True)
    ]


def _files(path: Path) -> Iterator[tuple[PurePosixPath, bytes | Path]]:
    """Yield names of annotations and images, with the content for an archive and the path for a folder."""
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
        raise ValueError(f"{path}: cannot be read ({error_reason(error)}); expected a tar archive") from error


def _split(pages: int, seed: int) -> list[str]:
    n_held_out = max(1, round(pages * N_HELD_OUT / 140)) if pages > 2 else 0
    order = np.random.default_rng(seed).permutation(pages)
    splits = np.full(pages, "train", dtype=object)
    splits[order[:n_held_out]] = "val"
    splits[order[n_held_out : 2 * n_held_out]] = "test"
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
        raise ValueError(f"{path}: the annotation of {name} is invalid ({error!r}); expected MUSCIMA++ 2.0") from error
    boxes = np.array(corners, dtype=np.float32).reshape(-1, 4)
    boxes[:, 2:] += boxes[:, :2]
    staves = [box[3] - box[1] for box, label in zip(boxes, labels, strict=True) if label == "staff"]
    if not staves:
        raise ValueError(f"{path}: {name} has no staff; expected one, to compute the interline from")
    interline = float(np.median(staves)) / _STAFF_HEIGHT
    file, packed = (image, None) if isinstance(image, Path) else (path, image)
    return MuscimaPage(name, file, split, interline, labels, boxes, packed)


MAX_TABLE_BYTES = 2**30  # largest size of an unpacked table
MAX_IMAGE_BYTES = 2**26  # largest size of an unpacked image file
STAFF_CATEGORY = 135  # category of staves, whose height gives the interline
_TABLES = "deepscores*.json"
_SPLIT = re.compile(r"[_-](train|val|test)$")  # deepscores_train.json; a sample's table has no such ending


@dataclass(frozen=True)
class DeepScoresPage:
    """A page of DeepScoresV2 with its annotations.

    Attributes:
        name: name of the image, without the suffix.
        path: the image file, or the archive that contains it.
        member: name of the image in the archive; None in a folder.
        interline: pixels between staff lines, computed from the boxes of the staves.
        categories: category id of each symbol in DeepScoresV2.
        boxes: float32, shape (n, 4): x0, y0, x1, y1 in pixels of the image.
    """

    name: str
    path: Path
    member: str | None
    interline: float
    categories: list[int]
    boxes: NDArray[np.float32]


def holds_deepscores(path: Path) -> bool:
    """Return whether a path may contain DeepScoresV2: a zip archive, or a folder with its tables."""
    return path.suffix == ".zip" or any(path.glob(f"**/{_TABLES}"))


def read_deepscores(path: Path, split: str | None = None) -> list[DeepScoresPage]:
    """Read the pages of DeepScoresV2.

    Args:
        path: the archive, or a folder with `deepscores*.json` and `images/` at any depth.
        split: "train", "val" or "test", see `split_of`; None: all pages.

    Returns:
        The pages, sorted by name.

    Raises:
        ValueError: a file cannot be read, is too large, or has another format; the message is one line.
    """
    names = _names(path)
    tables = _tables(names)
    if not tables:
        raise ValueError(f"{path}: no table of DeepScoresV2; expected {_TABLES}")
    images = {Path(name).name: name for name in names if "/images/" in f"/{name}"}
    pages: list[DeepScoresPage] = []
    for table in tables:
        if split in (None, split_of(table)):
            pages += _pages(path, table, images)
    return sorted(pages, key=lambda page: page.name)


def deepscores_splits(path: Path) -> set[str]:
    """Return the splits for which an archive or folder of DeepScoresV2 has tables."""
    return set(map(split_of, _tables(_names(path))))


def split_of(table: str) -> str:
    """Return the split of a table by the ending of its name, such as "_train"; "test" without such an ending."""
    match = _SPLIT.search(Path(table).stem)
    return "test" if match is None else match[1]


def read_member(path: Path, member: str, max_bytes: int = MAX_IMAGE_BYTES) -> bytes:
    """Read one file of a zip archive into memory.

    Args:
        path: the archive.
        member: name of the file in the archive.
        max_bytes: largest size of the unpacked file.

    Returns:
        The content of the file.

    Raises:
        ValueError: the file cannot be read, or is larger than `max_bytes`.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = archive.getinfo(member).file_size  # zipfile unpacks at most this many bytes
            if size <= max_bytes:
                return archive.read(member)
    except READ_ERRORS as error:
        raise ValueError(f"{path}: {member} cannot be unpacked ({error_reason(error)})") from error
    raise ValueError(f"{path}: {member} has {size} bytes, unpacked; expected at most {max_bytes}")


def _tables(names: list[str]) -> list[str]:
    return [name for name in names if Path(name).match(_TABLES)]


def _names(path: Path) -> list[str]:
    """List the names of all files below a folder or in an archive."""
    if path.is_dir():
        return sorted(file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file())
    try:
        with zipfile.ZipFile(path) as archive:
            return [name for name in archive.namelist() if not name.endswith("/")]
    except READ_ERRORS as error:
        raise ValueError(f"{path}: cannot be read ({error_reason(error)}); expected a zip archive") from error


def _pages(path: Path, table: str, images: dict[str, str]) -> list[DeepScoresPage]:
    content = (path / table).read_bytes() if path.is_dir() else read_member(path, table, MAX_TABLE_BYTES)
    try:
        values = json.loads(content)
        return [_deepscores_page(path, image, values["annotations"], images) for image in values["images"]]
    except (KeyError, TypeError, IndexError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: {table} is invalid ({error!r:.100}); expected a table of DeepScoresV2") from error


def _deepscores_page(
    path: Path, image: dict[str, Any], annotations: dict[str, dict[str, Any]], images: dict[str, str]
) -> DeepScoresPage:
    file = image["filename"]
    if file not in images:
        raise ValueError(f"{path}: image {file} is missing; expected all images of the table")
    rows = [annotations[number] for number in image["ann_ids"]]
    categories = [int(row["cat_id"][0]) for row in rows]
    boxes = np.array([row["a_bbox"] for row in rows], dtype=np.float32).reshape(-1, 4)
    staves = [box[3] - box[1] for box, category in zip(boxes, categories, strict=True) if category == STAFF_CATEGORY]
    if not staves:
        raise ValueError(f"{path}: page {file} has no staff; expected one, to compute the interline from")
    image_path, member = (path / images[file], None) if path.is_dir() else (path, images[file])
    interline = float(np.median(staves)) / _STAFF_HEIGHT
    return DeepScoresPage(Path(file).stem, image_path, member, interline, categories, boxes)
