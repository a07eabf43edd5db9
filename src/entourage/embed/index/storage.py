"""Files of an index: each version has its own vectors, items and states, and replaces the former one in one step.

`current.json` names the files of the version that readers open. The files of a version are never changed, so that a
reader which has mapped them is not disturbed by an update.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.io.files import error_reason, write_json
from entourage.io.safe_formats import read_npy

INDEX_FILE = "index.json"  # the configuration, see `RunDirectory`
CURRENT_FILE = "current.json"
FORMAT = 1


@dataclass(frozen=True)
class Version:
    """Description of one version of an index.

    Attributes:
        number: number of the version, from 1.
        n: number of vectors.
        dim: length of a vector.
        model: name from which the network is loaded, see `Embedder.load`; "" for vectors, None for a module.
        source: the source, as an absolute path or the name of a data set.
        skipped: name and reason of each image that could not be read.
        skipped_states: state of each of these images; the digest of its content if it has no state.
        probes: number of cells to search for each query; 0 without an approximate index.
    """

    number: int
    n: int
    dim: int
    model: str | None
    source: str
    skipped: list[tuple[str, str]] = field(default_factory=list)
    skipped_states: list[str] = field(default_factory=list)
    probes: int = 0

    def file(self, folder: Path, kind: str, suffix: str) -> Path:
        """Return the path of a file of this version."""
        return folder / f"{kind}-{self.number}{suffix}"

    def vectors_file(self, folder: Path) -> Path:
        """Return the path of the vectors, float32, shape (n, dim)."""
        return self.file(folder, "vectors", ".npy")

    def items_file(self, folder: Path) -> Path:
        """Return the path of the names and classes."""
        return self.file(folder, "items", ".json")

    def states_file(self, folder: Path) -> Path:
        """Return the path of states and digests of the images, which only an update reads."""
        return self.file(folder, "states", ".json")

    def cells_file(self, folder: Path) -> Path:
        """Return the path of the approximate index."""
        return self.file(folder, "cells", ".faiss")


@dataclass(frozen=True)
class Items:
    """Names and classes of the vectors of an index, in the order of the rows.

    Attributes:
        items: unique names, length n.
        labels: classes, length n, or None.
    """

    items: list[str]
    labels: list[str] | None = None


@dataclass(frozen=True)
class States:
    """States by which an update recognises images.

    Attributes:
        states: see `ImageSource.state`, length n.
        digests: digest of the content of each image, hexadecimal, length n.
    """

    states: list[str]
    digests: list[str]


def read_version(folder: Path) -> Version | None:
    """Read the description of the current version; None if the index has no version yet.

    Raises:
        ValueError: the file is damaged.
    """
    path = folder / CURRENT_FILE
    if not path.is_file():
        return None
    try:
        values: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        values["skipped"] = [(name, reason) for name, reason in values["skipped"]]
        return Version(**values)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged ({error_reason(error)}); expected an index of `entourage embed`") from error


def read_vectors_file(path: Path, shape: tuple[int, int]) -> NDArray[np.float32]:
    """Map the vectors of a version into memory; a ValueError if the file is missing or of another shape."""
    try:
        # Copy on write, because torch warns about arrays that cannot be written to; nothing is written.
        values = read_npy(path, mmap_mode="c") if shape[0] else np.empty(shape, dtype=np.float32)
    except ValueError as error:
        raise ValueError(f"{error}; build the index again") from error
    if values.shape != shape or values.dtype != np.float32:
        raise ValueError(f"{path}: {values.dtype} of shape {values.shape}; expected float32 {shape}")
    return np.asarray(values)


def read_items(folder: Path, version: Version) -> Items:
    """Read names and classes of a version; a ValueError if the file is damaged."""
    return Items(**_read_columns(version.items_file(folder), version.n))


def read_states(folder: Path, version: Version) -> States | None:
    """Read the states of the images of a version; None if the file is missing or damaged: all are then read again."""
    try:
        return States(**_read_columns(version.states_file(folder), version.n))
    except (ValueError, TypeError):
        return None


def _read_columns(path: Path, n: int) -> dict[str, Any]:
    try:
        columns = json.loads(path.read_text(encoding="ascii"))
        if any(len(column) != n for column in columns.values() if column is not None):
            raise ValueError("columns of unequal length")
        return dict(columns)
    except (OSError, ValueError, AttributeError, TypeError) as error:
        raise ValueError(f"{path}: damaged ({error_reason(error)}); build the index again") from error


def write_columns(path: Path, columns: Items | States) -> None:
    """Write names or states; JSON escapes also the bytes of file names that are not UTF-8."""
    write_json(path, asdict(columns), indent=None)


def publish(folder: Path, version: Version) -> None:
    """Make a version, whose files are complete, the current one, and remove the files of all others."""
    write_json(folder / CURRENT_FILE, asdict(version))
    keep = {version.vectors_file(folder), version.items_file(folder), version.states_file(folder)}
    keep |= {version.cells_file(folder)} if version.probes else set()
    remove_files(folder, keep)


def remove_files(folder: Path, keep: Sequence[Path] | set[Path] = ()) -> None:
    """Remove the files of all versions but those to keep."""
    for kind in ("vectors-*.npy", "items-*.json", "states-*.json", "cells-*.faiss"):
        for path in folder.glob(kind):
            if path not in keep:
                path.unlink(missing_ok=True)
