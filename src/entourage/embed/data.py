"""What is to be embedded: a folder, a pack or a data set by name, and which of its images are for what."""

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

MAX_NAMED = 5  # images that could not be read, in a message of one line


@dataclass(frozen=True, eq=False)
class SplitRows:
    """Rows of a set of images, each ascending and possibly empty.

    Attributes:
        training: trained on.
        validation: of classes that were held out of the training part; they say which weights are best.
        test: only measured.
    """

    training: Rows
    validation: Rows
    test: Rows

    def by_name(self) -> dict[str, Rows]:
        """The parts that are not empty, by name, in the order above."""
        parts = {"training": self.training, "validation": self.validation, "test": self.test}
        return {name: rows for name, rows in parts.items() if len(rows)}


def read_images(source: str | Path) -> ImageSet:
    """Read a folder, a pack, or a data set by name.

    Args:
        source: a path, or one of `DATASET_NAMES`, looked for where ENTOURAGE_DATA points; a path goes first.

    Raises:
        ValueError: there is nothing of that name, or it is not as it should be.
    """
    if Path(source).exists():
        return read_image_set(source)
    if str(source) in DATASET_NAMES:
        return find_dataset(str(source))
    names = ", ".join(DATASET_NAMES)
    raise ValueError(f"{source} does not exist; expected a folder of images, a pack (.npz), or one of {names}")


def split_rows(images: ImageSet, hold_out: float, seed: int = 0) -> SplitRows:
    """Which images are trained on, chosen by, and tested on.

    Args:
        images: with a split of their own, or all for training.
        hold_out: share of the training classes that is held out; 0 for none. Two or three classes are too few for it,
            and are all trained on.
        seed: another one holds out other classes.

    Raises:
        ValueError: the training part has fewer than two classes, or the share is out of range.
    """
    training = np.flatnonzero(images.split == TRAIN)
    labels = images.labels[training]
    classes = np.unique(labels)
    if len(classes) < 2:
        size = f"{len(classes)} class" + (f" ({images.class_names[classes[0]]})" if len(classes) else "es")
        raise ValueError(f"{images.name}: the training images are of {size}; expected two or more, to be told apart")
    validation = np.empty(0, dtype=np.int64)
    if hold_out and len(classes) > 3:
        training_rows, held_out_rows = hold_out_classes(labels, hold_out, seed)
        if np.unique(labels[held_out_rows], return_counts=True)[1].max() > 1:  # otherwise there is nothing to be found
            training, validation = training[training_rows], training[held_out_rows]
    return SplitRows(training, validation, np.flatnonzero(images.split == TEST))


@contextmanager
def report_skipped(skipped: Sequence[tuple[str, str]]) -> Iterator[None]:
    """Whatever a set is refused for within the block, those of its images that could not be read are named, too.

    Args:
        skipped: name and reason of each of them.

    Raises:
        ValueError: what is wrong, and then the first few names.
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
    """All images of as many classes as it takes to have `n_rows` rows or a little more, ascending.

    Recall depends on how many images there are to choose from: a part of one set is compared with all of another only
    if it is as large.
    """
    names, codes, sizes = np.unique(labels[rows], return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(names))
    n_classes = int(np.searchsorted(np.cumsum(sizes[order]), n_rows)) + 1
    return rows[np.isin(codes, order[: max(2, n_classes)])]
