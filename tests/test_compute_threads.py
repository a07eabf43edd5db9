import threading
from collections.abc import Iterator

import pytest

from entourage.compute import count_threads, map_ahead


def test_count_threads_defaults_to_the_number_of_cores() -> None:
    assert count_threads(3) == 3
    assert 1 <= count_threads(None) <= 16
    with pytest.raises(ValueError, match="workers is 0; expected 1 or more"):
        count_threads(0)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_are_ordered_and_the_lookahead_is_bounded(workers: int) -> None:
    n_taken = 0

    def tasks() -> Iterator[int]:
        nonlocal n_taken
        for task in range(100):
            n_taken += 1
            yield task

    for done, result in enumerate(map_ahead(lambda task: task**2, tasks(), workers)):
        assert result == done**2
        assert n_taken <= done + 1 + 3 * workers
    assert done == 99


@pytest.mark.parametrize("workers", [1, 3])
def test_ahead_limits_the_tasks_that_are_started(workers: int) -> None:
    started = threading.Semaphore(0)

    def work(task: int) -> tuple[int, threading.Thread]:
        started.release()
        return task, threading.current_thread()

    results = map_ahead(work, range(20), workers, ahead=5)
    index, thread = next(results)
    for _ in range(6):  # the requested one and five ahead
        assert started.acquire(timeout=30)
    assert not started.acquire(blocking=False)  # a seventh is not started before the next request
    assert index == 0
    assert thread is not threading.current_thread()
    assert [index for index, _ in results] == list(range(1, 20))


def test_threads_work_in_parallel() -> None:
    barrier = threading.Barrier(2, timeout=30)  # only two threads at once pass it
    assert len(list(map_ahead(lambda _: barrier.wait(), range(2), 2))) == 2


def test_single_worker_is_the_calling_thread() -> None:
    assert set(map_ahead(lambda _: threading.current_thread(), range(3), 1)) == {threading.current_thread()}


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_are_raised_in_the_calling_thread(workers: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_ahead(lambda task: 1 // task, [1, 0, 1], workers))
