from pathlib import Path

import cv2
import numpy as np
import pandas as pd
import pytest

from entourage.engrave.dataset.patches import PATCHES_FILE, cut_patch, sample_per_class, write_patches


def test_a_patch_is_centred_on_its_box() -> None:
    image = np.full((400, 300), 255, dtype=np.uint8)
    image[200, 100] = 0
    patch = cut_patch(image, np.array([98, 199, 103, 202]))
    assert patch.shape == (170, 45)
    assert np.argwhere(patch == 0).tolist() == [[85, 22]]


def test_pixels_beyond_the_page_are_white() -> None:
    black = np.zeros((400, 300), dtype=np.uint8)
    corner = cut_patch(black, np.array([0, 0, 2, 2]))
    assert (corner == 0).sum() == 86 * 23
    assert cut_patch(black, np.array([298, 398, 300, 400]))[-1, -1] == 255


def test_the_sample_is_limited_and_independent_of_the_order() -> None:
    table = pd.DataFrame(
        {"page": [f"p{i % 7}" for i in range(70)], "symbol": range(70), "class": ["a"] * 60 + ["b"] * 10}
    )
    sample = sample_per_class(table, 12, 0)
    assert sample["class"].value_counts().to_dict() == {"a": 12, "b": 10}
    again = sample_per_class(table.sample(frac=1, random_state=1), 12, 0)
    assert sample["symbol"].tolist() == again["symbol"].tolist()
    assert sample["symbol"].tolist() != sample_per_class(table, 12, 1)["symbol"].tolist()


def test_patches_have_v1_classes_or_extended_classes(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    page = np.full((400, 300), 255, dtype=np.uint8)
    page[200, 100] = 0
    cv2.imwrite(str(tmp_path / "images" / "p.png"), page)
    names = {"label": ["staff", "clefG", "clefG", "tuplet3"], "v1": ["", "gClef", "gClef", ""]}
    box = {"x0": 98, "y0": 199, "x1": 103, "y1": 202, "page": "p", "split": "train"}
    pd.DataFrame({**names, "symbol": range(1, 5)}).assign(**box).to_parquet(tmp_path / "symbols.parquet")
    assert write_patches(tmp_path, per_class=1, seed=0) == 2
    rows = pd.read_parquet(tmp_path / PATCHES_FILE)
    assert sorted(rows["class"]) == ["gClef", "tuplet3"]
    patch = cv2.imdecode(np.frombuffer(rows["png"].iloc[0], dtype=np.uint8), cv2.IMREAD_GRAYSCALE)
    assert np.argwhere(patch == 0).tolist() == [[85, 22]]
    (tmp_path / "images" / "p.png").unlink()
    with pytest.raises(ValueError, match=r"p\.png: .*; expected that of a page"):
        write_patches(tmp_path, per_class=1, seed=0)
