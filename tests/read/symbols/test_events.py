"""Tests of chords and rests of a drawn system."""

from __future__ import annotations

from tests.read.drawn import MIDDLES, Page

from entourage.read.assemble import read_symbols


def test_dots_one_above_the_other_belong_to_two_heads() -> None:
    page = Page()
    page.clef(0, "clefG")
    page.clef(1, "clefG")
    for k in range(4):
        page.note(1, 100 + 50 * k, 0)
    page.note(0, 100, 0, "Half")
    page.note(0, 100, 1, "Half")
    for dy in (-3, -7):
        page.add("augmentationDot", 118, MIDDLES[0] + dy - 2, 122, MIDDLES[0] + dy + 2)
    page.note(0, 250, 0)
    _, (reading,) = read_symbols(page.image, page.detections(), method="rules")
    halves = [chord for chord in reading.parts[0][0].chords if chord.value == "half"]
    assert halves
    assert all(chord.dots == 1 for chord in halves)
