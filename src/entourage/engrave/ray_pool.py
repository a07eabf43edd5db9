"""Workers on a Ray cluster: the same tasks, bounds and outcomes as on one machine."""

from __future__ import annotations

import logging
import os
import re
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from entourage.engrave.job import EngraveJob, Task
from entourage.engrave.work import Outcome, UnwritableError, Worker

_ANSWER = 5.0  # seconds within which a cluster must answer
_ATTEMPTS = 5  # to join it, a second each


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
        self.todo = iter(tasks)
        self.patience = patience
        self.size = min(max(int(self.ray.cluster_resources().get("CPU", 1)), 1), len(tasks))
        self.busy: dict[Any, tuple[Any, Task, float]] = {}  # by what will be its outcome: actor, task, deadline

    def run(self) -> Iterator[Outcome]:
        """The outcomes of all tasks, as they come.

        Raises:
            UnwritableError: the output cannot be written.
        """
        try:
            for _ in range(self.size):
                self._start()
            while self.busy:
                first = min(deadline for _, _, deadline in self.busy.values())
                ready, _ = self.ray.wait(list(self.busy), num_returns=1, timeout=max(first - time.monotonic(), 0.0))
                late = [pending for pending, (_, _, end) in self.busy.items() if end <= time.monotonic()]
                for pending in ready or late:
                    yield self._receive(pending, stuck=not ready)
        finally:
            self.ray.shutdown()

    def _start(self) -> None:
        task = next(self.todo, None)
        if task is not None:
            self._hand(self.make.remote(*self.with_what), task)

    def _hand(self, actor: Any, task: Task) -> None:
        self.busy[actor.do.remote(task)] = (actor, task, time.monotonic() + self.patience)

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
            self.ray.kill(actor)
            self._start()
            return Outcome(task.name, failure=f"{task.name}: the engraver {why}")
        following = next(self.todo, None)
        if following is not None:
            self._hand(actor, following)
        return outcome  # type: ignore[no-any-return]


def _connected(address: str) -> Any:
    """The `ray` module, once it is connected to the cluster."""
    check_address(address)
    if address not in ("local", "auto"):
        # Ray reads it when it is imported, and would try for 20 s to make sense of somebody else who answers.
        os.environ.setdefault("RAY_NUM_REDIS_GET_RETRIES", str(_ATTEMPTS))
    try:
        import ray
    except ImportError as error:
        raise ValueError("Ray is not installed; expected: pip install 'entourage[ray]'") from error
    try:
        ray.init(address=None if address == "local" else address, log_to_driver=False, logging_level=logging.ERROR)
    except (OSError, RuntimeError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ValueError(f"Ray cannot be reached at {address!r}: {reason}") from error
    return ray


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
