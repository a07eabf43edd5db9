"""Objects that are tested on were never seen, neither to learn from nor to validate with."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from experiments.cluster_images import as_pixels, split

from entourage.cluster.sampling.episodes import EpisodeSampler
from experiments import cluster_images

OBJECTS = 12
LABELS = np.repeat(np.arange(OBJECTS), 3)
VALUES = torch.from_numpy(LABELS).byte().reshape(-1, 1, 1, 1).expand(-1, 3, 4, 4).contiguous()  # an object's grey


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_images, "TRAIN_OBJECTS", OBJECTS - 4)
    monkeypatch.setattr(cluster_images, "OTHER_OBJECTS", 2)
    monkeypatch.setattr(cluster_images, "K", 2)


def objects_of(sampler: EpisodeSampler) -> set[int]:
    return set(sampler._items[:, 0, 0, 0].tolist())  # type: ignore[attr-defined]


def test_no_object_is_in_two_parts_and_the_seed_draws_them() -> None:
    data = split(VALUES, LABELS, 0, augment_classes=True)
    parts = [objects_of(one) for one in (data.train, data.validation, data.test)]
    assert [len(part) for part in parts] == [8, 2, 2]
    assert set.union(*parts) == set(range(OBJECTS))
    again, other = (objects_of(split(VALUES, LABELS, seed, augment_classes=True).test) for seed in (0, 1))
    assert again == parts[2] != other


def test_only_training_objects_are_augmented() -> None:
    for augment_classes in (True, False):
        data = split(VALUES, LABELS, 0, augment_classes=augment_classes)
        assert (data.train.class_augmentation is not None) == augment_classes  # type: ignore[attr-defined]
        assert data.validation.class_augmentation is data.test.class_augmentation is None  # type: ignore[attr-defined]
        episode = data.test.draw(4, 6, torch.Generator().manual_seed(0))
        greys = (episode.x[:, :, 0, 0, 0] + 1) * 127.5
        assert set(greys.round().flatten().tolist()) <= objects_of(data.test)


def test_baselines_get_few_pixels() -> None:
    assert as_pixels(torch.zeros(2, 5, 3, 128, 128)).shape == (2, 5, 768)
