import numpy as np
import pytest

from entourage.engrave.engines.verovio import SvgReader
from entourage.engrave.render.marks import Mark

GLYPH = "M0 0 L1000 0 L1000 1000 L0 1000 Z"


def read(content: str, pixels: float = 0.1) -> list[Mark]:
    defs = f'<defs><g id="E0A4-x"><path transform="scale(1,-1)" d="{GLYPH}"/></g></defs>'
    body = f'<svg viewBox="0 0 1 1"><g class="page-margin" transform="translate(100, 200)">{content}</g></svg>'
    names = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return SvgReader(pixels).read(f"<svg {names}>{defs}{body}</svg>")


def bounding_box(mark: Mark) -> list[float]:
    points = mark.edges.reshape(-1, 2)
    return [*points.min(axis=0), *points.max(axis=0)]


def test_transforms_of_a_glyph_are_applied() -> None:
    (mark,) = read(
        '<g class="note" id="n"><use xlink:href="#E0A4-x" transform="translate(50, 40) scale(0.2, 0.2)"/></g>'
    )
    assert (mark.shape, mark.code, mark.x, mark.y, mark.scale) == ("glyph", 0xE0A4, 15, 24, 20)
    assert bounding_box(mark) == pytest.approx([15, 4, 35, 24])  # y upwards in the font, downwards on the page
    assert (mark.group.kind, mark.group.id) == ("note", "n")


def test_a_group_may_be_rotated() -> None:
    (mark,) = read(
        '<g class="arpeg" transform="rotate(-90.000000 50,40)">'
        '<use xlink:href="#E0A4-x" transform="translate(150, 40) scale(0.2, 0.1)"/></g>'
    )
    assert (mark.x, mark.y) == pytest.approx((15, 14))  # 10 pixels to the right have become 10 upwards
    assert bounding_box(mark) == pytest.approx([-5, -6, 15, 14])


def test_groups_have_ancestors() -> None:
    (mark,) = read(
        '<g class="measure"><g class="staff"><g class="dots"><ellipse cx="0" cy="0" rx="40" ry="40"/></g></g></g>'
    )
    assert [g.kind for g in mark.group.ancestors()][:3] == ["dots", "staff", "measure"]
    assert mark.group.closest("measure", "staff") is mark.group.parent
    assert mark.group.closest("layer") is None
    assert bounding_box(mark) == pytest.approx([6, 16, 14, 24], abs=0.1)


def test_lines_rectangles_polygons_and_hairpins() -> None:
    line, box, beam, pin = read(
        '<path d="M0 0 L100 0" stroke-width="20"/><rect x="0" y="0" width="30" height="10"/>'
        '<polygon points="0,0 100,50 100,60 0,10"/><polyline points="100,0 0,10 100,20 " fill="none" stroke-width="2"/>'
    )
    assert bounding_box(line) == pytest.approx([10, 19, 20, 21])
    assert bounding_box(box) == pytest.approx([10, 20, 13, 21])
    assert bounding_box(beam) == pytest.approx([10, 20, 20, 26])
    assert [mark.shape for mark in (line, box, beam, pin)] == ["line", "area", "area", "line"]
    np.testing.assert_allclose(pin.points, [[20, 20], [10, 21], [20, 22]])


def test_a_slur_is_an_area_that_includes_its_stroke() -> None:
    (slur,) = read('<path d="M0,0 C0,100 200,100 200,0 C200,120 0,120 0,0" stroke-width="10" stroke-linejoin="round"/>')
    assert slur.shape == "area"
    assert bounding_box(slur) == pytest.approx([9.5, 19.5, 30.5, 29.5], abs=0.2)


def test_dashes_leave_gaps() -> None:
    (dashed,) = read('<path d="M0 0 L100 0" stroke-width="10" stroke-dasharray="10 10"/>')
    assert len(dashed.edges) == 5 * 4


def test_text_is_set_letter_by_letter_and_anchored() -> None:
    left = read(
        '<g class="syl"><text x="0" y="0" font-size="0px"><tspan><tspan font-size="500px">AB</tspan></tspan></text></g>'
    )
    middle = read(
        '<g class="syl"><text x="0" y="0" text-anchor="middle"><tspan font-size="500px">AB</tspan></text></g>'
    )
    assert [chr(mark.code) for mark in left] == ["A", "B"]
    assert left[0].x == 10
    assert left[0].x < left[1].x < 60
    width = 2 * (left[0].x - middle[0].x)
    assert width == pytest.approx((left[1].x - left[0].x) * 2, rel=0.2)
    assert read('<g class="syl"><text x="0" y="0"><tspan font-size="500px">   </tspan></text></g>') == []


def test_hidden_elements_give_no_marks() -> None:
    hidden = '<g class="section placeholder"><ellipse cx="0" cy="0" rx="9" ry="9"/></g>'
    assert read(hidden + '<g visibility="hidden"><rect x="0" y="0" width="9" height="9"/></g><title>x</title>') == []


def test_a_slur_on_a_later_system_has_the_id_of_its_first_part() -> None:
    first, alone, second = read(
        '<g class="slur" id="s1"><rect width="9" height="9"/></g><g class="slur"><rect width="9" height="9"/></g>'
        '<g class="slur id-s1 spanning"><rect width="9" height="9"/></g>'
    )
    assert [mark.group.id for mark in (first, second, alone)] == ["s1", "s1", ""]
    assert second.group.kind == "slur"
