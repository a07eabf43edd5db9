"""Examples of what belongs together, as users have them: a folder a class, a table of labels, or a table of pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.sparse.csgraph import connected_components

from entourage.cluster.represent import Items
from entourage.data.labels import read_labels
from entourage.data.matching import ItemMatcher
from entourage.data.rows import read_rows

_YES, _NO = {"1", "yes", "true", "same"}, {"0", "no", "false", "different"}


def folder_labels(items: Items, source: Path) -> list[str]:
    """The folder of each item as its class.

    Raises:
        ValueError: all items lie in one folder.
    """
    labels = [Path(name).parent.as_posix() for name in items.names]
    if len(set(labels)) < 2:
        raise ValueError(f"{source}: all files are in one folder; expected a folder for each class, or --labels")
    return labels


def table_labels(items: Items, path: Path) -> tuple[list[int], list[str]]:
    """Positions and classes of the items that a CSV file with the columns item,label names.

    Raises:
        ValueError: the file is not as it should be, or knows one class only.
    """
    known = read_labels(path, sorted({*items.names, *(name for name, _ in items.skipped)}))
    rows = [row for row, name in enumerate(items.names) if name in known]
    labels = [known[items.names[row]] for row in rows]
    if len(set(labels)) < 2:
        only = f"all items have the label {labels[0]!r}" if labels else "no item that can be read has a label"
        raise ValueError(f"{path}: {only}; expected two classes or more")
    return rows, labels


def read_pairs(items: Items, path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Must-links and cannot-links, each (p, 2), from a CSV file with the columns first, second and same.

    Items of one name, such as the stretches of a sound, belong together in any case.

    Raises:
        ValueError: one line with the file, the line and what is wrong there.
    """
    rows = read_rows(path)
    first, second, same = (rows.column(name) for name in ("first", "second", "same"))
    place = {name: row for row, name in enumerate(items.names)}
    matcher = ItemMatcher(list(place))
    broken = {name for name, _ in items.skipped}
    links: dict[bool, list[tuple[int, int]]] = {True: [], False: []}
    for line, cells in rows.lines:
        names = [cells[first].strip(), cells[second].strip()]
        if broken & set(names):
            continue  # a pair with a file that cannot be read is no mistake of the table
        found = [matcher.find(name) for name in names]
        for name, matches in zip(names, found, strict=True):
            if len(matches) != 1:
                problem = "is ambiguous" if matches else "does not exist"
                expected = f"expected a name such as {items.names[0]!r}"
                raise ValueError(f"{path}: line {line}: item {name!r} {problem}; {expected}")
        if found[0] == found[1]:
            raise ValueError(f"{path}: line {line}: item {names[0]!r} is paired with itself; expected two items")
        answer = cells[same].strip().lower()
        if answer not in _YES | _NO:
            raise ValueError(f"{path}: line {line}: same is {cells[same]!r}; expected 1 or 0")
        links[answer in _YES].append((place[found[0][0]], place[found[1][0]]))
    for row, name in enumerate(items.names):
        if place[name] != row:
            links[True].append((row, place[name]))
    must, cannot = (np.array(links[kind], dtype=np.int64).reshape(-1, 2) for kind in (True, False))
    return must, cannot


def hold_out(labels: list[str], share: float, least: int, seed: int) -> NDArray[np.bool_]:
    """Which items are of classes held out for validation, shape (n,): a share of the classes, at least `least`.

    None are held out if fewer than `least` classes would remain to learn from.
    """
    classes = sorted(set(labels))
    count = max(round(share * len(classes)), least)
    if len(classes) - count < least:
        return np.zeros(len(labels), dtype=bool)
    held = np.random.default_rng(seed).permutation(classes)[:count]
    return np.isin(labels, held)


def hold_out_parts(
    must: NDArray[np.int64], cannot: NDArray[np.int64], n: int, share: float, seed: int
) -> NDArray[np.bool_]:
    """Which items are of parts held out for validation, shape (n,): a share of what must-links make of several items.

    Parts are held out with one from which they are kept apart, two at least. None are if no must-link or no cannot-link
    would remain to learn from.
    """
    graph = sparse.coo_matrix((np.ones(len(must)), (must[:, 0], must[:, 1])), shape=(n, n))
    _, part = connected_components(graph, directed=False)
    several = np.bincount(part) > 1
    count = max(round(share * int(several.sum())), 2)
    chosen: set[int] = set()
    for first, second in np.random.default_rng(seed).permutation(part[cannot]):
        if len(chosen) < count and several[first] and several[second]:
            chosen |= {int(first), int(second)}
    held = np.isin(part, sorted(chosen))
    remain = all((~held[links].any(1)).any() for links in (must, cannot))
    return held if remain else np.zeros(n, dtype=bool)
