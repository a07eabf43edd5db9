"""Many workers: processes on this machine, or a Ray cluster. What comes out does not depend on how many there are."""

from __future__ import annotations

import multiprocessing as mp
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess

from entourage.engrave.dataset.parts import UnwritableError
from entourage.engrave.dataset.ray_pool import RayPool
from entourage.engrave.dataset.worker import Outcome, Worker
from entourage.engrave.job import EngraveJob, Task

_PATIENCE = 600.0  # seconds after which a task is given up
_GRACE = 5.0  # seconds in which a worker may end what it has started
_MEMORY = 8 * 2**30  # bytes that a worker may use


def run_tasks(job: EngraveJob, tasks: list[Task]) -> Iterator[Outcome]:
    """Does all tasks and yields their outcomes as they come.

    A score that crashes the engraver takes its worker with it; the task is reported as a failure, a new worker takes
    the place of the old one, and the others go on. That is why even a single worker is a process of its own. What an
    earlier run has made of the same score stands, though: the crash says nothing of that.

    Raises:
        UnwritableError: the output cannot be written.
        ValueError: a Ray cluster is asked for and cannot be reached, or has other versions.
    """
    if not tasks:
        return
    tasks = sorted(tasks, key=_reading_order)
    workers = min(job.workers or os.cpu_count() or 1, len(tasks))
    pool = RayPool(job, tasks, _PATIENCE, _bound_memory) if job.ray else _Pool(job, tasks, workers)
    named = {task.name: task for task in tasks}
    for outcome in pool.run():
        before = Worker(job).done(named[outcome.name]) if outcome.lost else None
        yield before or outcome


def _reading_order(task: Task) -> tuple[str, int]:
    """Scores of an archive come as they lie in it: a worker that goes back in a compressed one unpacks it anew."""
    file = task.file
    return ("", 0) if file is None or not file.member else (str(file.path), file.place)


class _Pool:
    """Processes that are handed one task at a time, so that it is known which one a crash belongs to."""

    def __init__(self, job: EngraveJob, tasks: list[Task], workers: int) -> None:
        self.job = job
        self.todo = iter(tasks)
        self.left = len(tasks)
        self.context = mp.get_context("spawn")  # a fork would inherit threads of numpy and OpenCV
        self.busy: dict[Connection, tuple[BaseProcess, Task, float]] = {}  # the last is when its time is over
        self.workers = workers

    def run(self) -> Iterator[Outcome]:
        try:
            for _ in range(self.workers):
                self._start()
            while self.busy:
                first = min(deadline for _, _, deadline in self.busy.values())
                ready = wait(list(self.busy), timeout=max(first - time.monotonic(), 0.0))
                late = [pipe for pipe, (_, _, deadline) in self.busy.items() if deadline <= time.monotonic()]
                for connection in ready or late:
                    assert isinstance(connection, Connection)
                    yield self._receive(connection, stuck=not ready)
        finally:
            for connection, (process, _, _) in self.busy.items():
                connection.close()
                process.terminate()
            for process, _, _ in self.busy.values():
                _end(process)

    def _start(self) -> None:
        task = next(self.todo, None)
        if task is None:
            return
        ours, theirs = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(self.job, theirs), daemon=True)
        process.start()
        theirs.close()
        self._hand(ours, process, task)

    def _hand(self, connection: Connection, process: BaseProcess, task: Task) -> None:
        self.busy[connection] = (process, task, time.monotonic() + _PATIENCE)
        with suppress(OSError):  # it died at once; reading will say so
            connection.send(task)

    def _receive(self, connection: Connection, *, stuck: bool) -> Outcome:
        process, task, _ = self.busy.pop(connection)
        try:
            if stuck:
                raise EOFError
            outcome: Outcome | UnwritableError = connection.recv()
        except (EOFError, OSError):
            _end(process)
            connection.close()
            self._start()
            why = f"took longer than {_PATIENCE:g} s" if stuck else f"crashed (exit code {process.exitcode})"
            return Outcome(task.name, failure=f"{task.name}: the engraver {why}", lost=True)
        if isinstance(outcome, UnwritableError):
            connection.close()  # which ends the worker
            raise outcome
        following = next(self.todo, None)
        if following is not None:
            self._hand(connection, process, following)
        else:
            with suppress(OSError):
                connection.send(None)  # no more
            connection.close()
            process.join()
        return outcome


def _end(process: BaseProcess) -> None:
    process.terminate()
    process.join(_GRACE)
    process.kill()  # deep in Verovio it hears nothing else
    process.join()


def _serve(job: EngraveJob, connection: Connection) -> None:
    """What a worker process does: tasks in, outcomes out, until there are no more."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # with LilyPond, if that is at work
    _bound_memory()
    worker = Worker(job)
    while True:
        try:
            task = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        if task is None:
            return
        try:
            connection.send(worker.do(task))
        except UnwritableError as error:
            connection.send(error)
        except BrokenPipeError:  # the run was killed
            return


def _bound_memory(bound: int = _MEMORY) -> None:
    import cv2

    cv2.setNumThreads(1)  # the processes are the parallelism
    try:
        import resource
    except ImportError:  # not on Windows
        return
    # Of the process' own data: the address space would count what Ray shares between processes, too.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = bound if hard == resource.RLIM_INFINITY else min(bound, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
