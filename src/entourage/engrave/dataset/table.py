"""The table of all symbols: one row a symbol, everything that is known of it."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from entourage.engrave.render.page import Page
from entourage.io.parquet import undamaged
from entourage.symbols import EXTENDED_IDS, V1_IDS, muscima_id

SCHEMA = pa.schema(
    [
        ("score", pa.string()),  # the score's name in this data set
        ("source", pa.string()),  # its file in this data set
        ("work", pa.string()),  # what splits keep together
        ("page", pa.string()),  # name of the image, without suffix
        ("number", pa.int32()),  # of the page in its score, from 1
        ("width", pa.int32()),
        ("height", pa.int32()),
        ("font", pa.string()),
        ("complete", pa.bool_()),  # every glyph on the page has a class
        ("symbol", pa.int32()),  # its value in the instance image, from 1
        ("label", pa.string()),  # class in the extended list, or ""
        ("label_id", pa.int32()),  # 0 if none
        ("v1", pa.string()),  # class in V1, or ""
        ("v1_id", pa.int32()),
        ("muscima_id", pa.int32()),
        *[(name, pa.int32()) for name in ("x0", "y0", "x1", "y1")],  # x1, y1 lie beyond the last pixel
        ("oriented", pa.list_(pa.float32(), 8)),  # corners x, y of the turned box
        ("area", pa.int32()),  # pixels, hidden ones included
        ("mask", pa.string()),  # COCO's compressed run lengths, hidden pixels included
        ("element", pa.string()),  # id in the source
        ("notes", pa.list_(pa.string())),  # ids of the notes it belongs to
        ("heads", pa.list_(pa.int32())),  # the same notes as values of the instance image
        ("onset", pa.float64()),  # quarter notes from the beginning of the score
        ("duration", pa.float64()),
        ("staff", pa.int32()),  # from 1 at the top of a system; 0 if none
        ("position", pa.int32()),  # steps above the middle of the staff
        ("pitch", pa.string()),
        ("midi", pa.int32()),
    ]
)


def page_table(page: Page, *, score: str, source: str, work: str, name: str, font: str) -> pa.Table:
    """The symbols of a page as rows of the table."""
    height, width = page.image.shape
    symbols = page.symbols
    heads = {s.notes[0]: i for i, s in enumerate(symbols, start=1) if s.label.startswith("notehead") and s.notes}
    count = len(symbols)
    columns = {
        "score": [score] * count,
        "source": [source] * count,
        "work": [work] * count,
        "page": [name] * count,
        "number": [page.number] * count,
        "width": [width] * count,
        "height": [height] * count,
        "font": [font] * count,
        "complete": [page.complete] * count,
        "symbol": range(1, count + 1),
        "label": [s.label for s in symbols],
        "label_id": [EXTENDED_IDS.get(s.label, 0) for s in symbols],
        "v1": [s.v1 for s in symbols],
        "v1_id": [V1_IDS.get(s.v1, 0) for s in symbols],
        "muscima_id": [(muscima_id(s.label) or 0) if s.label else 0 for s in symbols],
        **{name: page.boxes[:, k] for k, name in enumerate(("x0", "y0", "x1", "y1"))},
        "oriented": list(page.oriented.reshape(-1, 8).round(2)),
        "area": page.areas,
        "mask": page.masks,
        "element": [s.element for s in symbols],
        "notes": [s.notes for s in symbols],
        "heads": [[heads[n] for n in s.notes if n in heads] for s in symbols],
        "onset": [None if s.onset is None else round(s.onset, 6) for s in symbols],
        "duration": [None if s.duration is None else round(s.duration, 6) for s in symbols],
        "staff": [s.staff for s in symbols],
        "position": [s.position for s in symbols],
        "pitch": [s.pitch for s in symbols],
        "midi": [s.midi for s in symbols],
    }
    return pa.table({field.name: pa.array(columns[field.name], field.type) for field in SCHEMA}, schema=SCHEMA)


def read_table(folder: Path, columns: list[str]) -> pd.DataFrame:
    """Columns of the table of a data set.

    Raises:
        ValueError: the folder is no data set, or its table is damaged.
    """
    path = folder / "symbols.parquet"
    if not path.is_file():
        raise ValueError(f"{folder} has no symbols.parquet; expected a data set made by `entourage engrave`")
    with undamaged(path, "entourage engrave"):
        return pq.read_table(path, columns=columns).to_pandas()  # type: ignore[no-any-return]
