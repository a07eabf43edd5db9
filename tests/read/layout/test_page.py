"""Tests of the layout of drawn pages."""

from __future__ import annotations

import pytest
from tests.read.drawn import BARS, LEFT, MIDDLES, RIGHT, Page

from entourage.read.layout.page import read_layout


def test_two_joined_staves_are_one_system_of_one_part() -> None:
    page = Page()
    layout = read_layout(page.image, page.detections())
    (system,) = layout.systems
    assert [round(staff.y(300)) for staff in system.staves] == pytest.approx(MIDDLES, abs=1)
    assert system.groups == [(0, 1)]
    assert [bar.x for bar in system.bars] == pytest.approx([x + 1 for x in BARS], abs=2)
    assert system.left == pytest.approx(LEFT, abs=3)
    assert system.right == pytest.approx(RIGHT, abs=3)


def test_a_page_without_staves_has_no_system() -> None:
    page = Page()
    page.image[:] = 255
    assert read_layout(page.image, page.detections()).systems == []
