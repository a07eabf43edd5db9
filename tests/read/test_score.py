"""The classes of a score: pitches, clefs, and times of measures."""

from fractions import Fraction

import pytest

from entourage.read.score import Chord, Clef, Measure, Part, Pitch, Score, measure_onsets


@pytest.mark.parametrize(
    ("pitch", "midi", "name"),
    [
        (Pitch(4, "C"), 60, "C4"),
        (Pitch(4, "A"), 69, "A4"),
        (Pitch(5, "C", -1), 71, "Cb5"),
        (Pitch(3, "F", 2), 55, "F##3"),
    ],
)
def test_pitches_have_midi_numbers_and_names(pitch: Pitch, midi: int, name: str) -> None:
    assert pitch.midi == midi
    assert str(pitch) == name


@pytest.mark.parametrize(
    ("clef", "middle"),
    [
        (Clef("G", 2), 4 * 7 + 6),  # B4
        (Clef("F", 4), 3 * 7 + 1),  # D3
        (Clef("C", 3), 4 * 7),  # C4
        (Clef("C", 4), 3 * 7 + 5),  # A3
        (Clef("G", 2, -1), 3 * 7 + 6),  # B3
    ],
)
def test_clefs_determine_the_note_on_the_middle_line(clef: Clef, middle: int) -> None:
    assert clef.diatonic(0) == middle
    assert clef.diatonic(2) == middle + 2
    assert clef.diatonic(-9) == middle - 9


def chord(onset: int, duration: int) -> Chord:
    return Chord(Fraction(onset), Fraction(duration), "quarter", 0, [], staff=1, voice=1, box=(0, 0, 1, 1))


def test_a_measure_lasts_as_long_as_its_longest_part() -> None:
    upper = Part("a", 1, [Measure(1, Fraction(4)), Measure(2, Fraction(3), [chord(0, 2), chord(2, 3)])])
    lower = Part("b", 1, [Measure(1, Fraction(3)), Measure(2, Fraction(4))])
    assert measure_onsets(Score([upper, lower])) == [0, 4, 9]
    assert measure_onsets(Score([])) == [0]
