import numpy as np
import pytest

from entourage.engrave.annotate.assign_classes import CLEFS, clef_class, split_clef
from entourage.engrave.render.outlines import Edges, fill_edges, rectangle


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
def test_the_class_of_a_c_clef_depends_on_its_line(code: int, position: int, lines: int, name: str) -> None:
    assert clef_class(code, position, lines) == name


def test_octave_clefs_have_the_number_of_their_glyph() -> None:
    assert {CLEFS[code][1] for code in (0xE051, 0xE054)} == {"clef15"}
    assert {CLEFS[code][1] for code in (0xE052, 0xE053)} == {"clef8"}


def heights(edges: Edges) -> tuple[float, float]:
    return float(edges[:, [1, 3]].min()), float(edges[:, [1, 3]].max())


@pytest.mark.parametrize("under", [True, False])
@pytest.mark.parametrize("hole", [True, False])
def test_octave_clefs_are_split_between_clef_and_number(under: bool, hole: bool) -> None:
    """A G clef of 100 pixels per em with its line at 0, connected to a digit of 23.5 pixels above or below."""
    start, end = (53.0, 76.5) if under else (-100.0, -123.5)
    far = -90.0 if under else 50.0
    outline = [(0, far), (30, far), (30, start), (20, start), (20, end), (10, end), (10, start), (0, start)]
    edges = [fill_edges([np.array(outline, dtype=float)])]
    if hole:
        edges.append(rectangle(12, min(start, end) + 4, 6, 16))
    clef, number = split_clef(np.concatenate(edges), "clefG", 0.0, 100.0)
    # Without a hole the height of the digit is assumed; otherwise the cut is an eighth of this height from the hole.
    cut = start if not hole else 57 - 23.5 / 8 if under else -103.5 + 23.5 / 8
    assert heights(clef) == pytest.approx(tuple(sorted((far, cut))))
    assert heights(number) == pytest.approx(tuple(sorted((cut, end))))
