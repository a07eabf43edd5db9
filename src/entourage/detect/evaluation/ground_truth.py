"""Annotated pages for training and evaluation, from `entourage engrave`, MUSCIMA++ and DeepScoresV2."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from entourage.data.datasets.music import (
    SPLITS,
    DeepScoresPage,
    MuscimaPage,
    deepscores_splits,
    find_muscima,
    holds_deepscores,
    holds_muscima,
    read_deepscores,
    read_member,
    read_muscima,
)
from entourage.detect.detections import detector_class
from entourage.io.safe_formats import parquet_errors
from entourage.symbols import CLASSES, EXTENDED_IDS
from entourage.validation import check_choice

_CORNERS = ("x0", "y0", "x1", "y1")
_COLUMNS = ["page", "label", "v1", "split", *_CORNERS]  # and "full", which older tables lack


@dataclass(frozen=True)
class GroundTruthPage:
    """A page with the annotations of its symbols.

    Attributes:
        name: name of the page.
        path: the image, or the archive that contains it.
        interline: pixels between staff lines.
        labels: class of each symbol in `DETECTOR_CLASSES`, or the class of MUSCIMA++; None: the detector has no such
            class.
        v1: class of each symbol in V1, or "".
        extended: class of each symbol in the extended list, or "".
        boxes: float32, shape (n, 4): x0, y0, x1, y1 in pixels of the image.
        packed: content of the image file, if it was read from an archive together with the annotations.
        member: name of the image in the archive `path`, if it is read on demand.
        inverted: whether the image has light ink on a dark background.
    """

    name: str
    path: Path
    interline: float
    labels: list[str | None]
    v1: list[str]
    extended: list[str]
    boxes: NDArray[np.float32]
    packed: bytes | None = field(default=None, repr=False)
    member: str | None = None
    inverted: bool = False

    def image(self) -> NDArray[np.uint8]:
        """Read the page as grayscale, dark ink on light paper, shape (h, w).

        Raises:
            ValueError: the image is missing or cannot be read.
        """
        packed = self.packed if self.member is None else read_member(self.path, self.member)
        if packed:
            decoded = cv2.imdecode(np.frombuffer(packed, np.uint8), cv2.IMREAD_GRAYSCALE)
        else:
            decoded = cv2.imread(str(self.path), cv2.IMREAD_GRAYSCALE)
        if decoded is None:
            raise ValueError(f"{self.path}: the image of page {self.name} cannot be read; expected an image")
        image = np.asarray(decoded, dtype=np.uint8)
        return 255 - image if self.inverted else image


class NoPagesError(ValueError):
    """Error for a data set without pages of the requested split."""


def subsample_evenly(pages: Sequence[GroundTruthPage], max_pages: int) -> list[GroundTruthPage]:
    """Return at most `max_pages` of the pages, evenly spaced in the list."""
    if len(pages) <= max_pages:
        return list(pages)
    return [pages[row] for row in np.linspace(0, len(pages) - 1, max_pages).round().astype(int)]


def read_ground_truth(folder: str | Path, split: str | None = None) -> list[GroundTruthPage]:
    """Read the pages of a data set with their annotations.

    Args:
        folder: a folder that `entourage engrave` wrote; "muscima", for MUSCIMA++ in the folder ENTOURAGE_DATA, or its
            own folder or archive; or a folder or archive of DeepScoresV2.
        split: "train", "val" or "test"; None: all pages. The names of the tables of DeepScoresV2 contain the split, as
            in deepscores_train.json; pages of a table without one, as in a sample, are "test".

    Returns:
        The pages, sorted by name. Symbols of the same class with the same box, such as unisons, appear once.

    Raises:
        NoPagesError: a ValueError; the data set has no page of the split.
        ValueError: the data set is missing or damaged.
    """
    if split is not None:
        check_choice("split", split, SPLITS)
    path = Path(folder)
    if str(folder) == "muscima":
        pages = [_muscima_page(page) for page in read_muscima(find_muscima()) if split in (None, page.split)]
    elif (path / "symbols.parquet").is_file():
        pages = _read_engraved(path, split)
    elif holds_muscima(path):
        pages = [_muscima_page(page) for page in read_muscima(path) if split in (None, page.split)]
    elif holds_deepscores(path):
        pages = [_deepscores_page(page) for page in read_deepscores(path, split)]
    else:
        raise ValueError(f"{path}: not a data set; expected a folder with symbols.parquet, MUSCIMA++ or DeepScoresV2")
    if not pages:
        of_split = "" if split is None else f" of the split {split!r}"
        raise NoPagesError(f"{path}: contains no page{of_split}{_available_splits(path)}")
    return pages


def _available_splits(path: Path) -> str:
    """Return the last part of an error message, which lists the splits that a data set contains."""
    if str(path) == "muscima":
        available = {page.split for page in read_muscima(find_muscima())}
    elif (path / "symbols.parquet").is_file():
        import pyarrow.parquet as pq

        with parquet_errors(path / "symbols.parquet", "entourage engrave"):
            table = pq.read_table(path / "symbols.parquet", columns=["split"])
            available = set(table["split"].unique().to_pylist())
    elif holds_muscima(path):
        available = {page.split for page in read_muscima(path)}
    else:
        available = deepscores_splits(path)
    splits = [repr(split) for split in SPLITS if split in available]
    return f"; expected {' or '.join(splits)}" if splits else ""


def class_names(pages: Sequence[GroundTruthPage]) -> tuple[str, ...]:
    """Return the names of all classes that occur on the pages, in alphabetical order."""
    return tuple(sorted({label for page in pages for label in page.labels if label is not None}))


def make_page(
    name: str,
    path: Path,
    interline: float,
    symbols: Sequence[tuple[str | None, str, str]],
    boxes: NDArray[Any],
    *,
    packed: bytes | None = None,
    member: str | None = None,
    inverted: bool = False,
) -> GroundTruthPage:
    """Create a `GroundTruthPage` from symbols, of which duplicates are removed.

    Args:
        name, path, interline, packed, member, inverted: as in `GroundTruthPage`.
        symbols: "labels", "v1" and "extended" of each symbol.
        boxes: shape (n, 4).

    Returns:
        The page; of symbols with the same names and box, it contains the first.
    """
    coordinates = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
    keys = [(*symbol, *box) for symbol, box in zip(symbols, coordinates.tolist(), strict=True)]
    rows = sorted({key: row for row, key in reversed(list(enumerate(keys)))}.values())  # first occurrences
    labels, v1, extended = ([symbols[row][column] for row in rows] for column in range(3))
    return GroundTruthPage(name, path, interline, labels, v1, extended, coordinates[rows], packed, member, inverted)  # type: ignore[arg-type]


def _read_engraved(folder: Path, split: str | None) -> list[GroundTruthPage]:
    """Read the pages of a folder that `entourage engrave` wrote, sorted by name."""
    import pyarrow.parquet as pq

    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise ValueError(f"{folder}: contains no manifest.json; expected a data set from `entourage engrave`")
    interline = float(json.loads(manifest.read_text(encoding="utf-8"))["options"]["page"]["interline"])
    filters = None if split is None else [("split", "==", split)]
    names = ["page", "label", "v1"]
    with parquet_errors(folder / "symbols.parquet", "entourage engrave"):
        full = [name for name in pq.read_schema(folder / "symbols.parquet").names if name == "full"]
        read = pq.read_table(
            folder / "symbols.parquet",
            columns=[*_COLUMNS, *full],
            filters=filters,
            read_dictionary=[*names, *full],
        )
        symbols = read.to_pandas()
    names += full
    table = symbols.drop_duplicates([*names, *_CORNERS])  # as in `make_page`, but for millions of rows at once
    if table.empty:
        return []
    page_names, page_codes = _categories(table["page"])
    extended, extended_codes = _categories(table["label"])
    v1, v1_codes = _categories(table["v1"])
    label, label_codes = _categories(table[names[-1]]) if full else (extended, extended_codes)
    classes = np.array([[detector_class(name, other) for other in v1] for name in label], dtype=object)
    boxes = table[list(_CORNERS)].to_numpy(dtype=np.float32)
    order = np.argsort(page_codes, kind="stable")
    pages = []
    for rows in np.split(order, np.flatnonzero(np.diff(page_codes[order])) + 1):
        name = page_names[page_codes[rows[0]]]
        labels = classes[label_codes[rows], v1_codes[rows]].tolist()
        names_v1, names_extended = v1[v1_codes[rows]].tolist(), extended[extended_codes[rows]].tolist()
        path = folder / "images" / f"{name}.png"
        pages.append(GroundTruthPage(name, path, interline, labels, names_v1, names_extended, boxes[rows]))
    return sorted(pages, key=lambda page: page.name)


def _categories(column: pd.Series) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """Return the distinct strings of a column, and the index of the string in each row."""
    values = column.astype("category").cat
    return np.array([str(value) for value in values.categories], dtype=object), np.asarray(values.codes, dtype=np.int64)


def _muscima_page(page: MuscimaPage) -> GroundTruthPage:
    symbols = [(label, "", "") for label in page.labels]
    return make_page(
        page.name, page.path, page.interline, symbols, page.boxes, packed=page.packed, inverted=page.inverted
    )


def _deepscores_page(page: DeepScoresPage) -> GroundTruthPage:
    """Convert a page of DeepScoresV2; symbols whose class is not in the extended list are omitted."""
    names = {number: name for name, number in EXTENDED_IDS.items()}
    rows = [row for row, category in enumerate(page.categories) if category in names]
    extended = [names[page.categories[row]] for row in rows]
    symbols = [(detector_class(label, ""), CLASSES[label].v1 or "", label) for label in extended]
    return make_page(page.name, page.path, page.interline, symbols, page.boxes[rows], member=page.member)
