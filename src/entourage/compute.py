"""Devices, seeds and threads; torch is imported on first use, because engraving does not need it."""

from __future__ import annotations

import hashlib
import json
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import torch

_EXPECTED = "expected 'auto', 'cpu', 'cuda', 'cuda:N' or 'mps'"


def resolve_device(device: str | torch.device = "auto") -> torch.device:
    """Return a torch device after checking that it is available.

    Args:
        device: a torch device, its name, or "auto": CUDA if available, otherwise the CPU.

    Returns:
        The device.

    Raises:
        ValueError: the name is unknown, or this machine has no such device.
    """
    import torch

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
    import torch

    if device.type == "cuda":
        return (device.index or 0) < torch.cuda.device_count()
    if device.type == "mps":
        return torch.backends.mps.is_available()
    return True


def _available() -> list[str]:
    import torch

    names = ["cpu", *(f"cuda:{index}" for index in range(torch.cuda.device_count()))]
    return [*names, "mps"] if torch.backends.mps.is_available() else names


@cache
def has_bfloat16_instructions(cpuinfo: str = "/proc/cpuinfo") -> bool:
    """Return whether the processor has instructions for bfloat16; False where Linux does not list them.

    Args:
        cpuinfo: file in which Linux describes the processor.
    """
    try:
        flags = Path(cpuinfo).read_text(encoding="utf-8").split()
    except OSError:
        return False
    return not {"avx512_bf16", "amx_bf16"}.isdisjoint(flags)


@contextmanager
def fork_rng(seed: int) -> Iterator[None]:
    """Seed torch's CPU generator within the block and restore its state afterwards.

    Networks are initialised on the CPU. `torch.manual_seed` would also seed the generators of all other devices, and
    their states would not be restored.
    """
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        yield


def derive_seed(seed: int, *keys: object) -> int:
    """Return a seed in [0, 2^63) that depends only on a base seed and on keys.

    Args:
        seed: base seed.
        keys: purpose of the derived seed, such as the name of a file; compared as strings.
    """
    digest = hashlib.blake2b(json.dumps([seed, *map(str, keys)]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


_MAX_WORKERS = 16
_TASKS_PER_THREAD = 3

Task = TypeVar("Task")
Result = TypeVar("Result")


def count_threads(workers: int | None) -> int:
    """Return the number of threads to use: the requested one, or by default one per core.

    Args:
        workers: number of threads; None: one per core that this process may use, at most 16.

    Raises:
        ValueError: `workers` is less than 1.
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
    """Apply a function to tasks in threads, as `map` does, with a limited number of results computed in advance.

    Args:
        work: function of one task; it should release the interpreter lock for most of its time.
        tasks: the tasks; an iterator is advanced as results are requested.
        workers: number of threads.
        ahead: largest number of tasks that are started before their results are requested, which bounds the memory.
            None: three per thread; a single worker then runs in the calling thread, without the cost of a queue.

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
    finally:  # after an interrupt, only tasks that have started are finished
        executor.shutdown(wait=True, cancel_futures=True)
