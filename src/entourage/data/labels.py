"""Which item is meant: by its full name, or by the end of its path if only one item ends so.

Small CSV files written by people: rows with their line numbers, so that an error can point at the line.

What people already know of the items: labels for a few, and prior beliefs about the rest.
"""

import csv
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

import numpy as np
from numpy.typing import NDArray


class ItemMatcher:
    """Finds items by the names people write into a CSV file.

    `cat1.jpg` and `photos/cat1.jpg` both mean `2019/photos/cat1.jpg`, as long as no other item ends in the same way.
    Only whole parts of a path count: `1.jpg` does not mean `cat1.jpg`.

    Args:
        items: the names of all items, n of them. Costs O(n) time and memory; a look-up costs O(1) on average.
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
        """All items that `name` may mean: one if all is well, none if it is missing, several if it is ambiguous."""
        for exact in (name, name.strip()):
            if exact in self._exact:
                return [exact]
        parts = _parts(name.strip())
        if not parts:
            return []
        candidates = self._by_last_part.get(parts[-1], [])
        return [item for item in candidates if _parts(item)[-len(parts) :] == parts]


def _parts(name: str) -> tuple[str, ...]:
    """The parts of a path, from either kind of slash."""
    return PurePosixPath(name.replace("\\", "/")).parts


@dataclass(frozen=True)
class CsvTable:
    """A CSV file in memory.

    Attributes:
        path: where it came from, for messages.
        header: the names of the columns, without surrounding blanks.
        lines: (line number, cells) of every row that is not blank; short rows are filled up with "".
    """

    path: Path
    header: list[str]
    lines: list[tuple[int, list[str]]]

    def column(self, name: str) -> int:
        """Position of a column, whatever its case.

        Raises:
            ValueError: there is no such column, or there are two.
        """
        columns = [column for column, title in enumerate(self.header) if title.lower() == name]
        if len(columns) != 1:
            problem = f"no column {name!r}" if not columns else f"{len(columns)} columns {name!r}"
            raise ValueError(f"{self.path}: line 1 has {problem}; found: {', '.join(self.header)}")
        return columns[0]


def read_csv_table(path: str | Path) -> CsvTable:
    """Read a CSV file (UTF-8, with or without a byte order mark).

    Raises:
        ValueError: the file is missing, is not UTF-8 text, is not CSV, or has no header line.
    """
    path = Path(path)
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            lines = list(_not_blank(stream))
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not UTF-8 text (byte {error.start}); expected a CSV file") from error
    except csv.Error as error:
        raise ValueError(f"{path}: not a CSV file: {error}") from error
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    if not lines:
        raise ValueError(f"{path}: empty; expected a header line and rows")
    header = [title.strip() for title in lines[0][1]]
    filled = [(line, cells + [""] * (len(header) - len(cells))) for line, cells in lines[1:]]
    return CsvTable(path, header, filled)


def _not_blank(stream: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(stream)
    for cells in reader:
        if any(cell.strip() for cell in cells):
            yield reader.line_num, cells


_SHOWN = 3  # how many missing items a message names


def read_labels(path: str | Path, items: Sequence[str]) -> dict[str, str]:
    """Read a CSV file with the columns `item` and `label`; other columns are ignored, as are rows without a label.

    Args:
        path: the file. An item is given by its name or, if no other item ends so, by the end of its path.
        items: the names of all items.

    Returns:
        The label of each labelled item, under the item's full name, in the order of the file.

    Raises:
        ValueError: one line with the file, the line and what is wrong there.
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
        raise ValueError(f"{table.path}: holds no label; expected at least one row item,label")
    full_names = _match(table, [(line, name) for line, name, _ in labelled], items)
    labels: dict[str, str] = {}
    first_line: dict[str, int] = {}
    for (line, _, label), item in zip(labelled, full_names, strict=True):
        if labels.setdefault(item, label) != label:
            before = f"{labels[item]!r} on line {first_line[item]}"
            raise ValueError(f"{table.path}: line {line}: item {item!r} has the label {label!r}, but {before}")
        first_line.setdefault(item, line)
    return labels


def read_prior(path: str | Path, items: Sequence[str], classes: Sequence[str]) -> NDArray[np.float64]:
    """Read a CSV file with the column `item` and one column of non-negative weights for each class.

    Args:
        path: the file. Items are named as in `read_labels`.
        items: the names of all items, n of them.
        classes: the names of all classes, m of them; the columns may come in any order.

    Returns:
        A distribution over the classes for each item, shape (n, m), rows summing to 1; uniform for unlisted items.

    Raises:
        ValueError: one line with the file, the line and what is wrong there.
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
            raise ValueError(f"{table.path}: line {line}: item {item!r} is already on line {first_line[item]}")
        weights = [_weight(table, line, name, cells[columns[name]]) for name in classes]
        peak = max(weights)
        if peak == 0.0:
            raise ValueError(f"{table.path}: line {line}: all weights of item {item!r} are 0; expected one above 0")
        scaled = np.array(weights) / peak  # first by the largest: the sum of huge weights would overflow
        prior[rows[item]] = scaled / scaled.sum()
    return prior


def _match(table: CsvTable, names: Sequence[tuple[int, str]], items: Sequence[str]) -> list[str]:
    """The full name of the item on each line."""
    matcher = ItemMatcher(items)
    matched: list[str] = []
    missing: list[tuple[int, str]] = []
    for line, name in names:
        if not name.strip():
            raise ValueError(f"{table.path}: line {line}: no item is named; expected a name in the column 'item'")
        matches = matcher.find(name)
        if len(matches) > 1:
            raise ValueError(
                f"{table.path}: line {line}: item {name!r} is ambiguous, it may be {matches[0]!r} or {matches[1]!r}"
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
    """The column of each class."""
    columns: dict[str, int] = {}
    for column, name in enumerate(table.header):
        if column == item_column:
            continue
        if name not in classes:
            raise ValueError(f"{table.path}: line 1: column {name!r} is no class; expected {', '.join(classes)}")
        if name in columns:
            raise ValueError(f"{table.path}: line 1: class {name!r} has two columns; expected one")
        columns[name] = column
    absent = [name for name in classes if name not in columns]
    if absent:
        raise ValueError(f"{table.path}: line 1 has no column for class {', '.join(map(repr, absent))}")
    return columns


def _weight(table: CsvTable, line: int, name: str, cell: str) -> float:
    try:
        weight = float(cell)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0.0):
        raise ValueError(f"{table.path}: line {line}: the weight of {name!r} is {cell!r}; expected a number, 0 or more")
    return weight
