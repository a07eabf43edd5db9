"""Staves of drawn pages: their course, and the distance of ledger lines."""

import pytest
from tests.read.drawn import MIDDLES, Page

from entourage.read.layout.page import read_layout
from entourage.read.layout.staves import find_staves


@pytest.mark.parametrize("offset", [-10, 10])
def test_a_box_one_line_off_does_not_shift_the_staff(offset: int) -> None:
    page = Page()
    for k in (3, 4):  # ledger lines or beams continue the pattern of the lines at the beginning
        row = MIDDLES[0] + (k if offset > 0 else -k) * 10
        page.image[row : row + 2, 60:400] = 0
    staves = find_staves(page.image, page.detections())
    assert [round(staff.y(500)) for staff in staves] == pytest.approx(MIDDLES, abs=1)
    assert staves[0].y(200) == pytest.approx(MIDDLES[0], abs=1.5)


def test_ledger_lines_that_are_farther_apart_are_measured() -> None:
    page = Page()
    for k in range(12):
        page.add("noteheadBlackOnLine", 80 + 40 * k, MIDDLES[0] - 43 - 5, 92 + 40 * k, MIDDLES[0] - 43 + 5)
    (system,) = read_layout(page.image, page.detections()).systems
    assert round(system.staves[0].position(200, MIDDLES[0] - 43)) == 8
    assert system.staves[0].position(200, MIDDLES[0] - 15) == pytest.approx(3, abs=0.3)
