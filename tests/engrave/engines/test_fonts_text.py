import numpy as np

from entourage.engrave.engines.fonts import Typeface
from entourage.engrave.render.raster import rasterise


def test_letters_start_at_the_baseline_and_have_their_height() -> None:
    letter = Typeface().letter("H")
    assert letter.edges[:, 1].max() == 0
    assert -0.7 < letter.edges[:, 1].min() < -0.6  # the height of capitals is two thirds of an em
    assert 0.6 < letter.advance < 0.8


def test_styles_differ_and_letters_have_holes() -> None:
    typeface = Typeface()
    plain, bold, italic = typeface.letter("o"), typeface.letter("o", bold=True), typeface.letter("o", italic=True)
    ink = [rasterise([letter.edges * 100]).coverage.sum() for letter in (plain, bold, italic)]
    assert ink[1] > 1.2 * ink[0]
    assert len({round(float(i)) for i in ink}) == 3
    middle = plain.edges.reshape(-1, 2).mean(axis=0) * 100
    touched = rasterise([plain.edges * 100])
    assert not np.any((touched.x == int(middle[0])) & (touched.y == int(np.floor(middle[1]))))


def test_other_scripts_use_the_fallback_font_and_unknown_characters_are_blank() -> None:
    typeface = Typeface()
    assert len(typeface.letter("ж").edges)
    blank = typeface.letter("\U000f0000")
    assert len(blank.edges) == 0
    assert blank.advance > 0
