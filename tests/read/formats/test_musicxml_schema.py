from __future__ import annotations

import xml.etree.ElementTree as ET
from fractions import Fraction

import pytest
from music21 import converter
from tests.read.musicxml_schema import schema_errors
from tests.read.small import chord, measure, melody, score_of

from entourage.read.formats.musicxml import to_musicxml
from entourage.read.score import Clef, Direction, Lyric, Score
from entourage.read.transpose import transpose


def ornate() -> Score:
    """Return a measure with all that a chord and a measure can have."""
    first = chord(
        0,
        "quarter",
        "C4 E4 G4",
        stem="up",
        articulations=["staccato", "accent", "tenuto", "up-bow"],
        ornaments=["trill-mark", "turn", "mordent"],
        fermata="upright",
        arpeggio=True,
        tremolo=2,
        slurs=[(1, "start", "above")],
    )
    first.notes[0].tied_to = True
    first.notes[1].accidental = "flat-flat"
    first.notes[1].pitch = type(first.notes[1].pitch)(4, "E", -2)
    first.lyrics = [Lyric("Früh & spät", "begin"), Lyric("2. Im", "single", 2)]
    last = chord(1, "quarter", "C4", slurs=[(1, "stop", "above")])
    last.notes[0].tied_from = True
    grace = chord(1, "eighth", "D4", grace="slashed")
    grace.duration = Fraction(0)
    triplet = [
        chord(2 + Fraction(k, 3), "eighth", "A4", tuplet=(3, 2), beams=[s])
        for k, s in enumerate(("begin", "continue", "end"))
    ]
    for k, note in enumerate(triplet):
        note.duration, note.tuplet_start, note.tuplet_stop = Fraction(1, 3), k == 0, k == 2
    lower = [chord(0, "whole", "", staff=2, voice=5, full_measure=True)]
    kinds = [("dynamics", "sfz"), ("wedge", "crescendo"), ("wedge", "stop"), ("pedal", "start"), ("pedal", "stop")]
    kinds += [("octave-shift", "up"), ("octave-shift", "stop"), ("words", "dolce & lento"), ("segno", ""), ("coda", "")]
    directions = [Direction(k, v, Fraction(1), 1, "below", (0, 0, 1, 1)) for k, v in kinds]  # type: ignore[arg-type]
    clefs = [(1, Fraction(0), Clef()), (2, Fraction(0), Clef("F", 4)), (2, Fraction(2), Clef("C", 3))]
    one = measure(
        1,
        [first, grace, last, *triplet, *lower],
        directions=directions,
        clefs=clefs,
        key=-3,
        meter=(4, 4, "common"),
        repeat_start=True,
        repeat_end=True,
        right="light-heavy",
    )
    two = measure(2, [], new_system=True, page=2, right="dashed")
    score = score_of(one, two, name="Piano & more", n_staves=2)
    score.title, score.authors = "Lied <1>", [("composer", "F. Schubert"), ("lyricist", "J. W. v. Goethe")]
    return score


@pytest.mark.parametrize("make", [melody, ornate])
@pytest.mark.parametrize("interval", ["0", "M2", "-m3"])
def test_documents_are_valid_and_music21_reads_them(make: object, interval: str) -> None:
    score = make()  # type: ignore[operator]
    transpose(score, interval)
    document = to_musicxml(score)
    assert schema_errors(document) == []
    parsed = converter.parse(document, format="musicxml")
    found = sorted(p.midi for n in parsed.recurse().notes for p in n.pitches)
    assert found == sorted(note.pitch.midi for _, _, one in score.chords() for note in one.notes)


def test_the_schema_finds_what_is_wrong() -> None:
    document = to_musicxml(melody())
    assert schema_errors(document.replace("<step>G</step>", "<step>H</step>"))


def test_lyrics_belong_to_the_first_note_of_a_chord() -> None:
    parsed = converter.parse(to_musicxml(ornate()), format="musicxml")
    sung = [[(one.text, one.syllabic, one.number) for one in note.lyrics] for note in parsed.recurse().notes]
    assert sung[0] == [("Früh & spät", "begin", 1), ("2. Im", "single", 2)]
    assert not any(sung[1:])
    assert parsed.metadata.composer == "F. Schubert"


def test_each_part_has_an_instrument_with_its_name() -> None:
    entry = ET.fromstring(to_musicxml(melody())).find("part-list/score-part")
    assert entry is not None
    assert entry.findtext("score-instrument/instrument-name") == entry.findtext("part-name")
