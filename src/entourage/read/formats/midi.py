"""Standard MIDI files of a score: format 1, a track for tempo and metre, then a track for each part."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from entourage.io.files import atomic_path
from entourage.read.score import Chord, Measure, Part, Score, measure_onsets

TICKS_PER_QUARTER = 3360  # divisible by 128th notes and by tuplets of 3, 5 and 7
MIN_TEMPO, MAX_TEMPO = 10.0, 1000.0
_GRACE = Fraction(1, 8)  # quarter notes of a grace note, taken from the time before the main note
_STACCATO = Fraction(1, 2)
_PEDAL_CONTROL = 64
_PERCUSSION = 9  # channel of percussion
_VELOCITY = 80
_VELOCITIES = {
    "pppp": 16,
    "ppp": 24,
    "pp": 36,
    "p": 50,
    "mp": 64,
    "mf": 80,
    "f": 96,
    "ff": 112,
    "fff": 122,
    "ffff": 127,
}
_ACCENTS = {"fp": 96, "sf": 104, "sfz": 104, "fz": 104, "sffz": 112, "rf": 96, "rfz": 96}  # of one chord only
_ACCENT = 16  # velocity that an accent adds

Event = tuple[int, int, bytes]  # tick, order among events of one tick, message


@dataclass
class Tone:
    """A sounding note.

    Attributes:
        pitch: MIDI number.
        start, end: quarter notes from the beginning.
        velocity: from 1 to 127.
        staff: staff of the part, from 1.
    """

    pitch: int
    start: Fraction
    end: Fraction
    velocity: int
    staff: int = 1


def write_midi(score: Score, path: Path, *, tempo: float = 100.0, repeats: bool = True) -> None:
    """Write a score to a MIDI file; the file is complete or absent.

    Args:
        score: the music.
        path: file to write.
        tempo: quarter notes per minute, from 10 to 1000.
        repeats: whether repeated sections are played as often as printed.

    Raises:
        ValueError: the tempo is out of range.
    """
    content = to_midi(score, tempo=tempo, repeats=repeats)
    with atomic_path(path) as temporary:
        temporary.write_bytes(content)


def to_midi(score: Score, *, tempo: float = 100.0, repeats: bool = True) -> bytes:
    """Return a score as a standard MIDI file of format 1.

    Tied notes become one note. Staccato notes last half of their duration, and grace notes are played before the beat.
    Dynamics set the velocity of the notes of their part; pedal marks become control changes. Trills and tremolos are
    played as single notes.

    Args:
        score: the music.
        tempo: quarter notes per minute, from 10 to 1000.
        repeats: whether repeated sections are played as often as printed.

    Returns:
        The bytes of the file.

    Raises:
        ValueError: the tempo is out of range.
    """
    check_tempo(tempo)
    onsets = measure_onsets(score)
    lengths = [end - start for start, end in itertools.pairwise(onsets)]
    order = playing_order(score.parts[0].measures) if repeats and score.parts else list(range(len(lengths)))
    starts = [Fraction(0)]
    for index in order:
        starts.append(starts[-1] + lengths[index])
    end = _ticks(starts[-1])
    tracks = [_conductor_track(score, order, starts, tempo, end)]
    for number, part in enumerate(score.parts):
        channel = number % 15
        tracks.append(_part_track(part, channel + (channel >= _PERCUSSION), order, starts, end))
    header = b"MThd" + struct.pack(">IHHH", 6, 1, len(tracks), TICKS_PER_QUARTER)
    return header + b"".join(tracks)


def check_tempo(tempo: float) -> None:
    """Check a tempo.

    Raises:
        ValueError: it is not between 10 and 1000 quarter notes per minute.
    """
    if not MIN_TEMPO <= tempo <= MAX_TEMPO:
        raise ValueError(f"tempo is {tempo:g}; expected {MIN_TEMPO:g} to {MAX_TEMPO:g} quarter notes per minute")


def playing_order(measures: list[Measure]) -> list[int]:
    """Return the positions of measures in the order in which they are played, with all repeats.

    A section is repeated from its start sign, or from the end of the last repeated section. A measure under a volta
    bracket is played in the passes that the bracket names.

    Args:
        measures: the measures of a part.

    Returns:
        Positions from 0; each occurs at least once unless a bracket names a pass that is never played.
    """
    order: list[int] = []
    start, time, passes = 0, 1, 1
    index = 0
    while index < len(measures):
        measure = measures[index]
        if measure.repeat_start and start != index:
            start, time = index, 1
        if index == start and time == 1:
            passes = _passes(measures, start)
        named = _named_passes(measure.ending)
        if not named or time in named:
            order.append(index)
            if measure.repeat_end and time < passes:
                time += 1
                index = start
                continue
        if (measure.repeat_end or named) and not _another_ending(measures, index):
            start, time = index + 1, 1
        index += 1
    return order


def _another_ending(measures: list[Measure], index: int) -> bool:
    """Return whether a further volta bracket follows a measure."""
    return bool(measures[index].ending) and index + 1 < len(measures) and bool(measures[index + 1].ending)


def _passes(measures: list[Measure], start: int) -> int:
    """Return how often the section that begins at a measure is played."""
    most = 2
    for index in range(start, len(measures)):
        measure = measures[index]
        if index > start and measure.repeat_start:
            break
        if measure.ending:
            most = max(most, *_named_passes(measure.ending))
        if measure.repeat_end and not _another_ending(measures, index):
            break
    return most


def _named_passes(ending: str) -> list[int]:
    """Return the numbers of a volta bracket such as "1, 2"; at most 9."""
    return [
        int(word) for word in ending.replace(",", " ").replace(".", " ").split() if word.isdigit() and int(word) < 10
    ]


def _ticks(time: Fraction) -> int:
    return round(time * TICKS_PER_QUARTER)


def _conductor_track(score: Score, order: list[int], starts: list[Fraction], tempo: float, end: int) -> bytes:
    """Return the track with title, tempo, metres and key signatures."""
    events: list[Event] = []
    if score.title:
        events.append((0, 0, _meta(0x03, score.title.encode("utf-8"))))
    events.append((0, 1, _meta(0x51, round(60_000_000 / tempo).to_bytes(3, "big"))))
    measures = score.parts[0].measures if score.parts else []
    key: int | None = None
    meter: tuple[int, int] | None = None
    keys, meters = _valid_signatures(measures)
    for index, start in zip(order, starts, strict=False):
        if keys[index] != key:
            key = keys[index]
            events.append((_ticks(start), 2, _meta(0x59, struct.pack(">bB", max(-7, min(7, key)), 0))))
        if meters[index] != meter:
            meter = meters[index]
            if meter is not None:
                events.append((_ticks(start), 2, _meta(0x58, _time_signature(*meter))))
    return _track(events, end)


def _valid_signatures(measures: list[Measure]) -> tuple[list[int], list[tuple[int, int] | None]]:
    """Return the key and the metre that are valid in each measure."""
    keys: list[int] = []
    meters: list[tuple[int, int] | None] = []
    key, meter = 0, None
    for measure in measures:
        key = key if measure.key is None else measure.key
        meter = meter if measure.meter is None else measure.meter[:2]
        keys.append(key)
        meters.append(meter)
    return keys, meters


def _time_signature(beats: int, unit: int) -> bytes:
    power = max(0, unit.bit_length() - 1)
    clocks = max(1, min(255, 96 // max(unit, 1)))  # MIDI clocks of a beat, 24 per quarter note
    return bytes([max(1, min(255, beats)), power, clocks, 8])


def _part_track(part: Part, channel: int, order: list[int], starts: list[Fraction], end: int) -> bytes:
    """Return the track of a part: its name, its notes and its pedal."""
    events: list[Event] = [(0, 0, _meta(0x03, part.name.encode("utf-8"))), (0, 1, bytes([0xC0 | channel, 0]))]
    for index, start in zip(order, starts, strict=False):
        for direction in part.measures[index].directions:
            if direction.kind == "pedal":
                value = 127 if direction.value == "start" else 0
                order_in_tick = 4 if value else 2  # lifted before it is pressed again
                message = bytes([0xB0 | channel, _PEDAL_CONTROL, value])
                events.append((_ticks(start + direction.onset), order_in_tick, message))
    for tone in part_tones(part, order, starts):
        on, off = _ticks(tone.start), max(_ticks(tone.end), _ticks(tone.start) + 1)
        events.append((on, 5, bytes([0x90 | channel, tone.pitch, tone.velocity])))
        events.append((off, 3, bytes([0x80 | channel, tone.pitch, 64])))
    return _track(events, end)


def part_tones(part: Part, order: Sequence[int], starts: Sequence[Fraction]) -> list[Tone]:
    """Return the notes of a part as they sound: ties are one note, staccato notes and grace notes are short.

    Args:
        part: the part.
        order: positions of the measures in the order in which they are played.
        starts: time at which each of them begins, in quarter notes.

    Returns:
        The notes in order of their beginning; those of one pitch do not overlap.
    """
    tones: list[Tone] = []
    sounding: dict[int, Tone] = {}  # notes whose tie waits for its second note
    running = _VELOCITY
    for index, start in zip(order, starts, strict=False):
        measure = part.measures[index]
        changes = _velocity_changes(measure)
        for chord in sorted(measure.chords, key=lambda chord: (chord.onset, not chord.grace)):
            velocity = _velocity_at(changes, chord.onset, running)
            _add_chord(tones, sounding, measure, chord, start, velocity)
        running = _velocity_at([change for change in changes if change[2]], measure.length, running)
    return _without_overlaps(tones)


def _velocity_changes(measure: Measure) -> list[tuple[Fraction, int, bool]]:
    """Return the dynamics of a measure: onset, velocity, and whether it stays for the notes after its own."""
    found = []
    for direction in sorted(measure.directions, key=lambda direction: direction.onset):
        if direction.kind == "dynamics" and direction.value in _VELOCITIES:
            found.append((direction.onset, _VELOCITIES[direction.value], True))
        elif direction.kind == "dynamics" and direction.value in _ACCENTS:
            found.append((direction.onset, _ACCENTS[direction.value], False))
            if direction.value == "fp":
                found.append((direction.onset + Fraction(1, 64), _VELOCITIES["p"], True))
    return found


def _velocity_at(changes: list[tuple[Fraction, int, bool]], onset: Fraction, before: int) -> int:
    velocity = before
    for time, value, stays in changes:
        if (stays and time <= onset) or time == onset:
            velocity = value
    return velocity


def _add_chord(
    tones: list[Tone], sounding: dict[int, Tone], measure: Measure, chord: Chord, start: Fraction, velocity: int
) -> None:
    """Add the notes of a chord, or extend the notes that a tie joins it to."""
    begin, end = start + chord.onset, start + chord.end
    if chord.grace:
        begin, end = _grace_time(measure, chord, start)
    elif "staccato" in chord.articulations or "staccatissimo" in chord.articulations:
        end = begin + chord.duration * _STACCATO
    velocity = min(127, velocity + _ACCENT * bool({"accent", "strong-accent"} & set(chord.articulations)))
    for note in chord.notes:
        pitch = max(0, min(127, note.pitch.midi))
        earlier = sounding.pop(pitch, None)
        if earlier is not None and note.tied_from and not chord.grace and earlier.end == begin:
            earlier.end = end
            tone = earlier
        else:
            tone = Tone(pitch, begin, end, velocity, chord.staff)
            tones.append(tone)
        if note.tied_to:
            sounding[pitch] = tone


def _grace_time(measure: Measure, chord: Chord, start: Fraction) -> tuple[Fraction, Fraction]:
    """Return the time of a grace note: one after the other, right before the note that they belong to."""
    group = [c for c in measure.chords if c.grace and c.voice == chord.voice and c.onset == chord.onset]
    group.sort(key=lambda c: c.box[0])
    remaining = len(group) - next(k for k, other in enumerate(group) if other is chord)
    begin = max(Fraction(0), start + chord.onset - remaining * _GRACE)
    return begin, begin + _GRACE


def _without_overlaps(tones: list[Tone]) -> list[Tone]:
    """End each note where the same key is struck again; of two that begin together, the longer one stays."""
    result: list[Tone] = []
    last: dict[int, Tone] = {}
    for tone in sorted(tones, key=lambda tone: (tone.start, tone.pitch, -tone.end)):
        earlier = last.get(tone.pitch)
        if earlier is not None and earlier.start == tone.start:
            continue
        if earlier is not None and earlier.end > tone.start:
            earlier.end = tone.start
        last[tone.pitch] = tone
        result.append(tone)
    return result


def _track(events: list[Event], end: int) -> bytes:
    """Return a track chunk from events in any order."""
    body = bytearray()
    before = 0
    for tick, _, message in sorted(events, key=lambda event: event[:2]):
        tick = max(tick, before)
        body += _variable_length(tick - before) + message
        before = tick
    body += _variable_length(max(0, end - before)) + _meta(0x2F, b"")
    return b"MTrk" + struct.pack(">I", len(body)) + bytes(body)


def _meta(kind: int, content: bytes) -> bytes:
    return bytes([0xFF, kind]) + _variable_length(len(content)) + content


def _variable_length(value: int) -> bytes:
    """Return a number as bytes of 7 bits each, all but the last with the highest bit set."""
    groups = [value & 0x7F]
    while value := value >> 7:
        groups.append(0x80 | (value & 0x7F))
    return bytes(reversed(groups))
