"""Sources of an index: images of a folder, of a CSV file of paths or of a data set, and files of vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from entourage.data.features import read_features
from entourage.data.image_set import ImageFiles, ImageSet, ImageSource
from entourage.data.labels import read_csv_table
from entourage.data.media import list_images
from entourage.embed.data import read_images
from entourage.io.safe_formats import read_npy

PATH_COLUMNS = ("path", "file", "image", "filename", "item")
LABEL_COLUMNS = ("label", "class")
VECTOR_SUFFIXES = (".npy", ".parquet")
BLOCK_ROWS = 2**14  # vectors read at a time


@dataclass(frozen=True, eq=False)
class ImageCollection:
    """Images with unique names.

    Attributes:
        name: name of the source, for messages.
        source: the images, n of them.
        items: their names, length n.
        labels: their classes, length n, or None.
    """

    name: str
    source: ImageSource
    items: list[str]
    labels: list[str] | None = None

    @classmethod
    def from_image_set(cls, images: ImageSet) -> ImageCollection:
        """Return the images of a set with the names of their classes."""
        return cls(images.name, images.source, images.items, [images.class_names[one] for one in images.labels])

    def path(self, index: int) -> Path | None:
        """Return the file of an image; None if the images are not files."""
        return self.source.paths[index] if isinstance(self.source, ImageFiles) else None


@dataclass(frozen=True, eq=False)
class VectorTable:
    """Vectors of a file.

    Attributes:
        name: the file, for messages.
        items: names of the vectors, length n.
        values: shape (n, d); mapped into memory if the file is a `.npy`.
    """

    name: str
    items: list[str]
    values: NDArray[np.floating]

    def blocks(self) -> Iterator[NDArray[np.float32]]:
        """Yield the vectors in blocks of rows.

        Raises:
            ValueError: a value is not finite.
        """
        for start in range(0, len(self.items), BLOCK_ROWS):
            block = np.array(self.values[start : start + BLOCK_ROWS], dtype=np.float32)
            if not np.isfinite(block).all():
                row = start + int(np.argmax(~np.isfinite(block).all(axis=1)))
                raise ValueError(f"{self.name}: row {row + 1} has values that are not finite; expected finite numbers")
            yield block


def read_collection(source: str | Path) -> ImageCollection | VectorTable:
    """Read the source of an index.

    Args:
        source: a folder, whose images at any depth are read; a CSV file with a column of paths, relative to its folder;
            a file of vectors, `.npy` or `.parquet`; an image archive (`.npz`); or the name of a data set.

    Returns:
        Images, whose names are their paths relative to the folder, or vectors.

    Raises:
        ValueError: the source does not exist or is not valid.
    """
    path = Path(source)
    if path.is_dir():
        paths = list_images(path)
        return ImageCollection(str(source), ImageFiles(paths), [file.relative_to(path).as_posix() for file in paths])
    if path.is_file() and path.suffix.lower() == ".csv":
        return _read_paths(path)
    if path.is_file() and path.suffix.lower() in VECTOR_SUFFIXES:
        return read_vectors(path)
    return ImageCollection.from_image_set(read_images(source))


def read_vectors(path: Path) -> VectorTable:
    """Read a file of vectors; a `.npy` file is mapped into memory; a ValueError if it is not a table of numbers."""
    if path.suffix.lower() != ".npy":
        table = read_features(path)
        return VectorTable(str(path), table.items, table.values)
    values = read_npy(path, mmap_mode="r")
    if values.ndim != 2 or not values.size or values.dtype.kind not in "fiu":
        shape, kind = values.shape, values.dtype
        raise ValueError(f"{path}: an array of shape {shape} and type {kind}; expected numbers, shape (n, d)")
    return VectorTable(str(path), [str(row) for row in range(len(values))], values)


def _read_paths(path: Path) -> ImageCollection:
    table = read_csv_table(path)
    titles = [title.lower() for title in table.header]
    named = next((name for name in PATH_COLUMNS if name in titles), None)
    if named is None:
        expected = f"expected a column {', '.join(PATH_COLUMNS[:-1])} or {PATH_COLUMNS[-1]} with paths of images"
        raise ValueError(f"{path}: has the columns {', '.join(table.header)}; {expected}")
    if not table.lines:
        raise ValueError(f"{path}: has no rows; expected a row per image")
    column = table.column(named)
    items: dict[str, int] = {}
    for line, cells in table.lines:
        if not cells[column] or items.setdefault(cells[column], line) != line:
            problem = f"line {line} repeats {cells[column]!r}" if cells[column] else f"line {line} has no path"
            raise ValueError(f"{path}: {problem}; expected another path in every row")
    label = next((table.column(name) for name in LABEL_COLUMNS if name in titles), None)
    labels = None if label is None else [cells[label].strip() for _, cells in table.lines]
    return ImageCollection(str(path), ImageFiles([path.parent / item for item in items]), list(items), labels)
