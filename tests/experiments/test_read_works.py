import xml.etree.ElementTree as ET

import numpy as np
from experiments.read_works import Excerpt, cut, degrade, engrave_page

NOTE = """<note{hidden}><pitch><step>C</step><octave>5</octave></pitch><duration>4</duration>{tie}<voice>1</voice>
<type>whole</type>{notations}</note>"""


def score() -> str:
    """Return four measures in G major: a tie from the second to the third, a slur over the last three."""
    marks = [
        "",
        '<tied type="start"/><slur type="start" number="1"/>',
        '<tied type="stop"/>',
        '<slur type="stop" number="1"/>',
    ]
    ties = ["", '<tie type="start"/>', '<tie type="stop"/>', ""]
    attributes = "<attributes><divisions>1</divisions><key><fifths>1</fifths></key><time><beats>4</beats>"
    attributes += "<beat-type>4</beat-type></time><clef><sign>G</sign><line>2</line></clef></attributes>"
    measures = "".join(
        f'<measure number="{k + 1}">{attributes if k == 0 else ""}'
        + NOTE.format(tie=ties[k], notations=f"<notations>{marks[k]}</notations>" if marks[k] else "", hidden="")
        + "</measure>"
        for k in range(4)
    )
    head = '<part-list><score-part id="P1"><part-name>A</part-name></score-part></part-list>'
    return f'<score-partwise version="4.0">{head}<part id="P1">{measures}</part></score-partwise>'


def test_a_cut_begins_with_the_valid_attributes() -> None:
    root = ET.fromstring(cut(score(), 2, 2))
    measures = root.findall("part/measure")
    assert [measure.get("number") for measure in measures] == ["3", "4"]
    assert measures[0].findtext("attributes/key/fifths") == "1"
    assert [e.tag for e in measures[0].find("attributes") or ()] == ["divisions", "key", "time", "clef"]


def test_lines_that_are_cut_through_are_removed() -> None:
    whole, start, end = (ET.fromstring(cut(score(), *part)) for part in ((0, 4), (0, 2), (2, 2)))
    assert len(list(whole.iter("slur"))) == 2
    assert len(list(whole.iter("tied"))) == 2
    for root in (start, end):
        assert not list(root.iter("slur"))
        assert not list(root.iter("tie"))
        assert not list(root.iter("notations"))


def test_the_last_measure_has_a_final_bar_line() -> None:
    bars = ET.fromstring(cut(score(), 0, 2)).findall("part/measure/barline")
    assert [bar.findtext("bar-style") for bar in bars] == ["light-heavy"]


def test_hidden_notes_become_time() -> None:
    text = score().replace("<note>", '<note print-object="no">', 1)
    first = ET.fromstring(cut(text, 0, 1)).find("part/measure")
    assert first is not None
    assert first.find("note") is None
    assert first.findtext("forward/duration") == "4"


def test_a_page_engraved_by_verovio_is_complete() -> None:
    page = engrave_page(Excerpt("page", score), "verovio")
    assert len(ET.fromstring(page.truth).findall("part/measure")) == 4
    assert page.image.dtype == np.uint8
    assert (page.image < 100).mean() > 0.001


def test_a_degraded_page_depends_on_its_seed_only() -> None:
    image = np.full((320, 240), 255, dtype=np.uint8)
    image[100:140:10, 20:220] = 0
    first, again, other = (degrade(image, "scan", seed) for seed in (1, 1, 2))
    assert first.shape == image.shape
    assert (first == again).all()
    assert (first != other).any()
    assert first[60:180].min() < 120  # the lines are still there
