import re
from pathlib import Path

import pytest
from lxml import etree

from entourage.engrave.scores.archives import ScoreFile
from entourage.engrave.scores.parsing import Score, read_score


def read(tmp_path: Path, content: str | bytes, name: str = "a.xml") -> Score:
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return read_score(ScoreFile("a", path))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "latin-1"])
def test_encodings_give_the_same_score(tmp_path: Path, musicxml: str, encoding: str) -> None:
    declared = musicxml.replace("UTF-8", "ISO-8859-1" if encoding == "latin-1" else encoding.removesuffix("-sig"))
    score = read(tmp_path, declared.encode(encoding))
    assert (score.title, score.composer, score.notation) == ("Études", "A. Nonymous", "musicxml")
    assert score.text == read(tmp_path, musicxml).text


def test_wrong_utf_16_declaration_is_ignored(tmp_path: Path, musicxml: str) -> None:
    assert read(tmp_path, musicxml.replace("UTF-8", "UTF-16")).title == "Études"


def test_annotatable_elements_have_ids(tmp_path: Path, musicxml: str) -> None:
    score = read(tmp_path, musicxml)
    root = etree.fromstring(score.text)
    assert [note.get("id") for note in root.iter("note")] == ["p1m1n1", "p1m1n2", "p1m1n3", "p1m1n4", "p1m2n1"]
    assert {"p1m1", "p1m2", "p1m1accidental1"} < score.ids
    assert score.ids == {e.get("id") for e in root.iter("note", "measure", "accidental")}


def test_existing_ids_are_retained_unless_duplicated(tmp_path: Path, musicxml: str) -> None:
    doubled = re.sub("<note>", '<note id="mine">', musicxml, count=2)
    notes = list(etree.fromstring(read(tmp_path, doubled).text).iter("note"))
    assert [note.get("id") for note in notes[:2]] == ["mine", "p1m1n2"]
    taken = musicxml.replace("<note>", '<note id="p1m1n2">', 1)  # the id that the second note would get
    notes = list(etree.fromstring(read(tmp_path, taken).text).iter("note"))
    assert [note.get("id") for note in notes[:3]] == ["p1m1n2", "p1m1n2x", "p1m1n3"]


def test_two_editions_have_the_same_work(tmp_path: Path, musicxml: str) -> None:
    other = musicxml.replace("A. Nonymous", "a nonymous").replace("Études", "  ÉTUDES ")
    assert read(tmp_path, musicxml).work == read(tmp_path, other).work == "a nonymous études"
    assert Score("lone", "", "abc").work == "lone"


def test_timewise_scores_are_converted_to_partwise(tmp_path: Path) -> None:
    note = "<note><rest/><duration>1</duration></note>"
    parts = "".join(f'<part id="{p}">{note}</part>' for p in ("P1", "P2"))
    measures = "".join(f'<measure number="{m}">{parts}</measure>' for m in (1, 2))
    root = etree.fromstring(read(tmp_path, f"<score-timewise><part-list/>{measures}</score-timewise>").text)
    assert root.tag == "score-partwise"
    assert [(p.get("id"), len(p)) for p in root.iterchildren("part")] == [("P1", 2), ("P2", 2)]
    assert len(list(root.iter("note"))) == 4


def test_notation_is_detected_by_suffix_and_content(tmp_path: Path) -> None:
    assert read(tmp_path, "X:1\nK:C\nCDEF|", "a.abc").notation == "abc"
    assert read(tmp_path, "**kern\n4c\n*-\n", "a.krn").notation == "humdrum"
    mei = '<mei xmlns="http://www.music-encoding.org/ns/mei"><music xml:id="m"/></mei>'
    assert read(tmp_path, mei, "a.mei").notation == "mei"
    assert read(tmp_path, mei, "a.mei").ids == {"m"}


def test_single_tune_of_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.abc"
    path.write_text("X:1\nT:One\nK:G\nF|]\n\nX:2\nT:Two\nK:F\nB|]\n")
    score = read_score(ScoreFile("a", path, tune=2))
    assert (score.text, score.title) == ("X:2\nT:Two\nK:F\nB|]\n", "Two")
    with pytest.raises(ValueError, match=r"a\.abc: holds 2 tunes; expected one"):
        read_score(ScoreFile("a", path))
    with pytest.raises(ValueError, match=r"a\.abc, tune 3: holds 2 tunes; expected at least 3"):
        read_score(ScoreFile("a", path, tune=3))


def test_work_is_equal_in_all_notations(tmp_path: Path, musicxml: str) -> None:
    title = "<titleStmt><title>Études</title><composer>Nonymous, A.</composer></titleStmt>"
    mei = f'<mei xmlns="http://www.music-encoding.org/ns/mei"><meiHead>{title}</meiHead></mei>'
    abc = "X:1\nT:Études\nC:A. Nonymous\nK:C\nCDEF|"
    kern = "!!!COM: Nonymous, A.\n!!!OTL: Études\n**kern\n4c\n*-\n"
    works = [read(tmp_path, text, f"a{end}").work for end, text in ((".mei", mei), (".abc", abc), (".krn", kern))]
    assert {*works} == {read(tmp_path, musicxml).work}


def test_mei_notes_get_ids_and_existing_ids_are_retained(tmp_path: Path) -> None:
    notes = "<note xml:id='mine'/><note/><note xml:id='note2'/><note/>"
    mei = f"<mei xmlns='http://www.music-encoding.org/ns/mei'><meiHead/><music>{notes}</music></mei>"
    score = read(tmp_path, mei, "a.mei")
    found = [e.get("{http://www.w3.org/XML/1998/namespace}id") for e in etree.fromstring(score.text).iter("{*}note")]
    assert found == ["mine", "note1", "note2", "note2x"]
    assert score.ids == {"music1", *found}


LAUGHS = '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;">]><score-partwise>&b;</score-partwise>'
OUTSIDE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]><score-partwise>&a;</score-partwise>'


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (LAUGHS, r"declares entities.*; expected plain XML"),
        (OUTSIDE, r"declares entities.*; expected plain XML"),
        ("<score-partwise><part>", "expected MusicXML or MEI"),
        ("<score-partwise/>", "has no notes; expected at least one"),
        ("<opus/>", "is <opus>; expected <score-partwise>"),
        ("<score-partwise>" + "<a>" * 300 + "</a>" * 300 + "</score-partwise>", "more than 200 deep; expected a score"),
        (b"\xff\xfe<\x00", "expected MusicXML or MEI"),
        (b"<?xml version='1.0' encoding='utf-8'?><a>\xff</a>", "is not text in utf-8"),
        (b"<?xml version='1.0' encoding='klingon'?><a/>", "is not text in klingon"),
        (b"<?xml version='1.0' encoding='punycode'?><a>\xff</a>", "is not text in punycode"),
        (b"<?xml version='1.0' encoding='hex'?><a/>", "is not text in hex"),
        (b"<?xml version='1.0' encoding='undefined'?><a/>", "is not text in undefined"),
        ("once upon a time", "is not a score; expected MusicXML, MEI, ABC or Humdrum"),
        ("not mei at all", "is not a score; expected MusicXML, MEI, ABC or Humdrum"),
    ],
)
def test_malicious_and_broken_scores_raise_a_single_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, content, "a.mei" if content == "not mei at all" else "a.xml")
    assert "\n" not in str(caught.value)


def test_external_dtd_is_not_fetched(tmp_path: Path, musicxml: str) -> None:
    """The DOCTYPE of MusicXML contains a URL, which must not be fetched."""
    assert "musicxml.org" not in read(tmp_path, musicxml).text
