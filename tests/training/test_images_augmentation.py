"""Views are compared with simple reference implementations; random choices are tested on many images."""

import colorsys
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from entourage.training.images import GREY, NO_AUGMENTATION, STRONG, WEAK, AugmentationOptions, _chroma_maps, augment

SIZE = (24, 24)


def noise(count: int = 6, height: int = 24, width: int = 24) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, 256, (count, 3, height, width), generator=generator, dtype=torch.uint8)


def ramps(count: int, height: int = 24, width: int = 24) -> Tensor:
    """Return images of coordinates: red is the column and green the row, from -1 to 1, scaled to 0..255."""
    x = (torch.arange(width) + 0.5) * 2 / width - 1
    y = (torch.arange(height) + 0.5) * 2 / height - 1
    image = torch.stack([x.expand(height, width), y[:, None].expand(height, width), torch.zeros(height, width)])
    return ((image + 1) * 127.5).repeat(count, 1, 1, 1)


def source_coordinates(views: Tensor) -> Tensor:
    """Return the coordinates in `ramps` of each pixel of a view, shape (b, h, w, 2)."""
    return views[:, :2].permute(0, 2, 3, 1) / 127.5 - 1


def view(pixels: Tensor, options: AugmentationOptions, size: tuple[int, int] = SIZE, seed: int = 0) -> Tensor:
    torch.manual_seed(seed)
    return augment(pixels, size, options)


