import numpy as np
import pytest
from tests.engrave.decoded import decode_mask

from entourage.engrave.render.encoding import encode_masks, mask_pixels


def test_masks_are_decoded_as_encoded() -> None:
    rng = np.random.default_rng(0)
    masks = rng.random((5, 40, 70)) < np.array([0.0, 0.02, 0.5, 0.98, 1.0])[:, None, None]
    owner, x, y = np.nonzero(masks.transpose(0, 2, 1))
    texts = encode_masks(owner, x, y, 5, 40, 70)
    for text, mask in zip(texts, masks, strict=True):
        np.testing.assert_array_equal(decode_mask(text, 40, 70), mask)
        x, y = mask_pixels(text, 40)
        assert sorted(zip(y, x, strict=True)) == sorted(zip(*np.nonzero(mask), strict=True))


def test_encoding_equals_that_of_pycocotools() -> None:
    """Computed by hand: a 3 x 3 page with the centre pixel set has runs 4, 1, 4, of one letter each."""
    one = np.array([1])
    assert encode_masks(np.array([0]), one, one, 1, 3, 3) == ["414"]
    # Runs 100, 1, 899. 100 is 3 * 32 + 4: "T", with the bit for more letters, and "3"; 899 is 28 * 32 + 3: "S",
    # "l", and "0", without which the high bit of 28 would be a sign.
    assert encode_masks(np.array([0]), np.array([10]), np.array([0]), 1, 10, 100) == ["T31Sl0"]


def test_masks_without_pixels() -> None:
    nothing = np.empty(0, dtype=np.int64)
    assert not decode_mask(encode_masks(nothing, nothing, nothing, 2, 4, 5)[1], 4, 5).any()


@pytest.mark.parametrize("runs", [[(3, 4)], [(0, 1), (2, 1), (9, 30), (50, 3)]])
def test_differences_are_encoded_from_the_fourth_number_on(runs: list[tuple[int, int]]) -> None:
    y = np.concatenate([np.arange(a, a + n) for a, n in runs])
    text = encode_masks(np.zeros_like(y), np.zeros_like(y), y, 1, 64, 1)[0]
    assert np.flatnonzero(decode_mask(text, 64, 1)).tolist() == y.tolist()
