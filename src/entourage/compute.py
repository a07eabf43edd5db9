"""Where tensors live: the name of a device, checked once and early.

Seeds that are nobody else's.

Work spread over threads, its results in order and never far ahead of whoever takes them.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

_EXPECTED = "expected 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps'"


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Turn a name into a device that is really there.

    Args:
        device: a torch device, its name, or "auto": CUDA if there is one, otherwise the CPU.

    Returns:
        A device on which tensors can be made.

    Raises:
        ValueError: the name is unknown, or this machine has no such device.
    """
    if device == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        resolved = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise ValueError(f"device {str(device)!r} is unknown; {_EXPECTED}") from error
    if resolved.type not in ("cpu", "cuda", "mps"):
        raise ValueError(f"device {str(device)!r} is not supported; {_EXPECTED}")
    if not _is_available(resolved):
        raise ValueError(f"device {str(device)!r} is not available; {_EXPECTED}, here: {', '.join(_available())}")
    return resolved


def _is_available(device: torch.device) -> bool:
    if device.type == "cuda":
        return (device.index or 0) < torch.cuda.device_count()
    if device.type == "mps":
        return torch.backends.mps.is_available()
    return True


def _available() -> list[str]:
    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names


@contextmanager
def fork_rng(seed: int) -> Iterator[None]:
    """Lets first weights that are drawn within the block follow from a seed; torch's own generator stays as it is.

    Only the CPU's, where networks are made: `torch.manual_seed` would seed all devices, and nobody would put them back.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def derive_seed(seed: int, *keys: object) -> int:
    """A number that depends on the seed and on what it is for, and on nothing else."""
    digest = hashlib.blake2b(json.dumps([seed, *map(str, keys)]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


_MAX_WORKERS = 16
_TASKS_PER_THREAD = 3  # tasks a thread

Task = TypeVar("Task")
Result = TypeVar("Result")


def count_threads(workers: int | None) -> int:
    """How many threads to use: as told, or one for each core this process may use, at most 16.

    Raises:
        ValueError: fewer than one.
    """
    if workers is None:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return min(cores, _MAX_WORKERS)
    if workers < 1:
        raise ValueError(f"workers is {workers}; expected 1 or more")
    return workers


def map_ahead(
    work: Callable[[Task], Result], tasks: Iterable[Task], workers: int, ahead: int | None = None
) -> Iterator[Result]:
    """As `map`, with threads that work only so far ahead of the caller, so that memory stays bounded.

    Args:
        work: called once for each task; it should release the interpreter's lock for most of its time.
        tasks: taken one by one as the work goes on.
        workers: threads.
        ahead: tasks that may be done or in hand before the caller asks for their results. None: three for each thread,
            and a single worker is the caller's own thread, without the cost of handing over.

    Yields:
        The results, in the order of the tasks.
    """
    if workers == 1 and ahead is None:
        yield from map(work, tasks)
        return
    max_pending = _TASKS_PER_THREAD * workers if ahead is None else ahead
    pending: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(workers, thread_name_prefix="entourage")
    try:
        for task in tasks:
            pending.append(executor.submit(work, task))
            if len(pending) > max_pending:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:  # on an interrupt only the tasks in hand are finished
        executor.shutdown(wait=True, cancel_futures=True)
