from collections.abc import Callable

import numpy as np
import pytest

from entourage.engrave.degrade import Degrader
from entourage.engrave.masks import decode_mask
from entourage.engrave.outlines import rectangle
from entourage.engrave.page import Page
from entourage.engrave.scores import parse_score
from entourage.engrave.verovio_engine import VerovioEngraver

H, W = 2668, 1894


@pytest.mark.parametrize("kind", ["scan", "photo"])
def test_boxes_and_masks_go_where_the_ink_goes(
    engraver: VerovioEngraver, engrave: Callable[[str], Page], musicxml: str, kind: str
) -> None:
    degrader = Degrader(kind, H, W, seed=5)  # type: ignore[arg-type]
    clean = engrave(musicxml)
    used = next(engraver.engrave(parse_score(musicxml, "s"), lambda _: degrader))
    assert [s.label for s in used.symbols] == [s.label for s in clean.symbols]
    corners = clean.boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 2).astype(float)
    moved = degrader.warp(corners).reshape(-1, 4, 2)
    for symbol, box, hull, mask in zip(used.symbols, used.boxes, moved, used.masks, strict=True):
        if symbol.label == "staff":
            continue  # so long that it bends more than its corners tell
        # The ink lies within the bent box of the clean ink, which a turned shape need not fill.
        assert box[0] >= hull[:, 0].min() - 1.5, symbol
        assert box[3] <= hull[:, 1].max() + 1.5, symbol
        inside = decode_mask(mask, H, W)
        if symbol.label.startswith("notehead"):
            rim = used.image[box[1] - 4 : box[3] + 4, box[0] - 4 : box[2] + 4]
            assert used.image[inside].mean() < rim.mean()


def test_bending_keeps_shapes_apart_and_areas_alike() -> None:
    degrader = Degrader("photo", H, W, seed=0)
    shapes = [rectangle(100, 100, 400, 2), np.empty((0, 4)), rectangle(900, 900, 50, 50)]
    bent = degrader.bend(shapes)
    assert [len(edges) > 4 for edges in bent] == [True, False, True]
    x0, y0, x1, y1 = bent[2].T
    determinant = np.linalg.det(degrader.homography)  # about the area's change in the middle of the page
    assert abs((x0 * y1 - x1 * y0).sum() / 2) == pytest.approx(2500 * determinant, rel=0.15)
    np.testing.assert_allclose(bent[0][0, :2], degrader.warp(np.array([[100.0, 100.0]]))[0])
    assert degrader.bend([]) == []


def test_a_photo_bends_more_than_a_scan() -> None:
    grid = np.stack(np.meshgrid(np.linspace(0, W, 9), np.linspace(0, H, 9)), axis=-1).reshape(-1, 2)
    moves = {
        kind: np.mean([np.abs(Degrader(kind, H, W, seed).warp(grid) - grid).max() for seed in range(8)])  # type: ignore[arg-type]
        for kind in ("scan", "photo")
    }
    assert moves["photo"] > 2 * moves["scan"] > 4


def test_the_finish_is_that_of_its_seed() -> None:
    page = np.full((300, 200), 255, dtype=np.uint8)
    page[100:110] = 0
    first, again, other = (Degrader("scan", 300, 200, seed).finish(page) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert first[100:110, 20:180].mean() < 120 < first[150:250, 20:180].mean()
    assert first.std(axis=1)[200] > 0  # paper is not plain


def test_unknown_kinds_are_refused() -> None:
    with pytest.raises(ValueError, match="'fax' is unknown; expected one of scan, photo"):
        Degrader("fax", H, W, 0)  # type: ignore[arg-type]
