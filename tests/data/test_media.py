from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from entourage.data import media
from entourage.data.media import UnreadableImageError, list_images, read_image, typical_side


def save(path: Path, image: Image.Image | None = None) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    (image or Image.new("RGB", (8, 6), "red")).save(path)
    return path


def colour(image: Image.Image, x: int = 0, y: int = 0) -> tuple[int, ...]:
    assert image.mode == "RGB"
    return tuple(np.asarray(image)[y, x].tolist())


def test_only_images_are_listed_at_any_depth(tmp_path: Path) -> None:
    expected = [save(tmp_path / name) for name in ("b.jpg", "a/z.PNG", "a/deep/er/y.bmp")]
    save(tmp_path / ".hidden.png")
    (tmp_path / "sound.wav").write_text("no image")
    assert list_images(tmp_path) == sorted(expected)


def test_folders_without_images_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no image; expected files named \.bmp"):
        list_images(tmp_path)
    with pytest.raises(ValueError, match="does not exist; expected a folder of images"):
        list_images(tmp_path / "missing")


def test_images_are_rotated_by_their_exif_orientation(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: rotate by 90 degrees clockwise
    path = tmp_path / "rotated.jpg"
    Image.new("RGB", (40, 20)).save(path, exif=exif)
    assert read_image(path).size == (20, 40)
    assert read_image(path, shorter_side=4).size[0] < read_image(path, shorter_side=4).size[1]


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "LA", "CMYK", "I;16", "I", "F"])
def test_every_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    values = np.full((4, 5), 32896, np.uint16) if mode == "I;16" else np.full((4, 5), 128, np.uint8)
    grey = Image.fromarray(values)
    path = save(tmp_path / "image.tif", grey if mode == "I;16" else grey.convert(mode, dither=Image.Dither.NONE))
    expected = {"1": 255, "I": 0}.get(mode, 128)  # 128 of 65535 is almost black
    assert colour(read_image(path)) == pytest.approx((expected,) * 3, abs=1)


def test_deep_grey_is_scaled_and_not_clipped(tmp_path: Path) -> None:
    ramp = np.linspace(0, 65535, 256).astype(np.uint16).reshape(16, 16)
    read = np.asarray(read_image(save(tmp_path / "deep.png", Image.fromarray(ramp))))
    np.testing.assert_array_equal(read[..., 0].ravel(), np.arange(256))


def test_floating_point_grey_may_contain_nan(tmp_path: Path) -> None:
    values = np.array([[0.0, 1.0, np.nan, np.inf]], dtype=np.float32)
    image = read_image(save(tmp_path / "float.tif", Image.fromarray(values)))
    assert np.asarray(image)[0, :, 0].tolist() == [0, 255, 0, 0]


def test_transparent_parts_are_white(tmp_path: Path) -> None:
    layered = Image.new("RGBA", (2, 1), (255, 0, 0, 255))
    layered.putpixel((1, 0), (255, 0, 0, 0))
    assert colour(read_image(save(tmp_path / "layered.png", layered)), x=1) == (255, 255, 255)
    palette = Image.new("P", (2, 1))
    palette.putpalette([255, 0, 0, 0, 255, 0])
    palette.putpixel((1, 0), 1)
    palette.info["transparency"] = b"\xff\x00"
    image = read_image(save(tmp_path / "palette.png", palette))
    assert colour(image) == (255, 0, 0)
    assert colour(image, x=1) == (255, 255, 255)


def test_a_large_jpeg_is_decoded_small_but_not_too_small(tmp_path: Path) -> None:
    path = save(tmp_path / "large.jpg", Image.new("RGB", (1600, 1200), "blue"))
    small = read_image(path, shorter_side=250)
    assert small.size == (400, 300)
    assert colour(small) == pytest.approx((0, 0, 255), abs=2)
    assert read_image(path, shorter_side=5000).size == (1600, 1200)


def test_broken_files_are_reported_with_path_and_reason(tmp_path: Path) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8))
    complete = save(tmp_path / "complete.png", noise).read_bytes()
    broken = {"text.jpg": b"not an image", "empty.png": b"", "cut.png": complete[: len(complete) // 2]}
    for name, content in broken.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(UnreadableImageError, match=rf"^cannot read image .*{name}: .+") as caught:
            read_image(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert str(tmp_path) not in caught.value.reason
    with pytest.raises(ValueError, match=r"missing\.png: no such file"):
        read_image(tmp_path / "missing.png")


def test_a_decompression_bomb_is_rejected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = save(tmp_path / "bomb.png", Image.new("L", (100, 100)))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match=r"bomb\.png: .*decompression bomb"):
        read_image(path)


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n%%EOF\n"


def test_other_formats_are_not_read_whatever_the_file_is_called(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(EPS)  # Pillow would run Ghostscript
    Image.new("RGB", (8, 6)).save(tmp_path / "b.png", "ICO")
    for name in ("a.png", "b.png"):
        with pytest.raises(UnreadableImageError, match=f"{name}.*not an image, or of an unknown format"):
            read_image(tmp_path / name)
    Image.new("RGB", (8, 6)).save(tmp_path / "c.png", "JPEG")
    assert read_image(tmp_path / "c.png").size == (8, 6)


def test_images_of_too_many_pixels_are_refused_before_they_are_decoded(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    Image.new("1", (10_001, 8000)).save(path)
    assert path.stat().st_size < 50_000
    with pytest.raises(UnreadableImageError, match="10001 x 8000 pixels, 80 megapixels; expected at most 80"):
        read_image(path)


def test_the_limit_of_pixels_applies_to_the_size_at_which_a_jpeg_is_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path / "a.jpg", Image.new("RGB", (640, 480)))
    monkeypatch.setattr(media, "MAX_PIXELS", 20_000)
    assert read_image(path, shorter_side=60).size == (80, 60)
    with pytest.raises(UnreadableImageError, match=r"640 x 480.*; expected at most 0"):
        read_image(path)


def test_typical_side_is_the_median_of_the_longer_sides(tmp_path: Path) -> None:
    paths = []
    for number, size in enumerate([(40, 30), (50, 64), (300, 200)]):
        paths.append(tmp_path / f"{number}.png")
        Image.new("RGB", size).save(paths[-1])
    broken = tmp_path / "broken.png"
    broken.write_bytes(b"no image")
    assert typical_side([*paths, broken]) == 64
    assert typical_side([broken]) == typical_side([]) == 32
    assert typical_side(paths[:1], default=48) == 48
