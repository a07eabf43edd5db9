import zipfile
from pathlib import Path

import pytest

from entourage.engrave.engines.fonts import Letter, MusicLetters

NOTE = "\ueca5"


def glyph(width: int) -> str:
    return f'<g id="ECA5"><path transform="scale(1,-1)" d="M0 0 L{width} 0 L{width} 500 L0 500 Z"/></g>'


def width(letter: Letter) -> float:
    return float(letter.edges[:, [0, 2]].max(initial=0.0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, size in (("Leipzig", 300), ("Bravura", 200)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "ECA5.xml").write_text(glyph(size))
    return tmp_path


def write_custom_font(tmp_path: Path, *names: str) -> Path:
    with zipfile.ZipFile(tmp_path / "Custom.zip", "w") as archive:
        for name in names:
            archive.writestr(name, glyph(100))
    return tmp_path / "Custom.zip"


def test_a_glyph_has_a_font_size_of_1_and_y_downwards(folder: Path) -> None:
    letter = MusicLetters(folder).letter(NOTE, "Bravura, serif")
    assert width(letter) == pytest.approx(0.2)
    assert letter.advance == pytest.approx(0.22)
    assert letter.edges[:, [1, 3]].min() == pytest.approx(-0.5)  # y downwards on the page


def test_a_custom_font_has_priority(folder: Path) -> None:
    letters = MusicLetters(folder, write_custom_font(folder, "Custom/ECA5.xml"))
    assert width(letters.letter(NOTE, "Custom")) == pytest.approx(0.1)
    assert width(letters.letter(NOTE, "Bravura")) == pytest.approx(0.2)


def test_glyphs_that_a_font_lacks_are_those_of_the_fallback_font(folder: Path) -> None:
    assert width(MusicLetters(folder, write_custom_font(folder)).letter(NOTE, "Custom")) == pytest.approx(0.3)
    assert width(MusicLetters(folder / "Leipzig").letter(NOTE, "../Bravura")) == 0  # a name is not a path
    blank = MusicLetters(folder).letter("\ueca3", "Custom")
    assert (len(blank.edges), blank.advance > 0) == (0, True)
    assert len(MusicLetters().letter(NOTE, "Leipzig").edges) == 0
