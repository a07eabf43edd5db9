"""Room on disk for views: found again as it was left, and never taken for that of other views."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from entourage.label.semi_supervised.views import ViewCacheFile

SHAPE = (3, 2, 1, 2, 2)


def filled(path: Path) -> ViewCacheFile:
    """Two of three images have been looked at."""
    room = ViewCacheFile(path, "mine", SHAPE)
    room.values[:2] = 1.5
    room.mark(2)
    return room


def test_what_was_looked_at_is_found_again(tmp_path: Path) -> None:
    assert filled(tmp_path / "deep" / "views.bin").done == 2
    found = ViewCacheFile(tmp_path / "deep" / "views.bin", "mine", SHAPE)
    assert found.done == 2
    assert found.values.dtype == torch.bfloat16
    assert found.values[:2].eq(1.5).all()


@pytest.mark.parametrize(("origin", "shape"), [("other", SHAPE), ("mine", (3, 1, 1, 2, 2)), ("mine", (2, 3, 1, 2, 2))])
def test_views_of_something_else_are_made_anew(origin: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    filled(tmp_path / "views.bin")
    found = ViewCacheFile(tmp_path / "views.bin", origin, shape)
    assert (found.done, found.values.shape) == (0, shape)


@pytest.mark.parametrize("damage", ["no note", "bad note", "a list", "cut short"])
def test_what_is_damaged_is_made_anew(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "views.bin"
    filled(path)
    if damage == "no note":
        path.with_suffix(".json").unlink()
    elif damage == "cut short":
        os.truncate(path, 10)
    else:
        path.with_suffix(".json").write_text("{" if damage == "bad note" else "[]")
    found = ViewCacheFile(path, "mine", SHAPE)
    assert found.done == 0
    assert found.values.shape == SHAPE


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(ValueError, match=r"views\.bin: No space left on device; expected space for 0\.0 GiB"):
        ViewCacheFile(tmp_path / "views.bin", "mine", SHAPE)
    assert not list(tmp_path.iterdir())


def test_who_has_mapped_the_views_keeps_them_when_others_are_made(tmp_path: Path) -> None:
    mine = filled(tmp_path / "views.bin")
    ViewCacheFile(tmp_path / "views.bin", "other", SHAPE).values[:] = 9.0
    assert mine.values[:2].eq(1.5).all()
    assert [path.name for path in tmp_path.iterdir()] == ["views.bin"]
