import numpy as np
import pytest
import torch
from PIL import Image

from entourage.backbones.backbone import Preprocessing

SQUARE = Preprocessing(size=(28, 28), mean=(127.0,) * 3, std=(128.0,) * 3)


def gradient(width: int, height: int) -> Image.Image:
    x, y = np.meshgrid(np.linspace(0, 255, width), np.linspace(0, 255, height))
    return Image.fromarray(np.stack([x, y, np.zeros_like(x)], axis=-1).astype(np.uint8))


@pytest.mark.parametrize("size", [(1, 1), (5, 3), (28, 28), (400, 300), (300, 400), (3000, 2)])
def test_pixels_have_the_size_of_the_network(size: tuple[int, int]) -> None:
    pixels = SQUARE.pixels(gradient(*size))
    assert pixels.shape == (3, 28, 28)
    assert pixels.dtype == torch.uint8


def test_pixels_equal_resize_and_centre_crop() -> None:
    image = gradient(200, 120)
    resized = image.resize((round(32 * 200 / 120), 32), Image.Resampling.BICUBIC)
    left = (resized.width - 28) / 2
    reference = np.asarray(resized.crop((round(left), 2, round(left) + 28, 30)), dtype=float)
    pixels = SQUARE.pixels(image).permute(1, 2, 0).numpy().astype(float)
    assert np.abs(pixels - reference).mean() < 2.0  # less than half a pixel of this gradient


def test_crop_has_the_aspect_ratio_of_the_network() -> None:
    wide = Preprocessing(size=(10, 20), mean=(0.0,) * 3, std=(1.0,) * 3, crop=1.0, interpolation="bilinear")
    pixels = wide.pixels(gradient(100, 100))
    assert pixels.shape == (3, 10, 20)
    assert pixels[0, 0, -1] - pixels[0, 0, 0] > 240  # the entire width
    assert pixels[1, -1, 0] - pixels[1, 0, 0] < 130  # the middle half of the height


def test_normalize_subtracts_the_mean_and_divides_by_std() -> None:
    pixels = torch.tensor([0, 127, 255], dtype=torch.uint8).view(1, 3, 1, 1).expand(2, 3, 4, 4)
    normalised = SQUARE.normalize(pixels)
    assert normalised.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(normalised[1, :, 2, 3], torch.tensor([-127 / 128, 0.0, 1.0]))


def test_invalid_options_raise() -> None:
    with pytest.raises(ValueError, match="interpolation 'magic' is unknown; expected nearest"):
        Preprocessing(size=(8, 8), mean=(0.0,) * 3, std=(1.0,) * 3, interpolation="magic")
    with pytest.raises(ValueError, match=r"crop is 0\.0; expected a number above 0 and at most 1"):
        Preprocessing(size=(8, 8), mean=(0.0,) * 3, std=(1.0,) * 3, crop=0.0)
