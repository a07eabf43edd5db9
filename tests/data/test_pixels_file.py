from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from entourage.data.pixels import Failures, open_pixel_file, write_pixel_file

VALUES = np.arange(3 * 2 * 2 * 3, dtype=np.uint8).reshape(3, 2, 2, 3)
CHUNKS: list[tuple[NDArray[np.uint8], Failures]] = [(VALUES[:1], [(1, "bad: é")]), (VALUES[1:], [])]


def test_pixels_and_failures_are_restored(tmp_path: Path) -> None:
    path = tmp_path / "p.npy"
    assert open_pixel_file(path, "abc") is None
    write_pixel_file(path, "abc", (4, 2, 2, 3), CHUNKS)
    stored = open_pixel_file(path, "abc")
    assert stored is not None
    np.testing.assert_array_equal(stored[0], VALUES)
    assert stored[1] == [(1, "bad: é")]
    assert open_pixel_file(path, "abd") is None


@pytest.mark.parametrize("n", [9, 10, 999_999, 10**12])
def test_the_header_has_the_same_length_for_any_number_of_rows(tmp_path: Path, n: int) -> None:
    path = tmp_path / "p.npy"
    write_pixel_file(path, "abc", (n, 2, 2, 3), CHUNKS)
    np.testing.assert_array_equal(np.load(path), VALUES)


def test_an_interrupt_leaves_no_files(tmp_path: Path) -> None:
    def chunks() -> Iterator[tuple[NDArray[np.uint8], Failures]]:
        yield CHUNKS[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_pixel_file(tmp_path / "p.npy", "abc", (4, 2, 2, 3), chunks())
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_gives_one_line(tmp_path: Path) -> None:
    def chunks() -> Iterator[tuple[NDArray[np.uint8], Failures]]:
        yield CHUNKS[0]
        raise OSError(28, "No space left on device")

    with pytest.raises(ValueError, match=r"^cannot write .*p\.npy: No space left on device$"):
        write_pixel_file(tmp_path / "p.npy", "abc", (4, 2, 2, 3), chunks())


def test_damaged_and_foreign_files_are_rejected(tmp_path: Path) -> None:
    path = tmp_path / "p.npy"
    write_pixel_file(path, "abc", (4, 2, 2, 3), CHUNKS)
    complete = path.read_bytes()
    for content in (b"", b"text", complete[:-1], complete[:-30] + b"\xff" * 8 + complete[-22:], complete[-24:]):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"p\.npy: .*; delete it, or the folder above it"):
            open_pixel_file(path, "abc")
    path.write_bytes(b"x" + complete[1:])
    with pytest.raises(ValueError, match=r"p\.npy: .*; delete it"):
        open_pixel_file(path, "abc")
