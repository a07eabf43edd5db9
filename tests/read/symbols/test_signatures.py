import numpy as np

from entourage.read.layout.systems import StaffLines, System
from entourage.read.score import Clef
from entourage.read.symbols.glyphs import Glyph
from entourage.read.symbols.signatures import find_signs, in_key_signature

MIDDLE = 100.0


def system(n_staves: int = 1) -> System:
    """Return straight staves 150 pixels apart."""
    x = np.array([0.0, 800.0])
    return System([StaffLines(x, np.full(2, MIDDLE + 150 * k)) for k in range(n_staves)])


def glyph(name: str, x: float, position: float = 0, width: float = 8, staff: int = 0, score: float = 0.9) -> Glyph:
    """Return a symbol at a position of a staff, in steps above its middle line."""
    y = MIDDLE + 150 * staff - 5 * position
    return Glyph(name, np.array([x - width / 2, y - 8, x + width / 2, y + 8]), score)


def test_clefs_with_their_lines_and_octaves() -> None:
    glyphs = [glyph("clefG", 20), glyph("clefCTenor", 200, 2), glyph("clefF", 400)]
    eight = Glyph("clef8", np.array([16.0, 108.0, 24.0, 118.0]), 0.9)
    assert [sign.clef for sign in find_signs(system(), glyphs)] == [Clef("G", 2), Clef("C", 4), Clef("F", 4)]
    assert [sign.clef for sign in find_signs(system(), [glyphs[0], eight])] == [Clef("G", 2, -1)]


def test_key_is_the_number_of_signs() -> None:
    flats = [glyph("keyFlat", 50 + 11 * k, k) for k in range(3)]
    (key,) = find_signs(system(), flats)
    assert key.key == -3
    assert find_signs(system(), [glyph("keySharp", 50, 4)])[0].key == 1


def test_a_key_that_only_one_of_four_staves_shows_is_an_accidental() -> None:
    assert find_signs(system(4), [glyph("keySharp", 50, 4)]) == []


def test_metre_of_two_digits_and_of_one_sign() -> None:
    compound = [glyph("timeSig1", 100, 2), glyph("timeSig2", 110, 2), glyph("timeSig8", 105, -2)]
    assert find_signs(system(), compound)[0].meter == (12, 8, "")
    assert find_signs(system(), [glyph("timeSigCutCommon", 100)])[0].meter == (2, 2, "cut")


def test_a_single_digit_is_not_a_metre() -> None:
    assert find_signs(system(), [glyph("timeSig4", 100, 2)]) == []
    assert find_signs(system(), [glyph("timeSig4", 100, 12), glyph("timeSig4", 100, 16)]) == []


def test_staves_of_a_system_agree_on_the_most_frequent_value() -> None:
    digits = [
        glyph(f"timeSig{number}", 100, place, staff=staff)
        for staff, upper in enumerate((3, 3, 8))
        for number, place in ((upper, 2), (4, -2))
    ]
    assert [sign.meter for sign in find_signs(system(3), digits)] == [(3, 4, "")] * 3


def test_signs_of_a_key_are_not_accidentals() -> None:
    staves = system()
    sharp = glyph("keySharp", 50, 4)
    signs = find_signs(staves, [sharp])
    assert in_key_signature(sharp, staves, signs)
    assert not in_key_signature(glyph("keySharp", 90, 4), staves, signs)
    assert not in_key_signature(glyph("accidentalSharp", 50, 4), staves, signs)
