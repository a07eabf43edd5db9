"""Pools of workers: processes on this machine, or actors of a Ray cluster.

A worker receives one task at a time, so that the task that crashes it is known. The results do not depend on the number
of workers.
"""

from __future__ import annotations

import logging
import multiprocessing as mp
import os
import re
import signal
import socket
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from entourage.engrave.dataset.state import UnwritableError, software_versions
from entourage.engrave.dataset.worker import Outcome, Worker
from entourage.engrave.options import EngraveOptions, EngraveTask
from entourage.extras import extra_imports
from entourage.io.files import error_reason

_TASK_TIMEOUT = 600.0  # seconds per task
_TERMINATION_TIMEOUT = 5.0  # seconds for a worker to end the programs it has started
_MEMORY_LIMIT = 8 * 2**30  # bytes per worker
_CONNECT_TIMEOUT = 5.0  # seconds for a cluster to answer
_RETRY_VARIABLE = ("RAY_NUM_REDIS_GET_RETRIES", "5")  # attempts to join a cluster, one per second


def run_tasks(options: EngraveOptions, tasks: list[EngraveTask]) -> Iterator[Outcome]:
    """Run all tasks in parallel, on this machine or on a Ray cluster.

    A score that crashes the engraver ends its worker process, even if there is only one worker. The task fails, and a
    new worker continues with the next task. If an earlier run has finished the failed task and the score is unchanged,
    the earlier result is retained.

    Args:
        options: options of the run.
        tasks: the tasks.

    Yields:
        The outcomes, in the order in which the tasks end.

    Raises:
        UnwritableError: the output cannot be written.
        ValueError: the requested Ray cluster cannot be reached, or has other software versions.
    """
    if not tasks:
        return
    tasks = sorted(tasks, key=_archive_order)
    by_name = {task.name: task for task in tasks}
    pool = RayPool(options, tasks) if options.ray else _ProcessPool(options, tasks)
    for outcome in pool.run():
        finished = Worker(options).finished_outcome(by_name[outcome.name]) if outcome.worker_lost else None
        yield finished or outcome


def _archive_order(task: EngraveTask) -> tuple[str, int]:
    """Return a sort key: the position of the score in its archive, as seeking backwards would decompress it again."""
    file = task.file
    return ("", 0) if file is None or not file.member else (str(file.path), file.member_index)


def _lost_worker(task: EngraveTask, reason: str) -> Outcome:
    return Outcome(task.name, failure=f"{task.name}: the engraver {reason}", worker_lost=True)


class _ProcessPool:
    """Pool of worker processes on this machine."""

    def __init__(self, options: EngraveOptions, tasks: list[EngraveTask]) -> None:
        self.options = options
        self.queue = iter(tasks)
        self.size = min(options.workers or os.cpu_count() or 1, len(tasks))
        self.context = mp.get_context("spawn")  # a fork would inherit the threads of NumPy and OpenCV
        self.running: dict[Connection, tuple[BaseProcess, EngraveTask, float]] = {}  # process, task, deadline

    def run(self) -> Iterator[Outcome]:
        try:
            for _ in range(self.size):
                self._start()
            while self.running:
                first = min(deadline for _, _, deadline in self.running.values())
                ready = wait(list(self.running), timeout=max(first - time.monotonic(), 0.0))
                expired = [pipe for pipe, (_, _, deadline) in self.running.items() if deadline <= time.monotonic()]
                for connection in ready or expired:
                    assert isinstance(connection, Connection)
                    yield self._receive(connection, timed_out=not ready)
        finally:
            for connection, (process, _, _) in self.running.items():
                connection.close()
                process.terminate()
            for process, _, _ in self.running.values():
                _terminate(process)

    def _start(self) -> None:
        task = next(self.queue, None)
        if task is None:
            return
        parent_connection, child_connection = self.context.Pipe()
        process = self.context.Process(target=_serve, args=(self.options, child_connection), daemon=True)
        process.start()
        child_connection.close()
        self._assign(parent_connection, process, task)

    def _assign(self, connection: Connection, process: BaseProcess, task: EngraveTask) -> None:
        self.running[connection] = (process, task, time.monotonic() + _TASK_TIMEOUT)
        with suppress(OSError):  # the process has died, which `_receive` reports
            connection.send(task)

    def _receive(self, connection: Connection, *, timed_out: bool) -> Outcome:
        process, task, _ = self.running.pop(connection)
        try:
            if timed_out:
                raise EOFError
            outcome: Outcome | UnwritableError = connection.recv()
        except (EOFError, OSError):
            _terminate(process)
            connection.close()
            self._start()
            crash = f"crashed (exit code {process.exitcode})"
            return _lost_worker(task, f"took longer than {_TASK_TIMEOUT:g} s" if timed_out else crash)
        if isinstance(outcome, UnwritableError):
            connection.close()  # this ends the worker
            raise outcome
        following = next(self.queue, None)
        if following is not None:
            self._assign(connection, process, following)
        else:
            with suppress(OSError):
                connection.send(None)
            connection.close()
            process.join()
        return outcome


