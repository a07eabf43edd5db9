from __future__ import annotations

import pytest
from music21 import interval as m21interval
from music21 import pitch as m21pitch
from tests.read.small import chord, measure, melody, pitch, score_of

from entourage.read.score import Pitch, Score
from entourage.read.transpose import Interval, key_alter, parse_interval, transpose, transpose_pitch


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("M2", Interval(1, 2)),
        ("-P5", Interval(-4, -7)),
        ("A4", Interval(3, 6)),
        ("d5", Interval(4, 6)),
        ("P8", Interval(7, 12)),
        ("M9", Interval(8, 14)),
        ("d3", Interval(2, 2)),
        ("P1", Interval(0, 0)),
        ("3", 3),
        ("-12", -12),
        ("+2", 2),
    ],
)
def test_intervals_are_read(text: str, expected: Interval | int) -> None:
    assert parse_interval(text) == expected


@pytest.mark.parametrize("text", ["", "P2", "M5", "m4", "M0", "x", "37", "-99", "M30", "2.5", "P"])
def test_what_is_no_interval_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"transpose: .* is not an interval; expected semitones"):
        parse_interval(text)


@pytest.mark.parametrize("name", ["C4", "F#5", "Bb3", "B4", "Eb2", "G#4"])
@pytest.mark.parametrize("text", ["M2", "-m3", "P5", "-P4", "m2", "P8", "-M6"])
def test_pitches_move_as_in_music21(name: str, text: str) -> None:
    value = parse_interval(text)
    assert isinstance(value, Interval)
    sign, plain = ("-" if text[0] == "-" else ""), text.lstrip("-")
    expected = m21pitch.Pitch(name.replace("b", "-")).transpose(m21interval.Interval(plain[0] + sign + plain[1:]))
    found = transpose_pitch(pitch(name), value)
    assert (found.step, found.octave, found.alter) == (expected.step, expected.octave, int(expected.alter))


def test_pitches_with_three_sharps_are_respelled() -> None:
    assert transpose_pitch(Pitch(4, "F", 2), Interval(0, 1)) == Pitch(4, "G", 1)


def keys_and_names(score: Score) -> tuple[list[int | None], list[str], list[str]]:
    notes = [note for _, _, one in score.chords() for note in one.notes]
    keys = [one.key for one in score.measures]
    return keys, [str(note.pitch) for note in notes], [note.accidental for note in notes]


def test_a_score_is_transposed_with_its_key() -> None:
    score = melody()
    transpose(score, "M2")
    expected = ["A4", "B4", "G#5", "D5", "E5", "C#5"]
    assert keys_and_names(score) == ([3, None], expected, [""] * 6)
    assert score.parts[0].measures[0].chords[0].notes[0].position == 1


@pytest.mark.parametrize(("semitones", "key"), [(1, -4), (2, 3), (3, -2), (-1, 6), (5, 0), (6, -5), (12, 1), (-2, -1)])
def test_semitones_choose_the_key_with_the_fewest_signs(semitones: int, key: int) -> None:
    score = melody()
    transpose(score, semitones)
    assert abs(score.parts[0].measures[0].key or 0) == abs(key)
    midi = [note.pitch.midi for _, _, one in score.chords() for note in one.notes]
    before = [note.pitch.midi for _, _, one in melody().chords() for note in one.notes]
    assert midi == [value + semitones for value in before]


def test_keys_have_at_most_seven_signs() -> None:
    score = melody()
    transpose(score, "A4")  # 1 sharp and 6 more are 7
    assert score.measures[0].key == 7
    transpose(score, "M2")  # 9 sharps are 3 flats
    assert score.measures[0].key == -3
    assert str(score.parts[0].measures[0].chords[0].notes[0].pitch) == "Eb5"


def test_accidentals_are_written_where_the_new_key_needs_them() -> None:
    natural = chord(2, "quarter", "F4")
    natural.notes[0].accidental = "natural"
    courtesy = chord(3, "quarter", "F4")
    one = measure(1, [chord(0, "quarter", "F#4"), chord(1, "quarter", "G4"), natural, courtesy], key=1)
    following = measure(2, [chord(0, "quarter", "F#4")])
    score = score_of(one, following)
    transpose(score, "-m2")  # to F sharp major
    _, names, accidentals = keys_and_names(score)
    assert names == ["E#4", "F#4", "E4", "E4", "E#4"]
    assert score.measures[0].key == 6
    assert accidentals == ["", "", "natural", "", ""]


def test_an_octave_changes_no_accidental() -> None:
    score = melody()
    transpose(score, -12)
    assert keys_and_names(score)[1:] == (["G3", "A3", "F#4", "C4", "D4", "B3"], [""] * 6)


@pytest.mark.parametrize(("step", "key", "alter"), [("F", 1, 1), ("C", 1, 0), ("B", -1, -1), ("E", -1, 0), ("F", 0, 0)])
def test_keys_alter_their_steps(step: str, key: int, alter: int) -> None:
    assert key_alter(step, key) == alter
