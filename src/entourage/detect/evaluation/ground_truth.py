"""Pages with their symbols, as training and evaluation need them, from every kind of data set that holds such pages."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
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
_COLUMNS = ["page", "label", "v1", "split", *_CORNERS]


@dataclass(frozen=True)
class GroundTruthPage:
    """A page and what is on it.

    Attributes:
        name: of the page.
        path: the image, or the archive that it is in.
        interline: pixels between staff lines.
        labels: the network class of each symbol, or None where the network has none for it.
        v1: its class in V1, or "".
        extended: its class in the extended list, or "".
        boxes: float32, shape (n, 4): x0, y0, x1, y1 in pixels of the image.
        packed: the image file itself, where it came out of an archive with the annotations.
        member: its name in the archive, where it is unpacked when it is asked for.
        inverted: whether ink is light in the image.
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
        """The page in grey, dark ink on light paper, shape (h, w).

        Raises:
            ValueError: there is no such image, or it cannot be read.
        """
        packed = self.packed if self.member is None else read_member(self.path, self.member)
        if packed:
            found = cv2.imdecode(np.frombuffer(packed, np.uint8), cv2.IMREAD_GRAYSCALE)
        else:
            found = cv2.imread(str(self.path), cv2.IMREAD_GRAYSCALE)
        if found is None:
            raise ValueError(f"{self.path}: the image of page {self.name} cannot be read")
        grey = np.asarray(found, dtype=np.uint8)
        return 255 - grey if self.inverted else grey


class NoPagesError(ValueError):
    """A data set has no page of the split that is asked for."""


def subsample_evenly(pages: Sequence[GroundTruthPage], most: int) -> list[GroundTruthPage]:
    """At most so many pages, evenly from all."""
    if len(pages) <= most:
        return list(pages)
    return [pages[row] for row in np.linspace(0, len(pages) - 1, most).round().astype(int)]


def read_ground_truth(folder: str | Path, split: str | None = None) -> list[GroundTruthPage]:
    """Reads the pages of a data set.

    Args:
        folder: a folder that `entourage engrave` has made; "muscima" for MUSCIMA++ wherever ENTOURAGE_DATA points, or
            its folder or archive; or a DeepScoresV2 archive or folder.
        split: "train", "val" or "test"; None for all pages. DeepScoresV2 has it in the names of
            its tables (deepscores_train.json); a sample has none there, all of it is "test".

    Returns:
        The pages by name, in order. Symbols of the same class with the same box (unisons) appear once.

    Raises:
        NoPagesError: a ValueError; it has no page of that split.
        ValueError: one line: what is wrong with the data set.
    """
    if split is not None:
        check_choice("split", split, SPLITS)
    path = Path(folder)
    if str(folder) == "muscima":
        pages = [_muscima_page(page) for page in read_muscima(find_muscima()) if split in (None, page.split)]
    elif (path / "symbols.parquet").is_file():
        pages = _engraved(path, split)
    elif holds_muscima(path):
        pages = [_muscima_page(page) for page in read_muscima(path) if split in (None, page.split)]
    elif holds_deepscores(path):
        pages = [_deepscores_page(page) for page in read_deepscores(path, split)]
    else:
        raise ValueError(f"{path}: no data set; expected symbols.parquet, MUSCIMA++ or DeepScoresV2 there")
    if not pages:
        raise NoPagesError(
            f"{path}: has no page{'' if split is None else f' of the split {split!r}'}{_available_splits(path)}"
        )
    return pages


def _available_splits(path: Path) -> str:
    """What is to be said of the splits that a data set has."""
    if str(path) == "muscima":
        found = {page.split for page in read_muscima(find_muscima())}
    elif (path / "symbols.parquet").is_file():
        with parquet_errors(path / "symbols.parquet", "entourage engrave"):
            found = set(pq.read_table(path / "symbols.parquet", columns=["split"])["split"].unique().to_pylist())
    elif holds_muscima(path):
        found = {page.split for page in read_muscima(path)}
    else:
        found = deepscores_splits(path)
    splits = [repr(split) for split in SPLITS if split in found]
    return f"; its pages are of {' and '.join(splits)}" if splits else ""


