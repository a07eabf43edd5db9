from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.serve.scans import Scans, confirmed_source


@pytest.fixture
def scan(tmp_path: Path) -> Path:
    """A page of 1200 times 700 pixels, dark on the left."""
    path = tmp_path / "scans" / "page.png"
    path.parent.mkdir()
    image = Image.new("L", (1200, 700), 255)
    image.paste(40, (0, 0, 300, 700))
    image.save(path)
    return path


def test_tiles_cover_the_page_at_each_level(scan: Path) -> None:
    scans = Scans([str(scan)])
    sizes = {}
    for key in ((0, 0, 0), (0, 2, 1), (1, 0, 0), (2, 0, 0)):
        sizes[key] = Image.open(io.BytesIO(scans.tile(0, *key))).size
    assert sizes == {(0, 0, 0): (512, 512), (0, 2, 1): (176, 188), (1, 0, 0): (512, 350), (2, 0, 0): (300, 175)}
    whole = np.asarray(Image.open(io.BytesIO(scans.tile(0, 2, 0, 0))))
    assert whole[50, 20] < 60
    assert whole[50, 200] > 240


@pytest.mark.parametrize("key", [(0, 0, 3, 0), (0, 0, 0, 2), (0, 9, 0, 0), (1, 0, 0, 0), (0, 2, 1, 0)])
def test_tiles_that_do_not_exist_raise(scan: Path, key: tuple[int, int, int, int]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Scans([str(scan)]).tile(*key)


def test_pages_without_a_confirmed_scan_are_not_read() -> None:
    with pytest.raises(ValueError, match=r"page: 0 .*; expected one of the reading"):
        Scans([None]).tile(0, 0, 0, 0)


def test_only_files_of_confirmed_folders_are_shown(scan: Path, tmp_path: Path) -> None:
    folder = scan.parent
    assert confirmed_source(str(scan), [folder]) == str(scan)
    assert confirmed_source(f"{scan}#3", [folder]) == f"{scan}#3"
    assert confirmed_source("moved/page.png", [folder]) == str(scan)  # by its name
    assert confirmed_source(str(scan), [scan]) == str(scan)
    assert confirmed_source(str(scan), [tmp_path / "other"]) is None
    (tmp_path / "secret.png").write_bytes(b"")
    assert confirmed_source(f"{folder}/../secret.png", [folder]) is None
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    assert confirmed_source(str(folder / "link.png"), [folder]) is None
