from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.data.media import UnreadableImageError
from entourage.detect.preprocessing.reading import page_numbers, read_numbered_page


def frames(n: int) -> list[Image.Image]:
    """Return pages whose grey value is their number times 10, below a white border."""
    pages = []
    for number in range(1, n + 1):
        page = np.full((40, 30), 255, dtype=np.uint8)
        page[:5] = 10 * number
        pages.append(Image.fromarray(page))
    return pages


@pytest.mark.parametrize("suffix", ["tif", "pdf"])
def test_pages_are_numbered_and_read_by_number(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a.{suffix}"
    first, *others = frames(3)
    first.save(file, save_all=True, append_images=others)
    assert page_numbers(file) == [1, 2, 3]
    for number in (3, 1, 2):
        page = read_numbered_page(file, number)
        assert (page.name, page.number) == (f"a-{number}", number)
        assert abs(int(page.image[2, 2]) - 10 * number) < 8


@pytest.mark.parametrize("suffix", ["png", "tif", "pdf", "gif"])
def test_a_single_page_has_no_number(tmp_path: Path, suffix: str) -> None:
    file = tmp_path / f"a.{suffix}"
    frames(1)[0].save(file)
    assert page_numbers(file) == [None]
    page = read_numbered_page(file, None)
    assert (page.name, page.number) == ("a", None)


def test_pages_up_to_the_damaged_one_are_numbered(tmp_path: Path) -> None:
    file = tmp_path / "a.tif"
    first, *others = frames(3)
    first.save(file, save_all=True, append_images=others)
    file.write_bytes(file.read_bytes()[:-60])
    numbers = page_numbers(file)
    assert numbers[:1] == [1]
    assert isinstance(read_numbered_page(file, 1).image, np.ndarray)
    with pytest.raises(UnreadableImageError):
        read_numbered_page(file, numbers[-1])


@pytest.mark.parametrize("content", [b"no image", b"%PDF-1.4 broken"])
def test_broken_files_are_errors(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(UnreadableImageError):
        page_numbers(tmp_path / "a")
    with pytest.raises(UnreadableImageError, match="b: no such file"):
        page_numbers(tmp_path / "b")


def test_a_number_that_is_too_large_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "a.tif"
    first, second = frames(2)
    first.save(file, save_all=True, append_images=[second])
    with pytest.raises(UnreadableImageError, match=r"a\.tif#5: no such page"):
        read_numbered_page(file, 5)
