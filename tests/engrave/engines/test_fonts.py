import json
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen
from fontTools.ttLib import TTFont
from tests.engrave.conftest import build_score, direction, note

from entourage.engrave.engines.fonts import convert_font, find_fonts
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import FONTS, PageOptions
from entourage.engrave.scores.archives import ScoreFile
from entourage.engrave.scores.parsing import parse_score, read_score

HEIGHTS = {0xE050: 1.75, 0xE240: 0.8}  # ems of the G clef and the flag


def square_font(path: Path, codes: tuple[int, ...] = (0xE0A4, 0xE0A2), heights: dict[int, float] | None = None) -> Path:
    """Write a font whose glyphs are squares of a staff space (a quarter of an em), or rectangles of other heights."""
    heights = HEIGHTS if heights is None else heights
    tall = {f"uni{code:04X}": heights.get(code, 0.25) for code in (*codes, *heights)}
    builder = FontBuilder(2000, isTTF=False)
    builder.setupGlyphOrder([".notdef", *tall])
    builder.setupCharacterMap({int(name[3:], 16): name for name in tall})
    strings = {}
    for name, height in {".notdef": 0.25, **tall}.items():
        pen = T2CharStringPen(500, None)
        pen.moveTo((0, -1000 * height))
        for point in ((500, -1000 * height), (500, 1000 * height), (0, 1000 * height)):
            pen.lineTo(point)
        pen.closePath()
        strings[name] = pen.getCharString()
    builder.setupCFF("Square", {}, strings, {})
    builder.setupHorizontalMetrics(dict.fromkeys(strings, (500, 0)))
    builder.setupHorizontalHeader(ascent=1000, descent=-1000)
    builder.setupPost()
    builder.save(path)
    return path


def test_names_are_case_insensitive() -> None:
    assert [font.name for font in find_fonts("all")] == list(FONTS)
    assert [font.name for font in find_fonts("leipzig, Leland")] == ["Leipzig", "Leland"]
    with pytest.raises(ValueError, match="'Comic' is unknown; expected one of Bravura"):
        find_fonts("Comic")


def test_a_custom_font_is_engraved(tmp_path: Path, score_path: Path) -> None:
    font = convert_font(square_font(tmp_path / "Square.otf"), tmp_path)
    page = next(VerovioEngraver(PageOptions(), font).engrave(read_score(ScoreFile("s", score_path))))
    heads = [box for s, box in zip(page.symbols, page.boxes, strict=True) if s.label.startswith("noteheadBlack")]
    assert heads
    for x0, y0, x1, y1 in heads:
        assert (x1 - x0, y1 - y0) == pytest.approx((20, 20), abs=1)


def test_music_inside_text_uses_the_custom_font(tmp_path: Path) -> None:
    metronome = direction("<metronome><beat-unit>quarter</beat-unit><per-minute>60</per-minute></metronome>")
    score = parse_score(build_score(metronome + note("A4", 32, "whole")), "s")
    glyphs = []
    for codes in ((0xE0A4, 0xE0A2, 0xECA5), (0xE0A4, 0xE0A2)):
        engraver = VerovioEngraver(PageOptions(), convert_font(square_font(tmp_path / "Square.otf", codes), tmp_path))
        page = next(engraver.engrave(score))
        assert page.unlabelled == ["0xeca5"]
        heights = [np.ptp(edges[:, [1, 3]]) for edges in page.unassigned]
        glyphs.append(any(height == pytest.approx(20, abs=0.1) for height in heights))  # the square, a space tall
    assert glyphs == [True, False]  # without a glyph in the font, that of another font is used


def test_a_custom_font_with_the_name_of_a_bundled_font_is_renamed(tmp_path: Path, score_path: Path) -> None:
    font = convert_font(square_font(tmp_path / "Leipzig.otf"), tmp_path)
    assert font.name == "LeipzigCustom"
    page = next(VerovioEngraver(PageOptions(), font).engrave(read_score(ScoreFile("s", score_path))))
    x0, y0, x1, y1 = next(b for s, b in zip(page.symbols, page.boxes, strict=True) if s.label == "noteheadBlackOnLine")
    assert (x1 - x0, y1 - y0) == pytest.approx((20, 20), abs=1)  # a square, unlike Leipzig's


def test_the_digest_depends_on_outlines_and_anchors(tmp_path: Path) -> None:
    path = square_font(tmp_path / "Square.otf")
    digests = [convert_font(path, tmp_path).digest, convert_font(path).digest]
    anchors = {"noteheadBlack": {"stemUpSE": [0.5, 0.0]}}
    (tmp_path / "metadata.json").write_text(json.dumps({"glyphsWithAnchors": anchors}))
    digests.append(convert_font(path, tmp_path).digest)
    digests.append(convert_font(square_font(path, (0xE0A4,)), tmp_path).digest)
    assert digests[0] == digests[1]
    assert len({*digests}) == 3


