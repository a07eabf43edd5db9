import json
from collections.abc import Callable
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import pytest
from numpy.typing import NDArray

from entourage.engrave.align import align, write_alignment
from entourage.engrave.compose import compose
from entourage.engrave.formats import page_table
from entourage.engrave.page import Page

Grey = NDArray[np.uint8]


@pytest.fixture(scope="module")
def pages(request: pytest.FixtureRequest) -> list[Page]:
    engrave: Callable[[str], Page] = request.getfixturevalue("engrave")
    return [engrave(compose(3, index)) for index in (1, 2)]


def photo(page: Grey, seed: int, turn: float) -> tuple[Grey, NDArray[np.float64]]:
    """A photo with known homography from page to photo: rotation, perspective, blur, shadow and noise."""
    random = np.random.default_rng(seed)
    height, width = page.shape
    corners = np.array([[0, 0], [width, 0], [width, height], [0, height]], dtype=float)
    angle = np.deg2rad(turn)
    rotation = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    moved = (corners - corners.mean(axis=0)) * 0.9 @ rotation.T + [1100, 1500]
    moved += random.uniform(-0.04, 0.04, (4, 2)) * [width, height]
    known = cv2.getPerspectiveTransform(corners.astype(np.float32), moved.astype(np.float32))
    seen = cv2.warpPerspective(page, known, (2200, 3000), flags=cv2.INTER_AREA, borderValue=120).astype(np.float32)
    seen = cv2.GaussianBlur(seen, (0, 0), 1.5)
    shadow = cv2.resize(random.random((4, 4), dtype=np.float32), (2200, 3000), interpolation=cv2.INTER_CUBIC)
    seen = seen * (1 - 0.45 * np.clip(shadow, 0, 1)) + 5 * random.standard_normal(seen.shape, dtype=np.float32)
    return np.clip(seen, 0, 255).astype(np.uint8), np.asarray(known)


@pytest.mark.parametrize(("seed", "turn"), [(0, 8.0), (1, -5.0)])
def test_photos_are_rectified_to_the_pixel(pages: list[Page], seed: int, turn: float) -> None:
    page = pages[0].image
    picture, known = photo(page, seed, turn)
    found = align(picture, page)
    height, width = page.shape
    grid = np.stack(np.meshgrid(np.linspace(60, width - 60, 12), np.linspace(60, height - 60, 16)), axis=-1)
    points = grid.reshape(-1, 1, 2)
    back = cv2.perspectiveTransform(cv2.perspectiveTransform(points, known), found.homography)
    error = np.linalg.norm((back - points)[:, 0], axis=1)
    assert np.median(error) < 2
    assert np.percentile(error, 95) < 5
    assert found.rectified.shape == page.shape
    assert found.score > 0.9


def test_a_wrong_page_is_refused(pages: list[Page]) -> None:
    picture, _ = photo(pages[0].image, 0, 2.0)
    with pytest.raises(ValueError, match="the match is poor"):
        align(picture, pages[1].image)


def test_blank_tiny_and_coloured_pictures_are_refused(pages: list[Page]) -> None:
    page = pages[0].image
    with pytest.raises(ValueError, match="too little to match"):
        align(np.full((1000, 800), 255, dtype=np.uint8), page)
    with pytest.raises(ValueError, match=r"the scan has the shape \(50, 50\)"):
        align(page[:50, :50], page)
    with pytest.raises(ValueError, match="expected a grey image"):
        align(np.zeros((900, 900, 3), dtype=np.uint8), page)


def test_picture_and_annotations_are_a_data_set_of_one_page(pages: list[Page], tmp_path: Path) -> None:
    data = tmp_path / "data"
    (data / "images").mkdir(parents=True)
    cv2.imwrite(str(data / "images" / "p.png"), pages[0].image)
    table = page_table(pages[0], score="s", source="s.mxl", work="w", name="p", font="f")
    pq.write_table(table, data / "symbols.parquet")
    cv2.imwrite(str(tmp_path / "photo.jpg"), photo(pages[0].image, 2, 3.0)[0])
    found = write_alignment(tmp_path / "photo.jpg", data / "images" / "p.png", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "alignment.json").read_text())["matches"] == found.matches
    assert pq.read_table(tmp_path / "out" / "symbols.parquet")["x0"].to_pylist() == table["x0"].to_pylist()
    assert cv2.imread(str(tmp_path / "out" / "images" / "p.png"), 0).shape == pages[0].image.shape
    assert len(json.loads((tmp_path / "out" / "coco.json").read_text())["images"]) == 1
    with pytest.raises(ValueError, match="expected a scan or photo"):
        write_alignment(tmp_path / "none.jpg", data / "images" / "p.png", tmp_path / "other")
    assert not (tmp_path / "other").exists()
