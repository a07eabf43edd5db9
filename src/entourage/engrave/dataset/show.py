"""A page with its ground truth drawn on it: boxes, labels, masks and onsets."""

from __future__ import annotations

import colorsys
from collections.abc import Collection
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from entourage.engrave.render.masks import mask_pixels
from entourage.io.parquet import undamaged
from entourage.symbols import EXTENDED_IDS

Layer = Literal["boxes", "labels", "masks", "onsets"]
LAYERS: tuple[Layer, ...] = ("boxes", "labels", "masks", "onsets")
Colour = NDArray[np.uint8]


def read_page(path: Path) -> tuple[Colour, list[dict[str, Any]]]:
    """The image of a page of a data set, in BGR, and the rows of its symbols.

    Args:
        path: the image, DIR/images/PAGE.png.

    Raises:
        ValueError: there is no such image, or no data set around it that knows the page.
    """
    image = cv2.imread(str(path), cv2.IMREAD_COLOR) if path.is_file() else None  # a pipe would block
    if image is None:
        raise ValueError(f"{path} cannot be read as an image; expected DIR/images/PAGE.png")
    table = path.parent.parent / "symbols.parquet"
    if not table.is_file():
        raise ValueError(f"{table} does not exist; expected the table of the data set that {path} belongs to")
    with undamaged(table, "entourage engrave"):
        rows = pq.read_table(table, filters=[("page", "=", path.stem)]).to_pylist()
    if not rows:
        raise ValueError(f"{table} knows no page {path.stem!r}; expected the image of one of its pages")
    return np.asarray(image, dtype=np.uint8), rows


def draw_truth(image: Colour, rows: list[dict[str, Any]], layers: Collection[Layer] = LAYERS) -> Colour:
    """Draws the ground truth on a copy of the page.

    Args:
        image: the page in BGR, shape (height, width, 3).
        rows: its symbols, as rows of the table.
        layers: what to draw. Labels of noteheads are "class onset/position/duration" if onsets are drawn.
    """
    drawn = image.copy()
    height = image.shape[0]
    symbols = [row for row in rows if row["label"]]
    if "masks" in layers:
        for row in symbols:
            x, y = mask_pixels(row["mask"], height)
            drawn[y, x] = (0.45 * drawn[y, x] + 0.55 * np.array(colour_of(row["label"]))).astype(np.uint8)
    for row in symbols:
        if row["label"] == "staff":
            continue
        colour = colour_of(row["label"])
        if "boxes" in layers:
            corners = np.round(np.array(row["oriented"]).reshape(4, 1, 2)).astype(np.int32)
            cv2.polylines(drawn, [corners], True, colour, 1, cv2.LINE_AA)
        text = _text(row, layers)
        if text:
            cv2.putText(drawn, text, (row["x0"], row["y0"] - 3), cv2.FONT_HERSHEY_SIMPLEX, 0.32, colour, 1, cv2.LINE_AA)
    return drawn


def colour_of(label: str) -> tuple[int, int, int]:
    """A colour for each class, far from those of its neighbours in the list, in BGR."""
    hue = (EXTENDED_IDS[label] * 0.618034) % 1.0
    red, green, blue = colorsys.hsv_to_rgb(hue, 0.9, 0.75)
    return int(255 * blue), int(255 * green), int(255 * red)


def _text(row: dict[str, Any], layers: Collection[Layer]) -> str:
    """What is written above a symbol; stems, beams and leger lines stay without, lest nothing can be read."""
    named = "labels" in layers and row["label"] not in ("stem", "legerLine", "beam")
    notehead = row["label"].startswith("notehead")
    words = [row["label"]] if named else []
    if "onsets" in layers and row["onset"] is not None and (notehead or row["label"].startswith("rest") or named):
        times = f"{row['onset']:g}"
        words.append(f"{times}/{row['position']}/{row['duration']:g}" if notehead else times)
    return " ".join(words)
