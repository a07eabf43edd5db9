from types import ModuleType

import pytest
import torch
from PIL import Image

from entourage.label.semi_supervised.views import ViewOptions, resize_pixels
from entourage.training.images import NO_AUGMENTATION, AugmentationOptions

CPU = torch.device("cpu")


def test_unaugmented_views_are_normalised_images(toys: ModuleType) -> None:
    pixels, live, rows = toys.images()[0], toys.live(), torch.tensor([3, 0, 3])
    expected = (torch.from_numpy(pixels[[3, 0, 3]]).permute(0, 3, 1, 2).float() - 127) / 128
    torch.testing.assert_close(live.unaugmented(rows), expected)
    torch.testing.assert_close(live.unaugmented(rows, flipped=True), expected.flip(3))
    assert len(live) == 30


@pytest.mark.parametrize("side", [30, 7])
def test_resizing_equals_the_preprocessing(toys: ModuleType, side: int) -> None:
    pixels = toys.images()[0]
    mine = resize_pixels(torch.from_numpy(pixels[:4]).permute(0, 3, 1, 2), (side, side))
    theirs = torch.stack([toys.preprocessing(side).pixels(Image.fromarray(image)) for image in pixels[:4]])
    assert (mine - theirs).abs().mean() < 0.5  # Pillow rounds to bytes, once for rows and once for columns
    assert (mine - theirs).abs().max() < 3
    live = toys.live(side)
    torch.testing.assert_close(live.unaugmented(torch.arange(4)), (mine - 127) / 128)


def test_resizing_stays_in_range() -> None:
    edges = torch.tensor([0, 255], dtype=torch.uint8).repeat(1, 3, 6, 3)
    large = resize_pixels(edges, (20, 20))
    assert large.shape == (1, 3, 20, 20)
    assert large.min() == 0  # bicubic would swing beyond both
    assert large.max() == 255
    assert resize_pixels(edges, (6, 6)) is edges


def test_weak_and_strong_views_follow_the_options(toys: ModuleType) -> None:
    options = ViewOptions(weak=NO_AUGMENTATION, strong=AugmentationOptions(flip=1.0))
    live, rows = toys.live(options=options), torch.tensor([1, 2])
    torch.testing.assert_close(live.weak(rows), live.unaugmented(rows), rtol=0, atol=1e-4)
    torch.testing.assert_close(live.strong(rows), live.unaugmented(rows, flipped=True), rtol=0, atol=1e-4)


def test_live_views_are_random_and_depend_on_the_seed(toys: ModuleType) -> None:
    live, rows = toys.live(), torch.arange(4)
    torch.manual_seed(0)
    first, second = live.strong(rows), live.strong(rows)
    torch.manual_seed(0)
    assert torch.equal(live.strong(rows), first)
    assert not torch.equal(first, second)
