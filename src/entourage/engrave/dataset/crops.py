"""A library of crops of rare symbols, which a detector puts into the margins of its training pages (chapter 6)."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from entourage.engrave.dataset.patches import choose, cut_patch
from entourage.engrave.dataset.table import read_table
from entourage.engrave.render.png import read_grey
from entourage.io.writing import atomic_path, check_output_file
from entourage.symbols import EXTENDED_IDS

WIDTH, HEIGHT = 130, 80
_SCHEMA = pa.schema(
    [
        ("class", pa.string()),  # the rare symbol in the middle
        ("page", pa.string()),
        ("split", pa.string()),
        ("png", pa.binary()),
        ("boxes", pa.list_(pa.list_(pa.int32(), 4))),  # all symbols that lie wholly inside, x0, y0, x1, y1
        ("labels", pa.list_(pa.int32())),  # and their category ids, the rare one first
    ]
)


def write_crops(folder: Path, path: Path, *, share: float = 0.01, most: int = 300, seed: int = 0) -> dict[str, int]:
    """Cuts crops of rare symbols with their surroundings out of a data set.

    Args:
        folder: the data set that `entourage engrave` has made.
        path: the Parquet file to write.
        share: classes with less than this share of all symbols are rare.
        most: crops of each class at most.
        seed: of the choice.

    Returns:
        The number of crops of each class.

    Raises:
        ValueError: the folder is no data set, no class in it is rare, or the path is none to write to.
    """
    check_output_file(path, ".parquet", [folder / "symbols.parquet"])
    columns = ["page", "symbol", "label", "label_id", "split", "x0", "y0", "x1", "y1"]
    symbols = read_table(folder, columns)
    symbols = symbols[symbols["label"].isin(list(EXTENDED_IDS))].rename(columns={"label": "class"})
    fits = (symbols["x1"] - symbols["x0"] <= WIDTH - 4) & (symbols["y1"] - symbols["y0"] <= HEIGHT - 4)
    counts = symbols["class"].value_counts()
    rare = counts.index[counts < share * len(symbols)]
    chosen = choose(symbols[fits & symbols["class"].isin(list(rare))], most, seed)
    if len(chosen) == 0:
        raise ValueError(f"{folder} has no class with less than {share:.1%} of the symbols; expected a larger share")
    with atomic_path(path) as temporary, pq.ParquetWriter(temporary, _SCHEMA) as writer:
        for page, rows in chosen.groupby("page", sort=True):
            image = read_grey(folder / "images" / f"{page}.png")
            around = symbols[symbols["page"] == page]
            crops = [_crop(image, row, around) for _, row in rows.iterrows()]
            writer.write_table(pa.Table.from_pylist(crops, schema=_SCHEMA))
    return {str(name): int(count) for name, count in chosen["class"].value_counts().items()}


def _crop(image: np.ndarray, row: pd.Series, around: pd.DataFrame) -> dict[str, object]:
    box = row[["x0", "y0", "x1", "y1"]].to_numpy(dtype=np.int64)
    patch = cut_patch(image, box, WIDTH, HEIGHT)
    left, top = int(box[0] + box[2] - WIDTH) // 2, int(box[1] + box[3] - HEIGHT) // 2
    boxes = around[["x0", "y0", "x1", "y1"]].to_numpy() - np.array([left, top, left, top])
    inside = (boxes[:, :2] >= 0).all(axis=1) & (boxes[:, 2] <= WIDTH) & (boxes[:, 3] <= HEIGHT)
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
