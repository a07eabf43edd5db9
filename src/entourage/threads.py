"""Work spread over threads, its results in order and never far ahead of whoever takes them."""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_MAX_WORKERS = 16
_AHEAD = 3  # tasks a thread

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
    most = _AHEAD * workers if ahead is None else ahead
    waiting: deque[Future[Result]] = deque()
    executor = ThreadPoolExecutor(workers, thread_name_prefix="entourage")
    try:
        for task in tasks:
            waiting.append(executor.submit(work, task))
            if len(waiting) > most:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:  # on an interrupt only the tasks in hand are finished
        executor.shutdown(wait=True, cancel_futures=True)
