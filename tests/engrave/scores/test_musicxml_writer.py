from fractions import Fraction

import pytest
from lxml import etree

from entourage.engrave.scores.musicxml_writer import (
    DIVISIONS,
    Value,
    attributes,
    barline,
    direction,
    measure_rest,
    note,
    pitch,
    rests,
)


def parse(text: str) -> list[etree._Element]:
    return list(etree.fromstring(f"<x>{text}</x>"))


def total_duration(text: str) -> Fraction:
    return sum(
        (Fraction(int(d.text), DIVISIONS) for d in etree.fromstring(f"<x>{text}</x>").iter("duration")), Fraction(0)
    )


def test_sounding_length_includes_dots_and_tuplets() -> None:
    assert Value(Fraction(1), dots=2).sounding == Fraction(7, 4)
    assert Value(Fraction(1, 2), tuplet=(3, 2)).sounding == Fraction(1, 3)


def test_pitch_steps_start_at_c0() -> None:
    assert pitch(35) == "<pitch><step>C</step><octave>5</octave></pitch>"
    assert pitch(34) == "<pitch><step>B</step><octave>4</octave></pitch>"


@pytest.mark.parametrize("n", [1, 2, 4, 8, 16, 32, 64, 128])
@pytest.mark.parametrize("tuplet", [(1, 1), (3, 2), (5, 4), (7, 4), (9, 8)])
def test_durations_are_whole_numbers_of_divisions(n: int, tuplet: tuple[int, int]) -> None:
    value = Value(Fraction(4, n), tuplet=tuplet)
    if n < 128 or tuplet == (1, 1):
        assert (value.sounding * DIVISIONS).denominator == 1
    assert total_duration(note(30, value)) == Fraction(int(value.sounding * DIVISIONS), DIVISIONS)


def test_chords_graces_ties_and_beams() -> None:
    first, second = parse(note((30, 31), Value(Fraction(1)), accidental="sharp", tie="start", beams=("begin", "begin")))
    assert first.findtext("pitch/alter") == "1"
    assert second.find("chord") is not None
    assert second.find("accidental") is None
    assert [beam.get("number") for beam in first.iter("beam")] == ["1", "2"]
    assert first.find("notations/tied") is not None
    (grace,) = parse(note(30, Value(Fraction(1, 2)), grace="slash", stem="down"))
    assert grace.find("grace").get("slash") == "yes"
    assert grace.find("duration") is None


@pytest.mark.parametrize("length", [Fraction(4), Fraction(3), Fraction(127, 32), Fraction(5, 8)])
def test_rests_fill_a_length_shortest_first(length: Fraction) -> None:
    text = rests(length)
    assert total_duration(text) == length
    durations = [int(element.findtext("duration")) for element in parse(text)]
    assert durations == sorted(durations)


def test_attributes_and_directions() -> None:
    (element,) = parse(attributes(clef="G2-1", time="common", key="2/0"))
    assert [child.tag for child in element] == ["key", "time", "clef"]
    assert element.findtext("clef/clef-octave-change") == "-1"
    assert element.find("time").get("symbol") == "common"
    assert (element.findtext("key/cancel"), element.findtext("key/fifths")) == ("2", "0")
    assert parse(attributes(clef="P"))[0].findtext("clef/sign") == "percussion"
    assert parse(direction("<segno/>", "above"))[0].get("placement") == "above"
    assert total_duration(measure_rest(Fraction(3))) == 3


def test_a_backward_repeat_has_a_final_bar_line() -> None:
    assert barline(style="dashed") == "<barline location='right'><bar-style>dashed</bar-style></barline>"
    text = barline(repeat="backward", ending="2 stop")
    inside = "<bar-style>light-heavy</bar-style><ending number='2' type='stop'/><repeat direction='backward'/>"
    assert text == f"<barline location='right'>{inside}</barline>"
