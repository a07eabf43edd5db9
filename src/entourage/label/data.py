"""Read a folder of images or a feature file as items with feature vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

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
        more_features: features of the same items from further sources, each of shape (n, ...).
    """

    names: list[str]
    features: NDArray[np.float32] | NDArray[np.float64]
    images: list[Path] | None
    skipped: list[tuple[str, str]]
    more_features: tuple[NDArray[Any], ...] = ()

    @property
    def feature_sets(self) -> list[NDArray[Any]]:
        """All feature sets."""
        return [self.features, *self.more_features]


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
        table = read_features(source, text_columns=True)
        items = Items(table.items, table.values, None, [])
    if metric == "cosine" or (metric == "auto" and items.images is not None):
        items = replace(items, features=normalize_rows(torch.from_numpy(items.features)).numpy())
    return items


def combine_items(sources: Sequence[Path], items: Sequence[Items]) -> Items:
    """Combine the feature sets of several sources; the first determines the order and the images.

    Args:
        sources: the sources, for messages.
        items: the items of each source.

    Returns:
        The items of the first source with the features of all.

    Raises:
        ValueError: the sources have different items.
    """
    first, more = items[0], []
    for source, other in zip(sources[1:], items[1:], strict=True):
        row = {name: index for index, name in enumerate(other.names)}
        missing = [name for name in first.names if name not in row]
        if missing or len(row) != len(first.names):
            name = missing[0] if missing else next(name for name in other.names if name not in set(first.names))
            raise ValueError(f"{source}: its items differ from those of {sources[0]} by {name!r}; expected the same")
        more.append(other.features[[row[name] for name in first.names]])
    return replace(first, more_features=tuple(more))


def _from_images(folder: Path, backbone: str, device: str, cache: bool, progress: bool | None) -> Items:
    paths, unencodable = _split_by_encoding(list_images(folder), folder)
    extract = cached_features if cache else extract_features
    extracted = extract(paths, load_backbone(backbone, device), device=device, progress=progress)
    skipped = [(path.relative_to(folder).as_posix(), reason) for path, reason in extracted.failures]
    skipped += [(name, "its name is not UTF-8") for name in unencodable]
    if not extracted.indices:
        name, reason = skipped[0]
        raise ValueError(
            f"{folder}: none of {len(skipped)} images can be read ({name}: {reason}); expected at least one"
        )
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
