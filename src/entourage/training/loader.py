"""Batches of a run in the order of its plan, loaded by background threads, and nested batches of tensors."""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic

import numpy as np
import torch
from torch import Tensor

from entourage.training.options import TrainingOptions
from entourage.training.task import Batch, Item, Task


def map_tensors(function: Callable[[Tensor], Tensor], batch: Batch) -> Batch:
    """Apply a function to all tensors of a nested batch.

    Args:
        function: from tensor to tensor.
        batch: tensors in nested tuples, lists, mappings and dataclasses; other values are returned unchanged.

    Returns:
        A batch of the same structure.
    """
    result: Any = batch
    if isinstance(batch, Tensor):
        result = function(batch)
    elif isinstance(batch, tuple) and hasattr(batch, "_fields"):
        result = type(batch)(*(map_tensors(function, part) for part in batch))
    elif isinstance(batch, (tuple, list)):
        result = type(batch)(map_tensors(function, part) for part in batch)
    elif isinstance(batch, Mapping):
        result = {name: map_tensors(function, part) for name, part in batch.items()}
    elif dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        parts = {field.name: getattr(batch, field.name) for field in dataclasses.fields(batch) if field.init}
        result = dataclasses.replace(batch, **{name: map_tensors(function, part) for name, part in parts.items()})
    return result  # type: ignore[no-any-return]


def pin(batch: Batch) -> Batch:
    """Copy the CPU tensors of a batch to pinned memory, for asynchronous transfers to a GPU."""
    return map_tensors(lambda tensor: tensor.pin_memory() if tensor.device.type == "cpu" else tensor, batch)


def to_device(batch: Batch, device: torch.device) -> Batch:
    """Move the tensors of a batch to a device; those already there are not copied."""
    return map_tensors(lambda t: t if t.device == device else t.to(device, non_blocking=True), batch)


@dataclass(frozen=True)
class StepPosition:
    """Position of a batch in a run.

    Attributes:
        step: number of earlier updates.
        micro: index among the accumulated batches of the step.
        epoch: epoch, from 0.
        step_in_epoch: number of earlier updates in the epoch.
        ends_step: whether it is the last batch of its step.
        ends_epoch: whether it is the last batch of its epoch.
    """

    step: int
    micro: int
    epoch: int
    step_in_epoch: int
    ends_step: bool
    ends_epoch: bool


class BatchLoader(Generic[Item, Batch]):
    """Loader of the batches of one process.

    A step takes the next `accumulate * world` items of the plan; process r of w takes items r, r + w, ... of them. An
    incomplete last step is filled from the beginning of the plan, so that all processes make equally many steps. Random
    numbers depend only on the seed, the step and the item's slot within the step: two processes draw the same numbers
    as one that accumulates two batches, and a resumed run the same as an uninterrupted one.

    Args:
        task: provides the plan and loads the batches.
        options: `epochs`, `max_steps`, `accumulate`, `seed` and `workers` are used.
        device: device of the batches.
        rank: rank of this process.
        world: number of processes.
    """

    def __init__(
        self, task: Task[Item, Batch], options: TrainingOptions, device: torch.device, rank: int = 0, world: int = 1
    ) -> None:
        self.task = task
        self.options = options
        self.device = device
        self.rank = rank
        self.world = world

    def total_steps(self) -> int:
        """Return the number of updates of the run, assuming that all epochs are as long as the first."""
        total = self.options.epochs * self._steps(self._plan(0))
        return total if self.options.max_steps is None else min(total, self.options.max_steps)

    def seed(self, position: StepPosition) -> list[int]:
        """Return the key of the random generators at a position; it does not depend on the number of processes."""
        return [self.options.seed, position.step, position.micro * self.world + self.rank]

    def batches(self, step: int, epoch: int, step_in_epoch: int) -> Generator[tuple[StepPosition, Batch]]:
        """Load the batches after `step` updates, of which `step_in_epoch` lie in `epoch`.

        Yields:
            Positions and batches, on the device. A few batches per thread are loaded ahead.
        """
        positions = self._positions(step, epoch, step_in_epoch)
        if self.options.workers == 0:
            for position, item in positions:
                yield position, to_device(self._load(position, item), self.device)
            return
        pending: deque[tuple[StepPosition, Future[Batch]]] = deque()
        executor = ThreadPoolExecutor(self.options.workers, "load", initializer=self._init_thread)
        try:
            for position, item in positions:
                pending.append((position, executor.submit(self._load, position, item)))
                if len(pending) > 2 * self.options.workers:
                    yield self._next(pending)
            while pending:
                yield self._next(pending)
        finally:
            executor.shutdown(wait=True, cancel_futures=True)

    def _next(self, pending: deque[tuple[StepPosition, Future[Batch]]]) -> tuple[StepPosition, Batch]:
        position, future = pending.popleft()
        return position, to_device(future.result(), self.device)

    def _init_thread(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.set_device(self.device)  # new threads use the first GPU by default, also for pinned memory

    def _load(self, position: StepPosition, item: Item) -> Batch:
        batch = self.task.load(item, np.random.default_rng(self.seed(position)))
        return pin(batch) if self.device.type == "cuda" else batch

    def _positions(self, step: int, epoch: int, step_in_epoch: int) -> Iterator[tuple[StepPosition, Item]]:
        for current in range(epoch, self.options.epochs):
            plan = self._plan(current)
            steps = self._steps(plan)
            for index in range(step_in_epoch if current == epoch else 0, steps):
                if step == self.options.max_steps:
                    return
                for micro in range(self.options.accumulate):
                    slot = (index * self.options.accumulate + micro) * self.world + self.rank
                    last_micro = micro == self.options.accumulate - 1
                    yield (
                        StepPosition(step, micro, current, index, last_micro, last_micro and index == steps - 1),
                        plan[slot % len(plan)],
                    )
                step += 1

    def _plan(self, epoch: int) -> Sequence[Item]:
        plan = self.task.plan(epoch)
        if len(plan) == 0:
            raise ValueError(f"Task.plan: epoch {epoch} is empty; expected at least one batch")
        return plan

    def _steps(self, plan: Sequence[Item]) -> int:
        return math.ceil(len(plan) / (self.options.accumulate * self.world))
