from pathlib import Path

import numpy as np
import pytest

from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import FONTS, MusicFont, PageOptions
from entourage.engrave.scores.archives import ScoreFile, find_scores
from entourage.engrave.scores.parsing import Score, read_score


@pytest.mark.parametrize("interline", [10.0, 20.0, 27.0])
def test_the_distance_of_staff_lines_is_the_interline(score_path: Path, interline: float) -> None:
    options = PageOptions(width=900, height=1200, interline=interline, margin=20)
    page = next(VerovioEngraver(options, MusicFont("Leipzig")).engrave(read_score(ScoreFile("s", score_path))))
    assert page.image.shape == (1200, 900)
    staff = next(box for symbol, box in zip(page.symbols, page.boxes, strict=True) if symbol.label == "staff")
    assert abs(staff[3] - staff[1] - 4 * interline) <= 1 + 0.15 * interline / 2  # five lines, and their width


@pytest.mark.parametrize("font", FONTS)
def test_every_font_draws_the_same_symbols(score_path: Path, font: str) -> None:
    options = PageOptions(width=1200, height=800)
    pages = [
        next(VerovioEngraver(options, MusicFont(name)).engrave(read_score(ScoreFile("s", score_path))))
        for name in (font, "Leipzig")
    ]
    assert sorted(s.label for s in pages[0].symbols) == sorted(s.label for s in pages[1].symbols)
    assert font == "Leipzig" or (pages[0].image != pages[1].image).any()


def test_the_same_score_gives_the_same_page_and_ids(score_path: Path) -> None:
    score = read_score(ScoreFile("s", score_path))
    engraver = VerovioEngraver(PageOptions(), MusicFont("Leland"))
    first, again = next(engraver.engrave(score)), next(engraver.engrave(score))
    np.testing.assert_array_equal(first.image, again.image)
    assert [s.group.id for s in first.symbols] == [s.group.id for s in again.symbols]


@pytest.mark.parametrize(
    ("notation", "text"),
    [
        ("abc", "X:1\nT:Tune\nM:4/4\nL:1/4\nK:G\nGABc|d4|]\n"),
        ("humdrum", "**kern\n*clefG2\n*M4/4\n4g\n4a\n4b\n4cc\n==\n*-\n"),
        (
            "mei",
            "<mei xmlns='http://www.music-encoding.org/ns/mei'><music><body><mdiv><score><scoreDef><staffGrp>"
            "<staffDef n='1' lines='5' clef.shape='G' clef.line='2'/></staffGrp></scoreDef><section><measure>"
            "<staff n='1'><layer n='1'><note xml:id='n' pname='c' oct='5' dur='1'/></layer></staff></measure>"
            "</section></score></mdiv></body></music></mei>",
        ),
    ],
)
def test_other_notations_are_engraved(engraver: VerovioEngraver, notation: str, text: str) -> None:
    page = next(engraver.engrave(Score("s", text, notation)))  # type: ignore[arg-type]
    heads = [s for s in page.symbols if s.label.startswith("notehead")]
    assert heads
    assert all(s.pitch and s.onset is not None and s.duration for s in heads)


def test_tunes_of_one_file_have_separate_keys_and_note_lengths(engraver: VerovioEngraver, tmp_path: Path) -> None:
    path = tmp_path / "tunes.abc"
    path.write_text("L:1/2\n\nX:1\nT:One\nM:2/2\nK:G\nFB|]\n\nX:2\nT:Two\nM:2/2\nL:1/4\nK:F\nFBFB|]\n")
    notes_by_font = []
    for file in find_scores([path]):
        page = next(engraver.engrave(read_score(file)))
        heads = sorted((s for s in page.symbols if s.label.startswith("notehead")), key=lambda s: s.onset or 0)
        notes_by_font.append([(s.pitch, s.duration) for s in heads])
    assert notes_by_font == [[("F#4", 2), ("B4", 2)], [("F4", 1), ("Bb4", 1)] * 2]


def test_an_invalid_score_raises_an_error(engraver: VerovioEngraver) -> None:
    with pytest.raises(ValueError, match=r"broken: .*mei"):
        next(engraver.engrave(Score("broken", "<mei", "mei")))
