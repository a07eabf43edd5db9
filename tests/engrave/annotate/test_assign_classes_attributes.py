from fractions import Fraction

from entourage.engrave.annotate.assign_classes import fill_attributes
from entourage.engrave.annotate.mei import Event
from entourage.engrave.render.marks import Group, Symbol

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
