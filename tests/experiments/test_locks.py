"""A lock is held by one process until its block or the process ends."""

from __future__ import annotations

from collections.abc import Callable
from multiprocessing import get_context
from pathlib import Path

import pytest
from experiments.locks import BusyError, exclusive, is_locked, locked, run_until_done

from entourage.runs.directory import lock_path, try_lock

# Children only touch files, so that a fork, which needs no imports, is as good as a fresh start.
FORK = get_context("fork")


def test_what_is_claimed_is_locked_until_the_block_ends(tmp_path: Path) -> None:
    target = tmp_path / "new" / "run"
    with try_lock(target) as mine:
        assert mine
        assert is_locked(target)
        with try_lock(target) as again:
            assert not again
        assert is_locked(target)  # a claim that was refused takes nothing away
        with pytest.raises(BusyError, match="run: locked by another process; expected"), exclusive(target):
            pytest.fail("it was not alone")
        with try_lock(target.with_name("other")) as other:
            assert other
    assert not is_locked(target)
    with exclusive(target):
        assert is_locked(target)
    assert list(target.parent.iterdir()) == []


def test_a_claim_is_given_back_when_its_block_fails(tmp_path: Path) -> None:
    with pytest.raises(KeyError), exclusive(tmp_path / "run"):
        raise KeyError
    assert not is_locked(tmp_path / "run")


def test_what_a_killed_process_has_left_is_no_claim(tmp_path: Path) -> None:
    lock_path(tmp_path / "run").touch()  # the file is left, its lock is not
    assert not is_locked(tmp_path / "run")
    with exclusive(tmp_path / "run"):
        assert is_locked(tmp_path / "run")


def test_only_one_at_a_time_has_a_claim_or_a_lock(tmp_path: Path) -> None:
    """Many short claims: one that locks a file which its owner has just removed would let two in at once."""

    def enter_often(guard: Callable[[], bool]) -> None:
        entered = 0
        while entered < 200:
            entered += guard()

    def by_claim() -> bool:
        with try_lock(tmp_path / "run") as mine:
            if mine:
                (tmp_path / "inside").mkdir()  # fails if somebody else is
                (tmp_path / "inside").rmdir()
            return mine

    def by_lock() -> bool:
        with locked(tmp_path / "x.lock"):
            (tmp_path / "locked").mkdir()
            (tmp_path / "locked").rmdir()
        return True

    for guard in (by_claim, by_lock):
        children = [FORK.Process(target=enter_often, args=(guard,)) for _ in range(3)]
        for child in children:
            child.start()
        for child in children:
            child.join(120)
        assert [child.exitcode for child in children] == [0, 0, 0]


def test_busy_jobs_are_done_when_the_others_are(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    waits: list[float] = []
    monkeypatch.setattr("time.sleep", waits.append)

    def needs_two_waits() -> None:
        if len(waits) < 2:
            raise BusyError
        done.append("a")

    def needs_a() -> None:
        if "a" not in done:
            raise BusyError
        done.append("b")

    run_until_done([needs_a, needs_two_waits, lambda: done.append("c")], pause=7.0)
    assert done == ["c", "a", "b"]
    assert waits == [7.0, 7.0]
    with pytest.raises(ZeroDivisionError):
        run_until_done([lambda: 1 / 0])
