"""Transposition of a score by an interval: written pitches, key signatures and accidentals."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from entourage.read.score import STEPS, Chord, Measure, Note, Part, Pitch, Score

MAX_SEMITONES = 36
_MAX_KEY = 7  # sharps or flats
_MAX_ALTER = 2
_NUMBER = re.compile(r"[+-]?\d+")
_INTERVAL = re.compile(r"(?P<sign>[+-]?)(?P<quality>[PMmAd])(?P<number>\d{1,2})")
_PERFECT = {0: 0, 3: 5, 4: 7}  # semitones of the perfect intervals within an octave, by steps
_MAJOR = {1: 2, 2: 4, 5: 9, 6: 11}
_SHARPS, _FLATS = "FCGDAEB", "BEADGCF"
_ACCIDENTALS = {-2: "flat-flat", -1: "flat", 0: "natural", 1: "sharp", 2: "double-sharp"}
# Steps of an interval that is given in semitones, if all keys of the score allow them.
_STEPS_OF_SEMITONES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 5, 6, 6)


@dataclass(frozen=True)
class Interval:
    """An interval upwards (positive) or downwards (negative).

    Attributes:
        steps: number of staff positions.
        semitones: number of semitones.
    """

    steps: int
    semitones: int

    @property
    def fifths(self) -> int:
        """Sharps that it adds to a key signature."""
        return 7 * self.semitones - 12 * self.steps


def parse_interval(text: str) -> Interval | int:
    """Read an interval such as "M2" (a major second up), "-P5" or "A4", or a number of semitones such as "-3".

    Args:
        text: semitones, or a sign, the quality P, M, m, A or d, and the number of the interval.

    Returns:
        The interval, or the number of semitones.

    Raises:
        ValueError: it is neither, or larger than three octaves.
    """
    expected = f"expected semitones such as -3 or an interval such as M2 or -P5, of at most {MAX_SEMITONES} semitones"
    text = text.strip()
    value: Interval | int | None = None
    if _NUMBER.fullmatch(text):
        value = int(text)
    elif match := _INTERVAL.fullmatch(text):
        value = _interval(match["quality"], int(match["number"]), -1 if match["sign"] == "-" else 1)
    semitones = value.semitones if isinstance(value, Interval) else value
    if value is None or semitones is None or abs(semitones) > MAX_SEMITONES:
        raise ValueError(f"transpose: {text!r} is not an interval; {expected}")
    return value


def _interval(quality: str, number: int, sign: int) -> Interval | None:
    """Return an interval by its quality and number, or None if there is no such interval."""
    octaves, steps = divmod(number - 1, 7)
    if number < 1 or ((quality == "P") != (steps in _PERFECT) and quality in "PMm"):
        return None
    if steps in _PERFECT:
        semitones = _PERFECT[steps] + {"P": 0, "A": 1, "d": -1}[quality]
    else:
        semitones = _MAJOR[steps] + {"M": 0, "m": -1, "A": 1, "d": -2}[quality]
    return Interval(sign * (number - 1), sign * (semitones + 12 * octaves))


def transpose(score: Score, interval: Interval | int | str) -> None:
    """Transpose the written pitches and key signatures of a score in place.

    Accidentals are written where the new key requires them; courtesy accidentals stay. Stems are left to the engraver
    where a staff has one voice. If the interval is given in semitones, its spelling is that with the fewest sharps or
    flats. Key signatures of more than seven signs are replaced by their enharmonic equivalents.

    Args:
        score: the music.
        interval: the interval, a number of semitones, or either as a text.

    Raises:
        ValueError: the text is not an interval, or it is larger than three octaves.
    """
    interval = parse_interval(interval) if isinstance(interval, str) else interval
    if isinstance(interval, int):
        interval = parse_interval(str(interval))
    if isinstance(interval, int):
        interval = _spell(interval, score)
    for part in score.parts:
        _transpose_part(part, interval)


def _spell(semitones: int, score: Score) -> Interval:
    """Return the interval of a number of semitones whose keys have the fewest signs; ties: the common name."""
    keys = [measure.key for measure in score.measures if measure.key is not None] or [0]
    octaves, rest = divmod(semitones, 12)
    common = Interval(_STEPS_OF_SEMITONES[rest] + 7 * octaves, semitones)
    choices = [common, replace(common, steps=common.steps + 1), replace(common, steps=common.steps - 1)]
    return min(choices, key=lambda choice: max(abs(key + choice.fifths) for key in keys))


def _transpose_part(part: Part, interval: Interval) -> None:
    key = 0
    shift = interval
    for index, measure in enumerate(part.measures):
        if measure.key is not None or index == 0:
            key = measure.key or 0
            shift = _within_keys(interval, key)
            measure.key = key + shift.fifths
        _transpose_measure(measure, shift, key + shift.fifths)


def _within_keys(interval: Interval, key: int) -> Interval:
    """Return the interval, or its enharmonic equivalent if the key would have more than seven sharps or flats."""
    while key + interval.fifths > _MAX_KEY:
        interval = replace(interval, steps=interval.steps + 1)
    while key + interval.fifths < -_MAX_KEY:
        interval = replace(interval, steps=interval.steps - 1)
    return interval


def _transpose_measure(measure: Measure, interval: Interval, key: int) -> None:
    """Move the notes of a measure and write the accidentals that differ from the key or from earlier ones."""
    valid: dict[tuple[int, str, int], int] = {}
    voices = {
        staff: {c.voice for c in measure.chords if c.staff == staff} for staff in {c.staff for c in measure.chords}
    }
    for chord in sorted(measure.chords, key=lambda chord: (chord.onset, not chord.grace, chord.box[0])):
        for note in chord.notes:
            _transpose_note(note, chord, interval, key, valid)
        if not chord.beams and len(voices[chord.staff]) == 1:
            chord.stem = ""


def _transpose_note(
    note: Note, chord: Chord, interval: Interval, key: int, valid: dict[tuple[int, str, int], int]
) -> None:
    before = note.pitch
    note.pitch = transpose_pitch(before, interval)
    note.position += _diatonic(note.pitch) - _diatonic(before)
    place = (chord.staff, note.pitch.step, note.pitch.octave)
    expected = valid.get(place, key_alter(note.pitch.step, key))
    was_printed = bool(note.accidental)
    note.accidental = ""
    if was_printed or (note.pitch.alter != expected and not note.tied_from):
        note.accidental = _ACCIDENTALS[note.pitch.alter]
        valid[place] = note.pitch.alter


def transpose_pitch(pitch: Pitch, interval: Interval) -> Pitch:
    """Return a pitch moved by an interval; with more than two sharps or flats, its enharmonic equivalent.

    Args:
        pitch: the pitch.
        interval: the interval.
    """
    target = pitch.midi + interval.semitones
    diatonic = _diatonic(pitch) + interval.steps
    for offset in (0, 1, -1, 2, -2):
        octave, step = divmod(diatonic + offset, 7)
        natural = Pitch(octave, STEPS[step])
        if abs(target - natural.midi) <= _MAX_ALTER:
            return replace(natural, alter=target - natural.midi)
    raise ValueError(f"interval {interval}: steps and semitones differ by too much; expected an interval of music")


def key_alter(step: str, key: int) -> int:
    """Return by how many semitones a key signature raises a step.

    Args:
        step: letter from C to B.
        key: number of sharps (positive) or flats (negative).
    """
    if key > 0:
        return 1 if step in _SHARPS[:key] else 0
    return -1 if step in _FLATS[:-key] else 0


def _diatonic(pitch: Pitch) -> int:
    return 7 * pitch.octave + STEPS.index(pitch.step)
