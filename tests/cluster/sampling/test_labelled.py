from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from entourage.cluster.sampling.labelled import LabelledSampler, draw_labels, expected_pairs

LABELS = np.repeat(["ant", "bee", "cat", "dog"], [3, 8, 8, 20])
ITEMS = torch.arange(39).reshape(39, 1)


def test_items_come_from_k_classes_and_clusters_are_classes(generator: torch.Generator) -> None:
    episode = LabelledSampler(ITEMS, LABELS, 4).draw(200, 12, generator)
    assert episode.x.shape == (200, 12, 1)
    for x, same, k in zip(episode.x[..., 0].long(), episode.same, episode.k.tolist(), strict=True):
        names = LABELS[x]
        assert len(set(names)) == k
        np.testing.assert_array_equal(same, names[:, None] == names[None])
        assert min(np.unique(names, return_counts=True)[1]) >= 2
    assert torch.bincount(episode.k).tolist()[1:] == pytest.approx([50] * 4, abs=25)  # 4 standard deviations


def test_items_are_repeated_only_in_small_classes(generator: torch.Generator) -> None:
    episode = LabelledSampler(ITEMS, LABELS, 1).draw(100, 8, generator)
    for x in episode.x[..., 0].long():
        ants = LABELS[int(x[0])] == "ant"
        assert len(set(x.tolist())) == (3 if ants else 8)


def test_every_item_is_drawn(generator: torch.Generator) -> None:
    episode = LabelledSampler(ITEMS, LABELS, 4).draw(300, 10, generator)
    assert set(episode.x.long().flatten().tolist()) == set(range(39))


def test_draws_and_config_are_reproducible() -> None:
    labels = LABELS[np.random.default_rng(0).permutation(39)]
    sampler = LabelledSampler(ITEMS, labels, 4)
    assert sampler.config()["classes"] == "ba2030f5703ad56a"  # identifies the data of unfinished runs
    sampled = sampler.draw(2, 9, torch.Generator().manual_seed(7)).x[..., 0].long()
    assert sampled.tolist() == [[11, 17, 34, 37, 4, 3, 15, 26, 5], [38, 18, 14, 36, 26, 31, 13, 0, 21]]


def test_memory_is_linear_for_classes_of_unequal_size(generator: torch.Generator) -> None:
    labels = np.concatenate([np.repeat(np.arange(500), 2), np.full(2000, 500)])
    sampler = LabelledSampler(torch.arange(3000).reshape(-1, 1), labels, 3)
    sampler.draw(2, 9, generator)
    sizes = [value.numel() for value in vars(sampler).values() if isinstance(value, Tensor)]
    assert sum(sizes) < 3 * len(labels)


def test_augmentation_determines_the_input_of_the_network(generator: torch.Generator) -> None:
    def augmentation(items: Tensor, generator: torch.Generator) -> Tensor:
        noise = torch.rand(len(items), 2, generator=generator)
        return items.float() + noise

    sampler = LabelledSampler(ITEMS, LABELS, 2, augmentation=augmentation)
    assert sampler.shape == (2,)
    x = sampler.draw(5, 6, generator).x
    assert x.shape == (5, 6, 2)
    assert (x % 1).unique().numel() > 50


@pytest.mark.parametrize(("k", "n", "min_cluster_size"), [(1, 4, 1), (2, 5, 1), (3, 7, 2), (3, 6, 1)])
def test_pair_prior_is_exact(k: int, n: int, min_cluster_size: int) -> None:
    total = 0.0
    for choice in itertools.product(range(k), repeat=n - min_cluster_size * k):
        sizes = [min_cluster_size + choice.count(c) for c in range(k)]
        total += sum(s * (s - 1) for s in sizes) / k ** len(choice)
    assert math.isclose(expected_pairs(k, n, min_cluster_size), total)


