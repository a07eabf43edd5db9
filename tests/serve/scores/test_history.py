from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from entourage.serve.scores.history import History
from entourage.serve.store import ConflictError

BASE = {"a": 1, "b": {"c": [2]}}


def test_edits_are_undone_and_redone_without_end(tmp_path: Path) -> None:
    history = History(tmp_path / "log", BASE)
    for number in range(20):
        history.edit("count", {"a": number + 2, f"new {number}": number}, history.version)
    final = dict(history.values)
    for _ in range(20):
        history.undo(history.version)
    assert history.values == BASE
    assert not history.can_undo
    for _ in range(20):
        history.redo(history.version)
    assert history.values == final
    with pytest.raises(ValueError, match=r"redo: .*expected a change"):
        history.redo(history.version)


def test_a_new_edit_ends_redo(tmp_path: Path) -> None:
    history = History(tmp_path / "log", BASE)
    history.edit("one", {"a": 2}, 0)
    history.undo(1)
    history.edit("two", {"a": 3}, 2)
    assert not history.can_redo
    history.undo(3)
    assert history.values == BASE


def test_everything_is_kept_over_restarts(tmp_path: Path) -> None:
    history = History(tmp_path / "log", BASE)
    history.edit("one", {"a": 2}, 0)
    history.edit("two", {"b": None, "d": "é"}, 1)
    history.undo(2)
    again = History(tmp_path / "log", BASE)
    assert (again.values, again.version, again.can_undo, again.can_redo) == ({**BASE, "a": 2}, 3, True, True)
    again.redo(3)
    assert again.values == {"a": 2, "d": "é"}


def test_a_line_that_was_cut_off_is_removed(tmp_path: Path) -> None:
    history = History(tmp_path / "log", BASE)
    history.edit("one", {"a": 2}, 0)
    complete = (tmp_path / "log").read_bytes()
    history.edit("two", {"a": 3}, 1)
    written = (tmp_path / "log").read_bytes()
    for end in range(len(complete), len(written)):
        (tmp_path / "log").write_bytes(written[:end])
        assert History(tmp_path / "log", BASE).values["a"] == 2
        assert (tmp_path / "log").read_bytes() == complete


def test_changes_of_other_pages_are_not_lost(tmp_path: Path) -> None:
    history = History(tmp_path / "log", BASE)
    history.edit("one", {"a": 2}, 0)
    with pytest.raises(ConflictError, match="; expected the newest version"):
        history.edit("other", {"a": 3}, 0)
    history.edit("other place", {"b": 5}, 0)
    with pytest.raises(ConflictError, match=r"version is 1, .*expected 2"):
        history.undo(1)
    assert history.values == {"a": 2, "b": 5}


def test_equal_values_are_no_change(tmp_path: Path) -> None:
    history = History(tmp_path / "log", BASE)
    assert history.edit("nothing", {"a": 1, "e": None}, 0) is None
    assert history.version == 0


_WRITER = """
import sys
from pathlib import Path
from entourage.serve.scores.history import History
history = History(Path(sys.argv[1]), {})
while True:
    kind = history.version % 3
    entry = history.undo(history.version) if kind == 2 else history.edit("n", {"n": history.version}, history.version)
    print(history.version, flush=True)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs SIGKILL")
def test_nothing_acknowledged_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for lines in (1, 4, 9):
        process = subprocess.Popen([sys.executable, "-c", _WRITER, str(log)], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        acknowledged = [int(process.stdout.readline()) for _ in range(lines)]
        process.send_signal(signal.SIGKILL)
        acknowledged += [int(line) for line in process.stdout.read().split("\n")[:-1]]
        process.wait()
        process.stdout.close()
        assert History(log, {}).version >= acknowledged[-1]
