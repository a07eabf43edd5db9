import os
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.engrave.conftest import run_in_process

from entourage.engrave.dataset import pipeline, pool
from entourage.engrave.dataset import pool as pool_module
from entourage.engrave.dataset.pool import run_tasks
from entourage.engrave.dataset.state import UnwritableError
from entourage.engrave.dataset.worker import Outcome, Worker
from entourage.engrave.options import EngraveOptions, EngraveTask, MusicFont, PageOptions
from entourage.extras import MissingExtraError

OPTIONS = EngraveOptions(Path("out"), (Path("songs"),), ray="local")
TASKS = [EngraveTask(f"task{i}", MusicFont("Leipzig")) for i in range(6)]


class ActorDiedError(Exception):
    """Error of Ray for an actor whose process has ended."""


@dataclass(eq=False)
class Pending:
    """Future of an outcome or, without a task, of the versions of a worker that has started."""

    server: Any
    number: int
    task: EngraveTask | None = None


class Cluster:
    """Stand-in for the part of `ray` that is used, in this process: a cluster of two cores with another folder."""

    exceptions = SimpleNamespace(RayError=ActorDiedError)

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.made: list[Any] = []
        self.killed: list[Any] = []
        self.address: str | None = "not connected"
        self.attempts: str | None = None
        self.down = False
        self.waiting: set[int] = set()  # numbers of workers that start only when nothing else is ready
        self.broken: set[int] = set()  # numbers of workers that cannot start
        self.idle = 0  # number of times that nothing else was ready

    def init(self, address: str | None, **options: object) -> None:
        self.address = address
        self.attempts = os.environ.get("RAY_NUM_REDIS_GET_RETRIES")

    def cluster_resources(self) -> dict[str, float]:
        return {"CPU": 2.0, "memory": 1e9}

    def remote(self, **options: object) -> Callable[[Any], Any]:
        assert options == {"num_cpus": 1, "max_restarts": 0}

        def wrap(kind: Any) -> Any:
            def make(*arguments: object) -> Any:
                os.chdir(self.folder)  # Ray starts workers elsewhere
                inside = kind(*arguments)
                remote = SimpleNamespace(remote=partial(Pending, inside, len(self.made)))
                actor = SimpleNamespace(run=remote, versions=remote)
                self.made.append(actor)
                return actor

            return SimpleNamespace(remote=make)

        return wrap

    def wait(self, pending: list[Any], num_returns: int, timeout: float | None) -> tuple[list[Any], list[Any]]:
        ready = [one for one in pending if self._comes(one)][:num_returns]
        if not ready and timeout is None:
            self.idle += 1
            ready = pending[:num_returns]
        elif not ready:
            time.sleep(timeout or 0.0)
        return ready, [one for one in pending if one not in ready]

    def _comes(self, one: Pending) -> bool:
        return one.number not in self.waiting if one.task is None else one.task.name != "task4"  # task4 never ends

    def get(self, one: Any) -> object:
        if one.task is None:
            if one.number in self.broken:
                raise ActorDiedError("The actor died in its constructor")
            return one.server.versions()
        if one.task.name == "task2":
            raise ActorDiedError("The actor died unexpectedly")
        return one.server.run(one.task)

    def kill(self, actor: Any) -> None:
        self.killed.append(actor)

    def shutdown(self) -> None:
        self.down = True


