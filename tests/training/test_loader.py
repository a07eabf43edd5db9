import threading
import time
from collections.abc import Sequence
from dataclasses import astuple
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from entourage.training import Task, TrainingOptions
from entourage.training.loader import BatchLoader, StepPosition

CPU = torch.device("cpu")


class Numbers(Task[int, list[Any]]):
    """Items are numbers; a batch is the number and a random number."""

    def __init__(self, length: int) -> None:
        self.model = nn.Identity()
        self.length = length
        self.loaded: list[int] = []

    def plan(self, epoch: int) -> Sequence[int]:
        return range(100 * epoch, 100 * epoch + self.length)

    def load(self, item: int, rng: np.random.Generator) -> list[Any]:
        self.loaded.append(item)
        time.sleep(0.002 * (item % 3))  # later items may be finished earlier
        return [item, rng.integers(1 << 60)]

    def loss(self, model: nn.Module, batch: list[Any], step: int) -> dict[str, Tensor]:
        raise AssertionError


def loader_of(length: int, rank: int = 0, world: int = 1, **options: Any) -> BatchLoader[int, list[Any]]:
    return BatchLoader(Numbers(length), TrainingOptions(**options), CPU, rank, world)


def all_of(
    loader: BatchLoader[int, list[Any]], step: int = 0, epoch: int = 0, step_in_epoch: int = 0
) -> list[tuple[StepPosition, list[Any]]]:
    return list(loader.batches(step, epoch, step_in_epoch))


def test_positions_contain_step_batch_epoch_and_ends() -> None:
    positions = [astuple(position) for position, _ in all_of(loader_of(3, epochs=2, accumulate=2))]
    assert positions == [
        (0, 0, 0, 0, False, False),
        (0, 1, 0, 0, True, False),
        (1, 0, 0, 1, False, False),
        (1, 1, 0, 1, True, True),
        (2, 0, 1, 0, False, False),
        (2, 1, 1, 0, True, False),
        (3, 0, 1, 1, False, False),
        (3, 1, 1, 1, True, True),
    ]


def test_incomplete_last_step_is_filled_from_the_beginning() -> None:
    items = [[batch[0] for _, batch in all_of(loader_of(5, rank, 3, epochs=2))] for rank in range(3)]
    assert items == [[0, 3, 100, 103], [1, 4, 101, 104], [2, 0, 102, 100]]
    assert [batch[0] for _, batch in all_of(loader_of(2, epochs=1, accumulate=5))] == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("world", [2, 4])
def test_processes_draw_the_same_numbers_as_accumulation(world: int) -> None:
    alone = [batch for _, batch in all_of(loader_of(8, epochs=2, accumulate=4))]
    shared = [all_of(loader_of(8, rank, world, epochs=2, accumulate=4 // world)) for rank in range(world)]
    together = [batch for turn in zip(*shared, strict=True) for _, batch in turn]
    assert together == alone
    assert len({drawn for _, drawn in alone}) == 16


def test_threads_do_not_change_batches() -> None:
    expected = all_of(loader_of(7, epochs=2, workers=0))
    for workers in (1, 4):
        assert all_of(loader_of(7, epochs=2, workers=workers)) == expected


def test_seed_changes_random_numbers() -> None:
    one, two = (all_of(loader_of(3, epochs=1, seed=seed)) for seed in (1, 2))
    assert [batch[0] for _, batch in one] == [batch[0] for _, batch in two]
    assert all(a[1] != b[1] for (_, a), (_, b) in zip(one, two, strict=True))


@pytest.mark.parametrize("workers", [0, 3])
def test_loading_resumes_at_any_step(workers: int) -> None:
    options = {"epochs": 3, "accumulate": 2, "workers": workers}
    reference = all_of(loader_of(5, **options))
    for made in range(10):
        rest = all_of(loader_of(5, **options), made, *divmod(made, 3))
        assert rest == reference[2 * made :]


def test_loading_starts_in_order_and_stays_a_few_ahead() -> None:
    numbers = loader_of(40, epochs=1, workers=2)
    batches = numbers.batches(0, 0, 0)
    next(batches)
    assert isinstance(numbers.task, Numbers)
    assert len(numbers.task.loaded) <= 5
    batches.close()
    rest = sorted(numbers.task.loaded)
    assert rest == list(range(len(rest)))
    assert not any(thread.name.startswith("load") for thread in threading.enumerate())


def test_max_steps_ends_within_an_epoch() -> None:
    assert [position.step for position, _ in all_of(loader_of(4, epochs=5, max_steps=6))] == list(range(6))
    assert loader_of(4, epochs=5, max_steps=6).total_steps() == 6
    assert loader_of(4, epochs=5, max_steps=60).total_steps() == 20
    assert loader_of(5, 0, 2, epochs=5, accumulate=2).total_steps() == 10


def test_empty_plan_raises() -> None:
    with pytest.raises(ValueError, match=r"^Task.plan: epoch 0 is empty; expected"):
        all_of(loader_of(0))


def test_errors_of_loading_are_raised() -> None:
    class Broken(Numbers):
        def load(self, item: int, rng: np.random.Generator) -> list[Any]:
            raise ValueError(f"no row {item}")

    with pytest.raises(ValueError, match="no row 0"):
        list(BatchLoader(Broken(3), TrainingOptions(), CPU).batches(0, 0, 0))