def _terminate(process: BaseProcess) -> None:
    process.terminate()
    process.join(_TERMINATION_TIMEOUT)
    process.kill()  # while Verovio computes, SIGTERM is not handled
    process.join()


def _serve(options: EngraveOptions, connection: Connection) -> None:
    """Run a worker process: receive tasks and send outcomes until None is received."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # also ends LilyPond if it is running
    _limit_memory()
    worker = Worker(options)
    while True:
        try:
            task = connection.recv()
        except (EOFError, KeyboardInterrupt):
            return
        if task is None:
            return
        try:
            connection.send(worker.run(task))
        except UnwritableError as error:
            connection.send(error)
        except BrokenPipeError:  # the main process was killed
            return


def _limit_memory(max_bytes: int = _MEMORY_LIMIT) -> None:
    """Limit this process to one thread and to `max_bytes` of private data, which excludes Ray's shared memory."""
    import cv2

    cv2.setNumThreads(1)
    try:
        import resource
    except ImportError:  # not on Windows
        return
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


class ActorWorker:
    """Worker that runs as an actor on a Ray cluster.

    Args:
        options: options of the run.
        folder: working directory of the main process, so that relative paths are the same.
    """

    def __init__(self, options: EngraveOptions, folder: Path) -> None:
        _limit_memory()
        with suppress(OSError):  # the folder may be missing if all paths are absolute
            os.chdir(folder)
        self._worker = Worker(options)

    def versions(self) -> dict[str, str]:
        """Return the software versions; the call also shows that the worker has started."""
        return self._worker.versions

    def run(self, task: EngraveTask) -> Outcome | UnwritableError:
        """Return the outcome of a task, or the error, which Ray would wrap if it were raised."""
        try:
            return self._worker.run(task)
        except UnwritableError as error:
            return error