def test_stem_anchors_are_read_from_the_metadata_file(tmp_path: Path, score_path: Path) -> None:
    path = square_font(tmp_path / "Square.otf")
    anchors = {"noteheadBlack": {"stemUpSE": [0.5, 0.0], "stemDownNW": [0.5, 0.0]}}
    path.with_suffix(".json").write_text(json.dumps({"glyphsWithAnchors": anchors}))
    font = convert_font(path, tmp_path)
    page = next(VerovioEngraver(PageOptions(), font).engrave(read_score(ScoreFile("s", score_path))))
    box = {(s.label[:4], s.element): b for s, b in zip(page.symbols, page.boxes, strict=True)}
    head, stem = box["note", "p1m1n1"], box["stem", "p1m1n1"]
    assert stem[2] < head[2] - 5  # in the centre of the head, not at its right


@pytest.mark.parametrize(
    ("heights", "message"),
    [
        (HEIGHTS | {0xE0A4: 0.1}, r"U\+E0A4 is 0\.10 em tall; expected 0\.15 to 0\.45 em, as the notehead"),
        (HEIGHTS | {0xE0A4: 0.7}, r"U\+E0A4 is 0\.70 em tall; expected 0\.15 to 0\.45 em, as the"),
        ({0xE240: 0.8}, r"no G clef at U\+E050; expected a SMuFL font"),
        ({0xE050: 0.28, 0xE240: 0.8}, r"U\+E050 is 0\.28 em tall; expected 1 to 2\.5 em, as the G clef"),
        ({0xE050: 1.75}, r"no flag at U\+E240; expected a SMuFL font"),
        ({0xE050: 1.75, 0xE240: 0.38}, r"U\+E240 is 0\.38 em tall; expected 0\.4 to 1\.5 em, as the"),
    ],
)
def test_other_glyphs_at_the_same_code_points_raise_an_error(
    tmp_path: Path, heights: dict[int, float], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        convert_font(square_font(tmp_path / "Other.otf", heights=heights), tmp_path)


def test_a_font_with_other_private_glyphs_raises_an_error(tmp_path: Path) -> None:
    letters = Path(mpl.get_data_path()) / "fonts" / "ttf" / "STIXNonUni.ttf"  # it has a glyph at U+E0A4
    with pytest.raises(ValueError, match=r"expected 0\.15 to 0\.45 em, as the notehead of a SMuFL font"):
        convert_font(letters, tmp_path)


def test_text_fonts_and_other_files_raise_errors(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Text\.otf: .*; expected a SMuFL font"):
        convert_font(square_font(tmp_path / "Text.otf", (0x41,)), tmp_path)
    (tmp_path / "bad.otf").write_bytes(b"nothing")
    with pytest.raises(ValueError, match=r"bad\.otf: .*; expected an OpenType or TrueType font"):
        find_fonts(str(tmp_path / "bad.otf"))


@pytest.mark.parametrize("anchors", [1, {"noteheadBlack": 1}, {"noteheadBlack": {"stemUpSE": [0.5]}}])
def test_invalid_metadata_raises_an_error(tmp_path: Path, anchors: object) -> None:
    path = square_font(tmp_path / "Square.otf")
    for text in ("[]", json.dumps({"glyphsWithAnchors": anchors})):
        path.with_suffix(".json").write_text(text)
        with pytest.raises(ValueError, match=r"Square\.json: .*; expected the metadata of a SMuFL font"):
            convert_font(path, tmp_path)


def test_a_font_with_a_symbol_encoding_only_raises_an_error(tmp_path: Path) -> None:
    path = square_font(tmp_path / "Symbol.otf")
    with TTFont(path) as font:
        for table in font["cmap"].tables:
            table.platformID, table.platEncID = 3, 0
        font["cmap"].tables = font["cmap"].tables[:1]
        font.save(path)
    with TTFont(path) as font:
        assert font.getBestCmap() is None
    with pytest.raises(ValueError, match=r"Symbol\.otf: has no notehead at U\+E0A4; expected a SMuFL font"):
        convert_font(path, tmp_path)


@pytest.mark.parametrize(
    ("table", "byte"), [("CFF ", b"\xff"), ("cmap", b"\xff"), ("head", b"\0"), ("hhea", b"\xff"), ("maxp", b"\xff")]
)
def test_damaged_tables_raise_a_single_line(tmp_path: Path, table: str, byte: bytes) -> None:
    path = square_font(tmp_path / "Damaged.otf")
    with TTFont(path) as font:
        entry = font.reader.tables[table]
    data = bytearray(path.read_bytes())
    data[entry.offset : entry.offset + entry.length] = byte * entry.length
    path.write_bytes(data)
    with pytest.raises(ValueError, match=r"Damaged\.otf: .*: \S.*; expected an OpenType or TrueType font") as caught:
        convert_font(path, tmp_path)
    assert "\n" not in str(caught.value)
