from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.label.data import read_items


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(tmp_path / "cache"))
    images = tmp_path / "images"
    (images / "sub").mkdir(parents=True)
    for name, colour in (("a.png", "red"), ("sub/b.png", "blue")):
        Image.new("RGB", (32, 32), colour).save(images / name)
    return images


def test_features_of_images_have_names_and_length_1(folder: Path) -> None:
    items = read_items(folder, backbone="efficientnet-lite0")
    assert items.names == ["a.png", "sub/b.png"]
    assert items.images == [folder / "a.png", folder / "sub" / "b.png"]
    np.testing.assert_allclose(np.linalg.norm(items.features, axis=1), 1, rtol=1e-5)
    assert not np.allclose(items.features[0], items.features[1])


def test_an_unreadable_image_is_skipped_with_its_reason(folder: Path) -> None:
    (folder / "sub" / "broken.jpg").write_bytes(b"no image")
    items = read_items(folder, backbone="efficientnet-lite0")
    assert items.names == ["a.png", "sub/b.png"]
    assert [name for name, _ in items.skipped] == ["sub/broken.jpg"]


def test_only_unreadable_images_raise(tmp_path: Path) -> None:
    (tmp_path / "broken.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"broken\.jpg: .*; expected at least one"):
        read_items(tmp_path, backbone="efficientnet-lite0", cache=False)


@pytest.mark.parametrize(("metric", "length"), [("auto", 5.0), ("euclidean", 5.0), ("cosine", 1.0)])
def test_feature_files_are_scaled_only_on_request(tmp_path: Path, metric: str, length: float) -> None:
    np.save(tmp_path / "x.npy", np.array([[3.0, 4.0], [0.0, 0.0]], dtype=np.float32))
    items = read_items(tmp_path / "x.npy", metric=metric)  # type: ignore[arg-type]
    assert items.images is None
    np.testing.assert_allclose(np.linalg.norm(items.features, axis=1), [length, 0.0], rtol=1e-6)


def test_an_image_name_that_is_not_utf8_is_skipped(folder: Path) -> None:
    strange = Path(os.fsdecode(os.fsencode(folder) + b"/caf\xe9.png"))
    Image.new("RGB", (32, 32), "green").save(folder / "plain.png")
    (folder / "plain.png").rename(strange)
    items = read_items(folder, backbone="efficientnet-lite0")
    assert items.names == ["a.png", "sub/b.png"]
    assert items.skipped == [(r"caf\udce9.png", "its name is not UTF-8")]


def test_only_names_that_are_not_utf8_raise(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")).write_bytes(b"never read")
    with pytest.raises(ValueError, match=r": its name is not UTF-8.*; expected at least one"):
        read_items(tmp_path, backbone="efficientnet-lite0", cache=False)
