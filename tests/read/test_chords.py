"""Chords of a solved measure: starts and ends of tuplets."""

from fractions import Fraction

from tests.read.rhythm.events import chord as event

from entourage.read.chords import set_tuplets
from entourage.read.score import Chord


def row(durations: list[tuple[Fraction, tuple[int, int] | None]], voice: int = 1) -> list[Chord]:
    found, onset = [], Fraction(0)
    for duration, tuplet in durations:
        box = (0.0, 0.0, 1.0, 1.0)
        found.append(Chord(onset, duration, "eighth", 0, [], staff=1, voice=voice, box=box, tuplet=tuplet))
        onset += duration
    return found


def ends(chords: list[Chord]) -> list[str]:
    """Return "(" for the first chord of a tuplet and ")" for the last one."""
    set_tuplets([(event(0, "eighth"), one) for one in chords])
    return ["(" * one.tuplet_start + ")" * one.tuplet_stop for one in chords]


TRIPLET = (Fraction(1, 3), (3, 2))


def test_adjacent_triplets_are_separate() -> None:
    assert ends(row([TRIPLET] * 6)) == ["(", "", ")", "(", "", ")"]


def test_a_tuplet_of_unequal_notes_fills_a_note_value() -> None:
    assert ends(row([(Fraction(2, 3), (3, 2)), TRIPLET])) == ["(", ")"]


def test_other_notes_interrupt_a_tuplet() -> None:
    plain = (Fraction(1, 2), None)
    assert ends(row([TRIPLET, plain, TRIPLET, TRIPLET, TRIPLET])) == ["", "", "(", "", ")"]


def test_voices_are_independent() -> None:
    upper, lower = row([TRIPLET] * 3), row([(Fraction(1, 2), None)] * 2, voice=2)
    assert ends([upper[0], lower[0], upper[1], lower[1], upper[2]]) == ["(", "", "", "", ")"]