@pytest.fixture
def memory_limits(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record calls that limit the memory of a worker, instead of limiting that of the tests."""
    calls: list[str] = []
    monkeypatch.setattr(pool, "_limit_memory", lambda: calls.append("bound"))
    return calls


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    made = Cluster(elsewhere)
    monkeypatch.setitem(sys.modules, "ray", made)  # type: ignore[arg-type]
    return made


def test_crashes_and_timeouts_fail_one_score_each(
    cluster: Cluster, memory_limits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "run", lambda self, task: Outcome(task.name, 1))
    monkeypatch.setattr(pool, "_TASK_TIMEOUT", 0.05)
    outcomes = {outcome.name: outcome for outcome in run_tasks(OPTIONS, TASKS)}
    assert set(outcomes) == {task.name for task in TASKS}
    assert outcomes["task2"].failure == "task2: the engraver crashed (ActorDiedError)"
    assert outcomes["task4"].failure == "task4: the engraver took longer than 0.05 s"
    assert sum(outcome.pages for outcome in outcomes.values()) == 4
    assert len(cluster.killed) == 2
    assert len(cluster.made) == len(memory_limits) == 3  # one per core and one in place of that which crashed
    assert cluster.address == "local"  # None would mean $RAY_ADDRESS
    assert cluster.down


def test_waiting_for_a_core_has_no_time_limit(
    cluster: Cluster, memory_limits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "run", lambda self, task: Outcome(task.name, 1))
    monkeypatch.setattr(pool, "_TASK_TIMEOUT", 0.0)
    cluster.waiting = {0, 1}
    assert [outcome.failure for outcome in run_tasks(OPTIONS, TASKS[:2])] == ["", ""]
    assert cluster.idle > 0


def test_a_worker_without_a_core_delays_no_task(
    cluster: Cluster, memory_limits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "run", lambda self, task: Outcome(task.name, 1))
    monkeypatch.setattr(pool, "_TASK_TIMEOUT", 0.05)
    cluster.waiting = {1}
    tasks = [TASKS[0], TASKS[1], TASKS[3]]
    assert [outcome.name for outcome in run_tasks(OPTIONS, tasks)] == [task.name for task in tasks]
    assert cluster.killed == []
    assert cluster.idle == 0


def test_a_worker_that_cannot_start_fails_one_score(
    cluster: Cluster, memory_limits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "run", lambda self, task: Outcome(task.name, 1))
    cluster.broken = {0}
    outcomes = {outcome.name: outcome for outcome in run_tasks(OPTIONS, [TASKS[0], TASKS[1], TASKS[3]])}
    assert outcomes.pop("task0") == Outcome(
        "task0", 0, "task0: the engraver crashed (ActorDiedError)", worker_lost=True
    )
    assert [outcome.pages for outcome in outcomes.values()] == [1, 1]
    cluster.broken = set(range(9))
    assert sum(outcome.worker_lost for outcome in run_tasks(OPTIONS, TASKS)) == len(TASKS)


def test_a_cluster_with_other_versions_raises_an_error(
    cluster: Cluster, memory_limits: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool_module, "software_versions", lambda engine: {"entourage": "another"})
    with pytest.raises(ValueError, match=r"ray: .*; expected the versions of this machine, .*ano"):
        list(run_tasks(OPTIONS, TASKS))
    assert cluster.down


def test_attempts_to_join_are_limited_and_the_environment_is_restored(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_NUM_REDIS_GET_RETRIES", raising=False)
    monkeypatch.setattr(pool_module, "check_address", lambda address: None)
    there = EngraveOptions(Path("out"), compose=1, ray="head:6379")
    pool_module.RayPool(there, TASKS)
    assert (cluster.address, cluster.attempts) == ("head:6379", "5")
    assert "RAY_NUM_REDIS_GET_RETRIES" not in os.environ
    monkeypatch.setenv("RAY_NUM_REDIS_GET_RETRIES", "9")
    pool_module.RayPool(there, TASKS)
    assert (cluster.attempts, os.environ["RAY_NUM_REDIS_GET_RETRIES"]) == ("9", "9")


def test_a_full_disk_ends_the_run(cluster: Cluster, memory_limits: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def raise_unwritable(self: Worker, task: EngraveTask) -> Outcome:
        raise UnwritableError("images/a.png: cannot be written: No space left on device")

    monkeypatch.setattr(Worker, "run", raise_unwritable)
    with pytest.raises(UnwritableError, match="No space left on device"):
        list(run_tasks(OPTIONS, TASKS))
    assert cluster.down


def test_the_data_set_equals_that_of_a_local_run(
    cluster: Cluster, memory_limits: list[str], tmp_path: Path, musicxml: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    songs = Path("songs")
    songs.mkdir()
    (songs / "good.xml").write_text(musicxml)
    (songs / "bad.xml").write_text("<score-partwise>")
    found = {}
    for name, run in (("here", run_in_process), ("there", run_tasks)):
        monkeypatch.setattr(pipeline, "run_tasks", run)
        size, fonts = PageOptions(700, 500, 10), (MusicFont("Leipzig"),)
        pipeline.engrave(EngraveOptions(Path(name), (songs,), page=size, fonts=fonts, formats=("coco",), ray="local"))
        out = tmp_path / name
        found[name] = {p.relative_to(out): p.read_bytes() for p in out.rglob("*") if p.is_file()}
    assert found["here"] == found["there"]
    assert b'bad-leipzig,songs/bad.xml,"songs/bad.xml: is not well-formed' in found["there"][Path("failures.csv")]


def test_an_address_without_a_server_raises_an_error_at_once(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        pool_module.check_address(f"ray://127.0.0.1:{port}")  # a server answers
    with pytest.raises(ValueError, match=f"no Ray cluster answers at '127.0.0.1:{port}'"):
        pool_module.RayPool(EngraveOptions(Path("out"), compose=1, ray=f"127.0.0.1:{port}"), TASKS)
    with pytest.raises(ValueError, match=r"Ray's address is 'cluster'; expected local, auto, HOST:PORT"):
        pool_module.RayPool(EngraveOptions(Path("out"), compose=1, ray="cluster"), TASKS)
    with pytest.raises(ValueError, match=r"'127\.0\.0\.1:\d+': .*; expected a running one"):
        pipeline.engrave(EngraveOptions(Path("out"), compose=1, ray=f"127.0.0.1:{port}"))
    assert not Path("out").exists()
    assert cluster.address == "not connected"


def test_errors_of_ray_are_one_line(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: str | None, **options: object) -> None:
        raise ConnectionError("Could not find any running Ray instance.\nPlease start one.")

    monkeypatch.setattr(cluster, "init", fail)
    with pytest.raises(ValueError, match=r"reached at 'auto': Could not find any running Ray instance\. Please"):
        pool_module.RayPool(EngraveOptions(Path("out"), compose=1, ray="auto"), TASKS)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"ray .*; expected: pip install 'entourage\[ray\]'"):
        list(run_tasks(OPTIONS, TASKS))
    assert list(run_tasks(OPTIONS, [])) == []
