"""Items of a labelling, and the first of them to label. Feature files are read without torch, which loads slowly."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from entourage.data.features import read_features

if TYPE_CHECKING:
    from entourage.label.data import Metric


@dataclass(frozen=True)
class Source:
    """The items of a source; see `entourage.label.data.Items`.

    Attributes:
        names: names of the n items.
        features: shape (n, d).
        images: image file of each item; None for feature files.
        skipped: name and reason of each image that could not be read.
    """

    names: list[str]
    features: NDArray[Any]
    images: list[Path] | None
    skipped: list[tuple[str, str]]


def read_source(path: Path, backbone: str, metric: Metric, device: str) -> Source:
    """Read the items of a source.

    Args:
        path: a folder of images or a feature file.
        backbone: network for the features of images.
        metric: see `entourage.label.data.read_items`.
        device: device of the network.

    Raises:
        ValueError: the source cannot be read or has no readable item.
    """
    if path.is_file() and metric != "cosine":
        table = read_features(path)
        return Source(table.items, table.values, None, [])
    from entourage.label.data import read_items

    items = read_items(path, backbone=backbone, metric=metric, device=device)
    return Source(items.names, items.features, items.images, items.skipped)


def select_representatives(features: NDArray[Any], n_items: int, *, seed: int = 0, n_sample: int = 4000) -> list[int]:
    """Select one item of each region before there is a graph: those nearest to the centres of k-means on a sample.

    Args:
        features: shape (n, d).
        n_items: maximum number of items.
        seed: random seed of the sample.
        n_sample: maximum number of items that are read.

    Returns:
        Distinct indices, items of the largest regions first.
    """
    sample = np.random.default_rng(seed).permutation(len(features))[:n_sample]
    points = np.asarray(features[sample], dtype=np.float32)
    centres = points[: min(n_items, len(points))].copy()  # (k, d)
    for _ in range(5):
        distance = (centres**2).sum(axis=1) - 2 * points @ centres.T  # (n, k), up to a constant per row
        nearest = distance.argmin(axis=1)
        for region in np.unique(nearest):
            centres[region] = points[nearest == region].mean(axis=0)
    distance = (centres**2).sum(axis=1) - 2 * points @ centres.T + (points**2).sum(axis=1, keepdims=True)
    sizes = np.bincount(distance.argmin(axis=1), minlength=len(centres))
    order = np.argsort(-sizes, kind="stable")
    return list(dict.fromkeys(int(sample[distance[:, region].argmin()]) for region in order if sizes[region]))
