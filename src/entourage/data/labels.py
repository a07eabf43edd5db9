"""CSV files with the labels and the class priors of items.

Users write these files by hand. Items may be named by the end of their paths, and errors name the line.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from textwrap import shorten

import numpy as np
from numpy.typing import NDArray

from entourage.io.safe_formats import check_unpacked


class ItemMatcher:
    """Find items by their full names or by the last parts of their paths.

    `cat1.jpg` and `photos/cat1.jpg` both match `2019/photos/cat1.jpg`, unless another item has the same last parts.
    Only complete parts of a path match: `1.jpg` does not match `cat1.jpg`.

    Args:
        items: names of all items, n of them. Costs O(n) time and memory; a search costs O(1) on average.
    """

    def __init__(self, items: Sequence[str]) -> None:
        self.items = items
        self._exact = set(items)
        self._by_last_part: dict[str, list[str]] = defaultdict(list)
        for item in dict.fromkeys(items):
            parts = _parts(item)
            if parts:
                self._by_last_part[parts[-1]].append(item)

    def find(self, name: str) -> list[str]:
        """Return all items that match a name: none if it is missing, several if it is ambiguous."""
        for exact in (name, name.strip()):
            if exact in self._exact:
                return [exact]
        parts = _parts(name.strip())
        if not parts:
            return []
        candidates = self._by_last_part.get(parts[-1], [])
        return [item for item in candidates if _parts(item)[-len(parts) :] == parts]


def _parts(name: str) -> tuple[str, ...]:
    """Split a path at slashes and backslashes into its parts."""
    return PurePosixPath(name.replace("\\", "/")).parts


@dataclass(frozen=True)
class CsvTable:
    """Contents of a CSV file, with line numbers for messages.

    Attributes:
        path: the file, for messages.
        header: names of the columns, without surrounding spaces.
        lines: line number and cells of every row that is not empty; short rows are padded with "".
    """

    path: Path
    header: list[str]
    lines: list[tuple[int, list[str]]]

    def column(self, name: str) -> int:
        """Return the index of the column with this name, in lower case.

        Raises:
            ValueError: the column is missing or occurs twice.
        """
        columns = [column for column, title in enumerate(self.header) if title.lower() == name]
        if len(columns) != 1:
            problem = f"no column {name!r}" if not columns else f"{len(columns)} columns {name!r}"
            present = shorten(
                ", ".join(self.header), 200, placeholder=" ..."
            )  # a name within quotes may have two lines
            raise ValueError(f"{self.path}: line 1 has {problem}: {present}; expected one {name!r}")
        return columns[0]


def read_csv_table(path: str | Path) -> CsvTable:
    """Read a CSV file (UTF-8, with or without a byte order mark).

    Args:
        path: the file.

    Returns:
        The header and the rows.

    Raises:
        ValueError: the file is missing, is not UTF-8 text, is not CSV, or has no header line.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = list(_non_empty_rows(stream))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start}); expected a CSV file") from error
    except csv.Error as error:
        raise ValueError(f"{path}: not a CSV file: {error}; expected cells separated by commas") from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}; expected a CSV file") from error
    if not lines:
        raise ValueError(f"{path}: empty; expected a header line and rows")
    header = [title.strip() for title in lines[0][1]]
    try:
        check_unpacked(path, 8 * len(lines) * len(header))
    except ValueError as error:  # a long header and many short rows
        raise ValueError(f"{path}: {error}") from error
    padded = [(line, cells + [""] * (len(header) - len(cells))) for line, cells in lines[1:]]
    return CsvTable(path, header, padded)


