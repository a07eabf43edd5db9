"""A claim is one process's until it is done or dead."""

from __future__ import annotations

import os
import signal
from multiprocessing import get_context
from pathlib import Path

import pytest

from entourage.runs import directory as claims
from entourage.runs.directory import lock_path, try_lock

FORK = get_context("fork")  # children only touch files


def test_what_is_claimed_is_nobody_elses_until_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "new" / "run"
    with try_lock(target) as mine:
        assert mine
        assert lock_path(target).exists()
        for _ in range(2):  # a claim that was refused takes nothing away
            with try_lock(target) as again:
                assert not again
    with try_lock(target) as mine:
        assert mine
    assert list(target.parent.iterdir()) == []


def test_a_killed_process_gives_its_claim_back(tmp_path: Path) -> None:
    target, ready = tmp_path / "run", FORK.Event()

    def hold() -> None:
        with try_lock(target):
            ready.set()
            signal.pause()

    child = FORK.Process(target=hold)
    child.start()
    assert ready.wait(60)
    with try_lock(target) as mine:
        assert not mine
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(60)
    with try_lock(target) as mine:
        assert mine


def test_where_there_are_no_such_locks_everything_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "fcntl", None)
    with try_lock(tmp_path / "run") as mine, try_lock(tmp_path / "run") as again:
        assert mine
        assert again
