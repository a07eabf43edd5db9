"""Locks are exclusive until their block or process ends."""

from __future__ import annotations

import os
import shutil
import signal
from multiprocessing import get_context
from pathlib import Path

import pytest

from entourage.runs import directory
from entourage.runs.directory import lock_directory, lock_path, try_lock

FORK = get_context("fork")  # children only touch files


def test_a_lock_is_exclusive_until_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "new" / "run"
    with try_lock(target) as locked:
        assert locked
        assert lock_path(target).exists()
        for _ in range(2):  # a failed attempt deletes nothing
            with try_lock(target) as again:
                assert not again
    with try_lock(target) as locked:
        assert locked
    assert list(target.parent.iterdir()) == []


def test_a_killed_process_releases_its_lock(tmp_path: Path) -> None:
    target, ready = tmp_path / "run", FORK.Event()

    def hold() -> None:
        with try_lock(target):
            ready.set()
            signal.pause()

    child = FORK.Process(target=hold, daemon=True)
    child.start()
    assert ready.wait(60)
    with try_lock(target) as locked:
        assert not locked
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join(60)
    with try_lock(target) as locked:
        assert locked


def test_only_one_of_many_processes_acquires_a_lock(tmp_path: Path) -> None:
    target, start, release, results = tmp_path / "run", FORK.Event(), FORK.Event(), FORK.SimpleQueue()

    def compete() -> None:
        start.wait(60)
        with try_lock(target) as locked:
            results.put(locked)
            release.wait(60)

    children = [FORK.Process(target=compete, daemon=True) for _ in range(6)]
    for child in children:
        child.start()
    start.set()
    acquired = [results.get() for _ in children]
    release.set()
    for child in children:
        child.join(60)
    assert sorted(acquired) == [False] * 5 + [True]


def test_without_flock_every_lock_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory, "fcntl", None)
    with try_lock(tmp_path / "run") as locked, try_lock(tmp_path / "run") as again:
        assert locked
        assert again


def test_a_lock_whose_folder_was_deleted_does_not_release_the_lock_of_another_process(tmp_path: Path) -> None:
    target = tmp_path / "state" / "run"
    with try_lock(target):
        shutil.rmtree(target.parent)
        second = try_lock(target)
        assert second.__enter__()
    assert lock_path(target).exists()
    with try_lock(target) as third:
        assert not third
    second.__exit__(None, None, None)
    with try_lock(target) as third:
        assert third


def test_a_directory_that_is_locked_raises_with_its_path(tmp_path: Path) -> None:
    with lock_directory(tmp_path, tmp_path / ".state"):
        assert lock_path(tmp_path / ".state" / "run").is_file()
        with lock_directory(tmp_path), lock_directory(tmp_path / "round-1"):  # other locks
            pass
        message = f"{tmp_path}: another process is writing to it; wait for it, or choose another folder"
        with pytest.raises(ValueError, match=f"^{message}$"), lock_directory(tmp_path, tmp_path / ".state"):
            pytest.fail("the lock is held")