def class_names(pages: Sequence[GroundTruthPage]) -> tuple[str, ...]:
    """The classes of the pages' symbols, in alphabetical order."""
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
    """A page from its symbols (label, v1, extended) and their boxes, without those that are there twice."""
    plain = np.asarray(boxes, dtype=np.float32).reshape(-1, 4)
    keys = [(*symbol, *box) for symbol, box in zip(symbols, plain.tolist(), strict=True)]
    rows = sorted({key: row for row, key in reversed(list(enumerate(keys)))}.values())  # the first of each
    labels, v1, extended = ([symbols[row][column] for row in rows] for column in range(3))
    return GroundTruthPage(name, path, interline, labels, v1, extended, plain[rows], packed, member, inverted)  # type: ignore[arg-type]


def _engraved(folder: Path, split: str | None) -> list[GroundTruthPage]:
    """Pages of a folder that `entourage engrave` has made."""
    manifest = folder / "manifest.json"
    if not manifest.is_file():
        raise ValueError(f"{folder}: has no manifest.json; expected a data set made by `entourage engrave`")
    interline = float(json.loads(manifest.read_text(encoding="utf-8"))["options"]["page"]["interline"])
    filters = None if split is None else [("split", "==", split)]
    names = ["page", "label", "v1"]
    with parquet_errors(folder / "symbols.parquet", "entourage engrave"):
        read = pq.read_table(folder / "symbols.parquet", columns=_COLUMNS, filters=filters, read_dictionary=names)
    table = read.to_pandas().drop_duplicates([*names, *_CORNERS])  # what make_page does, for millions of rows
    if table.empty:
        return []
    pages, page = _decoded(table["page"])
    extended, label = _decoded(table["label"])
    v1, old = _decoded(table["v1"])
    classes = np.array([[detector_class(name, other) for other in v1] for name in extended], dtype=object)
    boxes = table[list(_CORNERS)].to_numpy(dtype=np.float32)
    order = np.argsort(page, kind="stable")
    found = []
    for rows in np.split(order, np.flatnonzero(np.diff(page[order])) + 1):
        name = pages[page[rows[0]]]
        labels, olds, news = classes[label[rows], old[rows]], v1[old[rows]], extended[label[rows]]
        path = folder / "images" / f"{name}.png"
        found.append(GroundTruthPage(name, path, interline, labels.tolist(), olds.tolist(), news.tolist(), boxes[rows]))
    return sorted(found, key=lambda each: each.name)


def _decoded(column: pd.Series) -> tuple[NDArray[Any], NDArray[np.int64]]:
    """The different texts of a column, and which each row has."""
    texts = column.astype("category").cat
    return np.array([str(text) for text in texts.categories], dtype=object), np.asarray(texts.codes, dtype=np.int64)


def _muscima_page(page: MuscimaPage) -> GroundTruthPage:
    symbols = [(label, "", "") for label in page.labels]
    return make_page(
        page.name, page.path, page.interline, symbols, page.boxes, packed=page.packed, inverted=page.inverted
    )


def _deepscores_page(page: DeepScoresPage) -> GroundTruthPage:
    """A page in its own annotations' boxes; classes that the extended list does not know are left out."""
    names = {number: name for name, number in EXTENDED_IDS.items()}
    rows_in_list = [row for row, category in enumerate(page.categories) if category in names]
    extended = [names[page.categories[row]] for row in rows_in_list]
    symbols = [(detector_class(label, ""), CLASSES[label].v1 or "", label) for label in extended]
    return make_page(page.name, page.path, page.interline, symbols, page.boxes[rows_in_list], member=page.member)
