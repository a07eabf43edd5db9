"""The file of cached views: reused, and replaced if it has other views."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from entourage.label.semi_supervised.views import ViewCacheFile

SHAPE = (3, 2, 1, 2, 2)


def filled(path: Path) -> ViewCacheFile:
    """Return a file in which two of three images are processed."""
    cache = ViewCacheFile(path, "origin", SHAPE)
    cache.values[:2] = 1.5
    cache.mark(2)
    return cache


def test_stored_views_are_read_again(tmp_path: Path) -> None:
    assert filled(tmp_path / "deep" / "views.bin").done == 2
    found = ViewCacheFile(tmp_path / "deep" / "views.bin", "origin", SHAPE)
    assert found.done == 2
    assert found.values.dtype == torch.bfloat16
    assert found.values[:2].eq(1.5).all()


@pytest.mark.parametrize(
    ("origin", "shape"), [("other", SHAPE), ("origin", (3, 1, 1, 2, 2)), ("origin", (2, 3, 1, 2, 2))]
)
def test_views_of_another_origin_or_shape_are_replaced(origin: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    filled(tmp_path / "views.bin")
    found = ViewCacheFile(tmp_path / "views.bin", origin, shape)
    assert (found.done, found.values.shape) == (0, shape)


@pytest.mark.parametrize("damage", ["no note", "bad note", "a list", "cut short"])
def test_damaged_files_are_replaced(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "views.bin"
    filled(path)
    if damage == "no note":
        path.with_suffix(".json").unlink()
    elif damage == "cut short":
        os.truncate(path, 10)
    else:
        path.with_suffix(".json").write_text("{" if damage == "bad note" else "[]")
    found = ViewCacheFile(path, "origin", SHAPE)
    assert found.done == 0
    assert found.values.shape == SHAPE


def test_a_full_disk_raises_and_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full, raising=False)
    with pytest.raises(ValueError, match=r"views\.bin: No space left on device; expected space for 0\.0 GiB"):
        ViewCacheFile(tmp_path / "views.bin", "origin", SHAPE)
    assert not list(tmp_path.iterdir())


def test_a_replaced_file_stays_readable_where_it_is_mapped(tmp_path: Path) -> None:
    cache = filled(tmp_path / "views.bin")
    ViewCacheFile(tmp_path / "views.bin", "other", SHAPE).values[:] = 9.0
    assert cache.values[:2].eq(1.5).all()
    assert [path.name for path in tmp_path.iterdir()] == ["views.bin"]
