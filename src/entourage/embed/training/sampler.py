"""Sampler of class-balanced batches (thesis, chapter 4, "sampling strategy")."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler

from entourage.validation import check_integers, class_codes


class BalancedBatchSampler(Sampler[list[int]]):
    """Sampler of batches with P distinct classes and K samples of each, for `DataLoader(batch_sampler=...)`.

    Classes are drawn without replacement, and so are the samples of a class, until all have been drawn. The samples of
    a class with fewer than K are repeated as evenly as possible.

    Batches depend on the seed and the epoch only. Each iteration advances the epoch by one; `set_epoch` sets it. With
    several processes, each receives a part of the same batches. Accelerate distributes batches itself: leave
    `num_replicas` at 1.

    Args:
        labels: the class of each sample, shape (n,), of any type that can be sorted.
        classes_per_batch: number of classes P.
        samples_per_class: number of samples K of each class.
        seed: random seed.
        num_batches: batches per epoch, over all processes; None for n / (P K), rounded down.
        num_replicas: number of processes.
        rank: index of this process.

    Raises:
        ValueError: labels are not of shape (n,), or a number is out of range.

    Examples:
        >>> from entourage.embed import BalancedBatchSampler
        >>> sampler = BalancedBatchSampler(["owl", "owl", "wren", "wren", "wren", "crow", "crow"], 2, 2)
        >>> [len(batch) for batch in sampler]
        [4]
    """

    def __init__(
        self,
        labels: ArrayLike,
        classes_per_batch: int,
        samples_per_class: int,
        *,
        seed: int = 0,
        num_batches: int | None = None,
        num_replicas: int = 1,
        rank: int = 0,
    ) -> None:
        values = np.asarray(labels)
        if values.ndim != 1 or len(values) == 0:
            raise ValueError(f"labels have shape {values.shape}; expected (samples,), at least one")
        check_integers(
            classes_per_batch=classes_per_batch,
            samples_per_class=samples_per_class,
            seed=seed,
            num_replicas=num_replicas,
            rank=rank,
            num_batches=1 if num_batches is None else num_batches,
        )
        codes = class_codes(values)
        classes = int(codes.max()) + 1
        if not 1 <= classes_per_batch <= classes:
            raise ValueError(f"classes_per_batch is {classes_per_batch}; expected 1 to {classes}, all classes")
        for name, value in (("samples_per_class", samples_per_class), ("num_replicas", num_replicas)):
            if value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")
        if seed < 0:
            raise ValueError(f"seed is {seed}; expected 0 or more")
        if num_batches is not None and num_batches < 1:
            raise ValueError(f"num_batches is {num_batches}; expected 1 or more, or None")
        if not 0 <= rank < num_replicas:
            raise ValueError(f"rank is {rank}; expected 0 to {num_replicas - 1}, as there are {num_replicas} replicas")
        order = np.argsort(codes, kind="stable")
        self.class_members: list[NDArray[np.int64]] = np.split(order, np.cumsum(np.bincount(codes))[:-1])
        self.classes_per_batch = classes_per_batch
        self.samples_per_class = samples_per_class
        self.seed = seed
        total = num_batches if num_batches is not None else len(values) // (classes_per_batch * samples_per_class)
        self.batches_per_replica = max(1, total // num_replicas)  # equal numbers, as processes synchronise at each step
        self.num_replicas = num_replicas
        self.rank = rank
        self.epoch = 0

    def __len__(self) -> int:
        return self.batches_per_replica

    def __iter__(self) -> Iterator[list[int]]:
        plan = self.plan(self.epoch)
        self.epoch += 1
        for batch in plan[self.rank :: self.num_replicas]:
            yield batch.tolist()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration."""
        self.epoch = epoch

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """Return the batches of an epoch for all processes: indices of samples, shape (P K,) each, grouped by class."""
        rng = np.random.default_rng([self.seed, epoch])
        classes = _ShuffledCycle(np.arange(len(self.class_members)), rng)
        samplers: dict[int, _ShuffledCycle] = {}
        batches = []
        for _ in range(self.batches_per_replica * self.num_replicas):
            selected = classes.draw(self.classes_per_batch).tolist()
            for c in selected:
                samplers.setdefault(c, _ShuffledCycle(self.class_members[c], rng))
            batches.append(np.concatenate([samplers[c].draw(self.samples_per_class) for c in selected]))
        return batches


class _ShuffledCycle:
    """Draws without replacement from items in random order; they are shuffled again when all have been drawn."""

    def __init__(self, items: NDArray[np.int64], rng: np.random.Generator) -> None:
        self.items = items
        self.rng = rng
        self.remaining = rng.permutation(items)

    def draw(self, count: int) -> NDArray[np.int64]:
        """Draw items, shape (count,); if there are fewer than that, their occurrences differ by one at most."""
        rounds, rest = divmod(count, len(self.items))
        parts = [self.rng.permutation(self.items) for _ in range(rounds)]
        drawn, self.remaining = self.remaining[:rest], self.remaining[rest:]
        if len(drawn) < rest:
            fresh = self.rng.permutation(self.items)
            # Items of this draw come last, so that none of them is repeated.
            fresh = np.concatenate([fresh[~np.isin(fresh, drawn)], fresh[np.isin(fresh, drawn)]])
            more = rest - len(drawn)
            drawn, self.remaining = np.concatenate([drawn, fresh[:more]]), fresh[more:]
        return np.concatenate([*parts, drawn])
