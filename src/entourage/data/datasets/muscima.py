"""MUSCIMA++: 140 pages of handwritten music with every symbol, from its archive or its official layout."""

from __future__ import annotations

import os
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

import numpy as np
from lxml import etree
from numpy.typing import NDArray

SPLITS = ("train", "val", "test")
HELD_OUT = 15  # pages of validation and as many of test; 110 of 140 are left for training
HOMEPAGE = "https://ufal.mff.cuni.cz/muscima"
_NAMES = ("muscima_pp", "muscima-pp", "MUSCIMA-pp", "MUSCIMA-pp_v2.0", "muscima")
_STAFF_INTERLINES = 4.13  # height of a staff's box: four spaces and the thickness of a line


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
    for place in (folder, *(folder / name for name in _NAMES), *sorted(folder.glob("muscima*.tar.*"))):
        if holds_muscima(place):
            return place
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
    return [_page(name, found[name], images[name], path, split) for name, split in zip(pages, splits, strict=True)]


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
    held = max(1, round(pages * HELD_OUT / 140)) if pages > 2 else 0
    order = np.random.default_rng(seed).permutation(pages)
    splits = np.full(pages, "train", dtype=object)
    splits[order[:held]] = "val"
    splits[order[held : 2 * held]] = "test"
    return [str(split) for split in splits]


def _page(name: str, table: bytes | Path, image: bytes | Path, path: Path, split: str) -> MuscimaPage:
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
    interline = float(np.median(staves)) / _STAFF_INTERLINES
    where, packed = (image, None) if isinstance(image, Path) else (path, image)
    return MuscimaPage(name, where, split, interline, labels, boxes, packed)
