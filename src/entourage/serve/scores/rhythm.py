"""The rhythm of a corrected measure, solved again with what the user fixed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import exp

import numpy as np

from entourage.detect.options import INTERLINE
from entourage.read.chords import set_beams, set_tuplets
from entourage.read.rhythm.durations import RATIOS, TICKS, Choice, choices_of, ticks_of
from entourage.read.rhythm.readings import MeasureInput, Reading
from entourage.read.rhythm.search import solve
from entourage.read.score import Box, Chord
from entourage.read.symbols.glyphs import Event, Glyph, Head, Stem
from entourage.serve.scores.bars import Bar, Entry

_LEVELS = {"eighth": 1, "16th": 2, "32nd": 3, "64th": 4, "128th": 5}
VOICES = 4  # per staff


@dataclass(frozen=True)
class Frame:
    """Properties of a measure that its rhythm depends on.

    Attributes:
        n_staves: number of staves of the part.
        length: expected length in quarter notes, or None.
        interline: pixels between staff lines of the page.
        may_be_short: whether the measure may be incomplete.
    """

    n_staves: int
    length: Fraction | None
    interline: float
    may_be_short: bool


def solve_bar(bar: Bar, frame: Frame) -> None:
    """Give the chords and rests of a bar the most plausible times that add up, with what the user fixed.

    If none add up, they keep their times, as far as they do not overlap.

    Args:
        bar: the bar; it is changed.
        frame: what is valid in it.
    """
    kept = [entry for entry in bar.entries if not entry.chord.grace]
    best = next(_solve(kept, frame, may_drop=False), None) if kept else None
    if best is None or best.problem:
        best = _in_sequence(kept, frame)
    _apply(bar, best)


def next_reading(bar: Bar, frame: Frame) -> bool:
    """Give a bar its next reading: another plausible one, one that leaves out symbols, or the printed durations.

    After the last reading, the first follows again.

    Args:
        bar: the bar; it is changed.
        frame: what is valid in it.

    Returns:
        Whether there is another reading.
    """
    readings: dict[tuple[object, ...], _Solution] = {}
    for solution in _candidates(bar, frame):
        readings.setdefault(solution.signature, solution)
    present = _present(bar).signature
    signatures = list(readings)
    at = signatures.index(present) if present in signatures else -1
    if len(signatures) - (present in signatures) < 1:
        return False
    _apply(bar, readings[signatures[(at + 1) % len(signatures)]])
    return True


@dataclass
class _Solution:
    """A reading of a bar: for each chord or rest its onset, choice and voice of the part, or None if it is left out."""

    entries: list[Entry]
    placed: list[tuple[Fraction, Choice, int] | None]
    length: Fraction
    cost: float
    problem: str

    @property
    def signature(self) -> tuple[object, ...]:
        """Values that differ if the reading does."""
        rows = zip(self.entries, self.placed, strict=True)
        return tuple(sorted((id(entry), at[0], at[1].ticks, at[2]) for entry, at in rows if at is not None))


def _candidates(bar: Bar, frame: Frame) -> Iterator[_Solution]:
    """Yield readings: the best ones with all symbols, those that leave out some, and the durations as printed."""
    entries = [entry for entry in (*bar.entries, *bar.dropped) if not entry.chord.grace]
    if not entries:
        return
    kept = [entry for entry in bar.entries if not entry.chord.grace]
    for chosen, may_drop in ((kept, False), (entries, False), (entries, True)):
        if chosen:
            yield from _solve(chosen, frame, may_drop=may_drop)
    yield _in_sequence(entries, frame, is_printed=True)


def _solve(entries: list[Entry], frame: Frame, *, may_drop: bool) -> Iterator[_Solution]:
    has_fixed_voices = any(entry.is_fixed("voice") for entry in entries)
    homes = [_voice_of(entry) if has_fixed_voices else (entry.chord.voice - 1) // VOICES for entry in entries]
    staves = sorted(set(homes)) if has_fixed_voices else list(range(frame.n_staves))
    events = _to_events(entries, INTERLINE / frame.interline)
    length = None if frame.length is None else int(frame.length * TICKS)
    measure = MeasureInput(
        events=events,
        staff_of=[staves.index(home) if home in staves else 0 for home in homes],
        n_staves=len(staves),
        length=length,
        tuplets=[entry.printed.tuplet for entry in entries],
        may_be_short=frame.may_be_short,
    )
    measure.choices = [_choices(measure, k, entry, may_drop) for k, entry in enumerate(entries)]
    for reading in solve(measure, below=None):
        if solution := _to_solution(entries, events, reading, staves if has_fixed_voices else None):
            yield solution
    yield _in_sequence(entries, frame)


def _voice_of(entry: Entry) -> int:
    return entry.chord.voice - 1


def _choices(measure: MeasureInput, k: int, entry: Entry, may_drop: bool) -> list[Choice]:
    """Return the readings of a chord or rest: one if the user fixed its duration."""
    if entry.is_fixed("duration"):
        return [_as_it_is(entry.chord)]
    event = measure.events[k]
    group = [other for other in measure.events if event.beam_group is not None and other.beam_group == event.beam_group]
    choices = choices_of(event, measure.tuplets[k], group, measure.length)
    return [choice for choice in choices if may_drop or not choice.dropped]


def _as_it_is(chord: Chord) -> Choice:
    ticks = int(chord.duration * TICKS)
    nominal = ticks_of(chord.value, chord.dots) or ticks
    return Choice(ticks, chord.value, chord.dots, chord.tuplet, 0.0, nominal, full_measure=chord.full_measure)


def _as_printed(entry: Entry) -> Choice:
    printed, chord = entry.printed, entry.chord
    if chord.full_measure or (printed.value, printed.dots) == (chord.value, chord.dots):
        return _as_it_is(chord)
    tuplet = (printed.tuplet, RATIOS[printed.tuplet]) if printed.tuplet in RATIOS else None
    nominal = ticks_of(printed.value, printed.dots)
    ticks = nominal if tuplet is None else nominal * tuplet[1] // tuplet[0]
    return Choice(ticks, printed.value, printed.dots, tuplet, 0.0, nominal)


def _to_solution(
    entries: list[Entry], events: list[Event], reading: Reading, voices: Sequence[int] | None
) -> _Solution | None:
    """Return a reading of the solver by chord; None if it changes what the user fixed."""
    index = {id(event): k for k, event in enumerate(events)}
    placed: list[tuple[Fraction, Choice, int] | None] = [None] * len(entries)
    for item in reading.placed:
        home = VOICES * item.staff if voices is None else voices[item.staff]
        k = index[id(item.event)]
        placed[k] = (Fraction(item.onset, TICKS), item.choice, home + item.voice + 1)
    for entry, at in zip(entries, placed, strict=True):
        fixed = entry.chord
        if entry.is_fixed("duration") and (at is None or at[1].ticks != int(fixed.duration * TICKS)):
            return None
        if entry.is_fixed("voice") and (at is None or at[2] != fixed.voice):
            return None
    return _Solution(entries, placed, Fraction(reading.length, TICKS), reading.cost, reading.problem)


def _in_sequence(entries: list[Entry], frame: Frame, *, is_printed: bool = False) -> _Solution:
    """Return the reading that keeps onsets and durations, those printed or the present ones.

    Chords of a voice that would overlap follow each other.
    """
    placed: list[tuple[Fraction, Choice, int] | None] = [None] * len(entries)
    voices: dict[int, list[int]] = {}
    for k, entry in enumerate(entries):
        voices.setdefault(entry.chord.voice, []).append(k)
    longest, incomplete = Fraction(0), set()
    for voice, members in voices.items():
        members.sort(key=lambda k: (entries[k].chord.onset, _column(entries[k].chord)))
        time = sounding = Fraction(0)
        for k in members:
            is_free = is_printed and not entries[k].is_fixed("duration")
            choice = _as_printed(entries[k]) if is_free else _as_it_is(entries[k].chord)
            onset, duration = max(time, entries[k].chord.onset), Fraction(choice.ticks, TICKS)
            placed[k] = (onset, choice, voice)
            time, sounding = onset + duration, sounding + duration
        longest = max(longest, time)
        if frame.length is not None and sounding < frame.length and (voice - 1) % VOICES == 0:
            incomplete.add(voice)
    problem = _problem(longest, incomplete, frame)
    is_short = frame.may_be_short and not problem
    length = longest if frame.length is None or is_short else max(frame.length, longest)
    return _Solution(entries, placed, length, 4.0 if problem else 0.0, problem)


def _problem(longest: Fraction, incomplete: set[int], frame: Frame) -> str:
    """Return the reason why voices do not add up, or ""; only the first voice of a staff has to be complete."""
    if frame.length is None:
        return ""
    if longest > frame.length:
        return "a voice is longer than the measure"
    if longest < frame.length:
        return "" if frame.may_be_short else "all voices are shorter than the measure"
    return "a voice is shorter than the measure" if incomplete else ""


def _present(bar: Bar) -> _Solution:
    entries = [entry for entry in (*bar.entries, *bar.dropped) if not entry.chord.grace]
    dropped = {id(entry) for entry in bar.dropped}
    placed = [
        None if id(entry) in dropped else (entry.chord.onset, _as_it_is(entry.chord), entry.chord.voice)
        for entry in entries
    ]
    return _Solution(entries, placed, bar.measure.length, 0.0, bar.measure.problem)


def _apply(bar: Bar, solution: _Solution) -> None:
    """Write a reading into a bar."""
    known = {id(entry) for entry in solution.entries}
    graces = [entry for entry in bar.entries if entry.chord.grace]
    before = {id(entry): entry.chord.voice for entry in bar.entries}
    bar.entries, bar.dropped = [], [entry for entry in bar.dropped if id(entry) not in known]
    for entry, at in zip(solution.entries, solution.placed, strict=True):
        entry.mark.printed = entry.printed
        if at is None:
            bar.dropped.append(entry)
            continue
        chord, (onset, choice, voice) = entry.chord, at
        chord.onset, chord.duration, chord.voice = onset, Fraction(choice.ticks, TICKS), voice
        chord.value, chord.dots, chord.tuplet = choice.value, choice.dots, choice.tuplet
        chord.full_measure = choice.full_measure
        bar.entries.append(entry)
    _place_graces(graces, bar.entries, solution.length)
    bar.entries += graces
    measure = bar.measure
    measure.length, measure.problem = solution.length, solution.problem if solution.entries else ""
    measure.confidence = exp(-solution.cost / 4)
    _set_groups(bar, before)
    bar.sort()


def _place_graces(graces: list[Entry], entries: list[Entry], length: Fraction) -> None:
    """Put grace notes at the onset of the next chord of their staff, or at the end of the measure."""
    for grace in graces:
        x = _column(grace.chord)
        later = [
            e.chord for e in entries if e.chord.staff == grace.chord.staff and _column(e.chord) > x and e.chord.notes
        ]
        target = min(later, key=_column) if later else None
        grace.chord.onset = length if target is None else target.onset
        grace.chord.voice = grace.chord.voice if target is None else target.voice


def _set_groups(bar: Bar, before: dict[int, int]) -> None:
    """Set the beams of groups whose values or voices changed, and the ends of tuplets.

    Args:
        bar: the bar with its new reading.
        before: voice of each chord in the earlier reading, by identity of the entry.
    """
    events = _to_events(bar.entries, 1.0)
    changed = {
        event.beam_group
        for event, entry in zip(events, bar.entries, strict=True)
        if before.get(id(entry)) != entry.chord.voice or len(entry.chord.beams) != _LEVELS.get(entry.chord.value, 0)
    }
    pairs = [(event, entry.chord) for event, entry in zip(events, bar.entries, strict=True)]
    members = [(event, chord) for event, chord in pairs if event.beam_group in changed]
    for _, chord in members:
        chord.beams = []
    set_beams(members)
    for _, chord in pairs:
        chord.tuplet_start = chord.tuplet_stop = False
    set_tuplets(pairs)


def _to_events(entries: list[Entry], scale: float) -> list[Event]:
    """Return chords and rests as the events that the search of the rhythm reads, at the scale of the detector."""
    groups = _beam_groups(entries)
    return [_to_event(entry, group, scale) for entry, group in zip(entries, groups, strict=True)]


def _to_event(entry: Entry, group: int | None, scale: float) -> Event:
    chord, printed = entry.chord, entry.printed
    levels = _LEVELS.get(printed.value, 0)
    stem = None
    if chord.stem and chord.notes:
        top, bottom = chord.box[1] * scale, chord.box[3] * scale
        left, right = _beam_counts(chord) if group is not None else (0, 0)
        stem = Stem(_column(chord) * scale, top, bottom, chord.stem, left, right, 0 if group is not None else levels)
    heads = [_to_head(note.box, note.position, chord, scale) for note in chord.notes]
    return Event(
        staff=chord.staff - 1,
        x=_column(chord) * scale,
        heads=heads,
        stem=stem,
        value=printed.value,
        dots=printed.dots,
        box=np.array(chord.box) * scale,
        beam_group=group,
        confidence=min((note.confidence for note in chord.notes), default=1.0),
    )


def _to_head(box: Box, position: int, chord: Chord, scale: float) -> Head:
    glyph = Glyph("noteheadBlack", np.array(box) * scale, 1.0)
    return Head(glyph, chord.staff - 1, position, "black", bool(chord.grace))


def _column(chord: Chord) -> float:
    """Return the x coordinate of a chord or rest: that of the heads on the normal side of the stem."""
    centres = sorted((note.box[0] + note.box[2]) / 2 for note in chord.notes)
    if not centres:
        return (chord.box[0] + chord.box[2]) / 2
    return centres[0] if chord.stem == "up" else centres[-1] if chord.stem == "down" else centres[len(centres) // 2]


def _beam_counts(chord: Chord) -> tuple[int, int]:
    """Return the number of beams to the left and to the right of a stem."""
    left = sum(state in ("continue", "end", "backward hook") for state in chord.beams)
    right = sum(state in ("continue", "begin", "forward hook") for state in chord.beams)
    return left, right


def _beam_groups(entries: list[Entry]) -> list[int | None]:
    """Return the number of the beamed group of each chord, or None."""
    groups: dict[int, int] = {}
    open_group: dict[int, int] = {}
    number = 0
    for entry in sorted(entries, key=lambda entry: (entry.chord.voice, entry.chord.onset)):
        chord = entry.chord
        if not chord.beams or chord.grace:
            continue
        if chord.beams[0] == "begin":
            number += 1
            open_group[chord.voice] = number
        if chord.voice in open_group:
            groups[id(entry)] = open_group[chord.voice]
        if chord.beams[0] == "end":
            open_group.pop(chord.voice, None)
    return [groups.get(id(entry)) for entry in entries]


def duration_of(value: str, dots: int, tuplet: tuple[int, int] | None) -> Fraction:
    """Return the length of a note value in quarter notes.

    Raises:
        ValueError: there is no such value, number of dots or tuplet.
    """
    if value not in ("breve", "whole", "half", "quarter", *_LEVELS) or not 0 <= dots <= 3:
        raise ValueError(f"value is {value[:20]!r} with {dots} dots; expected a note value with 0 to 3 dots")
    if tuplet is not None and RATIOS.get(tuplet[0]) != tuplet[1]:
        raise ValueError(f"tuplet is {tuplet}; expected one of {', '.join(map(str, RATIOS))}")
    length = Fraction(ticks_of(value, dots), TICKS)
    return length if tuplet is None else length * tuplet[1] / tuplet[0]
