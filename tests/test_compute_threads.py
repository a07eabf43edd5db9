import threading
from collections.abc import Iterator

import pytest

from entourage.compute import count_threads, map_ahead


def test_threads_are_as_told_or_as_there_are_cores() -> None:
    assert count_threads(3) == 3
    assert 1 <= count_threads(None) <= 16
    with pytest.raises(ValueError, match="workers is 0; expected 1 or more"):
        count_threads(0)


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_results_come_in_order_and_not_far_ahead(workers: int) -> None:
    taken = 0

    def tasks() -> Iterator[int]:
        nonlocal taken
        for task in range(100):
            taken += 1
            yield task

    for done, result in enumerate(map_ahead(lambda task: task**2, tasks(), workers)):
        assert result == done**2
        assert taken <= done + 1 + 3 * workers
    assert done == 99


@pytest.mark.parametrize("workers", [1, 3])
def test_how_far_ahead_can_be_told(workers: int) -> None:
    started = threading.Semaphore(0)

    def work(task: int) -> tuple[int, threading.Thread]:
        started.release()
        return task, threading.current_thread()

    results = map_ahead(work, range(20), workers, ahead=5)
    place, thread = next(results)
    for _ in range(6):  # the one that was asked for, and five ahead of it
        assert started.acquire(timeout=30)
    assert not started.acquire(blocking=False)  # nobody begins a seventh before another result is asked for
    assert place == 0
    assert thread is not threading.current_thread()
    assert [place for place, _ in results] == list(range(1, 20))


def test_threads_work_at_the_same_time() -> None:
    meeting = threading.Barrier(2, timeout=30)  # passed only by two at once
    assert len(list(map_ahead(lambda _: meeting.wait(), range(2), 2))) == 2


def test_one_worker_is_the_caller() -> None:
    assert set(map_ahead(lambda _: threading.current_thread(), range(3), 1)) == {threading.current_thread()}


@pytest.mark.parametrize("workers", [1, 2])
def test_errors_reach_the_caller(workers: int) -> None:
    with pytest.raises(ZeroDivisionError):
        list(map_ahead(lambda task: 1 // task, [1, 0, 1], workers))
