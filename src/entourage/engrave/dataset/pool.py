"""Workers on a Ray cluster: the same tasks, bounds and outcomes as on one machine.

Many workers: processes on this machine, or a Ray cluster. What comes out does not depend on how many there are.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from entourage.engrave.dataset.state import UnwritableError, software_versions
from entourage.engrave.dataset.worker import Outcome, Worker
from entourage.engrave.options import EngraveOptions, EngraveTask
from entourage.io.files import error_reason

_CONNECT_TIMEOUT = 5.0  # seconds within which a cluster must answer
_RETRY_VARIABLE = ("RAY_NUM_REDIS_GET_RETRIES", "5")  # to join it, a second each


class ActorWorker:
    """What runs on the cluster: a worker that keeps its engravers from task to task.

    Args:
        options: what to engrave.
        folder: where the run was started, so that paths mean (and failures say) the same as there.
        limit_memory: sets the bounds of the process.
    """

    def __init__(self, options: EngraveOptions, folder: Path, limit_memory: Callable[[], None]) -> None:
        limit_memory()
        with suppress(OSError):  # it is not needed where all paths are absolute
            os.chdir(folder)
        self._worker = Worker(options)

    def versions(self) -> dict[str, str]:
        """The versions at work here; that they come says that the worker has its core."""
        return self._worker.versions

    def run(self, task: EngraveTask) -> Outcome | UnwritableError:
        """The outcome of a task; an error is returned, for Ray would wrap what is raised."""
        try:
            return self._worker.run(task)
        except UnwritableError as error:
            return error


class RayPool:
    """Actors of a Ray cluster that are handed one task at a time, so that it is known which one a crash belongs to.

    Args:
        options: what to engrave; all machines of the cluster must see its folders.
        tasks: what there is to do.
        timeout: seconds after which a task is given up.
        limit_memory: sets the bounds of each process.

    Raises:
        ValueError: Ray is not installed, or no cluster answers.
    """

    def __init__(
        self, options: EngraveOptions, tasks: list[EngraveTask], timeout: float, limit_memory: Callable[[], None]
    ) -> None:
        self.ray = _connect(options.ray)
        self.actor_class: Any = self.ray.remote(num_cpus=1, max_restarts=0)(ActorWorker)
        self.actor_arguments = (replace(options, out=options.out.absolute()), Path.cwd(), limit_memory)
        self.software_versions = software_versions(options.engine)
        self.queue = deque(tasks)
        self.timeout = timeout
        self.size = min(max(int(self.ray.cluster_resources().get("CPU", 1)), 1), len(tasks))
        self.starting: dict[Any, Any] = {}  # actors that wait for a core, by what will say that they have it
        self.running: dict[
            Any, tuple[Any, EngraveTask, float]
        ] = {}  # by what will be its outcome: actor, task, deadline

    def run(self) -> Iterator[Outcome]:
        """The outcomes of all tasks, as they come.

        Raises:
            UnwritableError: the output cannot be written.
            ValueError: the cluster has other versions than this machine.
        """
        try:
            for _ in range(self.size):
                self._start()
            while self.running or self.queue:
                future, expired = self._next()
                outcome = (
                    self._handle_started(future)
                    if future in self.starting
                    else self._receive(future, timed_out=expired)
                )
                if outcome is not None:
                    yield outcome
        finally:
            self.ray.shutdown()

    def _next(self) -> tuple[Any, bool]:
        """What comes first: an answer, or the end of somebody's time. To wait for a core costs a task no time."""
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
        """Hands a new actor its first task; one that cannot be started costs a task, or there would be no end of it."""
        actor = self.starting.pop(future)
        try:
            versions = self.ray.get(future)
        except self.ray.exceptions.RayError as error:
            return (
                self._replace_actor(actor, self.queue.popleft(), f"crashed ({type(error).__name__})")
                if self.queue
                else None
            )
        if versions != self.software_versions:
            raise ValueError(
                f"the cluster engraves with {versions}; expected the versions of this machine, {self.software_versions}"
            )
        self._assign(actor)
        return None

    def _assign(self, actor: Any) -> None:
        if self.queue:
            task = self.queue.popleft()
            self.running[actor.run.remote(task)] = (actor, task, time.monotonic() + self.timeout)

    def _replace_actor(self, actor: Any, task: EngraveTask, reason: str) -> Outcome:
        self.ray.kill(actor)
        if self.queue:
            self._start()
        return Outcome(task.name, failure=f"{task.name}: the engraver {reason}", worker_lost=True)

    def _receive(self, future: Any, *, timed_out: bool) -> Outcome:
        actor, task, _ = self.running.pop(future)
        reason = f"took longer than {self.timeout:g} s"
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
    """The `ray` module, once it is connected to the cluster."""
    check_address(address)
    with _limited_retries(address):
        try:
            import ray
        except ImportError as error:
            raise ValueError("Ray is not installed; expected: pip install ray") from error
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(f"Ray cannot be reached at {address!r}: {error_reason(error)}") from error
    return ray


