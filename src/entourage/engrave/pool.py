"""Many workers: processes on this machine, or a Ray cluster. What comes out does not depend on how many there are."""

from __future__ import annotations

import logging
import multiprocessing as mp
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from entourage.engrave.job import EngraveJob, Task
from entourage.engrave.work import Outcome, UnwritableError, Worker

_PATIENCE = 600.0  # seconds without any outcome after which workers are taken for stuck
_MEMORY = 8 * 2**30  # bytes of address space a worker may use


def run_tasks(job: EngraveJob, tasks: list[Task]) -> Iterator[Outcome]:
    """Does all tasks and yields their outcomes as they come.

    A score that crashes the engraver takes its worker with it; the task is reported as a failure, a new worker takes
    the place of the old one, and the others go on. That is why even a single worker is a process of its own.

    Raises:
        UnwritableError: the output cannot be written.
    """
    if job.ray:
        yield from _on_ray(job, tasks)
        return
    workers = min(job.workers or os.cpu_count() or 1, max(len(tasks), 1))
    yield from _Pool(job, tasks, workers).run()


class _Pool:
    """Processes that are handed one task at a time, so that it is known which one a crash belongs to."""

    def __init__(self, job: EngraveJob, tasks: list[Task], workers: int) -> None:
        self.job = job
        self.todo = iter(tasks)
        self.left = len(tasks)
        self.context = mp.get_context("spawn")  # a fork would inherit threads of numpy and OpenCV
        self.busy: dict[Connection, tuple[BaseProcess, Task]] = {}
        self.workers = workers

    def run(self) -> Iterator[Outcome]:
        try:
            for _ in range(self.workers):
                self._start()
            while self.busy:
                ready = wait(list(self.busy), timeout=_PATIENCE)
                for connection in ready or list(self.busy):
                    assert isinstance(connection, Connection)
                    yield self._receive(connection, stuck=not ready)
        finally:
            for connection, (process, _) in self.busy.items():
                connection.close()
                process.terminate()
                process.join()

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
        self.busy[connection] = (process, task)
        with suppress(OSError):  # it died at once; reading will say so
            connection.send(task)

    def _receive(self, connection: Connection, *, stuck: bool) -> Outcome:
        process, task = self.busy.pop(connection)
        try:
            if stuck:
                raise EOFError
            outcome: Outcome | UnwritableError = connection.recv()
        except (EOFError, OSError):
            process.terminate()
            process.join()
            connection.close()
            self._start()
            why = f"took longer than {_PATIENCE:g} s" if stuck else f"crashed (exit code {process.exitcode})"
            return Outcome(task.name, failure=f"{task.name}: the engraver {why}")
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


def _serve(job: EngraveJob, connection: Connection) -> None:
    """What a worker process does: tasks in, outcomes out, until there are no more."""
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


def _bound_memory() -> None:
    import cv2

    cv2.setNumThreads(1)  # the processes are the parallelism
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    bound = _MEMORY if hard == resource.RLIM_INFINITY else min(_MEMORY, hard)
    resource.setrlimit(resource.RLIMIT_AS, (bound, hard))


def _on_ray(job: EngraveJob, tasks: list[Task]) -> Iterator[Outcome]:
    """The same on a Ray cluster, whose machines must see the same folders."""
    try:
        import ray
    except ImportError as error:
        raise ValueError("Ray is not installed; expected: pip install 'entourage[ray]'") from error
    # Workers start in folders of their own.
    job = replace(job, out=job.out.absolute())
    tasks = [replace(t, file=t.file and replace(t.file, path=t.file.path.absolute())) for t in tasks]
    ray.init(address=None if job.ray == "local" else job.ray, log_to_driver=False, logging_level=logging.ERROR)
    try:

        def do(task: Task) -> Outcome:
            return Worker(job).do(task)

        remote: Any = ray.remote(max_retries=0)(do)
        waiting = {remote.remote(task): task for task in tasks}
        while waiting:
            (done, *_), _ = ray.wait(list(waiting), num_returns=1)
            task = waiting.pop(done)
            try:
                yield ray.get(done)
            except UnwritableError:
                raise
            except ray.exceptions.RayError as error:
                yield Outcome(task.name, failure=f"{task.name}: the engraver crashed ({type(error).__name__})")
    finally:
        ray.shutdown()
