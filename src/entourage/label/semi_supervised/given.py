"""Labels that a graph has found: what they say, how sure they are, and what to train on."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import get_args

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.label.base import GraphLabeller
from entourage.label.semi_supervised.options import Trust
from entourage.label.targets import Floats


@dataclass(frozen=True, eq=False)
class FoundLabels:
    """A label for every image.

    Attributes:
        codes: the class of each image, shape (n,), -1 where none was found.
        distributions: over the classes, shape (n, m).
        confidence: how sure each label is, in [0, 1], shape (n,); 0 where there is none.
        game: a short text that tells the game they are from from others, where that is known.
    """

    codes: NDArray[np.int64]
    distributions: Floats
    confidence: Floats
    game: str = ""

    def __post_init__(self) -> None:
        n = len(self.codes)
        if self.distributions.ndim != 2 or len(self.distributions) != n or self.confidence.shape != (n,):
            shapes = f"{self.distributions.shape} and confidences of shape {self.confidence.shape}"
            raise ValueError(f"distributions of shape {shapes} for {n} labels; expected ({n}, m) and ({n},)")

    @classmethod
    def of(cls, labeller: GraphLabeller) -> FoundLabels:
        """What a fitted labeller found; classes are numbered in the order of its `classes_`. Given labels are sure."""
        codes = labeller.label_distributions_.argmax(axis=1).astype(np.int64)
        codes[labeller.undecided_] = -1
        return cls(codes, labeller.label_distributions_, np.where(labeller.given_, 1.0, labeller.confidence_))

    def check(self, images: int, classes: int) -> None:
        """Refuse labels of other images or other classes."""
        if self.distributions.shape != (images, classes):
            expected = f"{images} images and {classes} classes"
            raise ValueError(f"labels were found with distributions of shape {self.distributions.shape} for {expected}")

    def digest(self) -> str:
        """Of labels and game, not of confidences, whose last digits may change from machine to machine."""
        return hashlib.blake2b(self.codes.tobytes() + self.game.encode(), digest_size=8).hexdigest()

    def belief(self) -> torch.Tensor:
        """How probable each class is, shape (n, m), float32: the label as far as it is sure, all others alike."""
        m = self.distributions.shape[1]
        sure = np.where(self.codes >= 0, np.maximum(self.confidence, 1 / m), 1 / m)  # (n,)
        rest = np.repeat((1 - sure)[:, None] / (m - 1), m, axis=1)
        rest[np.arange(len(sure)), self.codes] = sure
        return torch.from_numpy(rest.astype(np.float32))

    def targets(self, trust: Trust) -> tuple[torch.Tensor, torch.Tensor]:
        """What to train on.

        Args:
            trust: "hard" takes every label as if it had been given, "soft" the distribution, "weighted" the label with
                the square of its confidence as weight.

        Returns:
            Distributions, shape (n, m), and weights, shape (n,), float32; a weight is 0 where nothing was found.
        """
        if trust not in get_args(Trust):
            raise ValueError(f"trust is {trust!r}; expected one of {', '.join(get_args(Trust))}")
        found = self.codes >= 0
        one_hot = np.eye(self.distributions.shape[1], dtype=np.float32)[self.codes] * found[:, None]
        soft = torch.from_numpy(np.asarray(self.distributions, dtype=np.float32)) if trust == "soft" else None
        weight = self.confidence**2 if trust == "weighted" else np.ones(len(found))
        return (
            torch.from_numpy(one_hot) if soft is None else soft,
            torch.from_numpy((weight * found).astype(np.float32)),
        )