@contextmanager
def _limited_retries(address: str) -> Iterator[None]:
    """Ray would try for 20 s to make sense of somebody else who answers; it learns how often when it is imported."""
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
    """Says at once that nobody answers at an address, which Ray itself finds out after minutes.

    Raises:
        ValueError: it is no address, or nobody answers there.
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


_TASK_TIMEOUT = 600.0  # seconds after which a task is given up
_TERMINATION_TIMEOUT = 5.0  # seconds in which a worker may end what it has started
_MEMORY_LIMIT = 8 * 2**30  # bytes that a worker may use


def run_tasks(options: EngraveOptions, tasks: list[EngraveTask]) -> Iterator[Outcome]:
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
    tasks = sorted(tasks, key=_archive_order)
    workers = min(options.workers or os.cpu_count() or 1, len(tasks))
    pool = RayPool(options, tasks, _TASK_TIMEOUT, _limit_memory) if options.ray else _Pool(options, tasks, workers)
    by_name = {task.name: task for task in tasks}
    for outcome in pool.run():
        finished = Worker(options).finished_outcome(by_name[outcome.name]) if outcome.worker_lost else None
        yield finished or outcome


def _archive_order(task: EngraveTask) -> tuple[str, int]:
    """Scores of an archive come as they lie in it: a worker that goes back in a compressed one unpacks it anew."""
    file = task.file
    return ("", 0) if file is None or not file.member else (str(file.path), file.member_index)


class _Pool:
    """Processes that are handed one task at a time, so that it is known which one a crash belongs to."""

    def __init__(self, options: EngraveOptions, tasks: list[EngraveTask], workers: int) -> None:
        self.options = options
        self.queue = iter(tasks)
        self.context = mp.get_context("spawn")  # a fork would inherit threads of numpy and OpenCV
        self.running: dict[Connection, tuple[BaseProcess, EngraveTask, float]] = {}  # the last is when its time is over
        self.workers = workers

    def run(self) -> Iterator[Outcome]:
        try:
            for _ in range(self.workers):
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
        with suppress(OSError):  # it died at once; reading will say so
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
            reason = f"took longer than {_TASK_TIMEOUT:g} s" if timed_out else f"crashed (exit code {process.exitcode})"
            return Outcome(task.name, failure=f"{task.name}: the engraver {reason}", worker_lost=True)
        if isinstance(outcome, UnwritableError):
            connection.close()  # which ends the worker
            raise outcome
        following = next(self.queue, None)
        if following is not None:
            self._assign(connection, process, following)
        else:
            with suppress(OSError):
                connection.send(None)  # no more
            connection.close()
            process.join()
        return outcome


def _terminate(process: BaseProcess) -> None:
    process.terminate()
    process.join(_TERMINATION_TIMEOUT)
    process.kill()  # deep in Verovio it hears nothing else
    process.join()


def _serve(options: EngraveOptions, connection: Connection) -> None:
    """What a worker process does: tasks in, outcomes out, until there are no more."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # with LilyPond, if that is at work
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
        except BrokenPipeError:  # the run was killed
            return


def _limit_memory(max_bytes: int = _MEMORY_LIMIT) -> None:
    import cv2

    cv2.setNumThreads(1)  # the processes are the parallelism
    try:
        import resource
    except ImportError:  # not on Windows
        return
    # Of the process' own data: the address space would count what Ray shares between processes, too.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = max_bytes if hard == resource.RLIM_INFINITY else min(max_bytes, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
