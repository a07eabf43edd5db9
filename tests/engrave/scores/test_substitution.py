from collections import Counter
from collections.abc import Callable

from lxml import etree
from tests.engrave.conftest import build_score, direction, notations, note

from entourage.engrave.render.page import Page
from entourage.engrave.scores.parsing import Score, parse_score
from entourage.engrave.scores.substitution import substitute_symbols


def song() -> Score:
    dots = notations("<articulations><staccato/></articulations>")
    first = direction("<dynamics><p/></dynamics>") + note("A4", 8, "quarter", dots) * 2
    first += note("C5", 16, "half", "<accidental>sharp</accidental>").replace("</step>", "</step><alter>1</alter>")
    shared = note("F4", 16, "half", "<accidental>flat</accidental>").replace("</step>", "</step><alter>-1</alter>")
    second = shared + note("F4", 16, "half").replace("</step>", "</step><alter>-1</alter>")
    trill = note("B4", 32, "whole", notations("<ornaments><trill-mark/></ornaments><fermata type='upright'/>"))
    return parse_score(build_score(first, second, trill), "song")


def names(score: Score) -> Counter[str]:
    return Counter(str(element.tag) for element in etree.fromstring(score.text).iter())


def test_common_symbols_are_replaced_by_rare_ones() -> None:
    before, after = names(song()), names(substitute_symbols(song(), 1.0, 0))
    assert before["staccato"] == 2
    assert after["staccato"] == after["trill-mark"] == after["p"] == 0
    assert after["note"] == before["note"]
    assert 'type="inverted"' in substitute_symbols(song(), 1.0, 0).text
    assert 'symbol="common"' in substitute_symbols(song(), 1.0, 0).text


def test_accidental_is_doubled_only_if_it_affects_no_other_note() -> None:
    root = etree.fromstring(substitute_symbols(song(), 1.0, 0).text)
    signs = [
        (n.findtext("accidental"), n.findtext("pitch/alter"))
        for n in root.iter("note")
        if n.find("accidental") is not None
    ]
    assert signs == [("double-sharp", "2"), ("flat", "-1")]


def test_substitution_depends_on_fraction_and_seed() -> None:
    assert substitute_symbols(song(), 0.0, 0) == song()
    assert substitute_symbols(song(), 0.5, 1) == substitute_symbols(song(), 0.5, 1)
    assert len({substitute_symbols(song(), 0.5, seed).text for seed in range(6)}) > 1
    tune = Score("t", "X:1", "abc")
    assert substitute_symbols(tune, 1.0, 0) is tune


def test_substituted_score_can_be_engraved(engrave: Callable[[str], Page]) -> None:
    labels = Counter(s.label for s in engrave(substitute_symbols(song(), 1.0, 0).text).symbols)
    assert labels["accidentalDoubleSharp"] == 1
    assert labels["fermataBelow"] == 1
    assert labels["ornamentTrill"] == labels["articStaccatoBelow"] == 0


def test_bar_lines_are_replaced_in_all_parts() -> None:
    score = substitute_symbols(song(), 1.0, 0)
    measures = [part.findall("measure") for part in etree.fromstring(score.text).findall("part")]
    for parts in zip(*measures, strict=True):
        lines = {etree.tostring(part.find("barline")) for part in parts}
        assert len(lines) == 1
    assert not etree.fromstring(substitute_symbols(song(), 0.0, 0).text).findall("part/measure/barline")
