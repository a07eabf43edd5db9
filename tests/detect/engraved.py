"""A synthetic data set in the layout of `entourage engrave`: black rectangles on staves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

INTERLINE = 20
WIDTH, HEIGHT = 480, 320
Symbol = tuple[str, str, int, int, int, int]  # label, v1, x0, y0, x1, y1


def some_symbols(seed: int, count: int = 12) -> list[Symbol]:
    """Return random noteheads, rests and flags, a staff and a dynamic word, all at even coordinates."""
    rng = np.random.default_rng(seed)
    symbols: list[Symbol] = [("staff", "", 40, 120, 440, 202), ("", "dynamicPP", 60, 220, 90, 240)]
    kinds = [
        ("noteheadBlackOnLine", "noteheadBlack", 24, 20),
        ("restQuarter", "restQuarter", 20, 56),
        ("flag8thUp", "flag8thUp", 10, 30),
    ]
    for _ in range(count):
        label, v1, width, height = kinds[rng.choice(3, p=[0.6, 0.3, 0.1])]
        x, y = (2 * int(rng.integers(25, 210)), 2 * int(rng.integers(40, 110)))
        symbols.append((label, v1, x, y, x + width, y + height))
    return symbols


def write_engraved(folder: Path, pages: Sequence[tuple[str, str, Sequence[Symbol]]]) -> Path:
    """Write pages (name, split, symbols)."""
    (folder / "images").mkdir(parents=True)
    rows = []
    for name, split, symbols in pages:
        image = np.full((HEIGHT, WIDTH), 255, np.uint8)
        for label, v1, x0, y0, x1, y1 in symbols:
            if label == "staff":
                for line in range(5):
                    image[y0 + 20 * line : y0 + 20 * line + 2, x0:x1] = 0
            else:
                image[y0:y1, x0:x1] = 0
            rows.append(
                {"page": name, "label": label, "v1": v1, "split": split, "x0": x0, "y0": y0, "x1": x1, "y1": y1}
            )
        cv2.imwrite(str(folder / "images" / f"{name}.png"), image)
    pq.write_table(pa.Table.from_pylist(rows), folder / "symbols.parquet")
    manifest = {"options": {"page": {"interline": INTERLINE}}}
    (folder / "manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return folder


def some_pages(folder: Path, train: int = 4, val: int = 1, test: int = 1) -> Path:
    """Write a data set with pages of every split."""
    splits = ["train"] * train + ["val"] * val + ["test"] * test
    pages = [(f"page-{number}", split, some_symbols(number)) for number, split in enumerate(splits)]
    return write_engraved(folder, pages)
