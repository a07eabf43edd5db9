from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tests.engrave.conftest import build_score, note

from entourage.engrave.annotate.barlines import barline_class, is_dot, split_barlines
from entourage.engrave.render.marks import Group, Mark
from entourage.engrave.render.outlines import ellipse, rectangle
from entourage.engrave.render.page import Page

Engrave = Callable[[str], Page]
INTERLINE = 20.0


def line(x: float, y: float = 0.0, width: float = 3.0, height: float = 80.0) -> Mark:
    return Mark("line", rectangle(x, y, width, height), Group())


def dot(x: float, y: float = 40.0) -> Mark:
    return Mark("area", ellipse(x, y, 4, 4), Group())


def dashed(x: float) -> Mark:
    return Mark("line", np.concatenate([rectangle(x, y, 3, 10) for y in range(0, 80, 20)]), Group())


@pytest.mark.parametrize(
    ("marks", "expected"),
    [
        ([line(0)], "barlineSingle"),
        ([line(0), line(10)], "barlineDouble"),
        ([line(0), line(10, width=10)], "barlineFinal"),
        ([dashed(0)], "barlineDashed"),
        ([dot(0, y) for y in (10, 30, 50, 70)], "barlineDashed"),
        ([line(0, width=10), line(18), dot(30)], "repeatLeft"),
        ([dot(-10), line(0), line(10, width=10)], "repeatRight"),
        ([dot(-10), line(0), line(8, width=10), line(25), dot(40)], "repeatRightLeft"),
        ([line(0, width=10)], ""),
        ([line(0, width=10), line(18)], ""),
        ([dot(0)], ""),
    ],
)
def test_lines_and_dots_determine_the_class(marks: list[Mark], expected: str) -> None:
    assert barline_class(range(len(marks)), marks, INTERLINE) == expected


def test_pieces_that_join_are_one_line() -> None:
    marks = [line(0), line(0, 80, height=100), line(0, 180)]  # two staves and the line between them
    marks += [line(300), line(300, 180)]  # another line, which does not join the staves
    marks += [line(0, 800), line(12, 800, width=10), dot(-8, 830)]  # the repeat sign of another system
    assert split_barlines(range(8), marks, INTERLINE) == [[0, 1, 2], [3], [4], [5, 6, 7]]
    assert split_barlines([], marks, INTERLINE) == []


def test_dots_are_small_in_both_directions() -> None:
    assert is_dot(dot(0), INTERLINE)
    assert not is_dot(line(0), INTERLINE)


@pytest.mark.parametrize(
    ("style", "repeat", "expected"),
    [
        ("regular", "", "barlineSingle"),
        ("light-light", "", "barlineDouble"),
        ("light-heavy", "", "barlineFinal"),
        ("dashed", "", "barlineDashed"),
        ("dotted", "", "barlineDashed"),
        ("light-heavy", "<repeat direction='backward'/>", "repeatRight"),
    ],
)
def test_bar_lines_of_verovio_have_their_class(engrave: Engrave, style: str, repeat: str, expected: str) -> None:
    bar = f"<barline location='right'><bar-style>{style}</bar-style>{repeat}</barline>"
    page = engrave(build_score(note("A4", 32, "whole") + bar))
    (symbol,) = [s for s in page.symbols if s.label.startswith(("barline", "repeatR", "repeatL"))]
    assert (symbol.label, symbol.v1, symbol.extended) == (expected, "", "")
    assert (symbol.measure, symbol.system, symbol.staff, symbol.voice) == (1, 1, 1, 0)
    dots = [s for s in page.symbols if s.label == "repeatDot"]
    assert len(dots) == 2 * bool(repeat)
    assert all((s.measure, s.system, s.staff) == (1, 1, 1) for s in dots)
