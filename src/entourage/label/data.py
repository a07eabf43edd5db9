"""Read a folder of images or a feature file as items with feature vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.backbones.features import cached_features, extract_features
from entourage.backbones.registry import load_backbone
from entourage.data.features import read_features
from entourage.data.media import list_images
from entourage.game.similarity import normalize_rows

Metric = Literal["auto", "euclidean", "cosine"]


@dataclass(frozen=True)
class Items:
    """The items of a source.

    Attributes:
        names: n names: the path within the folder, or the name in the feature file.
        features: shape (n, d), float32, or float64 if the feature file stores float64.
        images: image file of each item; None for feature files.
        skipped: name and reason of each image that could not be read; these are not among the n items.
    """

    names: list[str]
    features: NDArray[np.float32] | NDArray[np.float64]
    images: list[Path] | None
    skipped: list[tuple[str, str]]


def read_items(
    source: Path,
    *,
    backbone: str = "efficientnet-lite1",
    metric: Metric = "auto",
    device: str = "auto",
    cache: bool = True,
    progress: bool | None = None,
) -> Items:
    """Read the items of a source and compute their features.

    Args:
        source: a folder of images or a feature file.
        backbone: network for the features of images; see `entourage.backbones`.
        metric: "cosine" scales features to length 1; "auto" does so for images only.
        device: device of the network.
        cache: use the feature cache of images.
        progress: show a bar; None: only on a terminal.

    Returns:
        The items.

    Raises:
        ValueError: the source cannot be read or has no readable item.
    """
    if source.is_dir():
        items = _from_images(source, backbone, device, cache, progress)
    else:
        table = read_features(source)
        items = Items(table.items, table.values, None, [])
    if metric == "cosine" or (metric == "auto" and items.images is not None):
        items = replace(items, features=normalize_rows(torch.from_numpy(items.features)).numpy())
    return items


def _from_images(folder: Path, backbone: str, device: str, cache: bool, progress: bool | None) -> Items:
    paths, unencodable = _split_by_encoding(list_images(folder), folder)
    extract = cached_features if cache else extract_features
    extracted = extract(paths, load_backbone(backbone, device), device=device, progress=progress)
    skipped = [(path.relative_to(folder).as_posix(), reason) for path, reason in extracted.failures]
    skipped += [(name, "its name is not UTF-8") for name in unencodable]
    if not extracted.indices:
        name, reason = skipped[0]
        raise ValueError(f"{folder}: none of the {len(skipped)} images can be read; the first is {name}: {reason}")
    images = [paths[i] for i in extracted.indices]
    return Items([path.relative_to(folder).as_posix() for path in images], extracted.features, images, skipped)


def _split_by_encoding(paths: list[Path], folder: Path) -> tuple[list[Path], list[str]]:
    """Return the paths whose names are valid UTF-8, and the escaped names of the others."""
    encodable, escaped = [], []
    for path in paths:
        name = path.relative_to(folder).as_posix()
        written = name.encode("utf-8", "backslashreplace").decode()
        if written == name:
            encodable.append(path)
        else:
            escaped.append(written)
    return encodable, escaped
