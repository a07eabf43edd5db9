"""Clusters of unseen objects: COIL-100, the last column of the table in the appendix.

ENTOURAGE_DATA=... python -m experiments.cluster_images --networks default,thesis --seeds 0 --minutes 8

The seed splits the objects into 80 for training, 10 for validation and 10 for testing. Sets have n = 20 images and
k = 1 to 5.
"""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.cluster import LabelledSampler
from entourage.cluster.sampling.augmentation import ImageAugmentation, ImageClassAugmentation, unaugmented_image
from entourage.data.datasets.registry import find_dataset
from entourage.data.pixels import decode_pixels
from experiments.cluster_rows import (
    EPISODE_K,
    EPISODE_N,
    Data,
    arguments,
    baseline_rows,
    measure_episodes,
    measure_networks,
    open_ledger,
    scores_table,
)
from experiments.command import run_command
from experiments.ledger import Ledger

N, K, SIDE = EPISODE_N, EPISODE_K, 128
TRAIN_OBJECTS, OTHER_OBJECTS = 80, 10
PUBLISHED = {
    "thesis": ("0.116", "0.867"),
    "thesis+euclidean": ("0.123", "0.884"),
    "thesis+mahalanobis": ("0.093", "0.890"),
    "thesis+full": ("0.100", "0.880"),
    "random": ("0.435", "0.346"),
}


def main() -> None:
    """Train, measure and write the table."""
    options = arguments("Clusters of objects of COIL-100.", minutes=8).parse_args()
    ledger = open_ledger("cluster_images", options)
    images = find_dataset("coil100")
    pixels = decode_pixels(images, (SIDE, SIDE))
    values = torch.from_numpy(pixels.values).permute(0, 3, 1, 2).contiguous()  # (n, 3, 128, 128)
    labels = images.labels[pixels.indices]
    if options.baselines:
        baseline_rows(ledger, split(values, labels, 0, augment_classes=False), options.sets, N, as_pixels)

    def one(name: str, seed: int) -> None:
        measure_episodes(ledger, name, seed, split(values, labels, seed, augment_classes=True), options)

    measure_networks(ledger, options, one)
    ledger.write_table("Clusters of objects: COIL-100", _text)


def split(values: Tensor, labels: np.ndarray, seed: int, *, augment_classes: bool) -> Data:
    """Split the objects into disjoint training, validation and test objects."""
    objects = np.random.default_rng(seed).permutation(np.unique(labels))
    parts = np.split(objects, [TRAIN_OBJECTS, TRAIN_OBJECTS + OTHER_OBJECTS])
    rows = [np.flatnonzero(np.isin(labels, part)) for part in parts]
    train = LabelledSampler(
        values[rows[0]],
        labels[rows[0]],
        K,
        augmentation=ImageAugmentation(),
        class_augmentation=ImageClassAugmentation() if augment_classes else None,
    )
    others = [LabelledSampler(values[part], labels[part], K, augmentation=unaugmented_image) for part in rows[1:]]
    return Data(train, *others)


def as_pixels(x: Tensor) -> Tensor:
    """Return the input of the baselines, 16 x 16 pixels: shape (b, n, 3, h, w) to (b, n, 768)."""
    return F.adaptive_avg_pool2d(x.flatten(0, 1), 16).flatten(1).reshape(*x.shape[:2], -1)


def _text(ledger: Ledger) -> str:
    lead = (
        f"Sets of n = {N} images, k = 1 to {K}, of {OTHER_OBJECTS} unseen objects; {TRAIN_OBJECTS} are for training "
        f"and {OTHER_OBJECTS} for validation, split by the seed. The input of the baselines is 16 x 16 pixels."
    )
    return f"{lead}\n\n{scores_table(ledger, '', PUBLISHED)}"


if __name__ == "__main__":
    run_command(main)