def linear_part(views: Tensor) -> Tensor:
    """Return the linear part of the map from a view to the image, by its central pixels; shape (b, 2, 2)."""
    where, (height, width) = source_coordinates(views), views.shape[2:]
    right = (where[:, height // 2, width // 2 + 1] - where[:, height // 2, width // 2 - 1]) * width / 4
    down = (where[:, height // 2 + 1, width // 2] - where[:, height // 2 - 1, width // 2]) * height / 4
    return torch.stack([right, down], dim=2)


def test_view_without_augmentation_is_the_image() -> None:
    pixels = noise()
    plain = view(pixels, NO_AUGMENTATION)
    torch.testing.assert_close(plain, pixels.float(), rtol=0, atol=1e-3)
    assert plain.dtype == torch.float32
    assert plain.is_contiguous(memory_format=torch.channels_last)


def test_resized_view_without_augmentation_is_bilinear() -> None:
    pixels = noise(height=12, width=20)
    expected = torch.nn.functional.interpolate(pixels.float(), (24, 24), mode="bilinear", align_corners=False)
    inner = (slice(None), slice(None), slice(2, -2), slice(2, -2))  # images are reflected at their edges, not extended
    torch.testing.assert_close(view(pixels, NO_AUGMENTATION)[inner], expected[inner], rtol=0, atol=1e-3)


def test_flip_is_a_mirror_image() -> None:
    pixels = noise()
    torch.testing.assert_close(view(pixels, AugmentationOptions(flip=1.0)), pixels.flip(3).float(), rtol=0, atol=1e-3)


def test_half_of_the_images_are_flipped_independently() -> None:
    mirrored = linear_part(view(ramps(400), AugmentationOptions(flip=0.5)))[:, 0, 0] < 0
    assert 160 < mirrored.sum() < 240  # four standard deviations
    assert 0.3 < mirrored[:20].float().mean() < 0.7


def test_seed_fixes_views() -> None:
    pixels = noise()
    assert torch.equal(view(pixels, STRONG, seed=1), view(pixels, STRONG, seed=1))
    assert not torch.equal(view(pixels, STRONG, seed=1), view(pixels, STRONG, seed=2))


@pytest.mark.parametrize("options", [WEAK, STRONG])
def test_parameters_differ_within_a_batch(options: AugmentationOptions) -> None:
    same = noise(1).repeat(5, 1, 1, 1)
    views = view(same, options)
    for one in range(5):
        for other in range(one):
            assert (views[one] - views[other]).abs().mean() > 1


@pytest.mark.parametrize("size", [(16, 16), (40, 24)])
def test_strong_views_stay_in_range(size: tuple[int, int]) -> None:
    extreme = noise(64) // 128 * 255  # only 0 and 255
    views = view(extreme, replace(STRONG, contrast=1.0, brightness=1.0, saturation=1.0, hue=0.5), size)
    assert views.shape == (64, 3, *size)
    assert views.isfinite().all()
    assert views.min() >= 0
    assert views.max() <= 255
    assert views.std() > 30


def test_crops_have_the_requested_area_and_lie_inside() -> None:
    views = view(ramps(300), AugmentationOptions(area=(0.3, 0.6), aspect=4 / 3, flip=0.0))
    maps = linear_part(views)
    wide, high = maps[:, 0, 0], maps[:, 1, 1]
    area, shape = wide * high, wide / high
    assert 0.3 - 1e-3 < area.min() < 0.32
    assert 0.58 < area.max() < 0.6 + 1e-3
    assert 3 / 4 - 1e-3 < shape.min() < 0.78
    assert 1.28 < shape.max() < 4 / 3 + 1e-3
    torch.testing.assert_close(maps[:, 0, 1], torch.zeros(300), rtol=0, atol=1e-4)
    where = source_coordinates(views)
    middle = where.mean(dim=(1, 2))  # (b, 2), random, the image's centre on average
    assert middle.mean(dim=0).abs().max() < 0.05
    assert middle.std(dim=0).min() > 0.1
    left, right = where[:, :, 0, 0].mean(dim=1) - wide / 24, where[:, :, -1, 0].mean(dim=1) + wide / 24
    assert left.min() >= -1 - 1e-3
    assert right.max() <= 1 + 1e-3


@pytest.mark.parametrize(("height", "width"), [(24, 24), (20, 40)])
def test_rotation_is_bounded_by_its_angle(height: int, width: int) -> None:
    turned = view(ramps(200, height, width), AugmentationOptions(flip=0.0, rotate=30.0), (height, width))
    scale = torch.tensor([width, height]).float()
    pixels = linear_part(turned) * scale[:, None] / scale  # in pixels: a rotation also for images that are not square
    torch.testing.assert_close(pixels @ pixels.mT, torch.eye(2).expand(200, 2, 2), rtol=0, atol=2e-3)
    degrees = torch.atan2(pixels[:, 1, 0], pixels[:, 0, 0]) * 180 / math.pi
    assert degrees.abs().max() < 30.1
    assert degrees.min() < -25
    assert degrees.max() > 25


def test_shear_is_bounded_by_its_fraction_of_the_width() -> None:
    maps = linear_part(view(ramps(200), AugmentationOptions(flip=0.0, shear=0.2)))
    expected = torch.tensor([[1.0, 0.0], [0.0, 1.0]]).expand(200, 2, 2).clone()
    expected[:, 0, 1] = maps[:, 0, 1]
    torch.testing.assert_close(maps, expected, rtol=0, atol=1e-3)
    assert 0.18 < maps[:, 0, 1].abs().max() < 0.201


def test_images_are_reflected_at_their_edges() -> None:
    white = torch.full((50, 3, 24, 24), 200.0)
    torch.testing.assert_close(view(white, replace(NO_AUGMENTATION, rotate=45.0, shear=0.5)), white)


def test_brightness_scales() -> None:
    pixels = noise(100) // 2
    factors = view(pixels, AugmentationOptions(flip=0.0, brightness=0.4)) / pixels.float().clamp_min(1e-6)
    each = torch.stack([factor[image > 0].median() for factor, image in zip(factors, pixels, strict=True)])
    assert 0.6 - 1e-3 < each.min() < 0.65
    assert 1.35 < each.max() < 1.4 + 1e-3
    torch.testing.assert_close(factors * pixels, each[:, None, None, None] * pixels, rtol=0, atol=1e-2)


def test_contrast_scales_around_the_mean() -> None:
    pixels = 96.0 + noise(100) / 4
    views = view(pixels, AugmentationOptions(flip=0.0, contrast=0.5))
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    torch.testing.assert_close(views.mean(dim=(1, 2, 3), keepdim=True), mean, rtol=1e-5, atol=1e-3)
    factor = (views.std(dim=(1, 2, 3)) / pixels.std(dim=(1, 2, 3)))[:, None, None, None]
    assert 0.5 - 1e-3 < factor.min() < 0.55
    assert 1.45 < factor.max() < 1.5 + 1e-3
    torch.testing.assert_close(views, mean + factor * (pixels - mean), rtol=0, atol=1e-2)


def test_brightness_comes_after_contrast() -> None:
    pixels = 64.0 + noise(50) / 8
    views = view(pixels, AugmentationOptions(flip=0.0, contrast=0.5, brightness=0.5))
    mean = pixels.mean(dim=(1, 2, 3), keepdim=True)
    bright = views.mean(dim=(1, 2, 3), keepdim=True) / mean  # contrast does not change the mean
    contrast = views.std(dim=(1, 2, 3), keepdim=True) / pixels.std(dim=(1, 2, 3), keepdim=True) / bright
    torch.testing.assert_close(views, bright * (mean + contrast * (pixels - mean)), rtol=0, atol=1e-2)
    for factor in (bright, contrast):
        assert 0.5 - 1e-3 < factor.min() < 0.6
        assert 1.4 < factor.max() < 1.5 + 1e-3


def luma(images: Tensor) -> Tensor:
    return (images * torch.tensor([0.299, 0.587, 0.114])[:, None, None]).sum(dim=1)


@pytest.mark.parametrize(
    "options", [AugmentationOptions(flip=0.0, hue=0.5), AugmentationOptions(flip=0.0, saturation=0.5)]
)
def test_colour_changes_keep_luma_and_grey_pixels(options: AugmentationOptions) -> None:
    pixels = 100.0 + noise(50) / 5
    views = view(pixels, options)
    assert (views - pixels).abs().mean() > 3
    torch.testing.assert_close(luma(views), luma(pixels), rtol=0, atol=0.2)  # the YIQ coefficients have three digits
    grey = noise(50)[:, :1].expand(-1, 3, -1, -1).float()
    torch.testing.assert_close(view(grey, options), grey, rtol=0, atol=1e-2)


def test_chroma_maps_compose_and_include_the_identity() -> None:
    angle, one = torch.tensor([0.0, 0.4, 0.5, 0.9, 2 * math.pi]), torch.ones(5)
    maps = _chroma_maps(angle, one)
    torch.testing.assert_close(maps[0], torch.eye(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(maps[4], torch.eye(3), rtol=0, atol=1e-5)
    torch.testing.assert_close(maps[1] @ maps[2], maps[3], rtol=0, atol=1e-5)


def test_third_of_a_hue_turn_maps_red_to_green_or_blue() -> None:
    red = torch.tensor([160.0, 90.0, 90.0]) / 255
    for angle in (-2 * math.pi / 3, 2 * math.pi / 3):
        turned = (_chroma_maps(torch.tensor([angle]), torch.ones(1))[0] @ red).tolist()
        hue = colorsys.rgb_to_hsv(*turned)[0]
        assert min(abs(hue - 1 / 3), abs(hue - 2 / 3)) < 0.1  # the hue of YIQ and HSV is nearly equal


def test_grey_removes_only_colour() -> None:
    pixels = noise(60).float()
    every = view(pixels, AugmentationOptions(flip=0.0, grey=1.0))
    torch.testing.assert_close(every, luma(pixels)[:, None].expand_as(pixels), rtol=0, atol=0.3)
    lost = (view(pixels, AugmentationOptions(flip=0.0, grey=0.5)) - pixels).abs().mean(dim=(1, 2, 3)) > 1
    assert 15 < lost.sum() < 45  # four standard deviations
    torch.testing.assert_close(
        view(pixels, AugmentationOptions(flip=0.0, grey=0.5))[~lost], pixels[~lost], rtol=0, atol=1e-2
    )


def test_solarise_inverts_bright_values() -> None:
    pixels = torch.arange(256.0).view(1, 1, 16, 16).repeat(80, 3, 1, 1)
    views = view(pixels, AugmentationOptions(flip=0.0, solarise=1.0), (16, 16)).round()
    levels = []
    for image in views[:, 0].flatten(1):
        inverted = (image != torch.arange(256.0)).nonzero().ravel()
        assert torch.equal(image[inverted], 255 - inverted)
        assert torch.equal(inverted, torch.arange(int(inverted[0]), 256))
        levels.append(int(inverted[0]))
    assert 64 <= min(levels) < 80
    assert 235 < max(levels) <= 255
    some = (view(pixels, AugmentationOptions(flip=0.0, solarise=0.5), (16, 16)).round() != pixels).any(dim=(1, 2, 3))
    assert 20 < some.sum() < 60


def test_erase_fills_one_grey_rectangle() -> None:
    white = torch.full((200, 3, 40, 40), 255.0)
    erased = view(white, AugmentationOptions(flip=0.0, erase=0.5), (40, 40)) == GREY
    assert torch.equal(erased[:, 0], erased[:, 2])
    rows, columns = erased[:, 0].any(dim=2), erased[:, 0].any(dim=1)  # (b, 40)
    assert torch.equal(erased[:, 0], rows[:, :, None] & columns[:, None, :])  # a product of rows and columns
    for side in (rows, columns):
        assert 17 < side.sum(dim=1).max() <= 21
        assert side.sum(dim=1).min() <= 2
        assert side.float().mean(dim=0).min() > 0.05  # every position is erased in some image
        edges = torch.nn.functional.pad(side.int(), (1, 1)).diff(dim=1).abs().sum(dim=1)
        assert edges.max() <= 2  # without a gap
    untouched = view(white, AugmentationOptions(flip=0.0, erase=0.5), (40, 40))[~erased]
    assert (untouched == 255).all()


def test_uint8_and_float_pixels_give_equal_views() -> None:
    pixels = noise()
    assert torch.equal(view(pixels, STRONG), view(pixels.float(), STRONG))


@pytest.mark.parametrize("shape", [(4, 24, 24, 3), (3, 24, 24), (4, 1, 24, 24)])
def test_pixels_of_invalid_shape_raise(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"^pixels .*\(.*\); expected \(b, 3, h, w\)"):
        augment(torch.zeros(shape), SIZE)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"area": (0.0, 1.0)}, r"area is \(0.0, 1.0\); expected two fractions"),
        ({"area": (0.8, 0.5)}, r"area is.*; expected two fractions above 0 and up"),
        ({"area": (0.5, 1.1)}, r"area is.*; expected two fractions above 0 and up"),
        ({"aspect": 0.5}, "aspect is 0.5; expected 1 or more"),
        ({"aspect": np.nan}, "aspect is nan; expected 1 or more"),
        ({"rotate": -1.0}, "rotate is -1.0; expected 0 or more"),
        ({"hue": np.nan}, "hue is nan; expected 0 or more"),
        *(({name: 1.5}, f"{name} is 1.5; expected a number from 0 to 1") for name in ("flip", "contrast", "erase")),
        *(({name: -0.1}, f"{name} is -0.1; expected a number from 0 to 1") for name in ("brightness", "solarise")),
    ],
)
def test_invalid_options_raise(changes: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AugmentationOptions(**changes)  # type: ignore[arg-type]
