import cv2
import numpy as np
import pytest

from entourage.engrave.align import DeformationField, match_patches, rectify

H, W = 400, 500


def test_patches_tell_how_far_the_picture_is_off_and_what_is_not_there() -> None:
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
    assert not match_patches(moved, page, 4).matched.any()  # it lies beyond


def bend(points: np.ndarray) -> np.ndarray:
    x, y = points.T
    return np.stack([3 * np.sin(np.pi * x / W), 8 * np.cos(np.pi * x / W) + 0.01 * y], axis=1)


def test_a_field_follows_a_smooth_bend_and_not_single_patches() -> None:
    random = np.random.default_rng(1)
    places = random.uniform(0, 1, (300, 2)) * [W, H]
    shifts = bend(places)
    shifts[:30] += 15  # a tenth is found in wrong places
    field = DeformationField.fit(places, shifts)
    inner = random.uniform(0.1, 0.9, (100, 2)) * [W, H]
    assert (
        np.abs(field.shifts_at(inner) - bend(inner)).max() < 0.4
    )  # of up to 8 pixels; without the weights it is above 1
    beyond = np.array([[places[:, 0].max(), 100.0], [5 * W, 100.0]])
    np.testing.assert_allclose(*field.shifts_at(beyond))  # no polynomial runs away where nothing is known


def test_a_field_is_the_same_at_points_and_over_the_page() -> None:
    places = np.random.default_rng(2).uniform(0, 1, (60, 2)) * [W, H]
    field = DeformationField.fit(places, bend(places))
    over = field.shift_grid(H, W)
    assert over.shape == (2, H, W)
    np.testing.assert_allclose(over[:, 17, 230], field.shifts_at(np.array([[230.0, 17.0]]))[0])


def test_the_picture_is_taken_from_where_homography_and_field_say() -> None:
    ramp = np.tile(np.linspace(0, 250, W), (H, 1)).astype(np.uint8)
    moved = np.array([[1.0, 0, 20], [0, 1, 0], [0, 0, 1]])  # twenty pixels to the right
    plain = rectify(ramp, moved, None, H, W)
    places = np.random.default_rng(3).uniform(0, 1, (60, 2)) * [W, H]
    back = rectify(ramp, moved, DeformationField.fit(places, np.tile([20.0, 0.0], (60, 1))), H, W)
    np.testing.assert_array_equal(plain[:, 20:], ramp[:, :-20])
    assert (plain[:, :20] == 255).all()
    assert np.abs(back[:, 20:-20].astype(int) - ramp[:, 20:-20]).max() <= 1
    assert rectify(ramp, moved, None, 50, 60).shape == (50, 60)


@pytest.mark.parametrize("shape", [(100, 100), (150, 60)])
def test_a_page_without_room_for_patches_has_none(shape: tuple[int, int]) -> None:
    page = np.zeros(shape, dtype=np.uint8)
    assert match_patches(page, page, 40).points.shape == (0, 2)
