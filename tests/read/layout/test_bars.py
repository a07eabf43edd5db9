"""Bar lines of drawn pages."""

from tests.read.drawn import BARS, MIDDLES, Page

from entourage.read.layout.page import read_layout


def test_a_bar_line_next_to_a_notehead_is_found() -> None:
    page = Page()
    page.note(0, BARS[0] + 8, 0)
    (system,) = read_layout(page.image, page.detections()).systems
    assert len(system.bars) == 2


def test_a_stem_is_no_bar_line() -> None:
    page = Page()
    page.image[MIDDLES[0] - 20 : MIDDLES[0] + 21, 200:202] = 0
    page.add("noteheadBlackOnLine", 189, MIDDLES[0] + 15, 201, MIDDLES[0] + 25)
    (system,) = read_layout(page.image, page.detections()).systems
    assert len(system.bars) == 2
