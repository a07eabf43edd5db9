"""Several processes on shared data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from experiments.side_by_side import side_by_side
from torch import Tensor


def note(folder: Path, seen: Tensor, fails: bool = False) -> None:
    """Mark the first process with a file and a 1 in the shared tensor; it fails with `fails`."""
    try:
        (folder / "first").touch(exist_ok=False)
    except FileExistsError:
        seen[1] = 1
        return
    seen[0] = 1
    if fails:
        raise ValueError("the first one fails")


def test_one_worker_works_here(tmp_path: Path) -> None:
    seen = torch.zeros(2)
    side_by_side(1, note, tmp_path, seen)
    assert seen.tolist() == [1, 0]


def test_processes_share_tensors_and_one_that_fails_stops_no_other(tmp_path: Path) -> None:
    seen = torch.zeros(2)
    with pytest.raises(RuntimeError, match="1 of 2 processes failed"):
        side_by_side(2, note, tmp_path, seen, fails=True)
    assert seen.tolist() == [1, 1]


@pytest.mark.parametrize("workers", [0, -1])
def test_the_number_of_workers_is_positive(workers: int, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=f"{workers} workers; expected 1 or more"):
        side_by_side(workers, note, tmp_path, torch.zeros(2))


def linger(folder: Path) -> None:
    """Leaves a file for this process and stays for a minute."""
    (folder / str(os.getpid())).touch()
    time.sleep(60)


def soon(true: Callable[[], bool]) -> bool:
    """Whether something becomes true within half a minute: processes take some seconds to start."""
    end = time.monotonic() + 30
    while not true() and time.monotonic() < end:
        time.sleep(0.1)
    return true()


def lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_processes_end_with_one_that_was_killed(tmp_path: Path) -> None:
    folders = [str(Path(__file__).parent), str(Path(__file__).parent.parent.parent)]
    code = (
        f"import sys; sys.path[:0] = {folders!r}\n"
        "from pathlib import Path\n"
        "from experiments.side_by_side import side_by_side\n"
        "from test_side_by_side import linger\n"
        f"side_by_side(2, linger, Path({str(tmp_path)!r}))"
    )
    with subprocess.Popen([sys.executable, "-c", code]) as parent:
        assert soon(lambda: len(list(tmp_path.iterdir())) == 2)
        parent.send_signal(signal.SIGKILL)
    workers = [int(file.name) for file in tmp_path.iterdir()]
    assert soon(lambda: not any(lives(worker) for worker in workers))
