"""Image sets to embed, and their split into training, validation and test rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from entourage.data.datasets.registry import DATASET_NAMES, find_dataset, read_image_set
from entourage.data.image_set import TEST, TRAIN, ImageSet
from entourage.embed.models import Rows
from entourage.embed.training.fit import hold_out_classes

MAX_NAMED = 5  # unreadable images that an error message names


@dataclass(frozen=True, eq=False)
class SplitRows:
    """Rows of an image set, by their use. Each array is ascending and may be empty.

    Attributes:
        training: rows to train on.
        validation: rows of the held-out training classes, which select the best weights.
        test: rows that are only evaluated.
    """

    training: Rows
    validation: Rows
    test: Rows

    def by_name(self) -> dict[str, Rows]:
        """Return the non-empty parts by name, in the order above."""
        parts = {"training": self.training, "validation": self.validation, "test": self.test}
        return {name: rows for name, rows in parts.items() if len(rows)}


def read_images(source: str | Path) -> ImageSet:
    """Read the images of a folder, an image archive (.npz) or a named data set.

    Args:
        source: a path, or one of `DATASET_NAMES`, searched in the folder that ENTOURAGE_DATA names. A path that exists
            takes precedence.

    Returns:
        The image set.

    Raises:
        ValueError: the source does not exist or is not a valid image set.
    """
    if Path(source).exists():
        return read_image_set(source)
    if str(source) in DATASET_NAMES:
        return find_dataset(str(source))
    names = ", ".join(DATASET_NAMES)
    raise ValueError(
        f"{source} does not exist; expected a folder of images, an image archive (.npz), or one of {names}"
    )


def split_rows(images: ImageSet, hold_out: float, seed: int = 0) -> SplitRows:
    """Split an image set into training, validation and test rows.

    Args:
        images: the set; without a split of its own, all images are for training.
        hold_out: fraction of the training classes that is held out for validation; 0 for none. Sets of two or three
            training classes hold out none.
        seed: random seed of the choice of classes.

    Returns:
        The rows of each part.

    Raises:
        ValueError: there are fewer than two training classes, or the fraction is out of range.
    """
    training = np.flatnonzero(images.split == TRAIN)
    labels = images.labels[training]
    classes = np.unique(labels)
    if len(classes) < 2:
        size = f"{len(classes)} class" + (f" ({images.class_names[classes[0]]})" if len(classes) else "es")
        raise ValueError(f"{images.name}: the training images are of {size}; expected two or more classes")
    validation = np.empty(0, dtype=np.int64)
    if hold_out and len(classes) > 3:
        training_rows, held_out_rows = hold_out_classes(labels, hold_out, seed)
        if np.unique(labels[held_out_rows], return_counts=True)[1].max() > 1:  # otherwise no query has a match
            training, validation = training[training_rows], training[held_out_rows]
    return SplitRows(training, validation, np.flatnonzero(images.split == TEST))


@contextmanager
def report_skipped(skipped: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Append the unreadable images to the message of a ValueError raised within the block.

    Args:
        skipped: name and reason of each unreadable image.

    Raises:
        ValueError: the error of the block, with the first few names appended.
    """
    try:
        yield
    except ValueError as error:
        if not skipped:
            raise
        names = ", ".join(f"{name} ({reason})" for name, reason in skipped[:MAX_NAMED])
        more = f" and {len(skipped) - MAX_NAMED} more" if len(skipped) > MAX_NAMED else ""
        raise ValueError(f"{error}; {len(skipped)} images could not be read: {names}{more}") from error


def sample_classes(labels: Rows, rows: Rows, n_rows: int, seed: int = 0) -> Rows:
    """Draw classes at random until they have at least `n_rows` rows together, two classes at least.

    Recall depends on the size of the set that is searched, so that two sets are comparable only if they are equally
    large.

    Args:
        labels: the class of each image, shape (n,).
        rows: rows to draw from.
        n_rows: minimum number of rows.
        seed: random seed.

    Returns:
        All rows of the drawn classes, ascending.
    """
    names, codes, sizes = np.unique(labels[rows], return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    n_classes = int(np.searchsorted(np.cumsum(sizes[order]), n_rows)) + 1
    return rows[np.isin(codes, order[: max(2, n_classes)])]
