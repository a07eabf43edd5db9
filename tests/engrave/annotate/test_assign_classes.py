from collections import Counter
from collections.abc import Callable

import pytest
from tests.engrave.conftest import build_score, direction, notations, note

from entourage.engrave.render.marks import Symbol
from entourage.engrave.render.page import Page

Engrave = Callable[[str], Page]


def labels(page: Page) -> Counter[str]:
    return Counter(symbol.label for symbol in page.symbols)


def v1(page: Page) -> Counter[str]:
    return Counter(symbol.v1 for symbol in page.symbols)


def test_the_class_of_a_dot_depends_on_its_context(engrave: Engrave) -> None:
    dotted = note("A4", 12, "quarter", "<dot/>" + notations("<articulations><staccato/></articulations>"))
    repeat = "<barline location='right'><bar-style>light-heavy</bar-style><repeat direction='backward'/></barline>"
    found = labels(engrave(build_score(dotted + note("A4", 20, "half") + repeat)))
    assert (found["augmentationDot"], found["articStaccatoBelow"], found["repeatDot"]) == (1, 1, 2)


def test_sharps_of_keys_and_of_notes_have_different_classes(engrave: Engrave) -> None:
    key = "<attributes><key><fifths>2</fifths></key></attributes>"
    sharp = note("G4", 32, "whole", "<accidental>sharp</accidental>")
    found = labels(engrave(build_score(key + sharp)))
    assert (found["keySharp"], found["accidentalSharp"]) == (2, 1)


def test_the_class_of_a_digit_depends_on_its_context(engrave: Engrave) -> None:
    third = "<time-modification><actual-notes>3</actual-notes><normal-notes>2</normal-notes></time-modification>"
    ends = [notations("<tuplet type='start' bracket='yes'/>"), "", notations("<tuplet type='stop'/>")]
    triplet = "".join(note("A4", 4, "quarter", third + end) for end in ends)
    finger = note("A4", 4, "eighth", notations("<technical><fingering>3</fingering></technical>"))
    time = "<attributes><time><beats>3</beats><beat-type>8</beat-type></time></attributes>"
    many = "<attributes><measure-style><multiple-rest>13</multiple-rest></measure-style></attributes>"
    rest = "<note><rest measure='yes'/><duration>12</duration></note>"
    found = labels(engrave(build_score(triplet + finger, time + many + rest, *[rest] * 12)))
    assert (found["tuplet3"], found["tupletBracket"], found["fingering3"]) == (1, 1, 1)
    assert (found["timeSig3"], found["timeSig8"], found["restHBar"], found["restHNr"]) == (1, 1, 1, 1)


def test_classes_of_clefs_depend_on_line_octave_and_position(engrave: Engrave) -> None:
    def clef(sign: str, line: int) -> str:
        return f"<attributes><clef><sign>{sign}</sign><line>{line}</line></clef></attributes>"

    whole = note("A4", 32, "whole")
    text = build_score(whole, clef("C", 3) + whole, clef("C", 4) + whole, clef("F", 4) + whole, clef("G", 2) + whole)
    octave = "<line>2</line><clef-octave-change>-1</clef-octave-change></clef>"
    page = engrave(text.replace("<line>2</line></clef>", octave, 1))
    found, first = labels(page), v1(page)
    assert [found[n] for n in ("clefG", "clef8", "clefCAlto", "clefCTenor", "clefF")] == [2, 1, 1, 1, 1]
    assert [first[n] for n in ("gClef", "clef8", "cClefAltoChange", "cClefTenorChange", "fClefChange")] == [1] * 5
    assert first["gClefChange"] == 1
    box = {s.v1: b for s, b in zip(page.symbols, page.boxes, strict=True)}
    assert box["clef8"][1] > box["gClef"][3] - 5  # the number is below the clef


def test_noteheads_have_position_onset_duration_and_pitch(engrave: Engrave) -> None:
    page = engrave(build_score(note("B4", 8, "quarter") + note("C4", 16, "half") + note("G5", 8, "quarter")))
    heads = sorted((s for s in page.symbols if s.label.startswith("notehead")), key=lambda s: s.onset or 0)
    assert [(s.onset, s.duration, s.pitch, s.position, s.staff) for s in heads] == [
        (0, 1, "B4", 0, 1),
        (1, 2, "C4", -6, 1),
        (3, 1, "G5", 5, 1),
    ]
    assert [s.label for s in heads] == ["noteheadBlackOnLine", "noteheadHalfOnLine", "noteheadBlackInSpace"]
    assert [s.element for s in heads] == ["p1m1n1", "p1m1n2", "p1m1n3"]
    stem = next(s for s in page.symbols if s.label == "stem" and s.element == "p1m1n1")
    assert stem.notes == ("p1m1n1",)
    line = next(s for s in page.symbols if s.label == "legerLine")
    assert (line.staff, line.onset, line.element, line.notes) == (1, 1, "p1m1n2", ("p1m1n2",))


def test_slurs_and_hairpins_refer_to_their_notes(engrave: Engrave) -> None:
    start, stop = notations("<slur type='start' number='1'/>"), notations("<slur type='stop' number='1'/>")
    open_, close = direction("<wedge type='crescendo'/>"), direction("<wedge type='stop'/>")
    page = engrave(build_score(open_ + note("A4", 16, "half", start) + note("C5", 16, "half", stop) + close))
    slur = next(s for s in page.symbols if s.label == "slur")
    assert (slur.notes, slur.onset) == (("p1m1n1", "p1m1n2"), 0)
    assert slur.element == "p1m1slur1"
    assert labels(page)["dynamicCrescendoHairpin"] == 1


