"""Composition, order and distribution of class-balanced batches."""

from collections import Counter

import numpy as np
import pytest
from torch.utils.data import DataLoader

from entourage.embed import BalancedBatchSampler

SIZES = [12, 7, 3, 20, 1, 9, 10]
LABELS = np.repeat(np.arange(7), SIZES)[np.random.default_rng(0).permutation(62)]


@pytest.mark.parametrize(("p", "k"), [(1, 1), (2, 5), (3, 4), (7, 3), (7, 30)])
def test_batches_have_p_classes_and_k_samples(p: int, k: int) -> None:
    sampler = BalancedBatchSampler(LABELS, p, k)
    for batch in (*sampler, *sampler):
        assert list(Counter(LABELS[batch]).values()) == [k] * p


def test_samples_of_small_classes_repeat_evenly() -> None:
    for batch in BalancedBatchSampler(LABELS, 7, 5, num_batches=20):
        for label, size in enumerate(SIZES):
            counts = Counter(i for i in batch if LABELS[i] == label)
            assert len(counts) == min(size, 5)
            assert max(counts.values()) - min(counts.values()) <= 1


def test_classes_are_drawn_equally_often() -> None:
    counts = Counter(LABELS[i] for batch in BalancedBatchSampler(LABELS, 3, 2, num_batches=35) for i in batch)
    assert [counts[label] for label in range(7)] == [30] * 7  # 35 x 3 class draws, 15 of each class, two samples each


@pytest.mark.parametrize("k", [3, 4])
def test_samples_of_a_class_are_drawn_equally_often(k: int) -> None:
    drawn = np.concatenate(list(BalancedBatchSampler(LABELS, 7, k, num_batches=40)))
    for label, size in enumerate(SIZES):
        counts = Counter(drawn[LABELS[drawn] == label])
        assert len(counts) == size
        assert max(counts.values()) - min(counts.values()) <= 1


def test_order_of_classes_and_samples_is_random() -> None:
    # Over 600 seeds, the first batch contains each sample of the largest class about 600 x 2 / 20 = 60 times.
    first = [next(iter(BalancedBatchSampler(LABELS, 7, 2, seed=seed))) for seed in range(600)]
    counts = Counter(i for batch in first for i in batch if LABELS[i] == 3)
    assert len(counts) == 20
    assert min(counts.values()) > 15  # six standard deviations below 60
    assert len({tuple(LABELS[batch][::2]) for batch in first}) > 500  # classes are shuffled too: 5,040 orders


def test_batches_depend_on_seed_and_epoch() -> None:
    one, two, other = (BalancedBatchSampler(LABELS, 3, 4, seed=seed) for seed in (5, 5, 6))
    epochs = [list(one) for _ in range(3)]
    assert epochs == [list(two) for _ in range(3)]
    assert epochs[0] != epochs[1]
    assert epochs[0] != list(other)
    two.set_epoch(1)
    assert list(two) == epochs[1]
    assert [batch.tolist() for batch in two.plan(2)] == epochs[2]


@pytest.mark.parametrize("batches", [None, 9, 2])
def test_batches_of_an_epoch_are_divided_among_processes(batches: int | None) -> None:
    samplers = [BalancedBatchSampler(LABELS, 2, 3, num_batches=batches, num_replicas=3, rank=rank) for rank in range(3)]
    parts = [list(replica) for replica in samplers]
    length = {None: 3, 9: 3, 2: 1}[batches]
    assert [len(replica) for replica in samplers] == [len(part) for part in parts] == [length] * 3
    single_process = list(BalancedBatchSampler(LABELS, 2, 3, num_batches=3 * length))
    assert [batch for step in zip(*parts, strict=True) for batch in step] == single_process


def test_epoch_length_matches_the_data() -> None:
    assert len(BalancedBatchSampler(LABELS, 3, 4)) == 62 // 12
    assert len(BalancedBatchSampler(LABELS, 7, 100)) == 1


def test_numpy_integers_are_accepted() -> None:
    small = [np.int64(number) for number in (3, 4)]
    assert list(BalancedBatchSampler(LABELS, *small)) == list(BalancedBatchSampler(LABELS, 3, 4))


def test_data_loader_and_string_labels() -> None:
    names = np.array(["owl", "wren", "crow"])[LABELS % 3]
    loader = DataLoader(names.tolist(), batch_sampler=BalancedBatchSampler(names, 2, 3))  # type: ignore[arg-type]
    for batch in loader:
        assert sorted(Counter(batch).values()) == [3, 3]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"classes_per_batch": 8}, "classes_per_batch is 8; expected 1 to 7"),
        ({"classes_per_batch": 0}, "classes_per_batch is 0; expected 1 to 7"),
        ({"samples_per_class": 0}, "samples_per_class is 0; expected 1 or more"),
        ({"labels": []}, r"labels have shape \(0,\); expected \(samples,\)"),
        ({"labels": LABELS[:, None]}, r"labels have shape \(62, 1\); expected \(samples,\)"),
        ({"num_batches": 0}, "num_batches is 0; expected 1 or more, or None"),
        ({"num_replicas": 2, "rank": 2}, "rank is 2; expected 0 to 1, as there are 2 replicas"),
        ({"num_replicas": 0}, "num_replicas is 0; expected 1 or more"),
        ({"seed": -1}, "seed is -1; expected 0 or more"),
        ({"classes_per_batch": 4.0}, "classes_per_batch is 4.0; expected a whole number"),
        ({"classes_per_batch": "4"}, "classes_per_batch is '4'; expected a whole number"),
        ({"samples_per_class": 2.5}, "samples_per_class is 2.5; expected a whole number"),
        ({"num_batches": 1.0}, "num_batches is 1.0; expected a whole number"),
        ({"seed": None}, "seed is None; expected a whole number"),
        (
            {"labels": ["owl", "owl", None, None]},
            "labels are of kinds that cannot be compared: NoneType, str; expected",
        ),
    ],
)
def test_invalid_arguments_raise(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BalancedBatchSampler(**{"labels": LABELS, "classes_per_batch": 2, "samples_per_class": 2, **arguments})  # type: ignore[arg-type]
