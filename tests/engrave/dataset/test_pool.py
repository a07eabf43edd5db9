import multiprocessing as mp
import os
import signal
import sys
import time
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from entourage.engrave.dataset import pool
from entourage.engrave.dataset.pool import run_tasks
from entourage.engrave.dataset.state import UnwritableError
from entourage.engrave.dataset.worker import Outcome, Worker
from entourage.engrave.options import EngraveOptions, EngraveTask, MusicFont, PageOptions
from entourage.engrave.scores.archives import ScoreFile

OPTIONS = EngraveOptions(Path("out"), (Path("songs"),), workers=2)
TASKS = [EngraveTask(f"task{i}", MusicFont("Leipzig")) for i in range(6)]


def crash_or_hang(options: EngraveOptions, connection: Connection) -> None:
    while True:
        task = connection.recv()
        if task is None:
            return
        if task.name == "task2":
            os._exit(7)
        if task.name == "task4":
            time.sleep(60)
        connection.send(Outcome(task.name, 1))


def test_crashes_and_timeouts_fail_one_score_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_serve", crash_or_hang)
    monkeypatch.setattr(pool, "_TASK_TIMEOUT", 1.0)
    monkeypatch.setattr(mp, "get_context", lambda kind, real=mp.get_context: real("fork"))
    outcomes = {outcome.name: outcome for outcome in run_tasks(OPTIONS, TASKS)}
    assert set(outcomes) == {task.name for task in TASKS}
    assert outcomes["task2"].failure == "task2: the engraver crashed (exit code 7)"
    assert outcomes["task4"].failure == "task4: the engraver took longer than 1 s"
    assert sum(outcome.pages for outcome in outcomes.values()) == 4


def test_scores_of_an_archive_are_assigned_in_its_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_serve", crash_or_hang)
    monkeypatch.setattr(mp, "get_context", lambda kind, real=mp.get_context: real("fork"))
    font, archive = MusicFont("Leipzig"), Path("songs.tar.gz")
    tasks = [
        EngraveTask(name, font, ScoreFile(name, archive, name, 0, place))
        for place, name in ((2, "a"), (0, "b"), (1, "c"))
    ]
    tasks += [EngraveTask("e", font, ScoreFile("e", Path("e.xml"))), EngraveTask("d", font)]
    outcomes = run_tasks(replace(OPTIONS, workers=1), tasks)
    assert [outcome.name for outcome in outcomes] == ["e", "d", "b", "c", "a"]


def test_a_crash_keeps_the_earlier_result_of_an_unchanged_score(
    tmp_path: Path, score_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = EngraveOptions(tmp_path / "out", (score_path,), page=PageOptions(700, 500, 10), formats=(), workers=1)
    task = EngraveTask("task2", MusicFont("Leipzig"), ScoreFile("s", score_path))
    Worker(options).run(task)
    monkeypatch.setattr(pool, "_serve", crash_or_hang)
    monkeypatch.setattr(mp, "get_context", lambda kind, real=mp.get_context: real("fork"))
    assert list(run_tasks(options, [task])) == [Outcome("task2", 1)]
    score_path.write_text(score_path.read_text().replace("<octave>5", "<octave>4"))
    (outcome,) = run_tasks(options, [task])
    assert (outcome.pages, outcome.worker_lost) == (0, True)


def ignore_sigterm(options: EngraveOptions, connection: Connection) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    connection.recv()
    time.sleep(60)


def test_a_worker_that_ignores_sigterm_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_serve", ignore_sigterm)
    monkeypatch.setattr(pool, "_TASK_TIMEOUT", 0.5)
    monkeypatch.setattr(pool, "_TERMINATION_TIMEOUT", 0.1)
    monkeypatch.setattr(mp, "get_context", lambda kind, real=mp.get_context: real("fork"))
    (outcome,) = run_tasks(replace(OPTIONS, workers=1), TASKS[:1])
    assert outcome.failure == "task0: the engraver took longer than 0.5 s"
    assert mp.active_children() == []


def test_sigterm_ends_a_worker_with_clean_up(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = {}
    monkeypatch.setattr(pool, "_limit_memory", lambda: None)
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    ours, theirs = mp.Pipe()
    ours.send(None)
    pool._serve(OPTIONS, theirs)
    with pytest.raises(SystemExit, match="143"):  # an exception, so that all `finally` blocks run
        handlers[signal.SIGTERM](signal.SIGTERM, None)


def raise_unwritable(options: EngraveOptions, task: EngraveTask) -> Outcome:
    raise UnwritableError("images/a.png: cannot be written: No space left on device")


@pytest.mark.parametrize("workers", [1, 2])
def test_a_full_disk_ends_the_run(monkeypatch: pytest.MonkeyPatch, workers: int) -> None:
    monkeypatch.setattr(Worker, "run", raise_unwritable)
    monkeypatch.setattr(pool, "_limit_memory", lambda: None)
    monkeypatch.setattr(mp, "get_context", lambda kind, real=mp.get_context: real("fork"))
    with pytest.raises(UnwritableError, match="No space left on device"):
        list(run_tasks(replace(OPTIONS, workers=workers), TASKS))


def test_a_single_worker_is_replaced_after_a_crash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pool, "_serve", crash_or_hang)
    monkeypatch.setattr(mp, "get_context", lambda kind, real=mp.get_context: real("fork"))
    outcomes = list(run_tasks(replace(OPTIONS, workers=1), TASKS[1:4]))
    assert [outcome.pages for outcome in outcomes] == [1, 0, 1]


def test_no_tasks_give_no_outcomes() -> None:
    assert list(run_tasks(OPTIONS, [])) == []


def allocate_2_gb(connection: Connection) -> None:
    import numpy as np

    pool._limit_memory(2**30)
    np.ones(2**20)  # 8 MB
    try:
        np.ones(2**28)  # 2 GB
    except MemoryError:
        connection.send("refused")
    else:
        connection.send("allowed")


@pytest.mark.skipif(sys.platform != "linux", reason="other systems do not enforce the limit")
def test_the_memory_of_a_worker_is_limited() -> None:
    context = mp.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=allocate_2_gb, args=(theirs,))
    process.start()
    assert ours.poll(60)
    assert ours.recv() == "refused"
    process.join()


def test_memory_is_limited_before_the_first_task(monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(signal, "signal", lambda *_: None)  # this process keeps its handler
    monkeypatch.setattr(pool, "_limit_memory", lambda: order.append("bound"))
    monkeypatch.setattr(Worker, "run", lambda self, task: order.append(task.name) or Outcome(task.name))
    ours, theirs = mp.Pipe()
    ours.send(TASKS[0])
    ours.send(None)
    pool._serve(OPTIONS, theirs)
    assert order == ["bound", "task0"]
    assert ours.recv() == Outcome("task0")
