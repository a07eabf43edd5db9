"""Views of the student."""

from __future__ import annotations

from types import ModuleType

import pytest
import torch

from entourage.label.semi_supervised.student import StudentOptions, StudentViews
from entourage.label.semi_supervised.student.views import change_sharpness, posterise


@pytest.fixture
def images() -> torch.Tensor:
    return 255 * torch.rand(40, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def test_posterised_images_have_few_levels(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    changed = posterise(images, 1.0)
    assert ((changed <= images) & (images - changed < 32)).all()
    assert (changed % 4 == 0).all()
    assert max(len(image.unique()) for image in changed) <= 64
    assert torch.equal(posterise(images, 0.0), images)


def test_sharpness_keeps_constant_images_and_the_range(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    constant = torch.full((5, 3, 6, 6), 90.0)
    torch.testing.assert_close(change_sharpness(constant, 1.0), constant)
    torch.testing.assert_close(change_sharpness(images, 0.0), images)
    changed = change_sharpness(images, 1.0)
    assert changed.amin() >= 0
    assert changed.amax() <= 255
    contrast, before = changed.std(dim=(1, 2, 3)), images.std(dim=(1, 2, 3))
    assert (contrast < 0.95 * before).any()  # blurred
    assert (contrast > 1.02 * before).any()  # sharpened


def test_strong_views_are_random_and_normalised(toys: ModuleType) -> None:
    options = StudentOptions().views
    views = StudentViews(toys.images()[0], toys.preprocessing(16), options)
    rows = torch.arange(10)
    torch.manual_seed(1)
    first, second = views.strong(rows), views.strong(rows)
    assert first.shape == (10, 3, 16, 16)
    assert not torch.equal(first, second)
    assert first.min() >= -127 / 128
    assert first.max() <= 1.0
    torch.manual_seed(1)
    assert torch.equal(views.strong(rows), first)
