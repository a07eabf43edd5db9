from __future__ import annotations

import pytest
import torch

from entourage.cluster.sampling.augmentation import (
    ImageAugmentation,
    SoundAugmentation,
    random_crop_frames,
    scale_pixels,
    unaugmented_image,
    unaugmented_sound,
)

IMAGES = torch.randint(0, 256, (4, 3, 16, 24), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
NO_CHANGE = ImageAugmentation(flip=0, elastic=0, zoom=0, color=0)


def test_bytes_are_scaled_to_minus_one_to_one(generator: torch.Generator) -> None:
    assert scale_pixels(torch.tensor([0, 255], dtype=torch.uint8)).tolist() == [-1, 1]
    torch.testing.assert_close(unaugmented_image(IMAGES, generator), scale_pixels(IMAGES))
    torch.testing.assert_close(NO_CHANGE(IMAGES, generator), scale_pixels(IMAGES))


def test_flips_mirror_either_axis(generator: torch.Generator) -> None:
    flipped = ImageAugmentation(flip=1, elastic=0, zoom=0, color=0)(IMAGES, generator)
    torch.testing.assert_close(flipped, scale_pixels(IMAGES).flip(-1, -2), atol=1e-5, rtol=1e-5)
    some = ImageAugmentation(flip=0.5, elastic=0, zoom=0, color=0)(IMAGES[:1].repeat(64, 1, 1, 1), generator)
    variants = [scale_pixels(IMAGES[:1]).flip(axes) for axes in ([], [-1], [-2], [-1, -2])]
    kinds = [next(i for i, variant in enumerate(variants) if torch.allclose(variant[0], x, atol=1e-4)) for x in some]
    assert set(kinds) == {0, 1, 2, 3}


@pytest.mark.parametrize("field", ["elastic", "zoom", "color"])
def test_augmented_images_differ_moderately(field: str, generator: torch.Generator) -> None:
    smooth = torch.nn.functional.interpolate(torch.rand(1, 3, 3, 3), size=(32, 32), mode="bilinear")
    images = (255 * smooth).byte().repeat(2, 1, 1, 1)
    augmentation = ImageAugmentation(**{"flip": 0.0, "elastic": 0.0, "zoom": 0.0, "color": 0.0, field: 0.1})
    one, two = augmentation(images, generator)
    assert (one - two).abs().max() > 0.01
    assert (one - scale_pixels(images)[0]).abs().mean() < 0.2


def test_positions_outside_the_image_have_the_value_of_the_border(generator: torch.Generator) -> None:
    white = torch.full((16, 3, 16, 16), 255, dtype=torch.uint8)
    augmented = ImageAugmentation(color=0)(white, generator)  # zoom and distortion sample outside the image
    torch.testing.assert_close(augmented, torch.ones_like(augmented))


def test_the_same_seed_gives_the_same_augmentation() -> None:
    augmented = [ImageAugmentation()(IMAGES, torch.Generator().manual_seed(3)) for _ in range(2)]
    assert torch.equal(*augmented)
    sounds = [SoundAugmentation()(torch.rand(2, 128, 200), torch.Generator().manual_seed(3)).shape for _ in range(2)]
    assert sounds == [(2, 1, 128, 128)] * 2


def test_cropped_frames_are_unchanged(generator: torch.Generator) -> None:
    long = torch.arange(200.0).expand(50, 128, 200)
    crops = random_crop_frames(long, generator)
    assert crops.shape == (50, 128, 128)
    starts = crops[:, 0, 0]
    assert (crops == starts[:, None, None] + torch.arange(128)).all()
    assert starts.max() <= 72
    assert len(starts.unique()) > 20
    assert torch.equal(unaugmented_sound(long[:1, :, :128], generator)[0, 0], long[0, :, :128])
    with pytest.raises(ValueError, match="100 frames; expected 128"):
        random_crop_frames(long[:, :, :100], generator)


def test_sounds_are_masked_in_runs_and_change_their_level(generator: torch.Generator) -> None:
    masked = SoundAugmentation(gain=0, tilt=0)(torch.ones(200, 128, 128), generator)[:, 0] == 0
    bands, frames = masked.all(2).sum(1), masked.all(1).sum(1)
    assert bands.max() == frames.max() == 16
    assert bands.min() == 0
    levels = SoundAugmentation(tilt=0, masked_bands=0, masked_frames=0)(torch.zeros(100, 128, 128), generator)
    assert levels.flatten(1).std(1).max() < 1e-6
    assert 0.25 < levels.abs().max() <= 0.3
    tilted = SoundAugmentation(gain=0, tilt=0.2, masked_bands=0, masked_frames=0)(torch.zeros(9, 128, 128), generator)
    torch.testing.assert_close(tilted[:, 0, 0], -tilted[:, 0, -1])
