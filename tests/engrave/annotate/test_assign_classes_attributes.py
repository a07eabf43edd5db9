from collections.abc import Callable
from fractions import Fraction

from tests.engrave.conftest import build_score, notations, note

from entourage.engrave.annotate.assign_classes import fill_attributes
from entourage.engrave.annotate.mei import Event
from entourage.engrave.render.marks import Group, Symbol
from entourage.engrave.render.page import Page

Engrave = Callable[[str], Page]

MEASURE = Group(("measure",), "m")
STAFF = Group(("staff",), "s", MEASURE)
EVENTS = {
    "m": Event("measure", onset=Fraction(0)),
    "s": Event("staff", staff=2),
    "c": Event("chord", onset=Fraction(3, 2), notes=("n1", "n2")),
    "slur": Event("slur", onset=Fraction(1), notes=("c", "n3")),
    "r": Event("rest", onset=Fraction(5), duration=Fraction(1, 2)),
}
IDS = {"m", "slur", "n1"}


def fill(label: str, group: Group) -> Symbol:
    symbol = Symbol(label, "", [0], group)
    fill_attributes(symbol, EVENTS, IDS)
    return symbol


def test_the_innermost_group_with_an_event_is_used() -> None:
    stem = fill("stem", Group(("stem",), "", Group(("chord",), "c", STAFF)))
    assert (stem.onset, stem.staff, stem.notes) == (1.5, 2, ("n1", "n2"))
    assert stem.element == "n1"  # the chord has no id in the score, but its first note has


def test_chords_are_replaced_by_their_notes() -> None:
    slur = fill("slur", Group(("slur",), "slur", MEASURE))
    assert (slur.notes, slur.element, slur.onset) == (("n1", "n2", "n3"), "slur", 1)


def test_rests_have_a_duration_and_noteheads_one_note() -> None:
    rest = fill("rest8th", Group(("rest",), "r", STAFF))
    assert (rest.onset, rest.duration) == (5, 0.5)
    head = fill("noteheadBlackOnLine", Group(("notehead",), "", Group(("note",), "n2", Group(("chord",), "c"))))
    assert head.notes == ("n2",)


def test_a_staff_has_a_number_and_no_onset() -> None:
    staff = fill("staff", STAFF)
    assert (staff.staff, staff.onset, staff.element) == (2, None, "m")


def test_a_ledger_line_without_a_note_has_no_onset() -> None:
    staff = Group(("staff",), "t", MEASURE)
    events = EVENTS | {"t": Event("staff", onset=Fraction(4), staff=1)}
    line, clef = (
        Symbol(label, "", [0], Group((kind,), "", staff)) for label, kind in (("legerLine", "x"), ("clefG", "clef"))
    )
    for symbol in (line, clef):
        fill_attributes(symbol, events, IDS)
    assert (line.onset, line.staff) == (None, 1)
    assert (clef.onset, clef.staff) == (4, 1)


def test_attributes_that_are_set_are_retained() -> None:
    symbol = Symbol("rest8th", "", [0], Group(("rest",), "r", STAFF), element="e", onset=7.0, staff=1)
    fill_attributes(symbol, EVENTS, IDS)
    assert (symbol.element, symbol.onset, symbol.staff) == ("e", 7.0, 1)


def test_symbols_have_measure_system_staff_and_voice(engrave: Engrave) -> None:
    def voices(first: str, second: str) -> str:
        low = note("C4", 32, "whole").replace("<type>", "<voice>2</voice><type>")
        return first + "<backup><duration>32</duration></backup>" + low + second

    high = note("C5", 32, "whole").replace("<type>", "<voice>1</voice><type>")
    volta = "<barline location='left'><ending number='1' type='start'/></barline>"
    end = "<barline location='right'><ending number='1' type='stop'/><repeat direction='backward'/></barline>"
    page = engrave(build_score(voices(high, ""), "<print new-system='yes'/>" + volta + voices(high, end)))
    place = {s.element: (s.measure, s.system, s.staff, s.voice) for s in page.symbols if s.label.startswith("notehead")}
    assert place == {"p1m1n1": (1, 1, 1, 1), "p1m1n2": (1, 1, 1, 2), "p1m2n1": (2, 1, 1, 1), "p1m2n2": (2, 1, 1, 2)}
    assert {(s.measure, s.staff) for s in page.symbols if s.label == "voltaBracket"} == {(2, 1)}
    assert {s.measure for s in page.symbols if s.label == "staff"} == {0}


def test_short_trills_are_no_mordents(engrave: Engrave) -> None:
    def ornament(name: str) -> str:
        return note("C5", 16, "half", notations(f"<ornaments><{name}/></ornaments>"))

    page = engrave(build_score(ornament("mordent") + ornament("inverted-mordent")))
    found = [(s.label, s.v1) for s in page.symbols if s.label.startswith("ornament")]
    assert sorted(found) == [("ornamentMordent", "ornamentMordent"), ("ornamentShortTrill", "")]
    assert page.complete


def test_groups_of_staves_have_a_bracket_or_a_brace_and_a_line_at_the_left(engrave: Engrave) -> None:
    parts = "".join(f"<score-part id='P{i}'><part-name/></score-part>" for i in (1, 2))
    group = "<part-group number='1' type='start'><group-symbol>{}</group-symbol></part-group>"
    text = build_score(note("C5", 32, "whole"))
    body = text[text.index("<part id") : text.index("</score-partwise>")]
    for kind in ("bracket", "brace"):
        start = group.format(kind) + parts + "<part-group number='1' type='stop'/>"
        both = f"<part-list>{start}</part-list>{body}{body.replace('P1', 'P2')}"
        page = engrave(f"<score-partwise version='4.0'>{both}</score-partwise>")
        found = {s.label: s.staff for s in page.symbols if s.label in ("bracket", "brace", "barlineSystemic")}
        assert found == {kind: 1, "barlineSystemic": 1}
