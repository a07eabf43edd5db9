"""Stems of noteheads whose ink is drawn, and the chords that they form."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from entourage.read.symbols.glyphs import Glyph, Head, Stem
from entourage.read.symbols.stems import attach_stems, find_stems, side_of


def head(x: float, y: float, kind: str = "black", staff: int = 0) -> Head:
    """Return a notehead 12 pixels wide and 10 pixels high."""
    return Head(Glyph("notehead", np.array([x - 6, y - 5, x + 6, y + 5]), 0.9), staff, 0, kind, False)


def stem_glyph(x: float, top: float, bottom: float) -> Glyph:
    return Glyph("stem", np.array([x - 1, top, x + 1, bottom]), 0.9)


def ink(*lines: tuple[int, int, int]) -> NDArray[np.bool_]:
    """Return the ink of vertical lines: column, first row and row after the last."""
    found = np.zeros((300, 300), dtype=bool)
    for x, top, bottom in lines:
        found[top:bottom, x] = True
    return found


def stem(x: float, top: float, bottom: float) -> Stem:
    return Stem(x, top, bottom, "up")


def names(chords: list[tuple[Stem | None, list[Head]]]) -> list[tuple[float | None, str, list[float]]]:
    """Return column and direction of the stem, and the heights of the heads, of each chord."""
    return [
        (one.x if one else None, one.direction if one else "", [member.glyph.y for member in members])
        for one, members in chords
    ]


def test_a_detected_stem_ends_where_its_ink_ends_at_most_an_interline_away() -> None:
    (found,) = find_stems([stem_glyph(100.5, 105, 145)], [], ink((100, 100, 150)))
    assert (found.x, found.top, found.bottom) == (100.5, 100, 150)
    (found,) = find_stems([stem_glyph(100.5, 105, 145)], [], ink((100, 50, 250)))
    assert (found.top, found.bottom) == (95, 156)


def test_a_stem_that_is_detected_twice_is_one() -> None:
    glyphs = [stem_glyph(100.5, 100, 140), stem_glyph(101.5, 102, 141), stem_glyph(104.5, 100, 140)]
    assert [found.x for found in find_stems(glyphs, [], ink())] == [100.5, 104.5]


def test_a_stem_is_found_in_the_ink_at_the_edge_of_a_head() -> None:
    black = head(100, 150)
    (found,) = find_stems([], [black], ink((105, 115, 151)))
    assert (found.x, found.top, found.bottom) == (105.5, 115, 151)
    assert find_stems([], [black], ink((105, 130, 151))) == []  # not longer than two interlines
    assert find_stems([], [black], ink((105, 0, 300))) == []  # a bar line
    assert find_stems([], [head(100, 150, "whole")], ink((105, 115, 150))) == []


def test_ink_is_not_searched_next_to_a_head_with_a_detected_stem() -> None:
    lines = ink((105, 115, 150), (95, 150, 190))
    assert [found.x for found in find_stems([stem_glyph(105.5, 115, 150)], [head(100, 150)], lines)] == [105.5]


@pytest.mark.parametrize(
    ("x", "top", "bottom", "side"),
    [
        (105.5, 110, 150, "right"),
        (94.5, 150, 190, "left"),
        (109.5, 110, 150, ""),  # more than 3.5 pixels from the edge
        (105.5, 100, 142, ""),  # ends more than 7 pixels above the centre
        (105.5, 100, 144, "right"),
    ],
)
def test_side_of_a_stem(x: float, top: float, bottom: float, side: Literal["", "left", "right"]) -> None:
    assert side_of(head(100, 150), stem(x, top, bottom)) == side


def test_heads_of_one_stem_are_a_chord_from_low_to_high_and_its_direction_leads_away() -> None:
    heads = [head(100, 140), head(100, 150)]
    assert names(attach_stems(heads, [stem(105.5, 100, 150)])) == [(105.5, "up", [150, 140])]
    assert names(attach_stems(heads, [stem(94.5, 140, 190)])) == [(94.5, "down", [150, 140])]


def test_a_head_of_two_voices_belongs_to_both_chords() -> None:
    heads = [head(100, 150)]
    stems = [stem(105.5, 110, 150), stem(94.5, 150, 190)]
    assert names(attach_stems(heads, stems)) == [(105.5, "up", [150]), (94.5, "down", [150])]


def test_a_head_between_two_stems_belongs_to_one() -> None:
    # The second head touches the stem of the first on the wrong side; its own stem is at its right side.
    heads = [head(100, 150), head(111, 150)]
    stems = [stem(105.5, 110, 150), stem(116.5, 110, 150)]
    assert names(attach_stems(heads, stems)) == [(105.5, "up", [150]), (116.5, "up", [150])]


def test_only_whole_notes_one_above_the_other_are_a_chord_without_stem() -> None:
    heads = [head(100, 150, "whole"), head(102, 130, "whole"), head(140, 130, "whole"), head(100, 250, "whole", 1)]
    assert names(attach_stems(heads, [])) == [(None, "", [150, 130]), (None, "", [130]), (None, "", [250])]
    assert len(attach_stems([head(100, 150), head(102, 130)], [])) == 2
    assert len(attach_stems([head(100, 150, "whole")], [stem(105.5, 110, 150)])) == 1  # whole notes have no stem
