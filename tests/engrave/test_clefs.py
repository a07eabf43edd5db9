import numpy as np
import pytest

from entourage.engrave.clefs import CLEFS, clef_class, split_clef
from entourage.engrave.outlines import Edges, rectangle


@pytest.mark.parametrize(
    ("code", "position", "lines", "name"),
    [
        (0xE050, -2, 5, "clefG"),
        (0xE062, 2, 5, "clefF"),
        (0xE05C, 0, 5, "clefCAlto"),
        (0xE05C, 2, 5, "clefCTenor"),
        (0xE05C, -4, 5, ""),  # soprano
        (0xE05C, 1, 4, "clefCAlto"),  # the third line of four
        (0xE069, 0, 1, "clefUnpitchedPercussion"),
        (0xE0A4, 0, 5, ""),  # a notehead
    ],
)
def test_the_line_decides_between_c_clefs(code: int, position: int, lines: int, name: str) -> None:
    assert clef_class(code, position, lines) == name


def test_numbers_are_those_of_their_glyphs() -> None:
    assert {CLEFS[code][1] for code in (0xE051, 0xE054)} == {"clef15"}
    assert {CLEFS[code][1] for code in (0xE052, 0xE053)} == {"clef8"}


def heights(edges: Edges) -> tuple[float, float]:
    return float(edges[:, [1, 3]].min()), float(edges[:, [1, 3]].max())


@pytest.mark.parametrize("under", [True, False])
@pytest.mark.parametrize("hole", [True, False])
def test_a_number_is_cut_off_where_it_begins(under: bool, hole: bool) -> None:
    """A clef G of 100 pixels an em with its line at 0: a body from -90 to 50, and a digit of 23.5 beyond it."""
    body = rectangle(0, -90, 30, 140)
    top = 54.0 if under else -125.0
    digit = [rectangle(10, top, 10, 23.5)]
    if hole:
        digit.append(rectangle(12, top + 3, 6, 17)[::-1, [2, 3, 0, 1]])
    clef, number = split_clef(np.concatenate([body, *digit]), "clefG", 0.0, 100.0)
    assert heights(clef) == (-90, 50)
    assert heights(number) == (top, top + 23.5)
