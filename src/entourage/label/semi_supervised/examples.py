"""What a classifier is trained on: views of images, few of them with a label."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from entourage.label.semi_supervised.looks import Looks

UNLABELLED = -1


@dataclass(frozen=True, eq=False)
class Examples:
    """Images and the labels that are known.

    Attributes:
        looks: what the network sees of the images, n of them.
        codes: the class of each image as a number from 0, shape (n,); -1 where it is unknown.
        classes: how many classes there are, m.
    """

    looks: Looks
    codes: NDArray[np.int64]
    classes: int

    def __post_init__(self) -> None:
        n = len(self.looks)
        if self.codes.shape != (n,):
            raise ValueError(f"labels of shape {self.codes.shape} for {n} images; expected ({n},)")
        if self.codes.dtype != np.int64:
            raise ValueError(f"labels of type {self.codes.dtype}; expected int64")
        if self.classes < 2:
            raise ValueError(f"{self.classes} classes; expected two or more to tell apart")
        if n and not UNLABELLED <= self.codes.min() <= self.codes.max() < self.classes:
            raise ValueError(
                f"labels from {self.codes.min()} to {self.codes.max()}; expected -1 (unlabelled) to {self.classes - 1}"
            )
        if not (self.codes >= 0).any():
            raise ValueError("no image is labelled; expected at least one")

    def __len__(self) -> int:
        return len(self.looks)

    @property
    def labelled(self) -> NDArray[np.int64]:
        """Positions of the labelled images, ascending."""
        return np.flatnonzero(self.codes >= 0)
