"""Classification patches: a fixed window of the page around a symbol, with all that surrounds it there."""

from __future__ import annotations

import hashlib
from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from entourage.engrave.render.page import Image
from entourage.engrave.render.png import read_grey
from entourage.io.writing import atomic_path

WIDTH, HEIGHT = 45, 170
PATCHES = "patches.parquet"
_SCHEMA = pa.schema(
    [
        ("page", pa.string()),
        ("symbol", pa.int32()),
        ("class", pa.string()),
        ("split", pa.string()),
        ("png", pa.binary()),
    ]
)


def cut_patch(image: Image, box: NDArray[np.int64], width: int = WIDTH, height: int = HEIGHT) -> Image:
    """The window of that size centred on a box; white where it reaches beyond the page."""
    x = int(box[0] + box[2] - width) // 2
    y = int(box[1] + box[3] - height) // 2
    patch = np.full((height, width), 255, dtype=np.uint8)
    top, left = max(y, 0), max(x, 0)
    seen = image[top : max(y + height, 0), left : max(x + width, 0)]
    patch[top - y : top - y + seen.shape[0], left - x : left - x + seen.shape[1]] = seen
    return patch


def choose(symbols: pd.DataFrame, most: int, seed: int) -> pd.DataFrame:
    """At most so many symbols of each V1 class and extended class, drawn by a hash of page and number alone."""
    keys = symbols["page"] + "/" + symbols["symbol"].astype(str)
    rank = [hashlib.blake2b(f"{seed}/{key}".encode(), digest_size=8).digest() for key in keys]
    ordered = symbols.assign(rank=rank).sort_values(["class", "rank"], kind="stable")
    return ordered.groupby("class", sort=False).head(most).drop(columns="rank").sort_values(["page", "symbol"])


def write_patches(out: Path, most: int, seed: int) -> int:
    """Writes patches.parquet with up to `most` symbols of each class, a PNG a row; returns how many.

    Classes are those of V1, whose data set had such patches, and of the extended list where V1 has none.
    """
    columns = ["page", "symbol", "label", "v1", "split", "x0", "y0", "x1", "y1"]
    symbols = pq.read_table(out / "symbols.parquet", columns=columns).to_pandas()
    symbols["class"] = symbols["v1"].where(symbols["v1"] != "", symbols["label"])
    chosen = choose(symbols[symbols["class"] != "staff"], most, seed)
    with atomic_path(out / PATCHES) as temporary, pq.ParquetWriter(temporary, _SCHEMA, compression="none") as writer:
        for page, rows in chosen.groupby("page", sort=True):
            image = read_grey(out / "images" / f"{page}.png")
            boxes = rows[["x0", "y0", "x1", "y1"]].to_numpy()
            patches = [cut_patch(image, box) for box in boxes]
            pngs = [cv2.imencode(".png", patch)[1].tobytes() for patch in patches]
            known = {name: pa.array(rows[name], _SCHEMA.field(name).type) for name in _SCHEMA.names[:-1]}
            writer.write_table(pa.table({**known, "png": pa.array(pngs, pa.binary())}, schema=_SCHEMA))
    return len(chosen)
