import pytest
from lxml import etree

from entourage.engrave.scores.notations import mei_heading, musicxml_heading, text_heading


def mei(inside: str) -> etree._Element:
    head = f"<meiHead><fileDesc><titleStmt>{inside}</titleStmt></fileDesc></meiHead>"
    return etree.fromstring(f'<mei xmlns="http://www.music-encoding.org/ns/mei">{head}</mei>')


@pytest.mark.parametrize(
    ("text", "notation"),
    [
        ("X:1\nT: Der Lindenbaum \nT:second title\nC:Franz Schubert\nK:C\nC", "abc"),
        ("!!!COM: Schubert, Franz\n!!!OTL: Der Lindenbaum\n**kern\n4c\n*-", "humdrum"),
        ("!!!OTL@@DE: Der Lindenbaum\n!!!COM: Franz Schubert\n**kern\n4c\n*-", "humdrum"),
    ],
)
def test_text_heading_reads_title_and_composer(text: str, notation: str) -> None:
    assert text_heading(text, notation) == ("Der Lindenbaum", "Franz Schubert")


def test_text_without_heading_gives_empty_strings() -> None:
    assert text_heading("X:1\nK:C\nCDEF", "abc") == ("", "")
    assert text_heading("**kern\n4c\n*-", "humdrum") == ("", "")


@pytest.mark.parametrize(
    "composer",
    [
        "<composer>Schubert, Franz</composer>",
        "<respStmt><persName role='composer'>Franz Schubert</persName></respStmt>",
    ],
)
def test_mei_heading_reads_main_title_and_composer(composer: str) -> None:
    titles = "<title type='subordinate'>5</title><title>Der\n  <rend>Lindenbaum</rend></title>"
    other = "<respStmt><persName role='lyricist'>Wilhelm Müller</persName></respStmt>"
    assert mei_heading(mei(titles + other + composer)) == ("Der Lindenbaum", "Franz Schubert")


def test_mei_without_heading_gives_empty_strings() -> None:
    assert mei_heading(etree.fromstring('<mei xmlns="http://www.music-encoding.org/ns/mei"/>')) == ("", "")


def test_musicxml_heading_prefers_the_movement_title() -> None:
    work = "<work><work-title>Winterreise</work-title></work>"
    names = "<creator type='lyricist'>Müller</creator><creator type='composer'> Franz Schubert </creator>"
    rest = f"<identification>{names}</identification>"
    both = f"<score-partwise>{work}<movement-title>Der Lindenbaum</movement-title>{rest}</score-partwise>"
    assert musicxml_heading(etree.fromstring(both)) == ("Der Lindenbaum", "Franz Schubert")
    assert musicxml_heading(etree.fromstring(f"<score-partwise>{work}</score-partwise>")) == ("Winterreise", "")
