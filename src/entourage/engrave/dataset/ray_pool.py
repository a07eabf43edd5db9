"""Workers on a Ray cluster: the same tasks, bounds and outcomes as on one machine."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from entourage.engrave.dataset.parts import UnwritableError, makers
from entourage.engrave.dataset.worker import Outcome, Worker
from entourage.engrave.job import EngraveJob, Task
from entourage.io.files import reason_of

_ANSWER = 5.0  # seconds within which a cluster must answer
_ATTEMPTS = ("RAY_NUM_REDIS_GET_RETRIES", "5")  # to join it, a second each


class Server:
    """What runs on the cluster: a worker that keeps its engravers from task to task.

    Args:
        job: what to engrave.
        folder: where the run was started, so that paths mean (and failures say) the same as there.
        bound_memory: sets the bounds of the process.
    """

    def __init__(self, job: EngraveJob, folder: Path, bound_memory: Callable[[], None]) -> None:
        bound_memory()
        with suppress(OSError):  # it is not needed where all paths are absolute
            os.chdir(folder)
        self._worker = Worker(job)

    def ready(self) -> dict[str, str]:
        """The versions at work here; that they come says that the worker has its core."""
        return self._worker.makers

    def do(self, task: Task) -> Outcome | UnwritableError:
        """The outcome of a task; an error is returned, for Ray would wrap what is raised."""
        try:
            return self._worker.do(task)
        except UnwritableError as error:
            return error


class RayPool:
    """Actors of a Ray cluster that are handed one task at a time, so that it is known which one a crash belongs to.

    Args:
        job: what to engrave; all machines of the cluster must see its folders.
        tasks: what there is to do.
        patience: seconds after which a task is given up.
        bound_memory: sets the bounds of each process.

    Raises:
        ValueError: Ray is not installed, or no cluster answers.
    """

    def __init__(self, job: EngraveJob, tasks: list[Task], patience: float, bound_memory: Callable[[], None]) -> None:
        self.ray = _connected(job.ray)
        self.make: Any = self.ray.remote(num_cpus=1, max_restarts=0)(Server)
        self.with_what = (replace(job, out=job.out.absolute()), Path.cwd(), bound_memory)
        self.makers = makers(job.engine)
        self.todo = deque(tasks)
        self.patience = patience
        self.size = min(max(int(self.ray.cluster_resources().get("CPU", 1)), 1), len(tasks))
        self.starting: dict[Any, Any] = {}  # actors that wait for a core, by what will say that they have it
        self.busy: dict[Any, tuple[Any, Task, float]] = {}  # by what will be its outcome: actor, task, deadline

    def run(self) -> Iterator[Outcome]:
        """The outcomes of all tasks, as they come.

        Raises:
            UnwritableError: the output cannot be written.
            ValueError: the cluster has other versions than this machine.
        """
        try:
            for _ in range(self.size):
                self._start()
            while self.busy or self.todo:
                pending, late = self._next()
                outcome = self._welcome(pending) if pending in self.starting else self._receive(pending, stuck=late)
                if outcome is not None:
                    yield outcome
        finally:
            self.ray.shutdown()

    def _next(self) -> tuple[Any, bool]:
        """What comes first: an answer, or the end of somebody's time. To wait for a core costs a task no time."""
        while True:
            first = min((end for _, _, end in self.busy.values()), default=None)
            left = None if first is None else max(first - time.monotonic(), 0.0)
            ready, _ = self.ray.wait([*self.busy, *self.starting], num_returns=1, timeout=left)
            late = [pending for pending, (_, _, end) in self.busy.items() if end <= time.monotonic()]
            for pending in ready or late:
                return pending, not ready

    def _start(self) -> None:
        actor = self.make.remote(*self.with_what)
        self.starting[actor.ready.remote()] = actor

    def _welcome(self, pending: Any) -> Outcome | None:
        """Hands a new actor its first task; one that cannot be started costs a task, or there would be no end of it."""
        actor = self.starting.pop(pending)
        try:
            found = self.ray.get(pending)
        except self.ray.exceptions.RayError as error:
            return self._give_up(actor, self.todo.popleft(), f"crashed ({type(error).__name__})") if self.todo else None
        if found != self.makers:
            raise ValueError(f"the cluster engraves with {found}; expected the versions of this machine, {self.makers}")
        self._hand(actor)
        return None

    def _hand(self, actor: Any) -> None:
        if self.todo:
            task = self.todo.popleft()
            self.busy[actor.do.remote(task)] = (actor, task, time.monotonic() + self.patience)

    def _give_up(self, actor: Any, task: Task, why: str) -> Outcome:
        self.ray.kill(actor)
        if self.todo:
            self._start()
        return Outcome(task.name, failure=f"{task.name}: the engraver {why}", lost=True)

    def _receive(self, pending: Any, *, stuck: bool) -> Outcome:
        actor, task, _ = self.busy.pop(pending)
        why = f"took longer than {self.patience:g} s"
        try:
            outcome = None if stuck else self.ray.get(pending)
        except self.ray.exceptions.RayError as error:
            outcome, why = None, f"crashed ({type(error).__name__})"
        if isinstance(outcome, UnwritableError):
            raise outcome
        if outcome is None:
            return self._give_up(actor, task, why)
        self._hand(actor)
        return outcome  # type: ignore[no-any-return]


def _connected(address: str) -> Any:
    """The `ray` module, once it is connected to the cluster."""
    check_address(address)
    with _few_attempts(address):
        try:
            import ray
        except ImportError as error:
            raise ValueError("Ray is not installed; expected: pip install ray") from error
        try:
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except (OSError, RuntimeError, ValueError) as error:
            raise ValueError(f"Ray cannot be reached at {address!r}: {reason_of(error)}") from error
    return ray


@contextmanager
def _few_attempts(address: str) -> Iterator[None]:
    """Ray would try for 20 s to make sense of somebody else who answers; it learns how often when it is imported."""
    name, number = _ATTEMPTS
    ours = address not in ("local", "auto") and name not in os.environ
    if ours:
        os.environ[name] = number
    try:
        yield
    finally:
        if ours:
            os.environ.pop(name, None)


def check_address(address: str) -> None:
    """Says at once that nobody answers at an address, which Ray itself finds out after minutes.

    Raises:
        ValueError: it is no address, or nobody answers there.
    """
    if address in ("local", "auto"):
        return
    place = re.fullmatch(r"(?:ray://)?\[?([^\s/]+?)\]?:(\d{1,5})", address)
    if place is None:
        raise ValueError(f"Ray's address is {address!r}; expected local, auto, HOST:PORT or ray://HOST:PORT")
    try:
        socket.create_connection((place[1], int(place[2])), timeout=_ANSWER).close()
    except (OSError, OverflowError) as error:
        raise ValueError(f"no Ray cluster answers at {address!r}: {error}; expected a running one") from error