def continued_symbols(page: Page, label: str) -> list[Symbol]:
    """Return the symbols that continue from an earlier system."""
    return [s for s in page.symbols if s.label == label and "spanning" in s.group.classes]


def test_symbols_that_continue_on_the_next_system_have_the_same_element(engrave: Engrave) -> None:
    start = direction("<wedge type='diminuendo'/>") + direction("<octave-shift type='down' size='8'/>")
    stop = direction("<wedge type='stop'/>") + direction("<octave-shift type='stop' size='8'/>")
    first = start + note("A5", 32, "whole", notations("<slur type='start' number='1'/>"))
    last = note("A5", 32, "whole", notations("<slur type='stop' number='1'/>")) + stop
    page = engrave(build_score(first, *[note("A5", 32, "whole")] * 28, last))
    origins = {"slur": "p1m1slur1", "dynamicDiminuendoHairpin": "p1m1wedge1", "ottavaBracket": "p1m1n1"}
    for label, element in origins.items():
        assert continued_symbols(page, label), label
        assert all((s.element, s.onset, s.staff) == (element, 0, 1) for s in continued_symbols(page, label))
    assert all(s.notes == ("p1m1n1", "p1m30n1") for s in continued_symbols(page, "slur"))
    assert labels(page)["dynamicCrescendoHairpin"] == 0


def test_a_tie_across_systems_refers_to_both_notes(engrave: Engrave) -> None:
    tied = notations("<tied type='stop'/><tied type='start'/>")
    page = engrave(build_score(*[note("A4", 32, "whole", tied)] * 30))
    heads = {s.element: s.onset for s in page.symbols if s.label.startswith("notehead")}
    found = continued_symbols(page, "tie")
    assert found
    for tie in found:
        before, after = tie.notes
        assert tie.element == before.replace("n1", "tied2")
        assert (tie.onset, tie.staff) == (heads[before], 1)
        assert heads[after] == heads[before] + 4


WHOLE = note("A4", 32, "whole")
ADDED = "<attributes><time><beats>3+2</beats><beat-type>8</beat-type></time></attributes>"
METRONOME = "<metronome><beat-unit>quarter</beat-unit><per-minute>60</per-minute></metronome>"


def fingered(finger: str) -> str:
    return note("A4", 32, "whole", notations(f"<technical><fingering>{finger}</fingering></technical>"))


@pytest.mark.parametrize(
    ("measure", "missing"),
    [
        (note("A4", 32, "whole", "<notehead>diamond</notehead>"), ["0xe0d9"]),
        (ADDED + note("A4", 20, "half", "<dot/>"), ["0xe08d"]),  # the plus sign
        (direction("<dynamics><n/></dynamics>") + WHOLE, ["0xe526"]),
        (fingered("7"), ["0x37"]),
        (fingered("5"), []),
        (direction(METRONOME) + WHOLE, ["0xeca5"]),  # a note inside text
        (direction("<words>in B\u266d, dolce</words>") + WHOLE, ["0x266d"]),
        (note("A4", 32, "whole", notations("<articulations><breath-mark/></articulations>")), ["0xe4ce"]),
        (note("A4", 32, "whole", "<accidental parentheses='yes'>natural</accidental>"), []),
        (direction("<dynamics><sfz/></dynamics>") + direction("<words>dolce</words>") + WHOLE, []),
    ],
)
def test_glyphs_without_a_class_are_reported(engrave: Engrave, measure: str, missing: list[str]) -> None:
    page = engrave(build_score(WHOLE, measure))
    assert page.unlabelled == missing
    assert page.complete == (not missing)


@pytest.mark.parametrize("strokes", [1, 2, 3, 4, 5])
def test_the_class_of_a_tremolo_is_its_number_of_strokes(engrave: Engrave, strokes: int) -> None:
    tremolo = note("A4", 32, "whole", notations(f"<ornaments><tremolo type='single'>{strokes}</tremolo></ornaments>"))
    assert labels(engrave(build_score(tremolo)))[f"tremolo{strokes}"] == 1


def test_an_accidental_of_an_ornament_is_an_accidental(engrave: Engrave) -> None:
    trill = notations(
        "<ornaments><trill-mark/><accidental-mark placement='above'>natural</accidental-mark></ornaments>"
    )
    page = engrave(build_score(note("A4", 32, "whole", trill)))
    assert labels(page)["ornamentTrill"] == 1
    assert labels(page)["accidentalNatural"] + labels(page)["accidentalNaturalSmall"] == 1
    assert page.complete


def test_an_arpeggio_is_vertical_and_left_of_its_chord(engrave: Engrave) -> None:
    wavy = notations("<arpeggiate/>")
    page = engrave(build_score(note("C4", 32, "whole", wavy) + note("C6", 32, "whole", wavy, before="<chord/>")))
    boxes = {symbol.label: box for symbol, box in zip(page.symbols, page.boxes, strict=True)}
    x0, y0, x1, y1 = boxes["arpeggiato"]
    assert y1 - y0 > 4 * 20  # more than the height of the staff
    assert x1 - x0 < 20
    (arpeggio,) = (symbol for symbol in page.symbols if symbol.label == "arpeggiato")
    assert arpeggio.element in ("p1m1n1", "p1m1n2")  # a note of its chord and not the measure
    assert x1 < min(box[0] for label, box in boxes.items() if label.startswith("notehead"))
