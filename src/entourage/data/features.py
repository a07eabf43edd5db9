"""Feature files: one row of numbers per item, as NumPy, CSV or Parquet.

pandas is imported on first use, because its import takes half a second.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from entourage.extras import extra_imports
from entourage.io.files import error_reason
from entourage.io.safe_formats import READ_ERRORS, check_unpacked, parquet_errors, read_npy, read_npz

if TYPE_CHECKING:
    import pandas as pd

_FEATURE_KEYS = ("features", "X")
_ITEM_KEYS = ("items", "ids", "filenames")
_ITEM_COLUMNS = ("item", "id", "name")
MAX_PACKED_ROWS = 1_000_000  # rows that a compressed file may have besides one per byte: a name takes 200 bytes
MAX_COLUMNS = 2**16  # of CSV files, for which pandas takes 8 kB per column
_MISSING = ["", "na", "NA", "nan", "NaN", "null"]


@dataclass(frozen=True)
class FeatureTable:
    """The contents of a feature file: names of items, and a feature vector for each.

    Attributes:
        items: unique names of the items, n of them.
        values: finite features within the range of float32, shape (n, d). Their type is float64 if the file may have
            more digits than float32 stores, as text files may, so that points far from the origin stay distinct.
    """

    items: list[str]
    values: NDArray[Any]


@dataclass(frozen=True)
class _Raw:
    """Content of a file before the checks; without `items`, rows are numbered from 0."""

    values: NDArray[Any]
    columns: list[str] | None = None
    items: list[str] | None = None


def read_features(path: str | Path, *, text_columns: bool = False) -> FeatureTable:
    """Read a feature file, and check that it is a table of finite numbers.

    - `.npy`: one array (n, d); the items are "0" to "n-1".
    - `.npz`: the array `features` or `X`, or the only 2-D array; names, if any, in `items`, `ids` or `filenames`.
    - `.csv`, `.parquet`: a header with the names of the columns; names of items in a column `item`, `id` or `name`, or
      else in the first column if it is not numeric or has no name; all other columns are features.

    Args:
        path: the file; its suffix determines the format. Pickles are never loaded.
        text_columns: replace a column of text by an indicator column (0 or 1) for each of its values, and a missing
            number by the median of its column, in `.csv` and `.parquet` files; otherwise both are errors.

    Returns:
        The table. Costs O(n d) time and memory.

    Raises:
        ValueError: the file is missing, damaged, or not a table of finite numbers with unique items; the message is one
            line with the path and the problem.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file or folder; expected a feature file: {', '.join(_READERS)}")
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise ValueError(f"{path}: unknown suffix {path.suffix!r}; expected a feature file: {', '.join(_READERS)}")
    raw = reader(path, text_columns)
    if raw.values.ndim != 2:
        raise ValueError(f"{path}: the features have shape {raw.values.shape}; expected (items, features)")
    if raw.values.size == 0:
        missing = "features" if len(raw.values) else "items"
        raise ValueError(f"{path}: has no {missing}; expected a table with a row per item and a column per feature")
    if raw.values.dtype.kind not in "fiub":
        raise ValueError(f"{path}: the features are of type {raw.values.dtype}; expected real numbers")
    if len(raw.values) > MAX_PACKED_ROWS + path.stat().st_size:
        raise ValueError(f"{path}: unpacks to {len(raw.values)} rows; expected at least one byte of the file per row")
    items = raw.items if raw.items is not None else [str(row) for row in range(len(raw.values))]
    _check_items(path, items, len(raw.values))
    return FeatureTable(items, _finite(path, raw, items))


def _read_npy(path: Path, _: bool) -> _Raw:
    return _Raw(read_npy(path))


def _read_npz(path: Path, _: bool) -> _Raw:
    arrays = read_npz(path)
    tables = [name for name, array in arrays.items() if array.ndim == 2]
    key = next((name for name in _FEATURE_KEYS if name in arrays), tables[0] if len(tables) == 1 else None)
    if key is None:
        raise ValueError(f"{path}: contains {', '.join(arrays) or 'nothing'}; expected an array named features or X")
    names = next((arrays[name] for name in _ITEM_KEYS if name in arrays), None)
    if names is None:
        return _Raw(arrays[key])
    if names.ndim != 1:
        raise ValueError(f"{path}: the item names have shape {names.shape}; expected one dimension")
    decoded = [name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names.tolist()]
    return _Raw(arrays[key], items=decoded)


def _read_csv(path: Path, text_columns: bool) -> _Raw:
    import pandas as pd

    try:
        _check_first_line(path)
        header = [str(name) for name in pd.read_csv(path, nrows=0, encoding="utf-8-sig").columns]
        _check_cells(path, len(header))
        column = _named_item_column(header)
        if column is None:
            # One cheap pass over the first column only: "007" cannot be restored once it has been read as a number.
            first = pd.read_csv(path, usecols=[0], encoding="utf-8-sig", low_memory=False).iloc[:, 0]
            column = header[0] if header[0].startswith("Unnamed:") or not _is_numeric(first) else None
        missing = {name: _MISSING for name in header if name != column}  # an item may be named "NA"
        frame = pd.read_csv(
            path,
            dtype=None if column is None else {column: str},
            na_values=missing,
            keep_default_na=False,
            encoding="utf-8-sig",
            low_memory=False,
        )
        if not isinstance(frame.index, pd.RangeIndex):  # pandas makes an index of first cells without a header
            raise ValueError("the rows have more cells than the header; expected equal numbers")
    except READ_ERRORS as error:  # pandas' own errors are ValueErrors
        raise _unreadable(path, error) from error
    return _from_frame(path, frame, column, text_columns)


