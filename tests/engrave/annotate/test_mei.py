import warnings
from collections import Counter
from fractions import Fraction

import pytest

from entourage.engrave.annotate.mei import Event, read_events
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import parse_score

HEAD = "<mei xmlns='http://www.music-encoding.org/ns/mei'><music><body><mdiv><score>"
TAIL = "</score></mdiv></body></music></mei>"


def read(measures: str, meter: str = "<meterSig count='3' unit='4'/>", ppq: str = "") -> dict[str, Event]:
    start = f"<scoreDef><staffGrp><staffDef n='1' {ppq}>{meter}</staffDef><staffDef n='2'/></staffGrp></scoreDef>"
    return read_events(f"{HEAD}{start}<section>{measures}</section>{TAIL}")


def layer(content: str, staff: int = 1) -> str:
    return f"<staff n='{staff}'><layer n='1'>{content}</layer></staff>"


def measure(content: str, controls: str = "", name: str = "") -> str:
    identity = f"xml:id='{name}'" if name else ""
    return f"<measure {identity}>{content}{controls}</measure>"


def test_notes_follow_each_other_in_time_across_measures() -> None:
    a = "<note xml:id='a' pname='c' oct='4' dur='4' dots='1'/><note xml:id='b' pname='d' oct='4' dur='8'/>"
    events = read(
        measure(layer(a + "<rest xml:id='r' dur='4'/>")) + measure(layer("<note xml:id='c' dur='2'/>"), "", "n")
    )
    assert [(events[i].onset, events[i].duration) for i in "abrc"] == [
        (0, Fraction(3, 2)),
        (Fraction(3, 2), Fraction(1, 2)),
        (2, 1),
        (3, 2),
    ]
    assert events["n"].onset == 3


def test_onsets_with_tuplets_grace_notes_and_spaces() -> None:
    triplet = "".join(f"<note xml:id='t{i}' dur='8'/>" for i in range(3))
    content = (
        f"<space dur='4'/><graceGrp><note xml:id='g' dur='8'/></graceGrp><tuplet num='3' numbase='2'>{triplet}</tuplet>"
    )
    events = read(measure(layer(content + "<note xml:id='u' grace='unacc' stem.mod='1slash' dur='8'/>")))
    assert [events[f"t{i}"].onset for i in range(3)] == [1, Fraction(4, 3), Fraction(5, 3)]
    assert (events["g"].onset, events["g"].duration, bool(events["g"].grace)) == (1, 0, True)
    assert events["u"].slashed
    assert not events["g"].slashed


def test_divisions_of_the_source_have_priority_over_the_written_value() -> None:
    content = "<note xml:id='a' dur='4' dur.ppq='3'/><note xml:id='b' dur='4' dur.ppq='6'/>"
    events = read(measure(layer(content)), ppq="ppq='6'")
    assert (events["a"].duration, events["b"].onset, events["b"].duration) == (Fraction(1, 2), Fraction(1, 2), 1)


def test_a_full_measure_rest_has_the_duration_of_the_measure() -> None:
    short = measure(layer("<mRest xml:id='r'/>") + layer("<note xml:id='a' dur='4'/>", 2))
    events = read(short + measure(layer("<mRest xml:id='q'/>"), "", "n"))
    assert events["r"].duration == 1
    assert (events["q"].onset, events["q"].duration) == (1, 3)


def test_a_multi_measure_rest_has_the_duration_of_its_measures() -> None:
    events = read(measure(layer("<multiRest xml:id='r' num='4'/>")) + measure(layer("<note xml:id='a' dur='4'/>")))
    assert (events["r"].duration, events["a"].onset) == (12, 12)


def test_pitches_include_sounding_accidentals_and_octave_lines() -> None:
    content = (
        "<note xml:id='a' pname='f' oct='4' accid.ges='s' dur='4'/>"
        "<note xml:id='b' pname='b' oct='4' dur='4'><accid xml:id='x' accid='f'/></note>"
        "<note xml:id='c' pname='c' oct='4' oct.ges='5' dur='4'/>"
    )
    events = read(measure(layer(content)))
    assert [(events[i].pitch, events[i].midi) for i in "abc"] == [("F#4", 66), ("Bb4", 70), ("C5", 72)]
    assert events["x"].notes == ("b",)


def test_notes_of_a_chord_have_its_duration_and_may_be_on_another_staff() -> None:
    notes = "<note xml:id='a' pname='c' oct='4'/><note xml:id='b' staff='2' pname='e' oct='4'/>"
    events = read(measure(layer(f"<chord xml:id='k' dur='2'>{notes}</chord>")))
    assert events["k"].notes == ("a", "b")
    assert (events["a"].duration, events["a"].staff, events["b"].staff) == (2, 1, 2)


def test_onsets_of_control_events_are_those_of_a_note_or_a_beat() -> None:
    content = layer("<note xml:id='a' dur='4'/><note xml:id='b' dur='4'/>")
    controls = "<slur xml:id='s' startid='#b' endid='#a'/><dynam xml:id='d' staff='1' tstamp='2.5'/>"
    events = read(measure(content, controls + "<hairpin xml:id='h' form='dim' tstamp='0'/>"))
    assert (events["s"].onset, events["s"].notes) == (1, ("b", "a"))
    assert (events["d"].onset, events["d"].staff) == (Fraction(3, 2), 1)
    assert (events["h"].onset, events["h"].form) == (0, "dim")


def test_meters_change() -> None:
    rest = layer("<mRest xml:id='{}'/>")
    change = "<scoreDef><meterSig count='3+2' unit='8'/></scoreDef>"
    common = "<scoreDef><meterSig sym='cut'/></scoreDef>"
    events = read(measure(rest.format("a")) + change + measure(rest.format("b")) + common + measure(rest.format("c")))
    assert [events[i].duration for i in "abc"] == [3, Fraction(5, 2), 4]


@pytest.mark.parametrize("index", [1, 2])
def test_notes_equal_those_of_music21(engraver: VerovioEngraver, index: int) -> None:
    music21 = pytest.importorskip("music21")
    score = parse_score(compose(11, index), "composed")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parsed = music21.converter.parse(score.text, format="musicxml", forceSource=True)
    expected: Counter[tuple[float, float, int]] = Counter()
    for found in parsed.recurse().notes:
        onset = round(float(found.getOffsetInHierarchy(parsed)), 4)
        length = 0.0 if found.duration.isGrace else round(float(found.quarterLength), 4)
        expected.update((onset, length, single.pitch.midi) for single in (found.notes if found.isChord else [found]))
    events = [e for e in engraver.load(score).values() if e.kind == "note"]
    assert (
        Counter((round(float(e.onset or 0), 4), round(float(e.duration or 0), 4), e.midi) for e in events) == expected
    )
    assert sum(expected.values()) > 50


def test_measures_are_numbered_and_voices_are_those_of_their_layer() -> None:
    second = "<staff n='2'><layer n='5'><note xml:id='c' dur='2'/></layer></staff>"
    slur = "<slur xml:id='s' startid='#c' endid='#b'/>"
    first = "<measure xml:id='m'>" + layer("<note xml:id='a' dur='2'><accid xml:id='x' accid='s'/></note>") + second
    ending = "<ending xml:id='e'>" + measure(layer("<note xml:id='b' dur='2'/>"), name="n") + "</ending>"
    events = read(first + slur + "</measure>" + ending)
    assert [events[i].measure for i in "macxsbne"] == [1, 1, 1, 1, 1, 2, 2, 2]
    assert [events[i].voice for i in "macxsbne"] == [0, 1, 5, 1, 5, 1, 0, 0]
