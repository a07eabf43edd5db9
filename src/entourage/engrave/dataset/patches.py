"""Windows of pages around symbols: patches for classification, and crops of rare symbols.

A detector pastes the crops into the margins of its training pages (thesis, chapter 6).
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from entourage.engrave.dataset.formats import read_table
from entourage.engrave.render.encoding import read_grey
from entourage.engrave.render.page import Image
from entourage.io.files import atomic_path, check_output_file
from entourage.symbols import EXTENDED_IDS

PATCH_WIDTH, PATCH_HEIGHT = 45, 170
PATCHES_FILE = "patches.parquet"
_PATCHES_PER_CLASS = 5000  # limits the size of the file: frequent classes have far more symbols
_PATCH_SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("symbol", pa.int32()),
        ("class", pa.string()),
        ("split", pa.string()),
        ("png", pa.binary()),
    ]
)


def cut_patch(image: Image, box: NDArray[np.int64], width: int = PATCH_WIDTH, height: int = PATCH_HEIGHT) -> Image:
    """Return the window of the page that is centred on a box; pixels beyond the page are white.

    Args:
        image: greyscale page.
        box: x0, y0, x1, y1 with exclusive ends.
        width, height: size of the window.

    Returns:
        The window, shape (height, width).
    """
    x = int(box[0] + box[2] - width) // 2
    y = int(box[1] + box[3] - height) // 2
    patch = np.full((height, width), 255, dtype=np.uint8)
    top, left = max(y, 0), max(x, 0)
    visible = image[top : max(y + height, 0), left : max(x + width, 0)]
    patch[top - y : top - y + visible.shape[0], left - x : left - x + visible.shape[1]] = visible
    return patch


def sample_per_class(symbols: pd.DataFrame, per_class: int, seed: int) -> pd.DataFrame:
    """Sample symbols of each class: those whose page and number have the smallest hashes.

    Args:
        symbols: table with the columns "page", "symbol" and "class".
        per_class: maximum number of symbols of a class.
        seed: seed of the hash.

    Returns:
        The rows of the sample, ordered by page and symbol.
    """
    keys = symbols["page"] + "/" + symbols["symbol"].astype(str)
    rank = [hashlib.blake2b(f"{seed}/{key}".encode(), digest_size=8).digest() for key in keys]
    ordered = symbols.assign(rank=rank).sort_values(["class", "rank"], kind="stable")
    return ordered.groupby("class", sort=False).head(per_class).drop(columns="rank").sort_values(["page", "symbol"])


def write_patches(out: Path, seed: int, per_class: int = _PATCHES_PER_CLASS) -> int:
    """Write patches around symbols as PNG to patches.parquet, one patch per row.

    Classes are those of V1, whose data set had such patches, and of the extended list for symbols without a class in
    V1.

    Args:
        out: folder of the data set.
        seed: seed of the sample.
        per_class: maximum number of patches of a class.

    Returns:
        The number of patches.
    """
    columns = ["page", "symbol", "label", "v1", "split", "x0", "y0", "x1", "y1"]
    symbols = read_table(out, columns)
    symbols["class"] = symbols["v1"].where(symbols["v1"] != "", symbols["label"])
    sampled = sample_per_class(symbols[~symbols["class"].isin(["staff", ""])], per_class, seed)
    with (
        atomic_path(out / PATCHES_FILE) as temporary,
        pq.ParquetWriter(temporary, _PATCH_SCHEMA, compression="none") as writer,
    ):
        for page, rows in sampled.groupby("page", sort=True):
            image = read_grey(out / "images" / f"{page}.png")
            boxes = rows[["x0", "y0", "x1", "y1"]].to_numpy()
            patches = [cut_patch(image, box) for box in boxes]
            pngs = [cv2.imencode(".png", patch)[1].tobytes() for patch in patches]
            columns_of_page = {
                name: pa.array(rows[name], _PATCH_SCHEMA.field(name).type) for name in _PATCH_SCHEMA.names[:-1]
            }
            writer.write_table(pa.table({**columns_of_page, "png": pa.array(pngs, pa.binary())}, schema=_PATCH_SCHEMA))
    return len(sampled)


CROP_WIDTH, CROP_HEIGHT = 130, 80
_CROP_SCHEMA = pa.schema(
    [
        ("class", pa.string()),  # class of the rare symbol in the centre
        ("page", pa.string()),
        ("split", pa.string()),
        ("png", pa.binary()),
        ("boxes", pa.list_(pa.list_(pa.int32(), 4))),  # x0, y0, x1, y1 of all symbols entirely inside
        ("labels", pa.list_(pa.int32())),  # their category ids, that of the rare symbol first
    ]
)


def write_crops(
    folder: Path, path: Path, *, max_frequency: float = 0.01, per_class: int = 300, seed: int = 0
) -> dict[str, int]:
    """Write crops of rare symbols with their surroundings.

    Args:
        folder: data set from `entourage engrave`.
        path: the Parquet file to write.
        max_frequency: classes with less than this fraction of all symbols are rare.
        per_class: maximum number of crops of a class.
        seed: seed of the sample.

    Returns:
        The number of crops of each class.

    Raises:
        ValueError: the folder is not a data set, no class in it is rare, or the path cannot be written to.
    """
    check_output_file(path, ".parquet", [folder / "symbols.parquet"])
    columns = ["page", "symbol", "label", "label_id", "split", "x0", "y0", "x1", "y1"]
    symbols = read_table(folder, columns)
    symbols = symbols[symbols["label"].isin(list(EXTENDED_IDS))].rename(columns={"label": "class"})
    fits = (symbols["x1"] - symbols["x0"] <= CROP_WIDTH - 4) & (symbols["y1"] - symbols["y0"] <= CROP_HEIGHT - 4)
    counts = symbols["class"].value_counts()
    rare = counts.index[counts < max_frequency * len(symbols)]
    sampled = sample_per_class(symbols[fits & symbols["class"].isin(list(rare))], per_class, seed)
    if len(sampled) == 0:
        problem = f"no class of {folder} has less than {max_frequency:.1%} of the symbols"
        raise ValueError(f"max_frequency: {problem}; expected a larger value")
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, _CROP_SCHEMA) as writer:
        for page, rows in sampled.groupby("page", sort=True):
            image = read_grey(folder / "images" / f"{page}.png")
            around = symbols[symbols["page"] == page]
            crops = [_crop(image, row, around) for _, row in rows.iterrows()]
            writer.write_table(pa.Table.from_pylist(crops, schema=_CROP_SCHEMA))
    return {str(name): int(count) for name, count in sampled["class"].value_counts().items()}


def _crop(image: np.ndarray, row: pd.Series, around: pd.DataFrame) -> dict[str, object]:
    box = row[["x0", "y0", "x1", "y1"]].to_numpy(dtype=np.int64)
    patch = cut_patch(image, box, CROP_WIDTH, CROP_HEIGHT)
    left, top = int(box[0] + box[2] - CROP_WIDTH) // 2, int(box[1] + box[3] - CROP_HEIGHT) // 2
    boxes = around[["x0", "y0", "x1", "y1"]].to_numpy() - np.array([left, top, left, top])
    inside = (boxes[:, :2] >= 0).all(axis=1) & (boxes[:, 2] <= CROP_WIDTH) & (boxes[:, 3] <= CROP_HEIGHT)
    first = (around["symbol"] == row["symbol"]).to_numpy()
    order = [*np.flatnonzero(first & inside), *np.flatnonzero(~first & inside)]
    return {
        "class": row["class"],
        "page": row["page"],
        "split": row["split"],
        "png": cv2.imencode(".png", patch)[1].tobytes(),
        "boxes": boxes[order].tolist(),
        "labels": around["label_id"].to_numpy()[order].tolist(),
    }