class RayPool:
    """Pool of actors on a Ray cluster.

    Args:
        options: options of the run; all machines of the cluster must see the same folders.
        tasks: the tasks, at least one.

    Raises:
        ValueError: Ray is not installed, or no cluster answers.
    """

    def __init__(self, options: EngraveOptions, tasks: list[EngraveTask]) -> None:
        self.ray = _connect(options.ray)
        self.actor_class: Any = self.ray.remote(num_cpus=1, max_restarts=0)(ActorWorker)
        self.actor_arguments = (replace(options, out=options.out.absolute()), Path.cwd())
        self.software_versions = software_versions(options.engine)
        self.queue = deque(tasks)
        self.size = min(max(int(self.ray.cluster_resources().get("CPU", 1)), 1), len(tasks))
        self.starting: dict[Any, Any] = {}  # future of the versions: actor that waits for a core
        self.running: dict[Any, tuple[Any, EngraveTask, float]] = {}  # future of the outcome: actor, task, deadline

    def run(self) -> Iterator[Outcome]:
        """Yield the outcomes of all tasks, in the order in which they end.

        Raises:
            UnwritableError: the output cannot be written.
            ValueError: the cluster has other software versions than this machine.
        """
        try:
            for _ in range(self.size):
                self._start()
            while self.running or self.queue:
                future, expired = self._next()
                if future not in self.starting:
                    yield self._receive(future, timed_out=expired)
                elif outcome := self._handle_started(future):
                    yield outcome
        finally:
            self.ray.shutdown()

    def _next(self) -> tuple[Any, bool]:
        """Wait until a future is done or a task exceeds its time; actors that wait for a core have no time limit."""
        while True:
            first = min((end for _, _, end in self.running.values()), default=None)
            remaining = None if first is None else max(first - time.monotonic(), 0.0)
            ready, _ = self.ray.wait([*self.running, *self.starting], num_returns=1, timeout=remaining)
            expired = [future for future, (_, _, end) in self.running.items() if end <= time.monotonic()]
            for future in ready or expired:
                return future, not ready

    def _start(self) -> None:
        actor = self.actor_class.remote(*self.actor_arguments)
        self.starting[actor.versions.remote()] = actor

    def _handle_started(self, future: Any) -> Outcome | None:
        """Assign a task to a new actor. If the actor could not start, the next task fails, so that the run ends."""
        actor = self.starting.pop(future)
        try:
            versions = self.ray.get(future)
        except self.ray.exceptions.RayError as error:
            reason = f"crashed ({type(error).__name__})"
            return self._replace_actor(actor, self.queue.popleft(), reason) if self.queue else None
        if versions != self.software_versions:
            raise ValueError(
                f"ray: the cluster has {versions}; expected the versions of this machine, {self.software_versions}"
            )
        self._assign(actor)
        return None

    def _assign(self, actor: Any) -> None:
        if self.queue:
            task = self.queue.popleft()
            self.running[actor.run.remote(task)] = (actor, task, time.monotonic() + _TASK_TIMEOUT)

    def _replace_actor(self, actor: Any, task: EngraveTask, reason: str) -> Outcome:
        self.ray.kill(actor)
        if self.queue:
            self._start()
        return _lost_worker(task, reason)

    def _receive(self, future: Any, *, timed_out: bool) -> Outcome:
        actor, task, _ = self.running.pop(future)
        reason = f"took longer than {_TASK_TIMEOUT:g} s"
        try:
            outcome = None if timed_out else self.ray.get(future)
        except self.ray.exceptions.RayError as error:
            outcome, reason = None, f"crashed ({type(error).__name__})"
        if isinstance(outcome, UnwritableError):
            raise outcome
        if outcome is None:
            return self._replace_actor(actor, task, reason)
        self._assign(actor)
        return outcome  # type: ignore[no-any-return]


def _connect(address: str) -> Any:
    """Connect to a Ray cluster, and return the module `ray`."""
    check_address(address)
    with _limited_retries(address):
        with extra_imports():
            import ray
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(f"Ray cannot be reached at {address!r}: {error_reason(error)}") from error
    return ray


@contextmanager
def _limited_retries(address: str) -> Iterator[None]:
    """Reduce the time for which Ray tries to join, 20 s by default, if another program answers at the address.

    Ray reads the variable when it is imported.
    """
    name, number = _RETRY_VARIABLE
    changed = address not in ("local", "auto") and name not in os.environ
    if changed:
        os.environ[name] = number
    try:
        yield
    finally:
        if changed:
            os.environ.pop(name, None)


def check_address(address: str) -> None:
    """Check that a Ray cluster answers; Ray itself takes minutes to report that no cluster does.

    Args:
        address: "local", "auto", HOST:PORT or ray://HOST:PORT; the first two are not checked.

    Raises:
        ValueError: the address is invalid, or no program answers there.
    """
    if address in ("local", "auto"):
        return
    match = re.fullmatch(r"(?:ray://)?\[?([^\s/]+?)\]?:(\d{1,5})", address)
    if match is None:
        raise ValueError(f"Ray's address is {address!r}; expected local, auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((match[1], int(match[2])), timeout=_CONNECT_TIMEOUT).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"no Ray cluster answers at {address!r}: {error}; expected a running one") from error
