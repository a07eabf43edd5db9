"""Work spread over threads, its results in order and never far ahead of whoever takes them."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_MAX_WORKERS = 16
_AHEAD = 2

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


def map_ahead(work: Callable[[Task], Result], tasks: Iterable[Task], workers: int) -> Iterator[Result]:
    """As `map`, with threads that work at most three tasks each ahead of the caller, so that memory stays bounded.

    Args:
        work: called once for each task; it should release the interpreter's lock for most of its time.
        tasks: taken one by one as the work goes on.
        workers: threads; 1 works in the caller's own, without the cost of handing over.

    Yields:
        The results, in the order of the tasks.
    """
    if workers == 1:
        yield from map(work, tasks)
        return
    waiting: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(workers, thread_name_prefix="entourage")
    try:
        for task in tasks:
            waiting.append(executor.submit(work, task))
            if len(waiting) > (1 + _AHEAD) * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # on an interrupt only the tasks in hand are finished
        executor.shutdown(wait=True, cancel_futures=True)
