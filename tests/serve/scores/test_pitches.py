from __future__ import annotations

from fractions import Fraction

from tests.read.small import chord, measure

from entourage.read.score import Clef, Measure
from entourage.serve.scores.bars import Music
from entourage.serve.scores.pitches import PitchRule, Signatures, notes_of, signatures_before

TREBLE = {1: Clef("G", 2), 2: Clef("F", 4)}


def names(measures: list[Measure]) -> list[str]:
    return [str(note.pitch) for one in measures for _, note in notes_of(one)]


def test_nothing_changes_without_a_change(music: Music) -> None:
    measures = music.score.parts[0].measures
    before = names(measures)
    PitchRule(measures, Signatures({})).update(measures, Signatures({}))
    assert names(measures) == before


def test_an_accidental_is_valid_until_the_end_of_the_measure() -> None:
    one = measure(1, [chord(0, "quarter", "B4"), chord(1, "quarter", "B4"), chord(2, "half", "C5")])
    other = measure(2, [chord(0, "whole", "B4")])
    for item in (one, other):
        for _, note in notes_of(item):
            note.position = 0 if note.pitch.step == "B" else 1
    rule = PitchRule([one, other], Signatures(dict(TREBLE)))
    one.chords[0].notes[0].accidental = "flat"
    rule.update([one, other], Signatures(dict(TREBLE)))
    assert names([one, other]) == ["Bb4", "Bb4", "C5", "B4"]


def test_a_tied_note_keeps_its_accidental_in_the_next_measure() -> None:
    one, other = measure(1, [chord(0, "whole", "B4")]), measure(2, [chord(0, "half", "B4"), chord(2, "half", "B4")])
    rule = PitchRule([one, other], Signatures(dict(TREBLE)))
    one.chords[0].notes[0].accidental = "flat"
    one.chords[0].notes[0].tied_to = other.chords[0].notes[0].tied_from = True
    rule.update([one, other], Signatures(dict(TREBLE)))
    assert names([one, other]) == ["Bb4", "Bb4", "B4"]


def test_the_distance_to_a_written_octave_stays() -> None:
    one = measure(1, [chord(0, "whole", "B5")])  # on the middle line, below 8va
    rule = PitchRule([one], Signatures(dict(TREBLE)))
    one.chords[0].notes[0].position = 1
    rule.update([one], Signatures(dict(TREBLE)))
    assert names([one]) == ["C6"]


def test_keys_and_clefs_are_valid_until_the_next(music: Music) -> None:
    measures = music.score.parts[0].measures
    found = signatures_before(measures, 3)
    assert (found.key, found.meter, found.length) == (1, (4, 4, ""), Fraction(4))
    assert found.clefs == TREBLE
    measures[1].clefs = [(2, Fraction(2), Clef("G", 2))]
    measures[2].key = -2
    found = signatures_before(measures, 3)
    assert (found.clefs[2], found.key) == (Clef("G", 2), -2)
    assert signatures_before(measures, 0).length is None
