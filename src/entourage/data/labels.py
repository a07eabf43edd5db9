"""What people already know of the items: labels for a few, and prior beliefs about the rest."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from entourage.data.matching import ItemMatcher
from entourage.data.rows import Rows, read_rows

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
    rows = read_rows(path)
    item_column, label_column = rows.column("item"), rows.column("label")
    given = [(line, cells[item_column], cells[label_column].strip()) for line, cells in rows.lines]
    given = [(line, name, label) for line, name, label in given if label]
    for line, _, label in given:
        if label == "-1":
            raise ValueError(
                f"{rows.path}: line {line}: the label is -1, which means unlabelled; expected another name"
            )
    if not given:
        raise ValueError(f"{rows.path}: holds no label; expected at least one row item,label")
    full_names = _match(rows, [(line, name) for line, name, _ in given], items)
    labels: dict[str, str] = {}
    first_line: dict[str, int] = {}
    for (line, _, label), item in zip(given, full_names, strict=True):
        if labels.setdefault(item, label) != label:
            before = f"{labels[item]!r} on line {first_line[item]}"
            raise ValueError(f"{rows.path}: line {line}: item {item!r} has the label {label!r}, but {before}")
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
    rows = read_rows(path)
    item_column = rows.column("item")
    columns = _class_columns(rows, item_column, classes)
    full_names = _match(rows, [(line, cells[item_column]) for line, cells in rows.lines], items)
    place = {item: row for row, item in enumerate(items)}
    prior = np.full((len(items), len(classes)), 1.0 / len(classes))  # (n, m)
    first_line: dict[str, int] = {}
    for (line, cells), item in zip(rows.lines, full_names, strict=True):
        if first_line.setdefault(item, line) != line:
            raise ValueError(f"{rows.path}: line {line}: item {item!r} is already on line {first_line[item]}")
        weights = [_weight(rows, line, name, cells[columns[name]]) for name in classes]
        peak = max(weights)
        if peak == 0.0:
            raise ValueError(f"{rows.path}: line {line}: all weights of item {item!r} are 0; expected one above 0")
        scaled = np.array(weights) / peak  # first by the largest: the sum of huge weights would overflow
        prior[place[item]] = scaled / scaled.sum()
    return prior


def _match(rows: Rows, names: Sequence[tuple[int, str]], items: Sequence[str]) -> list[str]:
    """The full name of the item on each line."""
    matcher = ItemMatcher(items)
    matched: list[str] = []
    missing: list[tuple[int, str]] = []
    for line, name in names:
        if not name.strip():
            raise ValueError(f"{rows.path}: line {line}: no item is named; expected a name in the column 'item'")
        found = matcher.find(name)
        if len(found) > 1:
            raise ValueError(
                f"{rows.path}: line {line}: item {name!r} is ambiguous, it may be {found[0]!r} or {found[1]!r}"
                f" ({len(found)} in all); expected more of the path"
            )
        if found:
            matched.append(found[0])
        else:
            missing.append((line, name))
    if missing:
        shown = ", ".join(f"{name!r} (line {line})" for line, name in missing[:_SHOWN])
        more = ", ..." if len(missing) > _SHOWN else ""
        expected = f"; expected names such as {items[0]!r}" if items else ""
        raise ValueError(f"{rows.path}: {len(missing)} of {len(names)} items do not exist: {shown}{more}{expected}")
    return matched


def _class_columns(rows: Rows, item_column: int, classes: Sequence[str]) -> dict[str, int]:
    """The column of each class."""
    columns: dict[str, int] = {}
    for place, name in enumerate(rows.header):
        if place == item_column:
            continue
        if name not in classes:
            raise ValueError(f"{rows.path}: line 1: column {name!r} is no class; expected {', '.join(classes)}")
        if name in columns:
            raise ValueError(f"{rows.path}: line 1: class {name!r} has two columns; expected one")
        columns[name] = place
    absent = [name for name in classes if name not in columns]
    if absent:
        raise ValueError(f"{rows.path}: line 1 has no column for class {', '.join(map(repr, absent))}")
    return columns


def _weight(rows: Rows, line: int, name: str, cell: str) -> float:
    try:
        weight = float(cell)
    except ValueError:
        weight = math.nan
    if not (math.isfinite(weight) and weight >= 0.0):
        raise ValueError(f"{rows.path}: line {line}: the weight of {name!r} is {cell!r}; expected a number, 0 or more")
    return weight
