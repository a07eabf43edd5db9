import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from entourage.data.image_set import EncodedImages, ImageSet, RawImages
from entourage.data.pixels import decode_pixels


def noise(count: int, height: int = 6, width: int = 8) -> ImageSet:
    values = np.random.default_rng(0).integers(0, 256, (count, 3, height, width), dtype=np.uint8)
    return named(RawImages(values, np.arange(count)))


def named(source: Any) -> ImageSet:
    n = len(source)
    return ImageSet("noise", source, np.zeros(n, np.int64), ["a"], np.zeros(n, np.uint8), [f"i{k}" for k in range(n)])


def broken(count: int, *bad: int) -> ImageSet:
    """Grey PNGs of value i modulo 251; the files of the indices `bad` are not images."""
    parts = []
    for index in range(count):
        stream = io.BytesIO()
        Image.new("RGB", (8, 6), (index % 251,) * 3).save(stream, format="PNG")
        parts.append(b"no image" if index in bad else stream.getvalue())
    ends = np.cumsum([len(part) for part in parts])
    data = np.frombuffer(b"".join(parts), dtype=np.uint8)
    return named(EncodedImages(data, np.concatenate([[0], ends[:-1]]), ends))


@pytest.mark.parametrize("workers", [None, 1, 3])
@pytest.mark.parametrize("crop", [None, 1.0])
def test_images_of_the_requested_size_are_unchanged(workers: int | None, crop: float | None) -> None:
    images = noise(600)  # more than one chunk
    pixels = decode_pixels(images, (6, 8), workers=workers, crop=crop)
    assert pixels.values.dtype == np.uint8
    assert isinstance(images.source, RawImages)
    np.testing.assert_array_equal(pixels.values, images.source.values.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(pixels.indices, np.arange(600))
    assert pixels.failures == []


def test_without_a_crop_the_entire_image_is_resized() -> None:
    images = noise(1, 20, 30)
    expected = images.image(0).resize((7, 5), Image.Resampling.BICUBIC)
    np.testing.assert_array_equal(decode_pixels(images, (5, 7)).values[0], np.asarray(expected))


def test_a_crop_is_centred_and_keeps_the_aspect_ratio() -> None:
    image = np.zeros((1, 3, 40, 80), dtype=np.uint8)
    image[..., 10:30, 30:50] = 255  # white in the middle: half of the height, a quarter of the width
    images = named(RawImages(image, np.arange(1)))
    assert decode_pixels(images, (10, 10), crop=0.5).values.min() > 200  # the square of side 20 in the middle
    wide = decode_pixels(images, (8, 8), crop=1.0).values[0, :, :, 0]  # the square of side 40: 2 dark, 4 white, 2 dark
    assert wide[0].max() < 40
    assert wide[4, 3:5].min() > 200
    assert wide[4, [0, 7]].max() < 40
    same_size = decode_pixels(images, (40, 80), crop=0.5).values  # the size is right, but half of each side is cut off
    assert same_size[0, 0].max() > 100  # black in the original


def test_image_files_are_decoded_and_named(tmp_path: Path, save_grey: Callable[[Path, int], Path]) -> None:
    paths = [save_grey(tmp_path / f"{value}.png", value) for value in (3, 200)]
    pixels = decode_pixels([paths[0], tmp_path / "gone.png", paths[1]], (2, 2))
    assert pixels.values[:, 0, 0, 0].tolist() == [3, 200]
    assert pixels.indices.tolist() == [0, 2]
    assert pixels.failures == [(str(tmp_path / "gone.png"), "no such file")]


@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("bad", [(), (0,), (4, 299), tuple(range(300))], ids=["none", "first", "two", "all"])
def test_broken_images_are_listed_and_left_out(tmp_path: Path, cached: bool, bad: tuple[int, ...]) -> None:
    images = broken(300, *bad)
    file = tmp_path / "p.npy" if cached else None
    for _ in range(2):  # the second time, from the file
        pixels = decode_pixels(images, (6, 8), cache_file=file, workers=2)
        good = [index for index in range(300) if index not in bad]
        assert pixels.values.shape == (len(good), 6, 8, 3)
        assert pixels.indices.tolist() == good
        np.testing.assert_array_equal(pixels.values[:, 0, 0, 0], np.array(good, dtype=np.int64) % 251)
        assert [name for name, _ in pixels.failures] == [f"i{index}" for index in bad]
        assert all(reason.startswith("not an image") for _, reason in pixels.failures)
    readable = images.subset(pixels.indices)
    assert len(readable) == len(good)


def test_a_cache_file_is_written_once_and_reused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, file = noise(5), tmp_path / "new" / "p.npy"
    first = decode_pixels(images, (3, 4), cache_file=file)
    assert isinstance(first.values, np.memmap)
    np.testing.assert_array_equal(first.values, decode_pixels(images, (3, 4)).values)
    np.testing.assert_array_equal(np.load(file), first.values)  # NumPy ignores the footer
    with pytest.raises(ValueError, match="read-only"):
        first.values[0] = 0
    assert list(file.parent.iterdir()) == [file]

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("decoded again")

    monkeypatch.setattr(RawImages, "read", fail)
    np.testing.assert_array_equal(decode_pixels(noise(5), (3, 4), cache_file=file).values, first.values)


def test_a_cache_file_of_other_images_or_options_is_replaced(tmp_path: Path) -> None:
    file = tmp_path / "p.npy"
    arrays: list[np.ndarray] = []
    for images, size, crop in (
        (noise(5), (3, 4), None),
        (noise(5), (4, 3), None),
        (noise(5), (4, 3), 0.9),
        (noise(5), (4, 3), 0.8),
        (noise(5).subset([0, 1]), (4, 3), 0.8),
        (noise(5).subset([1, 0]), (4, 3), 0.8),
    ):
        stored = decode_pixels(images, size, crop=crop, cache_file=file)
        np.testing.assert_array_equal(stored.values, decode_pixels(images, size, crop=crop).values)
        arrays.append(stored.values)
    np.testing.assert_array_equal(arrays[0], decode_pixels(noise(5), (3, 4)).values)  # a mapped file stays unchanged


def test_no_images_give_no_pixels(tmp_path: Path) -> None:
    for file in (None, tmp_path / "p.npy"):
        assert decode_pixels([], (2, 3), cache_file=file).values.shape == (0, 2, 3, 3)


def test_a_progress_bar_is_shown_if_requested(capsys: pytest.CaptureFixture[str]) -> None:
    decode_pixels(noise(5), (6, 8), progress=True)
    assert "5/5" in capsys.readouterr().err
    decode_pixels(noise(5), (6, 8))
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"size": (0, 5)}, r"size is \(0, 5\); expected height and width"),
        ({"crop": 0.0}, r"crop is 0\.0; expected a fraction"),
        ({"crop": 1.1}, r"crop is 1\.1; expected a fraction"),
        ({"workers": 0}, "workers is 0; expected 1 or more"),
    ],
)
def test_invalid_options_are_rejected(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        decode_pixels(noise(1), **({"size": (2, 2)} | options))


def test_other_files_are_not_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "features.npy"
    np.save(file, np.arange(12))
    with pytest.raises(ValueError, match=r"\.npy: .*; delete it"):
        decode_pixels(noise(1), (2, 2), cache_file=file)
    np.testing.assert_array_equal(np.load(file), np.arange(12))
