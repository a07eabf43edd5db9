"""The classes that the shipped network tells apart, and their names in the lists of data sets."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from entourage.symbols import CLASSES, EXTENDED_IDS, ClassSet, class_ids

# What V1 tells apart and the extended list does not, with the extended name where there is one.
_OF_V1_ALONE: dict[str, str | None] = {
    "gClefChange": "clefG",
    "cClefAltoChange": "clefCAlto",
    "cClefTenorChange": "clefCTenor",
    "fClefChange": "clefF",
    "restMaxima": None,
    "restLonga": None,
}

DETECTOR_CLASSES: tuple[str, ...] = (*sorted(EXTENDED_IDS, key=EXTENDED_IDS.__getitem__), *_OF_V1_ALONE)


def detector_class(label: str, v1: str) -> str | None:
    """The network class of a symbol that has these names in the two lists ("" where it is in neither).

    Returns:
        None for dynamic words and two-digit metres, which the network reads letter by letter.
    """
    if v1 in _OF_V1_ALONE:
        return v1
    return label or None


def to_list(name: str, classes: ClassSet) -> str | None:
    """What a network class is called in a list of classes, or None where the list lacks it.

    Raises:
        ValueError: there is no such list or no such network class.
    """
    if name not in DETECTOR_CLASSES:
        raise ValueError(f"{name!r} is no class of the detector; expected one of its {len(DETECTOR_CLASSES)} names")
    names = class_ids(classes)
    row = CLASSES[name]
    if classes in ("v1", "v1-118"):
        found = row.v1
    else:
        extended = _OF_V1_ALONE.get(name, name)
        found = extended if classes == "extended" or extended is None else CLASSES[extended].muscima
    return found if found in names else None


def group_of(classes: Sequence[str], groups: Sequence[Sequence[str]]) -> Tensor:
    """The energy channel of every label: the number of the group that names its class, from 1, or 0.

    Args:
        classes: names, in the order of their labels, which start at 1.
        groups: names of the classes that have a channel of their own.

    Returns:
        Shape (1 + classes,), int64; that of the background, label 0, is 0.
    """
    channel = {name: number for number, names in enumerate(groups, start=1) for name in names}
    return torch.tensor([0, *(channel.get(name, 0) for name in classes)])
