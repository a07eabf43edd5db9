"""Tests of the layout of drawn pages."""

from __future__ import annotations

import numpy as np
import pytest
from tests.read.drawn import BARS, LEFT, MIDDLES, RIGHT, Page

from entourage.read.layout.ink import binarize
from entourage.read.layout.page import read_layout
from entourage.read.layout.staves import find_staves


def test_two_joined_staves_are_one_system_of_one_part() -> None:
    page = Page()
    layout = read_layout(page.image, page.detections())
    (system,) = layout.systems
    assert [round(staff.y(300)) for staff in system.staves] == pytest.approx(MIDDLES, abs=1)
    assert system.groups == [(0, 1)]
    assert [bar.x for bar in system.bars] == pytest.approx([x + 1 for x in BARS], abs=2)
    assert system.left == pytest.approx(LEFT, abs=3)
    assert system.right == pytest.approx(RIGHT, abs=3)


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


def test_faint_lines_on_grey_paper_are_ink() -> None:
    image = np.full((120, 120), 180, dtype=np.uint8)
    image[60:62] = 90
    ink = binarize(image)
    assert ink[60:62].all()
    assert ink.sum() == ink[60:62].sum()


def test_a_page_without_staves_has_no_system() -> None:
    page = Page()
    page.image[:] = 255
    assert read_layout(page.image, page.detections()).systems == []
