"""Onsets, durations and voices of a measure: the most plausible reading in which the voices add up.

Chords and rests are processed from left to right, column by column. A state of the search is the time of the column and
the time at which each voice of each staff ends; a transition chooses a duration for every chord and rest of the column
and the voice that continues with it. Every deviation from what is printed, and every time that a voice is silent
without a rest, has a cost. Dynamic programming over the states finds the cheapest reading and the second cheapest. The
search is exact as long as a column has no more than `_MAX_STATES` states of at most the cost bound, which is raised
step by step.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import log

from entourage.read.events import Event
from entourage.read.score import NOTE_VALUES

TICKS = 6720  # per quarter note: divisible by 128th notes and by tuplets of 3, 5 and 7
_VALUES = list(NOTE_VALUES)
_COLUMN = 7.5  # pixels: chords that are nearer to each other begin together
_SHIFTED = 15.0  # pixels: chords up to this distance may begin together, if heads of two voices are side by side
_MAX_STATES = 80
_BOUNDS = (1.5, 4.0, 8.0)  # cost bounds, tried one after the other
_MAX_VOICES = 3  # per staff

# Costs of deviations, in units of which an implausible one has several.
_OPEN_VOICE = 0.5  # a second voice at the beginning of the measure
_OPEN_LATER = 1.2  # a second voice that begins later
_GAP = 1.2  # a voice is silent without a rest
_WRONG_STEM = 0.6  # the upper of two voices has its stems down, or the lower one up
_SHORT_VOICE = 0.6  # a further voice ends before the measure does
_SHORT = 2.5  # the first voice of a staff does
_LONG = 5.0  # a voice ends after the measure
_BEAM = 1.3  # one beam or flag more or less than measured
_DOT = 1.6  # a dot more than detected
_NO_DOT = 1.0  # a dot less
_VALUE = 2.2  # quarter notes and half notes mistaken for each other
_TUPLET = 0.55  # each note of a triplet that has no printed 3
_NO_TUPLET = 0.8  # each note that a printed 3 seems to belong to, but that is not in a triplet
_DROP = 3.0  # a detection that is not a symbol, times its score
_SHIFT = 0.3  # two columns side by side begin together
_SPACING = 0.12  # factor of the logarithm by which the distance of columns deviates from their time


@dataclass(frozen=True)
class Choice:
    """A reading of one chord or rest.

    Attributes:
        ticks: its duration; 0 if it is dropped.
        value: name of the note value.
        dots: number of dots.
        tuplet: ratio such as (3, 2), or None.
        cost: cost of the reading.
        full_measure: whether it is a rest of a whole measure.
        dropped: whether the symbol is ignored.
    """

    ticks: int
    value: str
    dots: int
    tuplet: tuple[int, int] | None
    cost: float
    full_measure: bool = False
    dropped: bool = False


@dataclass(frozen=True)
class Placed:
    """A chord or rest with its reading.

    Attributes:
        event: the chord or rest.
        onset: ticks from the beginning of the measure.
        choice: its reading.
        staff: staff whose voice it belongs to, from 0; a beamed group across staves belongs to one of them.
        voice: voice of that staff, from 0.
    """

    event: Event
    onset: int
    choice: Choice
    staff: int
    voice: int


@dataclass
class Reading:
    """A consistent reading of a measure.

    Attributes:
        placed: the chords and rests in order of onset.
        length: length of the measure in ticks.
        cost: sum of the costs.
        problem: reason why the voices do not add up, or "".
    """

    placed: list[Placed]
    length: int
    cost: float
    problem: str = ""


@dataclass(frozen=True)
class _State:
    """The time of the last column and the ends of the voices of each staff."""

    time: int
    ends: tuple[tuple[int, ...], ...]


@dataclass
class _Path:
    cost: float
    step: tuple[Placed, ...]
    before: _Path | None


@dataclass
class MeasureInput:
    """What is known of a measure before its rhythm is solved.

    Attributes:
        events: chords and rests without grace notes, from left to right.
        staff_of: for each of them, the staff whose voice it belongs to.
        n_staves: number of staves of the part.
        length: expected length in ticks, or None.
        tuplets: for each event, the number of a printed tuplet that it may belong to, or 0.
        may_be_short: whether the measure may be incomplete: an upbeat, or a part of a measure at a repeat.
    """

    events: list[Event]
    staff_of: list[int]
    n_staves: int
    length: int | None
    tuplets: list[int] = field(default_factory=list)
    may_be_short: bool = False


def solve(measure: MeasureInput) -> list[Reading]:
    """Return the most plausible readings of a measure, best first.

    Args:
        measure: chords, rests and the expected length.

    Returns:
        One or two readings; at least one, with a `problem` if no reading adds up.
    """
    if not measure.events:
        return [Reading([], measure.length or 4 * TICKS, 0.0)]
    columns = _columns(measure.events)
    finals: list[tuple[float, _Path, int, str]] = []
    for bound in _BOUNDS:
        finals = _search(measure, columns, bound)
        if finals:
            break
    if not finals:
        return [_fallback(measure, columns)]
    readings = []
    for cost, path, length, problem in finals[:2]:
        readings.append(Reading(_unwind(path), length, cost, problem))
    return readings


def _unwind(path: _Path) -> list[Placed]:
    steps: list[tuple[Placed, ...]] = []
    at: _Path | None = path
    while at is not None:
        steps.append(at.step)
        at = at.before
    return [placed for step in reversed(steps) for placed in step]


def _columns(events: Sequence[Event]) -> list[list[int]]:
    """Return the indices of events that begin at about the same x, from left to right."""
    columns: list[list[int]] = []
    for i in sorted(range(len(events)), key=lambda i: events[i].x):
        if columns and events[i].x - events[columns[-1][0]].x < _COLUMN:
            columns[-1].append(i)
        else:
            columns.append([i])
    return columns


def _search(measure: MeasureInput, columns: list[list[int]], bound: float) -> list[tuple[float, _Path, int, str]]:
    """Return final costs, paths, lengths and problems of all readings within a cost bound, best first."""
    choices = [_choices(measure, i) for i in range(len(measure.events))]
    start = _State(0, ((),) * measure.n_staves)
    layer: dict[_State, list[_Path]] = {start: [_Path(0.0, (), None)]}
    length = measure.length
    width = max(1.0, measure.events[columns[-1][-1]].x - measure.events[columns[0][0]].x)
    for number, column in enumerate(columns):
        following: dict[_State, list[_Path]] = {}
        x = measure.events[column[0]].x
        before = None if number == 0 else x - measure.events[columns[number - 1][0]].x
        options = list(itertools.islice(_column_choices([choices[i] for i in column], bound), 24))
        for state, paths in layer.items():
            for time, extra in _times(state, number == 0, before, width, length):
                for chosen, cost in options:
                    base = paths[0].cost + extra + cost
                    if base > bound:
                        break
                    for ends, step, more in _place(measure, column, chosen, state, time):
                        total = base + more
                        too_long = length is not None and _overshoots(ends, length)
                        if total > bound or (too_long and total + _LONG > bound):
                            continue
                        _keep(following, _State(time, ends), paths, step, total - paths[0].cost)
        if len(following) > _MAX_STATES:
            best = sorted(following.items(), key=lambda item: item[1][0].cost)[:_MAX_STATES]
            following = dict(best)
        layer = following
    finals: list[tuple[float, _Path, int, str]] = []
    for state, paths in layer.items():
        for cost, target, problem in _finish(measure, state):
            finals.extend((path.cost + cost, path, target, problem) for path in paths if path.cost + cost <= bound)
    return sorted(finals, key=lambda item: item[0])


def _keep(
    layer: dict[_State, list[_Path]], state: _State, paths: list[_Path], step: tuple[Placed, ...], cost: float
) -> None:
    """Add the continuations of paths to a state, which keeps its two cheapest."""
    kept = layer.setdefault(state, [])
    for path in paths:
        total = path.cost + cost
        if len(kept) < 2 or total < kept[-1].cost:
            kept.append(_Path(total, step, path))
            kept.sort(key=lambda p: p.cost)
            del kept[2:]


def _overshoots(ends: tuple[tuple[int, ...], ...], length: int) -> bool:
    return any(end > length for staff in ends for end in staff)


def _times(
    state: _State, first: bool, distance: float | None, width: float, length: int | None
) -> Iterator[tuple[int, float]]:
    """Yield the times at which the next column may begin, with their costs."""
    if first or distance is None:
        yield 0, 0.0
        return
    ends = sorted({end for staff in state.ends for end in staff if end > state.time})
    if distance < _SHIFTED:
        yield state.time, _SHIFT
    total = length or max(ends, default=4 * TICKS)
    for end in ends:
        if length is not None and end >= length:
            continue
        ratio = (distance / width) / max((end - state.time) / total, 1e-6)
        yield end, _SPACING * abs(log(max(ratio, 1e-3)))


def _column_choices(choices: list[list[Choice]], bound: float) -> Iterator[tuple[tuple[Choice, ...], float]]:
    """Yield combinations of readings of the symbols of a column, cheapest first."""
    combined = [(chosen, sum(choice.cost for choice in chosen)) for chosen in itertools.product(*choices)]
    yield from sorted((item for item in combined if item[1] <= bound), key=lambda item: item[1])


def _place(
    measure: MeasureInput, column: list[int], chosen: tuple[Choice, ...], state: _State, time: int
) -> Iterator[tuple[tuple[tuple[int, ...], ...], tuple[Placed, ...], float]]:
    """Yield the ways to continue voices with the symbols of a column: new ends, placed symbols and cost."""
    items = [(i, choice) for i, choice in zip(column, chosen, strict=True) if not choice.dropped]
    if not items:
        yield state.ends, (), 0.0
        return
    by_staff: dict[int, list[tuple[int, Choice]]] = {}
    for i, choice in items:
        by_staff.setdefault(measure.staff_of[i], []).append((i, choice))
    per_staff = [
        list(_place_in_staff(measure, staff, group, state.ends[staff], time)) for staff, group in by_staff.items()
    ]
    for combination in itertools.product(*per_staff):
        ends = list(state.ends)
        placed: tuple[Placed, ...] = ()
        cost = 0.0
        for staff, (staff_ends, staff_placed, staff_cost) in zip(by_staff, combination, strict=True):
            ends[staff] = staff_ends
            placed += staff_placed
            cost += staff_cost
        yield tuple(ends), placed, cost


def _place_in_staff(
    measure: MeasureInput, staff: int, group: list[tuple[int, Choice]], ends: tuple[int, ...], time: int
) -> Iterator[tuple[tuple[int, ...], tuple[Placed, ...], float]]:
    """Yield the ways to continue the voices of one staff with the symbols that begin at a time."""
    n_voices = len(ends)
    for voices in itertools.permutations(range(min(_MAX_VOICES, n_voices + len(group))), len(group)):
        new = list(ends)
        cost, placed, possible = 0.0, [], True
        for (i, choice), voice in sorted(zip(group, voices, strict=True), key=lambda item: item[1]):
            if voice > len(new):
                possible = False
                break
            event = measure.events[i]
            if voice == len(new):
                new.append(0)
                if voice:
                    cost += _OPEN_VOICE if time == 0 else _OPEN_LATER
                elif time:
                    cost += _GAP
            elif new[voice] > time:
                possible = False
                break
            elif new[voice] < time:
                cost += _GAP
            cost += _stem_cost(event, voice, len(group), n_voices)
            new[voice] = time + choice.ticks
            placed.append(Placed(event, time, choice, staff, voice))
        if possible:
            yield tuple(new), tuple(placed), cost


def _stem_cost(event: Event, voice: int, together: int, n_voices: int) -> float:
    """Return the cost of the stem direction of a chord in a voice, where a staff has several."""
    if max(together, n_voices) < 2 or event.stem is None:
        return 0.0
    expected = "up" if voice == 0 else "down"
    return 0.0 if event.stem.direction == expected else _WRONG_STEM


def _finish(measure: MeasureInput, state: _State) -> Iterator[tuple[float, int, str]]:
    """Yield costs, lengths and problems of ending the measure at a state."""
    longest = max((end for staff in state.ends for end in staff), default=0)
    targets = {measure.length if measure.length is not None else longest}
    if measure.length is not None and longest < measure.length:
        targets.add(longest)
    for target in sorted(targets):
        cost, late, early = 0.0, False, False
        for ends in state.ends:
            for voice, end in enumerate(ends):
                if end > target:
                    cost += _LONG
                    late = True
                elif end < target:
                    cost += (_SHORT if voice == 0 else _SHORT_VOICE) + (target - end) / (4 * TICKS)
                    early |= voice == 0 and max(ends) < target
        short = measure.length is not None and target < measure.length
        if short:
            cost += 0.3 if measure.may_be_short else 2.0
        problem = ""
        if late:
            problem = "a voice is longer than the measure"
        elif early:
            problem = "a voice is shorter than the measure"
        elif short and not measure.may_be_short:
            problem = "all voices are shorter than the measure"
        yield cost, target, problem


def _choices(measure: MeasureInput, i: int) -> list[Choice]:
    """Return the readings of a chord or rest, cheapest first."""
    event = measure.events[i]
    number = measure.tuplets[i] if measure.tuplets else 0
    found: list[Choice] = []
    if event.is_rest and event.value in ("whole", "breve") and event.dots == 0:
        alone = sum(1 for k in measure.staff_of if k == measure.staff_of[i]) == 1
        full = measure.length or 4 * TICKS
        found.append(Choice(full, "whole", 0, None, 0.0 if alone else 0.4, full_measure=True))
    base = _VALUES.index(event.value)
    variants = [(base, event.dots, 0.0)]
    if event.dots:
        variants.append((base, event.dots - 1, _NO_DOT))
    if event.dots < 2:
        variants.append((base, event.dots + 1, _DOT if event.dots == 0 else 2 * _DOT))
    if event.value in ("half", "quarter") and not event.beams:
        variants.append((_VALUES.index("quarter" if event.value == "half" else "half"), event.dots, _VALUE))
    if event.beams or event.value == "quarter":
        variants.append((base + 1, event.dots, _BEAM))
        if event.beams:
            variants.append((base - 1, event.dots, _BEAM))
        if event.beams > 1:
            variants.append((base - 2, event.dots, 2 * _BEAM))
    elif event.is_rest:
        variants.extend((k, event.dots, _VALUE) for k in (base - 1, base + 1) if 0 <= k < len(_VALUES))
    ratios = {3: (3, 2), 6: (6, 4), 5: (5, 4), 7: (7, 4), 2: (2, 3), 4: (4, 3), 9: (9, 8)}
    for k, dots, cost in variants:
        if not 0 <= k < len(_VALUES):
            continue
        ticks = _ticks(_VALUES[k], dots)
        if ticks is None:
            continue
        found.append(Choice(ticks, _VALUES[k], dots, None, cost + (_NO_TUPLET if number else 0.0)))
        ratio = ratios.get(number, (3, 2)) if number else (3, 2)
        if ticks * ratio[1] % ratio[0] == 0 and (number or _VALUES[k] in ("quarter", "eighth", "16th", "32nd")):
            total = cost + (0.0 if number else _TUPLET)
            found.append(Choice(ticks * ratio[1] // ratio[0], _VALUES[k], dots, ratio, total))
    found.append(Choice(0, event.value, event.dots, None, _DROP * event.confidence, dropped=True))
    return sorted(found, key=lambda choice: choice.cost)


def _ticks(value: str, dots: int) -> int | None:
    length = NOTE_VALUES[value] * TICKS * (2 - Fraction(1, 2**dots))
    return int(length) if length.denominator == 1 else None


def _fallback(measure: MeasureInput, columns: list[list[int]]) -> Reading:
    """Return the printed durations, one after the other in each staff, if no reading is plausible."""
    ends = [0] * measure.n_staves
    placed = []
    for column in columns:
        for i in column:
            event, staff = measure.events[i], measure.staff_of[i]
            choice = Choice(_ticks(event.value, event.dots) or TICKS, event.value, event.dots, None, 0.0)
            placed.append(Placed(event, ends[staff], choice, staff, 0))
            ends[staff] += choice.ticks
    length = measure.length or max(ends)
    return Reading(placed, length, _BOUNDS[-1], "no reading adds up")
