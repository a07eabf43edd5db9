"""Which look-alikes are taken for each other: the same dot prolongs a note, shortens it or repeats a part."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect.detections import Detections

MISSED = "missed"
# Beginnings of names: a class is of the first family that one of them fits, in any of the lists.
_FAMILIES: dict[str, tuple[str, ...]] = {
    "dots": ("augmentationDot", "articStaccatoA", "articStaccatoB", "articulationStaccato", "repeatDot"),
    "noteheads": ("notehead",),
    "flats": ("accidentalFlat", "keyFlat"),
    "naturals": ("accidentalNatural", "keyNatural"),
    "sharps": ("accidentalSharp", "keySharp"),
    "threes": ("timeSig3", "tuplet3", "fingering3", "numeral3"),
    "clefs": ("gClef", "clefG", "fClef", "clefF", "cClef", "clefC"),
    "half and whole rests": ("restHalf", "restWhole"),
    "slurs and ties": ("slur", "tie"),
    "tenuti and dashes": ("articTenuto", "articulationTenuto", "legerLine"),
    "flags": ("flag",),
}


@dataclass(frozen=True)
class Confusion:
    """How often an object of one class was found as another of its family.

    Attributes:
        family: its name.
        classes: the classes of the family that the truth holds or that were found in their place.
        counts: of class i found as class j; the last column counts those that were missed. Shape (k, k + 1).
    """

    family: str
    classes: tuple[str, ...]
    counts: NDArray[np.int64]

    @property
    def accuracy(self) -> float:
        """The share of the objects that were found at all whose class is right; nan if none was found."""
        found = int(self.counts[:, :-1].sum())
        return float(np.trace(self.counts[:, :-1]) / found) if found else float("nan")

    def table(self) -> list[tuple[str, ...]]:
        """A header, then a row a true class."""
        rows: list[tuple[str, ...]] = [("is", *self.classes, MISSED)]
        rows += [(name, *(str(n) for n in row)) for name, row in zip(self.classes, self.counts, strict=True)]
        return rows


def confusions(
    truth: Sequence[Detections], found: Sequence[Detections], *, overlap: float = 0.3, threshold: float = 0.3
) -> list[Confusion]:
    """What the look-alikes of a class list were taken for.

    Every true object is paired with the detection of its family that overlaps it most; one above `overlap` is needed.

    Args:
        truth: what each page holds.
        found: what was found on each, with the same class list.
        overlap: the least intersection over union. Low, for a dot is three pixels wide.
        threshold: detections of a lower score are not counted.

    Returns:
        One for each family of which the truth holds two classes or more. Costs O(t d) a page and family.
    """
    results = []
    names = truth[0].classes if truth else ()
    for family, starts in _FAMILIES.items():
        members = np.array([name.startswith(starts) for name in names], dtype=bool)
        counts = np.zeros((len(names), len(names) + 1), dtype=np.int64)
        for known, seen in zip(truth, found, strict=True):
            _count(known, seen, members, counts, overlap, threshold)
        used = np.flatnonzero(counts.sum(axis=1) + counts[:, :-1].sum(axis=0))
        if int((counts.sum(axis=1) > 0).sum()) >= 2:
            table = np.concatenate([counts[np.ix_(used, used)], counts[used, -1:]], axis=1)
            results.append(Confusion(family, tuple(names[i] for i in used), table))
    return results


def missed_objects(known: Detections, seen: Detections, *, overlap: float = 0.5, threshold: float = 0.3) -> Detections:
    """The true objects of a page that were not found.

    Args:
        known: what the page holds.
        seen: what was found on it, with the same class list.
        overlap: the least intersection over union with a detection of the same class, of one that was found.
        threshold: detections of a lower score are not counted.
    """
    found = np.zeros(len(known), dtype=bool)
    right, guess = known.labels.numpy(), np.where(seen.scores.numpy() >= threshold, seen.labels.numpy(), 0)
    for label in np.intersect1d(right, guess):
        ours, theirs = right == label, guess == label
        pairs = overlaps(known.boxes[ours].double().numpy(), seen.boxes[theirs].double().numpy())
        found[ours] = pairs.max(axis=1) >= overlap
    return known.select(torch.from_numpy(~found))


def overlaps(first: NDArray[np.float64], second: NDArray[np.float64]) -> NDArray[np.float64]:
    """Intersection over union of all pairs of boxes, shape (n, m)."""
    low = np.maximum(first[:, None, :2], second[None, :, :2])  # (n, m, 2)
    high = np.minimum(first[:, None, 2:], second[None, :, 2:])
    shared = np.clip(high - low, 0, None).prod(axis=2)  # (n, m)
    areas = [np.clip(boxes[:, 2:] - boxes[:, :2], 0, None).prod(axis=1) for boxes in (first, second)]
    return np.asarray(shared / np.maximum(areas[0][:, None] + areas[1][None, :] - shared, 1e-9))


def _count(
    known: Detections,
    seen: Detections,
    members: NDArray[np.bool_],
    counts: NDArray[np.int64],
    overlap: float,
    threshold: float,
) -> None:
    right = known.labels.numpy() - 1
    guess = seen.labels.numpy() - 1
    of_family = members[right]
    usable = members[guess] & (seen.scores.numpy() >= threshold)
    right, guess = right[of_family], guess[usable]
    missed = counts.shape[1] - 1
    if len(guess) == 0:
        np.add.at(counts, (right, np.full(len(right), missed)), 1)
        return
    shared = overlaps(known.boxes.numpy()[of_family].astype(float), seen.boxes.numpy()[usable].astype(float))
    best = shared.argmax(axis=1)
    answer = np.where(shared.max(axis=1, initial=0.0) >= overlap, guess[best], missed)
    np.add.at(counts, (right, answer), 1)
