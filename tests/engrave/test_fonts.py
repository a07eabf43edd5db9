import json
from pathlib import Path

import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen

from entourage.engrave.archives import ScoreFile
from entourage.engrave.fonts import convert_font, find_fonts
from entourage.engrave.options import FONTS, PageOptions
from entourage.engrave.scores import read_score
from entourage.engrave.verovio_engine import VerovioEngraver


def square_font(path: Path, codes: tuple[int, ...] = (0xE0A4, 0xE0A2)) -> Path:
    """A font all of whose glyphs are squares of a staff space (a quarter of an em)."""
    names = [".notdef", *(f"uni{code:04X}" for code in codes)]
    builder = FontBuilder(2000, isTTF=False)
    builder.setupGlyphOrder(names)
    builder.setupCharacterMap({code: f"uni{code:04X}" for code in codes})
    strings = {}
    for name in names:
        pen = T2CharStringPen(500, None)
        pen.moveTo((0, -250))
        for point in ((500, -250), (500, 250), (0, 250)):
            pen.lineTo(point)
        pen.closePath()
        strings[name] = pen.getCharString()
    builder.setupCFF("Square", {}, strings, {})
    builder.setupHorizontalMetrics(dict.fromkeys(names, (500, 0)))
    builder.setupHorizontalHeader(ascent=1000, descent=-1000)
    builder.setupPost()
    builder.save(path)
    return path


def test_names_are_found_in_any_case() -> None:
    assert [font.name for font in find_fonts("all")] == list(FONTS)
    assert [font.name for font in find_fonts("leipzig, Leland")] == ["Leipzig", "Leland"]
    with pytest.raises(ValueError, match="'Comic' is unknown; expected one of Bravura"):
        find_fonts("Comic")


def test_a_font_of_the_users_own_is_engraved(tmp_path: Path, score_path: Path) -> None:
    font = convert_font(square_font(tmp_path / "Square.otf"), tmp_path)
    page = next(VerovioEngraver(PageOptions(), font).engrave(read_score(ScoreFile("s", score_path))))
    heads = [box for s, box in zip(page.symbols, page.boxes, strict=True) if s.label.startswith("noteheadBlack")]
    assert heads
    for x0, y0, x1, y1 in heads:
        assert (x1 - x0, y1 - y0) == pytest.approx((20, 20), abs=1)


def test_a_file_called_like_a_bundled_font_is_not_taken_for_it(tmp_path: Path, score_path: Path) -> None:
    font = convert_font(square_font(tmp_path / "Leipzig.otf"), tmp_path)
    assert font.name == "LeipzigCustom"
    page = next(VerovioEngraver(PageOptions(), font).engrave(read_score(ScoreFile("s", score_path))))
    x0, y0, x1, y1 = next(b for s, b in zip(page.symbols, page.boxes, strict=True) if s.label == "noteheadBlackOnLine")
    assert (x1 - x0, y1 - y0) == pytest.approx((20, 20), abs=1)  # a square, unlike Leipzig's


def test_the_digest_is_that_of_outlines_and_anchors(tmp_path: Path) -> None:
    path = square_font(tmp_path / "Square.otf")
    digests = [convert_font(path, tmp_path).digest, convert_font(path).digest]
    anchors = {"noteheadBlack": {"stemUpSE": [0.5, 0.0]}}
    (tmp_path / "metadata.json").write_text(json.dumps({"glyphsWithAnchors": anchors}))
    digests.append(convert_font(path, tmp_path).digest)
    digests.append(convert_font(square_font(path, (0xE0A4,)), tmp_path).digest)
    assert digests[0] == digests[1]
    assert len({*digests}) == 3


def test_metadata_beside_the_font_says_where_stems_meet(tmp_path: Path, score_path: Path) -> None:
    path = square_font(tmp_path / "Square.otf")
    anchors = {"noteheadBlack": {"stemUpSE": [0.5, 0.0], "stemDownNW": [0.5, 0.0]}}
    path.with_suffix(".json").write_text(json.dumps({"glyphsWithAnchors": anchors}))
    font = convert_font(path, tmp_path)
    page = next(VerovioEngraver(PageOptions(), font).engrave(read_score(ScoreFile("s", score_path))))
    box = {(s.label[:4], s.element): b for s, b in zip(page.symbols, page.boxes, strict=True)}
    head, stem = box["note", "p1m1n1"], box["stem", "p1m1n1"]
    assert stem[2] < head[2] - 5  # in the middle of the head, not at its right


def test_what_is_no_music_font_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no notehead at U\+E0A4"):
        convert_font(square_font(tmp_path / "Text.otf", (0x41,)), tmp_path)
    (tmp_path / "bad.otf").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be read as a font"):
        find_fonts(str(tmp_path / "bad.otf"))
    path = square_font(tmp_path / "Square.otf")
    path.with_suffix(".json").write_text("[]")
    with pytest.raises(ValueError, match="is no SMuFL metadata"):
        convert_font(path, tmp_path)
