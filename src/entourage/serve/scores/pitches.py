"""Pitches of corrected notes: by the clef, the key, the accidentals before them in the measure, and ties."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from entourage.read.chords import ALTER
from entourage.read.score import STEPS, Chord, Clef, Measure, Note, Pitch
from entourage.read.transpose import key_alter


@dataclass
class Signatures:
    """Clefs, key and metre that are valid at a time of a part.

    Attributes:
        clefs: clef of each staff, from 1.
        key: sharps (positive) or flats (negative).
        meter: beats, their value and sign, or None.
    """

    clefs: dict[int, Clef]
    key: int = 0
    meter: tuple[int, int, str] | None = None

    def enter(self, measure: Measure) -> None:
        """Apply the key, the metre and the clefs at the beginning of a measure."""
        self.key = self.key if measure.key is None else measure.key
        self.meter = self.meter if measure.meter is None else measure.meter
        self.clefs |= {staff: clef for staff, time, clef in measure.clefs if time == 0}

    def leave(self, measure: Measure) -> None:
        """Apply the clefs within a measure."""
        self.clefs |= {staff: clef for staff, time, clef in sorted(measure.clefs, key=_time) if time > 0}

    @property
    def length(self) -> Fraction | None:
        """Length of a measure in quarter notes, or None without a metre."""
        return None if self.meter is None else Fraction(4 * self.meter[0], self.meter[1])


def _time(entry: tuple[int, Fraction, Clef]) -> Fraction:
    return entry[1]


def signatures_before(measures: Sequence[Measure], index: int) -> Signatures:
    """Return what is valid at the end of the measure before `index`."""
    found = Signatures({})
    for measure in measures[:index]:
        found.enter(measure)
        found.leave(measure)
    return found


def notes_of(measure: Measure) -> Iterator[tuple[Chord, Note]]:
    """Iterate over the notes of a measure in order of time."""
    for chord in sorted(measure.chords, key=lambda chord: (chord.onset, not chord.grace, chord.box[0])):
        for note in chord.notes:
            yield chord, note


class PitchRule:
    """Pitches that follow from positions, signatures and accidentals.

    A note may be written some steps away from the pitch that its position has, below an octave sign or in a transposed
    score; this distance stays as it is.

    Args:
        measures: consecutive measures of a part before they are changed.
        before: what is valid before the first of them.
        earlier: the measure before the first of them, for ties; or None.
    """

    def __init__(self, measures: Sequence[Measure], before: Signatures, earlier: Measure | None = None) -> None:
        self._shift: dict[int, int] = {}  # steps by identity of the note
        self._earlier = earlier
        for note, _, pitch in self._derive(measures, before):
            self._shift[id(note)] = _diatonic(note.pitch) - _diatonic(pitch)
        self._derived = {id(note): pitch for note, _, pitch in self._derive(measures, before)}

    def update(self, measures: Sequence[Measure], before: Signatures) -> None:
        """Set the pitches that the rule gives another value than before the change.

        Args:
            measures: the changed measures; unchanged notes are the same objects.
            before: what is valid before the first of them.
        """
        for note, chord, pitch in list(self._derive(measures, before)):
            if self._derived.get(id(note)) != pitch:
                note.pitch = pitch
            chord.notes.sort(key=lambda note: _diatonic(note.pitch))

    def _derive(self, measures: Sequence[Measure], before: Signatures) -> Iterator[tuple[Note, Chord, Pitch]]:
        valid_at = Signatures(dict(before.clefs), before.key, before.meter)
        ties = _open_ties(self._earlier)
        for measure in measures:
            valid_at.enter(measure)
            accidentals: dict[tuple[int, int], int] = {}
            for chord, note in notes_of(measure):
                clef = _clef_at(measure, chord, valid_at)
                diatonic = clef.diatonic(note.position) + self._shift.get(id(note), 0)
                place = (chord.staff, diatonic)
                tied = ties.pop(place, None) if note.tied_from else None
                if note.accidental:
                    accidentals[place] = ALTER[note.accidental]
                step = STEPS[diatonic % 7]
                alter = accidentals.get(place, key_alter(step, valid_at.key) if tied is None else tied)
                if note.tied_to:
                    ties[place] = alter
                yield note, chord, Pitch(diatonic // 7, step, alter)
            valid_at.leave(measure)


def _open_ties(measure: Measure | None) -> dict[tuple[int, int], int]:
    """Return the alteration of the notes whose tie leaves a measure, by staff and step."""
    if measure is None:
        return {}
    return {(chord.staff, _diatonic(note.pitch)): note.pitch.alter for chord, note in notes_of(measure) if note.tied_to}


def _clef_at(measure: Measure, chord: Chord, valid_at: Signatures) -> Clef:
    clef = valid_at.clefs.get(chord.staff, Clef())
    for staff, time, other in sorted(measure.clefs, key=_time):
        if staff == chord.staff and 0 < time <= chord.onset:
            clef = other
    return clef


def _diatonic(pitch: Pitch) -> int:
    return 7 * pitch.octave + STEPS.index(pitch.step)
