"""Batches of a few classes with a few samples each, as the game wants them (thesis, chapter 4, "sampling strategy")."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch.utils.data import Sampler

from entourage.validation import check_whole, class_codes


class BalancedBatchSampler(Sampler[list[int]]):
    """Batches of P distinct classes with K samples each, for `DataLoader(batch_sampler=...)`.

    Classes take turns, and so do the samples of a class: none comes again before all others have come. A class with
    fewer than K samples is repeated as evenly as can be. An epoch has as many batches as the data would fill.

    Batches depend on the seed and the epoch only. Each iteration is the next epoch; `set_epoch` says which one it is.
    With several processes each takes its share of the same batches; under Accelerate, which shares them out itself,
    leave `replicas` at 1.

    Args:
        labels: the class of each sample, shape (n,); anything that can be sorted.
        classes_per_batch: P.
        samples_per_class: K.
        seed: another one gives other batches.
        batches: in an epoch, over all processes; n / (P K), rounded down, when None.
        replicas: how many processes share the batches.
        rank: which of them this is.

    Example:
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
        batches: int | None = None,
        replicas: int = 1,
        rank: int = 0,
    ) -> None:
        given = np.asarray(labels)
        if given.ndim != 1 or len(given) == 0:
            raise ValueError(f"labels have shape {given.shape}; expected (samples,), at least one")
        check_whole(
            classes_per_batch=classes_per_batch,
            samples_per_class=samples_per_class,
            seed=seed,
            replicas=replicas,
            rank=rank,
            batches=1 if batches is None else batches,
        )
        codes = class_codes(given)
        classes = int(codes.max()) + 1
        if not 1 <= classes_per_batch <= classes:
            raise ValueError(
                f"classes_per_batch is {classes_per_batch}; expected 1 to {classes}, the classes there are"
            )
        for name, value in (("samples_per_class", samples_per_class), ("replicas", replicas)):
            if value < 1:
                raise ValueError(f"{name} is {value}; expected 1 or more")
        if seed < 0:
            raise ValueError(f"seed is {seed}; expected 0 or more")
        if batches is not None and batches < 1:
            raise ValueError(f"batches is {batches}; expected 1 or more, or None")
        if not 0 <= rank < replicas:
            raise ValueError(f"rank is {rank}; expected 0 to {replicas - 1}, as there are {replicas} replicas")
        order = np.argsort(codes, kind="stable")
        self.members: list[NDArray[np.int64]] = np.split(order, np.cumsum(np.bincount(codes))[:-1])
        self.classes_per_batch = classes_per_batch
        self.samples_per_class = samples_per_class
        self.seed = seed
        wanted = batches if batches is not None else len(given) // (classes_per_batch * samples_per_class)
        self.share = max(1, wanted // replicas)  # every process has as many, or they would wait for each other
        self.replicas = replicas
        self.rank = rank
        self.epoch = 0

    def __len__(self) -> int:
        return self.share

    def __iter__(self) -> Iterator[list[int]]:
        plan = self.plan(self.epoch)
        self.epoch += 1
        for batch in plan[self.rank :: self.replicas]:
            yield batch.tolist()

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is this epoch."""
        self.epoch = epoch

    def plan(self, epoch: int) -> list[NDArray[np.int64]]:
        """All batches of an epoch, for all processes: positions in the labels, shape (P K,) each, class by class."""
        rng = np.random.default_rng([self.seed, epoch])
        classes = _Deck(np.arange(len(self.members)), rng)
        decks: dict[int, _Deck] = {}
        batches = []
        for _ in range(self.share * self.replicas):
            chosen = classes.draw(self.classes_per_batch).tolist()
            for c in chosen:
                decks.setdefault(c, _Deck(self.members[c], rng))
            batches.append(np.concatenate([decks[c].draw(self.samples_per_class) for c in chosen]))
        return batches


class _Deck:
    """Cards that are dealt in random order; the deck is shuffled anew when it is used up."""

    def __init__(self, cards: NDArray[np.int64], rng: np.random.Generator) -> None:
        self.cards = cards
        self.rng = rng
        self.left = rng.permutation(cards)

    def draw(self, count: int) -> NDArray[np.int64]:
        """That many cards, different ones unless there are fewer; then each comes as often as any other, or once more.

        Returns:
            Shape (count,).
        """
        rounds, rest = divmod(count, len(self.cards))
        hands = [self.rng.permutation(self.cards) for _ in range(rounds)]
        hand, self.left = self.left[:rest], self.left[rest:]
        if len(hand) < rest:
            fresh = self.rng.permutation(self.cards)
            # Those in hand wait a little longer, or they would be drawn twice.
            fresh = np.concatenate([fresh[~np.isin(fresh, hand)], fresh[np.isin(fresh, hand)]])
            more = rest - len(hand)
            hand, self.left = np.concatenate([hand, fresh[:more]]), fresh[more:]
        return np.concatenate([*hands, hand])
