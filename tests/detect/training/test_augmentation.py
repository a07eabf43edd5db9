from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from entourage.detect.training.augmentation import DegradationOptions, degrade

# Tests enable single effects.
NO_EFFECTS = DegradationOptions(
    p_clean=0.0,
    p_thickness=0.0,
    p_blur=0.0,
    p_binary=0.0,
    gamma_sigma=0.0,
    p_fading=0.0,
    contrast=(1.0, 1.0),
    paper_darkness=0.0,
    light_falloff=0.0,
    shadow=0.0,
    noise_sigma=0.0,
    speck_fraction=0.0,
    p_bleed_through=0.0,
)


def pages(batch: int = 3) -> torch.Tensor:
    ink = torch.zeros(batch, 1, 40, 64)
    ink[:, :, 10:20, 12:30] = 1.0
    ink[:, :, 30, :] = 0.6
    return ink


def degrade_with_seed(options: DegradationOptions, ink: torch.Tensor, seed: int = 0) -> torch.Tensor:
    torch.manual_seed(seed)
    return degrade(ink, options)


def test_without_effects_pages_are_unchanged() -> None:
    assert torch.allclose(degrade_with_seed(NO_EFFECTS, pages()), pages(), atol=2e-4)  # ink is clamped to at least 1e-4


def test_clean_pages_are_returned_exactly() -> None:
    assert torch.equal(degrade_with_seed(DegradationOptions(p_clean=1.0), pages()), pages())


def test_the_result_lies_between_0_and_1_and_depends_on_the_seed() -> None:
    first, second = (
        degrade_with_seed(DegradationOptions(), pages(16)),
        degrade_with_seed(DegradationOptions(), pages(16)),
    )
    assert torch.equal(first, second)
    assert not torch.equal(first, degrade_with_seed(DegradationOptions(), pages(16), seed=1))
    assert first.shape == (16, 1, 40, 64)
    assert first.min() >= 0
    assert first.max() <= 1
    assert (first.flatten(1) != pages(16).flatten(1)).any(1).float().mean() > 0.4  # a quarter is clean


def test_images_of_a_batch_are_degraded_differently() -> None:
    changed = degrade_with_seed(replace(NO_EFFECTS, p_blur=1.0, paper_darkness=0.5), pages(4))
    assert len({tuple(image.flatten().tolist()) for image in changed}) == 4


def test_blur_keeps_the_sum_and_the_symmetry() -> None:
    ink = torch.zeros(1, 1, 41, 41)
    ink[..., 20, 20] = 1.0
    blurred = degrade_with_seed(replace(NO_EFFECTS, p_blur=1.0, blur_sigma=(1.0, 1.0)), ink)[0, 0]
    assert blurred.sum() == pytest.approx(1.0, abs=0.2)  # 1681 pixels of at least 1e-4
    assert torch.allclose(blurred, blurred.T, atol=1e-6)
    assert torch.allclose(blurred, blurred.flip(0), atol=1e-6)
    assert blurred[20, 20] == pytest.approx(0.159, abs=0.002)  # 1 / 2 pi


def test_thickness_changes_by_a_fraction_of_a_pixel() -> None:
    changed = degrade_with_seed(replace(NO_EFFECTS, p_thickness=1.0, thickness=0.4), pages(32))
    edge = changed[:, 0, 9, 20]  # just outside
    inner = changed[:, 0, 10, 20]  # just inside
    assert edge.max() > 0.2
    assert edge.max() <= 0.4 + 1e-3
    assert inner.min() < 0.8
    assert inner.min() >= 0.6 - 1e-3
    assert not ((edge > 0.01) & (inner < 0.99)).any()  # one or the other


def test_light_and_paper_darken_the_page() -> None:
    changed = degrade_with_seed(replace(NO_EFFECTS, light_falloff=0.5, paper_darkness=0.3), pages(16))
    assert changed[:, 0, 0, 0].max() > 0.05
    assert changed.mean() > pages(16).mean()


def test_specks_and_holes_are_added() -> None:
    changed = degrade_with_seed(replace(NO_EFFECTS, speck_fraction=0.05), pages(8))
    assert (changed[:, 0, :8] == 1).float().mean() == pytest.approx(0.025, abs=0.01)  # half of 0.05 on average
    assert (changed[:, 0, 10:20, 12:30] < 0.5).any()


def test_the_back_of_a_page_is_another_mirrored_page() -> None:
    ink = torch.zeros(2, 1, 20, 30)
    ink[0, 0, 5:10, 2:8] = 1.0
    changed = degrade_with_seed(replace(NO_EFFECTS, p_bleed_through=1.0, bleed_through=0.5), ink)
    assert changed[1, 0, 7, 24] > 0.01  # 29 - 5
    assert changed[1, 0, 7, 5] < 0.01


def test_binary_pages_are_almost_black_and_white() -> None:
    ink = torch.rand(4, 1, 20, 30, generator=torch.Generator().manual_seed(0))
    changed = degrade_with_seed(replace(NO_EFFECTS, p_binary=1.0), ink)
    middle = ((changed > 0.2) & (changed < 0.8)).float().mean()
    assert middle < ((ink > 0.2) & (ink < 0.8)).float().mean() / 2
