from collections.abc import Callable

import numpy as np
from tests.engrave.decoded import decode_mask

from entourage.engrave.render.marks import AnnotatedMarks, Group, Mark, Symbol
from entourage.engrave.render.outlines import fill_edges, rectangle
from entourage.engrave.render.page import Page, render_page
from entourage.symbols import EXTENDED_IDS, FULL_IDS

Engrave = Callable[[str], Page]


def render_shapes(**shapes: np.ndarray) -> Page:
    marks = [Mark("area", edges, Group()) for edges in shapes.values()]
    symbols = [Symbol(label, "", [i], Group()) for i, label in enumerate(shapes)]
    return render_page(marks, AnnotatedMarks(symbols), 40, 60)


def test_image_box_and_mask_are_consistent(engrave: Engrave, musicxml: str) -> None:
    page = engrave(musicxml)
    assert len(page.symbols) > 15
    dark = page.image <= 128
    for k, (symbol, box) in enumerate(zip(page.symbols, page.boxes, strict=True)):
        mask = decode_mask(page.masks[k], *page.image.shape)
        y, x = np.nonzero(mask)
        assert (x.min(), y.min(), x.max() + 1, y.max() + 1) == tuple(box), symbol
        assert dark[mask].mean() > 0.95, symbol  # half-covered pixels may be rounded either way
        assert mask.sum() == page.areas[k]


def test_segmentation_and_instances_are_consistent(engrave: Engrave, musicxml: str) -> None:
    page = engrave(musicxml)
    instances = page.instances()
    segmentation = page.segmentation(EXTENDED_IDS)
    full = page.segmentation(FULL_IDS)
    np.testing.assert_array_equal(instances > 0, full > 0)
    assert (full[segmentation > 0] > 0).all()
    number = {i: FULL_IDS[s.label] for i, s in enumerate(page.symbols, start=1) if s.label}
    assert FULL_IDS["barlineSingle"] in number.values()
    np.testing.assert_array_equal(full, np.array([0, *number.values()])[instances])
    number = {i: EXTENDED_IDS[s.label] for i, s in enumerate(page.symbols, start=1) if s.extended}
    for i in np.intersect1d(instances, list(number)):
        assert set(np.unique(segmentation[instances == i])) == {number[int(i)]}


def test_pixels_of_overlapping_symbols_belong_to_the_finer_one() -> None:
    page = render_shapes(noteheadBlackOnLine=rectangle(10, 10, 8, 8), staff=rectangle(0, 13, 60, 2))
    segmentation = page.segmentation(EXTENDED_IDS)
    assert segmentation[13, 12] == EXTENDED_IDS["noteheadBlackOnLine"]
    assert segmentation[13, 30] == EXTENDED_IDS["staff"]
    staff = next(k for k, s in enumerate(page.symbols) if s.label == "staff")
    assert page.areas[staff] == 120  # including hidden pixels


def test_symbols_beyond_the_page_are_clipped_or_omitted() -> None:
    page = render_shapes(stem=rectangle(-5, 10, 10, 2), beam=rectangle(100, 10, 10, 2), tie=fill_edges([]))
    assert [s.label for s in page.symbols] == ["stem"]
    assert page.boxes.tolist() == [[0, 10, 5, 12]]
    assert render_shapes(tie=fill_edges([])).boxes.shape == (0, 4)


def test_thin_lines_have_pixels() -> None:
    assert render_shapes(stem=rectangle(10.4, 10, 0.2, 5)).boxes.tolist() == [[10, 10, 11, 15]]


def test_dark_pixels_between_symbols_are_assigned() -> None:
    """Two shapes that cover a column by 0.45 and 0.4 make it dark, although neither covers half of it."""
    page = render_shapes(stem=rectangle(10, 10, 5.45, 5), beam=rectangle(15.6, 10, 5, 5))
    assert (page.image[10:15, 15] < 128).all()
    assert (page.segmentation(EXTENDED_IDS)[10:15, 15] == EXTENDED_IDS["stem"]).all()


def test_slanted_symbols_have_an_oriented_box() -> None:
    slanted = fill_edges([np.array([[10.0, 10], [50, 20], [50, 24], [10, 14]])])
    page = render_shapes(beam=slanted)
    sides = np.linalg.norm(np.diff(page.oriented[0], axis=0), axis=1)
    assert np.isclose(sorted(sides)[-1], np.hypot(40, 10), atol=1.5)
    assert sides.min() < 4.1  # the height of the axis-aligned box is 14
    upright = render_shapes(stem=rectangle(5, 5, 2, 20)).oriented[0]
    assert upright.tolist() == [[7, 25], [7, 5], [5, 5], [5, 25]]
