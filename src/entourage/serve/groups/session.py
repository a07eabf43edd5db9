"""A clustering that is open in the browser: its items, and the names that the user gives to clusters."""

from __future__ import annotations

import csv
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.data.image_set import ImageFiles
from entourage.data.labels import read_csv_table
from entourage.data.media import IMAGE_SUFFIXES
from entourage.io.files import has_suffix
from entourage.io.safe_formats import READ_ERRORS
from entourage.serve.changes import OpenStore, open_store
from entourage.serve.labelling.source import read_source
from entourage.serve.store import Event

GROUPS_FILE = "groups.csv"
CLUSTERS_FILE = "clusters.csv"
MAX_PARTS = 20
_MAX_SHOWN = 500


@dataclass(frozen=True)
class Clustering:
    """The result of `entourage cluster run`.

    Attributes:
        items: names of the items, length n.
        clusters: cluster of each item, length n.
        probabilities: probability of this cluster, shape (n,).
    """

    items: list[str]
    clusters: list[int]
    probabilities: NDArray[np.float64]


def read_clusters(path: Path) -> Clustering:
    """Read `clusters.csv`.

    Raises:
        ValueError: the file is missing or damaged.
    """
    try:
        table = read_csv_table(path)
        item, cluster, probability = (table.column(name) for name in ("item", "cluster", "probability"))
        rows = [(cells[item], int(cells[cluster]), float(cells[probability])) for _, cells in table.lines]
    except (*READ_ERRORS, csv.Error) as error:
        raise ValueError(f"{path}: damaged: {error}; expected the clusters of `entourage cluster run`") from error
    return Clustering([row[0] for row in rows], [row[1] for row in rows], np.array([row[2] for row in rows]))


class GroupsSession:
    """A clustering with the names of its groups. Methods may be called from several threads.

    Args:
        folder: output folder of `entourage cluster run`.
        source: the items, if they may be shown; None: there are no pictures, and groups are not split automatically.

    Attributes:
        clustering: what the command wrote.
        labels: the group of each item, "cluster 3" until it gets another name.

    Raises:
        ValueError: the clustering cannot be read, or two items have one name.
    """

    def __init__(self, folder: Path, source: Path | None = None) -> None:
        self.folder, self.source = folder, source
        self.clustering = read_clusters(folder / CLUSTERS_FILE)
        names, clusters = self.clustering.items, self.clustering.clusters
        initial = {name: f"cluster {cluster}" for name, cluster in zip(names, clusters, strict=True)}
        self.labels: OpenStore = open_store(folder, GROUPS_FILE, names, initial)
        self._features: NDArray[Any] | None = None
        self._lock = threading.Lock()

    @property
    def pictures(self) -> ImageFiles | None:
        """The images of the items; None if they are no images, or may not be shown."""
        if self.source is None or not self.source.is_dir():
            return None
        names = self.clustering.items
        if not all(has_suffix(name, IMAGE_SUFFIXES) for name in names):
            return None
        root = self.source.resolve()
        paths = [root / name for name in names]
        outside = next((path for path in paths if not path.resolve().is_relative_to(root)), None)
        if outside is not None:
            raise ValueError(f"{self.folder / CLUSTERS_FILE}: {outside} is outside of {root}; expected its images")
        return ImageFiles(paths)

    def list(self, group: str | None, offset: int, limit: int, query: str = "") -> dict[str, Any]:
        """Return items, the least probable first.

        Args:
            group: name of a group; None: all.
            offset: number of items that are left out at the beginning.
            limit: number of items, at most 500.
            query: part of the names, ignoring case.

        Returns:
            "total", and "items": index, name, group and probability of each.
        """
        labels, _, _ = self.labels.labels()
        names, probabilities = self.clustering.items, self.clustering.probabilities
        chosen = [row for row, label in labels.items() if group is None or label == group]
        if query:
            chosen = [row for row in chosen if query.casefold() in names[row].casefold()]
        chosen.sort(key=lambda row: (probabilities[row], row))
        shown = chosen[offset : offset + min(limit, _MAX_SHOWN)]
        items = [
            {"index": row, "name": names[row], "label": labels[row], "confidence": round(float(probabilities[row]), 4)}
            for row in shown
        ]
        return {"total": len(chosen), "items": items}

    def mean_probabilities(self) -> Mapping[str, float]:
        """Return the mean probability of the items of each group."""
        sums: dict[str, list[float]] = {}
        for row, label in self.labels.labels()[0].items():
            sums.setdefault(label, []).append(float(self.clustering.probabilities[row]))
        return {label: sum(values) / len(values) for label, values in sums.items()}

    def split(self, group: str, parts: int) -> Event:
        """Split a group into parts by k-means on the features of its items; on disk when this returns.

        Args:
            group: name of the group.
            parts: number of parts; they are named "GROUP 1", "GROUP 2" and so on, the largest first.

        Raises:
            ConflictError: another page has moved an item of the group meanwhile.
            ValueError: the group has fewer items than parts, or there are no features.
        """
        from sklearn.cluster import KMeans

        if not 2 <= parts <= MAX_PARTS:
            raise ValueError(f"parts: is {parts}; expected 2 to {MAX_PARTS}")
        labels, classes, _ = self.labels.labels()
        rows = [row for row, label in labels.items() if label == group]
        if len(rows) < parts:
            raise ValueError(f"name: the group {group!r} has {len(rows)} items; expected {parts} or more")
        found = KMeans(parts, n_init=4, random_state=0).fit_predict(self._load_features()[rows])
        order = np.argsort(-np.bincount(found, minlength=parts), kind="stable").tolist()
        names = _new_names(group, parts, set(classes))
        name_of = {part: names[place] for place, part in enumerate(order)}
        moved = {self.clustering.items[row]: name_of[part] for row, part in zip(rows, found.tolist(), strict=True)}
        return self.labels.change(lambda store: store.assign(moved, group))

    def _load_features(self) -> NDArray[Any]:
        """Return the features of the items, shape (n, d); images are embedded when they are first asked for."""
        if self.source is None:
            raise ValueError("source: may not be read; expected --source to confirm it")
        with self._lock:
            if self._features is None:
                source = read_source(self.source, "efficientnet-lite1", "auto", "auto")
                place = {name: row for row, name in enumerate(source.names)}
                missing = next((name for name in self.clustering.items if name not in place), None)
                if missing is not None:
                    raise ValueError(f"{self.source}: has no item {missing!r}; expected the items of the clustering")
                self._features = source.features[[place[name] for name in self.clustering.items]]
            return self._features


def _new_names(group: str, parts: int, taken: set[str]) -> list[str]:
    """Return names of the parts of a group that no other group has."""
    names: list[str] = []
    number = 0
    while len(names) < parts:
        number += 1
        name = f"{group} {number}" if f"{group} {number}" not in taken else f"{group} part {number}"
        if name not in taken:
            names.append(name)
    return names
