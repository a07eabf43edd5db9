from collections.abc import Callable

import numpy as np
import pytest
from tests.engrave.decoded import decode_mask

from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.outlines import rectangle
from entourage.engrave.render.page import Page
from entourage.engrave.scores.parsing import parse_score

H, W = 2668, 1894


@pytest.mark.parametrize("kind", ["scan", "photo"])
def test_boxes_and_masks_are_warped_like_the_ink(
    engraver: VerovioEngraver, engrave: Callable[[str], Page], musicxml: str, kind: str
) -> None:
    degrader = Degrader(kind, H, W, seed=5)  # type: ignore[arg-type]
    clean = engrave(musicxml)
    degraded = next(engraver.engrave(parse_score(musicxml, "s"), lambda _: degrader))
    assert [s.label for s in degraded.symbols] == [s.label for s in clean.symbols]
    for symbol, box, before, after in zip(degraded.symbols, degraded.boxes, clean.masks, degraded.masks, strict=True):
        # The box is computed independently, from the warped corners of the clean pixels.
        y, x = np.nonzero(decode_mask(before, H, W))
        corners = np.concatenate([np.stack([x + i, y + j], axis=1) for i in (0, 1) for j in (0, 1)]).astype(float)
        moved = degrader.warp_points(corners)
        expected = [*moved.min(axis=0), *moved.max(axis=0)]
        # Pixels are ink if half of them is covered, so each side may differ by one pixel, and slightly by the rotation.
        np.testing.assert_allclose(box, expected, atol=1.7, err_msg=str(symbol))
        inside = decode_mask(after, H, W)
        centres = np.floor(degrader.warp_points(np.stack([x, y], axis=1) + 0.5)).astype(int)
        if symbol.label.startswith("notehead"):
            assert inside[centres[:, 1], centres[:, 0]].mean() > 0.85
            assert abs(inside.sum() / len(x) - 1) < 0.3  # the page is scaled down
            rim = degraded.image[box[1] - 4 : box[3] + 4, box[0] - 4 : box[2] + 4]
            assert degraded.image[inside].mean() < rim.mean()


def test_warped_shapes_are_separate_and_have_similar_areas() -> None:
    degrader = Degrader("photo", H, W, seed=0)
    shapes = [rectangle(100, 100, 400, 2), np.empty((0, 4)), rectangle(900, 900, 50, 50)]
    bent = degrader.warp_outlines(shapes)
    assert [len(edges) > 4 for edges in bent] == [True, False, True]
    x0, y0, x1, y1 = bent[2].T
    determinant = np.linalg.det(degrader.homography)  # approximate change of area at the centre of the page
    assert abs((x0 * y1 - x1 * y0).sum() / 2) == pytest.approx(2500 * determinant, rel=0.15)
    np.testing.assert_allclose(bent[0][0, :2], degrader.warp_points(np.array([[100.0, 100.0]]))[0])
    assert degrader.warp_outlines([]) == []


def test_a_photo_is_warped_more_than_a_scan() -> None:
    grid = np.stack(np.meshgrid(np.linspace(0, W, 9), np.linspace(0, H, 9)), axis=-1).reshape(-1, 2)
    moves = {
        kind: np.mean([np.abs(Degrader(kind, H, W, seed).warp_points(grid) - grid).max() for seed in range(8)])  # type: ignore[arg-type]
        for kind in ("scan", "photo")
    }
    assert moves["photo"] > 2 * moves["scan"] > 4


def test_the_degraded_image_depends_on_the_seed() -> None:
    page = np.full((300, 200), 255, dtype=np.uint8)
    page[100:110] = 0
    first, again, other = (Degrader("scan", 300, 200, seed).degrade_image(page) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert first[100:110, 20:180].mean() < 120 < first[150:250, 20:180].mean()
    assert first.std(axis=1)[200] > 0  # paper is not uniform


def test_unknown_kinds_raise_an_error() -> None:
    with pytest.raises(ValueError, match="'fax' is unknown; expected one of scan, photo"):
        Degrader("fax", H, W, 0)  # type: ignore[arg-type]
