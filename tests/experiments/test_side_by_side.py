"""Work that several processes do on data that all of them see."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from experiments.side_by_side import side_by_side
from torch import Tensor


def note(folder: Path, seen: Tensor, fails: bool = False) -> None:
    """The first process to come leaves a file and a 1 where all see it, and then fails if that is wanted."""
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
    with pytest.raises(RuntimeError, match="1 of 2 processes failed; what the others measured is kept"):
        side_by_side(2, note, tmp_path, seen, fails=True)
    assert seen.tolist() == [1, 1]