def _read_parquet(path: Path, text_columns: bool) -> _Raw:
    import pandas as pd

    with extra_imports("parquet"):
        import pyarrow.parquet as pq

    with parquet_errors(path):
        table = pq.read_table(path)
        table.validate(full=True)  # strings that are not UTF-8 would raise when they are used
        frame: pd.DataFrame = table.to_pandas()
    frame.columns = [str(name) for name in frame.columns]
    column = _named_item_column(list(frame.columns))
    if column is None and not isinstance(frame.index, pd.RangeIndex):
        return _from_frame(path, frame, None, text_columns, [str(name) for name in frame.index])
    if column is None and frame.shape[1] and not _is_numeric(frame.iloc[:, 0]):
        column = str(frame.columns[0])
    return _from_frame(path, frame, column, text_columns)


def _from_frame(
    path: Path, frame: pd.DataFrame, column: str | None, text_columns: bool, items: list[str] | None = None
) -> _Raw:
    """Split a data frame into items and numeric features."""
    import pandas as pd

    features = frame if column is None else frame.drop(columns=[column])
    text = [name for name in features.columns if text_columns and len(features) and _is_text(features[name])]
    if text:
        features = pd.get_dummies(features, columns=text, prefix_sep="=", dummy_na=False, dtype=np.float64)
    if text_columns:
        features = features.fillna(features.median(numeric_only=True))
    for name in features.columns:
        if len(features) and not _is_numeric(features[name]):
            raise ValueError(f"{path}: column {name!r} is not numeric; expected numbers in all columns of features")
    if column is not None:
        items = ["" if pd.isna(name) else str(name) for name in frame[column].tolist()]
    values = features.to_numpy(dtype=np.float64, na_value=np.nan)  # (n, d)
    return _Raw(values, [str(name) for name in features.columns], items)


def _is_numeric(column: pd.Series[Any]) -> bool:
    import pandas as pd

    return pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_complex_dtype(column)


def _is_text(column: pd.Series[Any]) -> bool:
    import pandas as pd

    return not _is_numeric(column) and not pd.api.types.is_complex_dtype(column)


def _named_item_column(header: list[str]) -> str | None:
    by_lower_case = {name.strip().lower(): name for name in reversed(header)}
    return next((by_lower_case[name] for name in _ITEM_COLUMNS if name in by_lower_case), None)


def _check_cells(path: Path, columns: int) -> None:
    """Check the numbers of columns and cells of a CSV file; pandas also takes memory for the cells that rows lack."""
    if columns > MAX_COLUMNS:
        raise ValueError(f"has {columns} columns; expected at most {MAX_COLUMNS}, or a .npy file")
    with path.open("rb") as stream:
        rows = 1 + sum(chunk.count(b"\n") + chunk.count(b"\r") for chunk in iter(partial(stream.read, 2**20), b""))
    check_unpacked(path, 4 * rows * columns)  # full rows take 2 bytes per cell or more; each end may count as two


def _check_first_line(path: Path) -> None:
    """Check that the first line of a CSV file is a header separated by commas.

    A first line of numbers is rejected, because a row of data would be lost. Column numbers from 0 are accepted: data
    frames without column names are written with them.
    """
    import pandas as pd

    line = pd.read_csv(path, header=None, nrows=1, dtype=str, keep_default_na=False, encoding="utf-8-sig")
    cells = [cell.strip() for cell in line.iloc[0]]
    for mark, name in ((";", "';'"), ("\t", "tabs")):
        if len(cells) == 1 and mark in cells[0]:
            raise ValueError(f"its cells seem to be separated by {name}; expected commas")
    numbered = [str(index) for index in range(len(cells))]
    # The column of row names often has no name; the other cells are a header then.
    numbers = cells[0] != "" and any(map(_is_number, cells)) and all(_is_number(c) or c in _MISSING for c in cells)
    if numbers and cells != numbered:
        raise ValueError(
            "the first line contains numbers; expected a header with the names of the columns:"
            f" put a line such as {','.join(f'x{index}' for index in range(1, min(len(cells), 3) + 1))} above it"
        )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _check_items(path: Path, items: list[str], n: int) -> None:
    if len(items) != n:
        raise ValueError(f"{path}: {len(items)} item names for {n} rows of features; expected {n}")
    first: dict[str, int] = {}
    for row, item in enumerate(items, start=1):
        if not item:
            raise ValueError(f"{path}: row {row} has no item name; expected a name in every row")
        if first.setdefault(item, row) != row:
            raise ValueError(f"{path}: item {item!r} is in row {first[item]} and in row {row}; expected unique items")


def _finite(path: Path, raw: _Raw, items: list[str]) -> NDArray[Any]:
    with np.errstate(over="ignore"):  # values that overflow become infinite and are reported below
        bad = ~np.isfinite(raw.values.astype(np.float32))
    if bad.any():
        row, column = (int(index) for index in np.argwhere(bad)[0])
        name = repr(raw.columns[column]) if raw.columns is not None else str(column + 1)
        where = f"row {row + 1} (item {items[row]!r}), column {name}"
        raise ValueError(f"{path}: {where} is {raw.values[row, column]}; expected finite numbers that fit into 32 bits")
    exact = raw.values.dtype.itemsize <= 2 or raw.values.dtype == np.float32
    return raw.values.astype(np.float32 if exact else np.float64, copy=False)


def _unreadable(path: Path, error: Exception) -> ValueError:
    return ValueError(f"{path}: cannot be read: {error_reason(error)}")


_READERS: dict[str, Callable[[Path, bool], _Raw]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".csv": _read_csv,
    ".parquet": _read_parquet,
}