def test_phi_matches_drawn_sets(generator: torch.Generator) -> None:
    sampler = LabelledSampler(ITEMS, LABELS, 3)
    expected = sum(expected_pairs(k, 9, 2) for k in (1, 2, 3)) / 3 / 72
    assert sampler.pair_prior(9) == pytest.approx(expected)
    sampled = sampler.draw(2000, 9, generator)
    fraction = (sampled.same.sum((1, 2)) - 9) / 72
    assert float(fraction.mean()) == pytest.approx(expected, abs=4 * float(fraction.std()) / 2000**0.5)
    assert sampler.pair_prior(9, k_max=1) == 1
    assert (sampler.draw(50, 9, generator, k_max=2).k <= 2).all()


def test_drawn_labels_are_sorted_without_empty_clusters(generator: torch.Generator) -> None:
    labels = draw_labels(torch.tensor([1, 3, 4]), 8, 2, generator)
    assert torch.equal(labels, labels.sort(-1).values)
    assert [row.unique().tolist() for row in labels] == [[0], [0, 1, 2], [0, 1, 2, 3]]
    assert labels[2].tolist() == [0, 0, 1, 1, 2, 2, 3, 3]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LabelledSampler(ITEMS, LABELS[:-1], 2), "labels: 38 for 39 items; expected"),
        (lambda: LabelledSampler(ITEMS, LABELS, 5), "expected 1 <= k_min <= k_max <= 4"),
        (lambda: LabelledSampler(ITEMS, LABELS, 2, min_cluster_size=0), "min_cluster_size is 0; expected 1 or more"),
        (lambda: LabelledSampler(ITEMS, LABELS, 4).draw(1, 7, torch.Generator()), "expected 8 or more for 4"),
        (
            lambda: LabelledSampler(ITEMS, LABELS, 3).draw(1, 9, torch.Generator(), k_max=4),
            "k_max is 4; expected 1 to 3",
        ),
    ],
)
def test_impossible_sets_raise(make: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_class_augmentation_receives_labels(generator: torch.Generator) -> None:
    def class_augmentation(items: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        return items + 100 * labels.unsqueeze(-1)

    episode = LabelledSampler(ITEMS, LABELS, 3, class_augmentation=class_augmentation).draw(20, 9, generator)
    assert episode.labels is not None
    assert torch.equal((episode.x[..., 0] // 100).long(), episode.labels)


def test_double_precision_is_preserved() -> None:
    # Differences below the resolution of single precision
    items = torch.arange(8, dtype=torch.float64).unsqueeze(-1) / 8 + 5e8
    episode = LabelledSampler(items, [0] * 4 + [1] * 4, 2).draw(3, 8, torch.Generator().manual_seed(0))
    assert episode.x.dtype == torch.float64
    assert set(episode.x.flatten().tolist()) == set(items.flatten().tolist())
    single = LabelledSampler((items - 5e8).half(), [0] * 4 + [1] * 4, 2).draw(3, 8, torch.Generator().manual_seed(0))
    assert single.x.dtype == torch.float32


def test_arrays_are_accepted_and_other_types_raise() -> None:
    items, labels = np.arange(12.0).reshape(6, 2), [0, 0, 0, 1, 1, 1]
    for array in (items, items.tolist(), np.ascontiguousarray(items[::-1])[::-1]):
        episode = LabelledSampler(array, labels, 2).draw(2, 6, torch.Generator().manual_seed(0))
        expected = LabelledSampler(torch.from_numpy(items), labels, 2).draw(2, 6, torch.Generator().manual_seed(0))
        assert torch.equal(episode.x, expected.x)
    for bad in (items + 1j, torch.from_numpy(items + 1j), items.astype(str)):
        with pytest.raises(ValueError, match="expected real numbers"):
            LabelledSampler(bad, labels, 2)


@pytest.mark.parametrize("kind", [np.asarray, torch.tensor])
def test_invalid_items_raise_in_the_constructor(kind: Callable[[object], object]) -> None:
    with pytest.raises(ValueError, match=r"items\[1\] .*; expected finite numbers"):
        LabelledSampler(kind([[0.0, 1.0], [0.0, np.nan], [np.inf, 0.0]]), [0, 1, 1], 2)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"items have shape \(3,\); expected \(items, columns\)"):
        LabelledSampler(kind([0.0, 1.0, 2.0]), [0, 1, 1], 2)  # type: ignore[arg-type]