def _non_empty_rows(stream: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(stream)
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


_SHOWN = 3  # maximum number of missing items that a message names


def read_labels(path: str | Path, items: Sequence[str]) -> dict[str, str]:
    """Read a CSV file with the columns `item` and `label`; other columns and rows without a label are ignored.

    Args:
        path: the file. Items are named as `ItemMatcher` finds them.
        items: names of all items.

    Returns:
        Labels by the full name of the item, in the order of the file.

    Raises:
        ValueError: the file cannot be read, an item is unknown, ambiguous or has two labels, or there are no labels;
            the message is one line with the path, the line number and the problem.
    """
    table = read_csv_table(path)
    item_column, label_column = table.column("item"), table.column("label")
    labelled = [(line, cells[item_column], cells[label_column].strip()) for line, cells in table.lines]
    labelled = [(line, name, label) for line, name, label in labelled if label]
    for line, _, label in labelled:
        if label == "-1":
            raise ValueError(
                f"{table.path}: line {line}: the label is -1, which means unlabelled; expected another name"
            )
    if not labelled:
        raise ValueError(f"{table.path}: contains no labels; expected at least one row item,label")
    full_names = _match(table, [(line, name) for line, name, _ in labelled], items)
    labels: dict[str, str] = {}
    first_line: dict[str, int] = {}
    for (line, _, label), item in zip(labelled, full_names, strict=True):
        if labels.setdefault(item, label) != label:
            both = f"{label!r}, and {labels[item]!r} on line {first_line[item]}"
            raise ValueError(f"{table.path}: line {line}: item {item!r} has the label {both}; expected one label")
        first_line.setdefault(item, line)
    return labels


def read_prior(path: str | Path, items: Sequence[str], classes: Sequence[str]) -> NDArray[np.float64]:
    """Read a CSV file with the column `item` and one column of non-negative weights per class.

    Args:
        path: the file. Items are named as `ItemMatcher` finds them.
        items: names of all items, n of them.
        classes: names of all classes, m of them; the columns may be in any order.

    Returns:
        Distribution over the classes for each item, shape (n, m); rows sum to 1. It is uniform for items that the file
        does not list.

    Raises:
        ValueError: the file cannot be read, an item is unknown, ambiguous or listed twice, a class is unknown or
            missing, or a weight is invalid; the message is one line with the path, the line number and the problem.
    """
    table = read_csv_table(path)
    item_column = table.column("item")
    columns = _class_columns(table, item_column, classes)
    full_names = _match(table, [(line, cells[item_column]) for line, cells in table.lines], items)
    rows = {item: row for row, item in enumerate(items)}
    prior = np.full((len(items), len(classes)), 1.0 / len(classes))  # (n, m)
    first_line: dict[str, int] = {}
    for (line, cells), item in zip(table.lines, full_names, strict=True):
        if first_line.setdefault(item, line) != line:
            before = first_line[item]
            raise ValueError(f"{table.path}: line {line}: item {item!r} is also on line {before}; expected it once")
        weights = [_weight(table, line, name, cells[columns[name]]) for name in classes]
        peak = max(weights)
        if peak == 0.0:
            raise ValueError(f"{table.path}: line {line}: all weights of item {item!r} are 0; expected one above 0")
        scaled = np.array(weights) / peak  # first by the maximum: the sum of huge weights would overflow
        prior[rows[item]] = scaled / scaled.sum()
    return prior


def _match(table: CsvTable, names: Sequence[tuple[int, str]], items: Sequence[str]) -> list[str]:
    """Return the full name of the item that each line of the table names; a ValueError if none or several match."""
    matcher = ItemMatcher(items)
    matched: list[str] = []
    missing: list[tuple[int, str]] = []
    for line, name in names:
        if not name.strip():
            raise ValueError(f"{table.path}: line {line}: the item is empty; expected a name in the column 'item'")
        matches = matcher.find(name)
        if len(matches) > 1:
            raise ValueError(
                f"{table.path}: line {line}: item {name!r} is ambiguous, it matches {matches[0]!r} and {matches[1]!r}"
                f" ({len(matches)} in all); expected more of the path"
            )
        if matches:
            matched.append(matches[0])
        else:
            missing.append((line, name))
    if missing:
        shown = ", ".join(f"{name!r} (line {line})" for line, name in missing[:_SHOWN])
        more = ", ..." if len(missing) > _SHOWN else ""
        expected = f"; expected names such as {items[0]!r}" if items else ""
        raise ValueError(f"{table.path}: {len(missing)} of {len(names)} items do not exist: {shown}{more}{expected}")
    return matched


def _class_columns(table: CsvTable, item_column: int, classes: Sequence[str]) -> dict[str, int]:
    """Return the index of the column of each class, by the name of the class."""
    columns: dict[str, int] = {}
    for column, name in enumerate(table.header):
        if column == item_column:
            continue
        if name not in classes:
            raise ValueError(f"{table.path}: line 1: column {name!r} is not a class; expected {', '.join(classes)}")
        if name in columns:
            raise ValueError(f"{table.path}: line 1: class {name!r} has two columns; expected one")
        columns[name] = column
    absent = [name for name in classes if name not in columns]
    if absent:
        names = ", ".join(map(repr, absent))
        raise ValueError(f"{table.path}: line 1 has no column for class {names}; expected a column per class")
    return columns


def _weight(table: CsvTable, line: int, name: str, cell: str) -> float:
    try:
        weight = float(cell)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0.0):
        raise ValueError(f"{table.path}: line {line}: the weight of {name!r} is {cell!r}; expected a number, 0 or more")
    return weight
