import cv2
import numpy as np
import pytest

from entourage.engrave.align import DeformationField, match_patches, rectify

H, W = 400, 500


def test_patches_measure_the_shift_and_whether_they_are_found() -> None:
    random = np.random.default_rng(0)
    page = cv2.GaussianBlur((255 * (random.random((H, W)) > 0.5)).astype(np.uint8), (0, 0), 2)
    moved = np.roll(page, (3, -5), axis=(0, 1))
    patches = match_patches(moved, page, 10)
    assert len(patches.points) > 20
    assert patches.matched.all()
    np.testing.assert_allclose(patches.shifts, np.tile([-5.0, 3.0], (len(patches.shifts), 1)), atol=0.05)
    np.testing.assert_allclose(patches.distances, np.hypot(5, 3), atol=0.05)
    assert not match_patches(np.full_like(page, 255), page, 10).matched.any()
    assert np.isinf(match_patches(np.full_like(page, 255), page, 10).distances).all()
    assert not match_patches(moved, page, 4).matched.any()  # the shift is larger than the search radius


def bend(points: np.ndarray) -> np.ndarray:
    x, y = points.T
    return np.stack([3 * np.sin(np.pi * x / W), 8 * np.cos(np.pi * x / W) + 0.01 * y], axis=1)


def test_a_field_fits_a_smooth_deformation_and_ignores_outliers() -> None:
    random = np.random.default_rng(1)
    points = random.uniform(0, 1, (300, 2)) * [W, H]
    shifts = bend(points)
    shifts[:30] += 15  # a tenth are outliers
    field = DeformationField.fit(points, shifts)
    inner = random.uniform(0.1, 0.9, (100, 2)) * [W, H]
    assert (
        np.abs(field.shifts_at(inner) - bend(inner)).max() < 0.4
    )  # of up to 8 pixels; without the weights the error is above 1
    beyond = np.array([[points[:, 0].max(), 100.0], [5 * W, 100.0]])
    np.testing.assert_allclose(*field.shifts_at(beyond))  # the field is constant outside the bounding box


def test_a_field_is_equal_at_points_and_on_the_pixel_grid() -> None:
    points = np.random.default_rng(2).uniform(0, 1, (60, 2)) * [W, H]
    field = DeformationField.fit(points, bend(points))
    grid = field.shift_grid(H, W)
    assert grid.shape == (2, H, W)
    np.testing.assert_allclose(grid[:, 17, 230], field.shifts_at(np.array([[230.0, 17.0]]))[0])


def test_rectify_applies_homography_and_field() -> None:
    ramp = np.tile(np.linspace(0, 250, W), (H, 1)).astype(np.uint8)
    moved = np.array([[1.0, 0, 20], [0, 1, 0], [0, 0, 1]])  # twenty pixels to the right
    plain = rectify(ramp, moved, None, H, W)
    points = np.random.default_rng(3).uniform(0, 1, (60, 2)) * [W, H]
    back = rectify(ramp, moved, DeformationField.fit(points, np.tile([20.0, 0.0], (60, 1))), H, W)
    np.testing.assert_array_equal(plain[:, 20:], ramp[:, :-20])
    assert (plain[:, :20] == 255).all()
    assert np.abs(back[:, 20:-20].astype(int) - ramp[:, 20:-20]).max() <= 1
    assert rectify(ramp, moved, None, 50, 60).shape == (50, 60)


@pytest.mark.parametrize("shape", [(100, 100), (150, 60)])
def test_a_page_too_small_for_patches_has_no_patches(shape: tuple[int, int]) -> None:
    page = np.zeros(shape, dtype=np.uint8)
    assert match_patches(page, page, 40).points.shape == (0, 2)
