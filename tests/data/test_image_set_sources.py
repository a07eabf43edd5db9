import io
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.data.image_set import EncodedImages, ImageFiles, ImageSource, RawImages
from entourage.data.media import UnreadableImageError

VALUES = (0, 90, 180)


def encoded(parts: list[bytes]) -> EncodedImages:
    ends = np.cumsum([len(part) for part in parts])
    starts = np.concatenate([[0], ends[:-1]])
    return EncodedImages(np.frombuffer(b"".join(parts), dtype=np.uint8), starts, ends)


def png(image: Image.Image, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format="PNG", **options)
    return stream.getvalue()


@pytest.fixture(params=["encoded", "files", "raw"])
def source(request: pytest.FixtureRequest, tmp_path: Path, save_grey: Callable[[Path, int], Path]) -> ImageSource:
    """Three images of 6 x 4 pixels, filled with the grey values VALUES."""
    if request.param == "encoded":
        return encoded([png(Image.new("RGB", (6, 4), (value,) * 3)) for value in VALUES])
    if request.param == "files":
        return ImageFiles([save_grey(tmp_path / f"{value}.png", value) for value in VALUES])
    pixels = np.repeat(np.array(VALUES, dtype=np.uint8), 3 * 4 * 6).reshape(3, 3, 4, 6)
    return RawImages(pixels, np.arange(3))


def greys(source: ImageSource) -> list[int]:
    return [int(np.asarray(source.read(index))[0, 0, 0]) for index in range(len(source))]


def test_every_source_reads_selects_and_has_a_digest_of_images_and_order(source: ImageSource) -> None:
    assert greys(source) == list(VALUES)
    assert source.read(1).size == (6, 4)
    assert source.read(1).mode == "RGB"
    reordered = source.select(np.array([2, 0]))
    assert greys(reordered) == [180, 0]
    assert greys(reordered.select(np.array([1]))) == [0]
    assert source.select(np.arange(3)).digest() == source.digest()
    digests = {s.digest() for s in (source, reordered, source.select(np.array([0, 2])), source.select(np.array([0])))}
    assert len(digests) == 4


def test_encoded_images_are_rotated_by_exif_reduced_and_composed_on_white() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees clockwise
    stream = io.BytesIO()
    Image.new("RGB", (400, 200)).save(stream, format="JPEG", exif=exif)
    clear = png(Image.new("RGBA", (2, 1), (255, 0, 0, 0)))
    source = encoded([stream.getvalue(), clear])
    assert source.read(0).size == (200, 400)
    assert source.read(0, shorter_side=20).size == (25, 50)
    assert np.asarray(source.read(1)).tolist() == [[[255] * 3] * 2]
    assert source.mean_bytes == (len(stream.getvalue()) + len(clear)) / 2


def test_broken_images_give_a_reason_on_one_line(tmp_path: Path) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    content = png(noise)
    source = encoded([b"no image", b"", content[: len(content) // 2], content])
    for index in range(3):
        with pytest.raises(UnreadableImageError, match=f"number {index}: .+") as caught:
            source.read(index)
        assert "\n" not in str(caught.value)
        assert "BytesIO" not in caught.value.reason
    np.testing.assert_array_equal(np.asarray(source.read(3)), np.asarray(noise))
    with pytest.raises(UnreadableImageError, match=r"gone\.png: no such file"):
        ImageFiles([tmp_path / "gone.png"]).read(0)


def test_colours_of_raw_images_stay_in_order() -> None:
    pixels = np.zeros((1, 3, 2, 2), dtype=np.uint8)
    pixels[0, 0, 0, 1] = 200  # red, first row, second column
    assert np.asarray(RawImages(pixels, np.arange(1)).read(0))[0, 1].tolist() == [200, 0, 0]


def test_a_changed_file_has_another_digest(tmp_path: Path, save_grey: Callable[[Path, int], Path]) -> None:
    path = save_grey(tmp_path / "a.png", 5)
    source = ImageFiles([path])
    before = source.digest()
    assert source.digest() == before
    os.utime(path, ns=(0, 12345))
    changed = source.digest()
    path.unlink()
    assert len({before, changed, source.digest()}) == 3
