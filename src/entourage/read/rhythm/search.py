"""Onsets, durations and voices of a measure: the most plausible reading in which the voices add up.

Chords and rests are processed from left to right, column by column. A state of the search is the time of the column
and for each voice of each staff its end, its open beamed group and its open tuplet; a transition chooses a duration
for every chord and rest of the column and the voice that continues with it. Every deviation from what is printed, and
every time that a voice is silent without a rest, has a cost. A narrow search finds an upper bound of the cost, then
dynamic programming over all states below it finds the cheapest reading and the second cheapest. It is exact as long
as no column has more than `_MAX_STATES` states, and no staff more than `_MAX_PLACEMENTS` ways to continue its voices.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from math import log

from entourage.read.rhythm.durations import TICKS, Choice, printed
from entourage.read.rhythm.readings import MeasureInput, Placed, Reading, deviates, group_columns, readings_of
from entourage.read.symbols.glyphs import Event

_SHIFTED = 15.0  # pixels: chords up to this distance may begin together, if heads of two voices are side by side
_SIDE_BY_SIDE = 21.0  # the same, if the heads are at the same height or one step away
_NARROW = 40  # states of a column in the search for an upper bound
_MAX_STATES = 100
_MAX_PLACEMENTS = 60  # ways to continue the voices of one staff with one column
_BOUNDS = (1.0, 3.0, 6.0, 12.0)  # of the cost, tried one after the other by the narrow search
_MAX_WIDE = 4.0  # cost above which only the narrow search is made
_MARGIN = 0.6  # a second reading may cost more than the best by this
_MAX_VOICES = 3  # per staff

# Costs, in the units of those of `durations`.
_OPEN_VOICE = 0.5  # a second voice at the beginning of the measure
_OPEN_LATER = 1.2  # a second voice that begins later
_SILENT = 0.6  # a voice is silent without a rest, and again if it continues
_EMPTY = 1.9  # all voices of a staff are silent without a rest
_WRONG_STEM = 0.6  # the upper of two voices has its stems down, or the lower one up
_LONG = 5.0  # a voice ends after the measure
_LONG_MEASURE = 4.0  # all voices do
_SHORT_MEASURE = 2.0  # the measure is too short
_UPBEAT = 0.3  # the same, where incomplete measures are expected
_MID_GROUP = 0.5  # a tuplet without a number starts within a beamed group
_NO_GROUP = 0.8  # it has no beam
_NEW_GROUP = 0.8  # a beamed group begins within a tuplet
_NEXT_TUPLET = 0.05  # a tuplet without a number follows another one
_BROKEN_GROUP = 2.0  # a beamed group changes its voice
_SHIFT = 0.3  # two columns side by side begin together
_LEFT_OUT = 1e3  # rules leave a symbol out
_MISALIGNED = 1.0  # a chord does not begin with the chords of other parts above and below it
_SPACING = 0.15  # factor of the logarithm by which the distance of columns deviates from their time

Voice = tuple[int, int, int, int]  # end (-1: silent), open beamed group, ticks to complete a tuplet, its number
Voices = tuple[Voice, ...]
_IDLE: Voice = (-1, 0, 0, 0)


@dataclass(frozen=True)
class _State:
    """The time of the last column and the voices of each staff."""

    time: int
    voices: tuple[Voices, ...]


@dataclass
class _Path:
    cost: float
    step: tuple[Placed, ...]
    before: _Path | None


def solve(measure: MeasureInput, below: float | None = None) -> list[Reading]:
    """Return the most plausible readings of a measure, best first.

    Args:
        measure: chords, rests and the expected length.
        below: readings that cost more are not sought.

    Returns:
        One or two readings, the second if it costs little more. Without `below` there is at least one, with a `problem`
        if no reading adds up.
    """
    search, resting = _prepare(measure)
    if search is None:
        return [Reading(resting, measure.length or 4 * TICKS, 0.0)]
    bounds = [bound for bound in _BOUNDS if below is None or bound < below] + ([] if below is None else [below])
    finals = next((found for bound in bounds if (found := search.run(bound, _NARROW))), [])
    if not finals:
        return [solve_by_rules(measure)] if below is None else []
    if finals[0][0] < _MAX_WIDE:  # a wide search below a high cost would visit nearly all readings
        finals = search.run(finals[0][0] + _MARGIN, _MAX_STATES) or finals
    readings = []
    for cost, path, length, problem in finals[:2]:
        readings.append(Reading(resting + _unwind(path), length, cost, problem))
    return readings


def solve_by_rules(measure: MeasureInput) -> Reading:
    """Return the reading that takes every duration as printed and follows the first plausible voice.

    Args:
        measure: chords, rests and the expected length.

    Returns:
        The reading, with a `problem` if its voices do not add up.
    """
    rules = [[printed(event), _left_out(event)] for event in measure.events]
    search, resting = _prepare(MeasureInput(**{**vars(measure), "choices": rules}))
    if search is None:
        return Reading(resting, measure.length or 4 * TICKS, 0.0)
    finals = search.run(1e9, 1)
    cost, path, length, problem = finals[0]
    if cost >= _LEFT_OUT:
        problem = "more chords at one place than voices"
    return Reading(resting + _unwind(path), length, cost, problem)


def _left_out(event: Event) -> Choice:
    """Return the reading without a chord or rest, which rules only take where a staff has too many at one place."""
    return Choice(0, event.value, event.dots, None, _LEFT_OUT, 0, dropped=True)


def _prepare(measure: MeasureInput) -> tuple[_Search | None, list[Placed]]:
    """Return the search for a measure without staves that rest, and the rests of these."""
    resting, active = [], []
    for i, event in enumerate(measure.events):
        alone = measure.staff_of.count(measure.staff_of[i]) == 1
        if alone and event.is_rest and event.value in ("whole", "breve") and event.dots == 0:
            full = measure.length or 4 * TICKS
            choice = Choice(full, "whole", 0, None, 0.0, full, full_measure=True)
            resting.append(Placed(event, 0, choice, measure.staff_of[i], 0))
        else:
            active.append(i)
    return (_Search(measure, active) if active else None), resting


def _unwind(path: _Path) -> list[Placed]:
    steps: list[tuple[Placed, ...]] = []
    at: _Path | None = path
    while at is not None:
        steps.append(at.step)
        at = at.before
    return [placed for step in reversed(steps) for placed in step]


_Final = tuple[float, _Path, int, str]
_Option = tuple[Voice, tuple[Placed, ...], float]
_Placement = tuple[Voices, tuple[Placed, ...], float]


class _Search:
    """Dynamic programming over the columns of a measure."""

    def __init__(self, measure: MeasureInput, active: list[int]) -> None:
        self._measure = measure
        self._length = measure.length
        self._columns = group_columns(measure.events, active)
        self._staves = sorted({measure.staff_of[i] for i in active})
        members: dict[int, list[int]] = {}
        for i in active:
            if (group := measure.events[i].beam_group) is not None:
                members.setdefault(group, []).append(i)
        self._group = {i: group for group, row in members.items() if len(row) > 1 for i in row}
        self._first = {min(row, key=lambda i: measure.events[i].x) for row in members.values()}
        self._after_group = set(self._first_after_groups(active))
        self._last = {
            g: max(k for k, column in enumerate(self._columns) if set(column) & set(row)) for g, row in members.items()
        }
        self._choices = readings_of(measure)
        self._bound = 0.0
        self._memory: dict[tuple[int, int, Voices, int], list[_Placement]] = {}
        xs = self._xs = [measure.events[column[0]].x for column in self._columns]
        self._gaps = [b - a for a, b in itertools.pairwise([xs[0], *xs])]
        self._width = max(1.0, xs[-1] - xs[0]) * len(xs) / max(1, len(xs) - 1)  # the last column has a duration, too

    def run(self, bound: float, max_states: int) -> list[_Final]:
        """Return costs, paths, lengths and problems of the readings that cost at most `bound`, best first."""
        self._bound, self._memory = bound, {}
        layer: dict[_State, list[_Path]] = {_State(0, ((),) * self._measure.n_staves): [_Path(0.0, (), None)]}
        for k in range(len(self._columns)):
            following: dict[_State, list[_Path]] = {}
            limit = bound
            for state, paths in layer.items():  # cheapest first
                self._expand(k, state, paths, limit, following)
                if len(following) > 2 * max_states:
                    following = _cheapest(following, max_states)
                    limit = min(limit, max(rows[0].cost for rows in following.values()))
            layer = _cheapest(following, max_states)
        finals: list[_Final] = []
        for state, paths in layer.items():
            for cost, target, problem in self._finish(state):
                finals.extend((path.cost + cost, path, target, problem) for path in paths if path.cost + cost <= bound)
        return sorted(finals, key=lambda item: item[0])

    def _expand(
        self, k: int, state: _State, paths: list[_Path], bound: float, following: dict[_State, list[_Path]]
    ) -> None:
        """Add the continuations of a state by column `k`."""
        for time, extra in self._times(state, k):
            base = paths[0].cost + extra + self._misalignment(k, time)
            if base > bound:
                continue
            free = [_free_voices(voices, time) for voices in state.voices]
            base += sum(cost for _, cost in free)
            if base > bound:
                continue
            rows = [self._placements(k, staff, free[staff][0], time) for staff in self._staves]
            every = [row for row, _ in free]
            for voices, step, cost in _combined(rows, bound - base):
                for staff, row in zip(self._staves, voices, strict=True):
                    every[staff] = row
                _keep(following, _State(time, tuple(every)), paths, step, base + cost - paths[0].cost)

    def _times(self, state: _State, k: int) -> Iterator[tuple[int, float]]:
        """Yield the times at which column `k` may begin, with their costs."""
        if k == 0:
            yield 0, 0.0
            return
        ends = sorted({end for row in state.voices for end, *_ in row if end > state.time})
        if self._gaps[k] < _SHIFTED or not ends:
            yield state.time, _SHIFT
        elif self._gaps[k] < _SIDE_BY_SIDE and self._side_by_side(k):
            yield state.time, 0.0
        total = self._length or max(ends, default=4 * TICKS)
        for end in ends:
            late = 0.0 if self._length is None or end < self._length or state.time >= self._length else _LONG_MEASURE
            ratio = (self._gaps[k] / self._width) / max((end - state.time) / total, 1e-6)
            yield end, late + _SPACING * abs(log(max(ratio, 1e-3)))

    def _side_by_side(self, k: int) -> bool:
        """Return whether column `k` has a head next to one of another voice, at the same height or one step away."""
        before, after = ([self._measure.events[i] for i in self._columns[j]] for j in (k - 1, k))
        return any(
            a.staff == b.staff and abs(one.position - other.position) <= 1
            for a, b in itertools.product(before, after)
            if a.stem is None or b.stem is None or a.stem.direction != b.stem.direction
            for one, other in itertools.product(a.heads, b.heads)
        )

    def _first_after_groups(self, active: list[int]) -> Iterator[int]:
        """Yield the chords that begin a beamed group right after another one of their staff."""
        order = sorted(active, key=lambda i: (self._measure.staff_of[i], self._measure.events[i].x))
        for before, i in itertools.pairwise(order):
            same_staff = self._measure.staff_of[before] == self._measure.staff_of[i]
            if i in self._first and i in self._group and before in self._group and same_staff:
                yield i

    def _misalignment(self, k: int, time: int) -> float:
        """Return the cost of a time at which column `k` contradicts other parts."""
        anchors = self._measure.anchors
        return _MISALIGNED if anchors and deviates(anchors, self._xs[k], time) else 0.0

    def _placements(self, k: int, staff: int, voices: Voices, time: int) -> list[_Placement]:
        """Return the ways to continue the voices of a staff with the symbols of column `k`, cheapest first.

        A voice that becomes longer than the measure is paid for at once.
        """
        key = (k, staff, voices, time)
        if key not in self._memory:
            items = [i for i in self._columns[k] if self._measure.staff_of[i] == staff]
            found = list(self._place(k, items, staff, voices, time)) if items else [(voices, (), 0.0)]
            self._memory[key] = sorted(found, key=lambda item: item[2])[:_MAX_PLACEMENTS]
        return self._memory[key]

    def _place(self, k: int, items: list[int], staff: int, voices: Voices, time: int) -> Iterator[_Placement]:
        """Yield placements of symbols in different voices of a staff; any of them may be dropped."""
        slots = range(min(_MAX_VOICES, len(voices) + len(items)))
        for order in itertools.product([-1, *slots], repeat=len(items)):
            used = [slot for slot in order if slot >= 0]
            if len(set(used)) < len(used) or any(s > len(voices) and s - 1 not in used for s in used):
                continue
            active = len({slot for slot, voice in enumerate(voices) if voice[0] > time} | set(used))
            options = [
                self._options(k, i, staff, slot, voices[slot] if 0 <= slot < len(voices) else None, time, active)
                for i, slot in zip(items, order, strict=True)
            ]
            for chosen, cost in _within(options, self._bound):
                row = list(voices) + [_IDLE] * (max(used, default=-1) + 1 - len(voices))
                placed: tuple[Placed, ...] = ()
                for slot, (voice, one, _) in zip(order, chosen, strict=True):
                    if slot >= 0:
                        row[slot] = voice
                        placed += one
                yield tuple(row), placed, cost

    def _options(
        self, k: int, i: int, staff: int, slot: int, voice: Voice | None, time: int, active: int
    ) -> list[_Option]:
        """Return the readings of symbol `i` in a voice: the voice after it, the placed symbol and the cost."""
        event, choices = self._measure.events[i], self._choices[i]
        if slot < 0:
            return [(_IDLE, (), choice.cost) for choice in choices if choice.dropped]
        end, group, left, number = voice or _IDLE
        if end > time or (left and end < time):
            return []
        base = 0.0
        if voice is None:
            base += (_OPEN_VOICE if slot else 0.0) if time == 0 else _OPEN_LATER if slot else _SILENT
        elif end < time:  # silent before
            base += _SILENT
        if active > 1 and event.stem is not None and event.stem.direction != ("down" if slot else "up"):
            base += _WRONG_STEM
        own = self._group.get(i, 0)
        if group and group != own and not event.is_rest and self._last[group] >= k:
            base += _BROKEN_GROUP
        if own and own != group and i not in self._first:
            base += _BROKEN_GROUP
        new_group = (own if own and self._last[own] > k else 0) if own or not event.is_rest else group
        found: list[tuple[Voice, tuple[Placed, ...], float]] = []
        for choice in choices:
            if choice.dropped or base + choice.cost > self._bound:
                continue
            for remaining, n, cost in self._tuplet_steps(i, choice, left, number):
                after = (time + choice.ticks, new_group, remaining, n)
                late = _LONG if self._length is not None and time < self._length < after[0] else 0.0
                found.append((after, (Placed(event, time, choice, staff, slot),), base + choice.cost + cost + late))
        return found

    def _tuplet_steps(self, i: int, choice: Choice, left: int, number: int) -> list[tuple[int, int, float]]:
        """Return what is left of the tuplet of a voice after a choice, the tuplet's number and the cost."""
        if choice.tuplet is None:
            return [] if left else [(0, 0, 0.0)]
        n = choice.tuplet[0]
        if left:
            other_group = _NEW_GROUP if i in self._after_group else 0.0
            return [(left - choice.nominal, n, other_group)] if n == number and choice.nominal <= left else []
        cost = 0.0
        if not (self._measure.tuplets and self._measure.tuplets[i]):
            cost = _NEXT_TUPLET if number == n else self._measure.tuplet_cost
            if number != n:
                cost += _NO_GROUP if i not in self._group else 0.0 if i in self._first else _MID_GROUP
        units = {choice.nominal * 2 // 3} if choice.dots == 1 else {choice.nominal, choice.nominal // 2}
        if n > 3:
            units = {choice.nominal}
        return [
            (n * u - choice.nominal, n, cost + (0.0 if u == choice.nominal else 0.3))
            for u in units
            if n * u > choice.nominal
        ]

    def _finish(self, state: _State) -> Iterator[tuple[float, int, str]]:
        """Yield costs, lengths and problems of ending the measure at a state."""
        if any(left for row in state.voices for _, _, left, _ in row):
            yield _LONG, self._length or max(end for row in state.voices for end, *_ in row), "a tuplet is not complete"
            return
        ends = [[end for end, *_ in row] for row in state.voices]
        longest = max((end for row in ends for end in row), default=0)
        expected = self._length if self._length is not None else longest
        target = longest if longest < expected or state.time >= expected else expected
        for last in {target, expected} if longest < expected else {target}:
            cost, early = 0.0, False
            for row in ends:
                cost += _SILENT * sum(0 <= end < last for end in row)
                if row and max(row) < last:
                    cost, early = cost + _EMPTY, True
            problem = ""
            if last < expected:
                cost += _UPBEAT if self._measure.may_be_short else _SHORT_MEASURE
                problem = "" if self._measure.may_be_short else "all voices are shorter than the measure"
            elif longest > expected:
                problem = f"{'all voices are' if last > expected else 'a voice is'} longer than the measure"
            elif early:
                problem = "a voice is shorter than the measure"
            yield cost, last, problem


def _within(options: list[list[_Option]], budget: float) -> Iterator[tuple[tuple[_Option, ...], float]]:
    """Yield one option of each list, as long as they cost at most `budget` together."""
    if not options:
        yield (), 0.0
        return
    for option in options[0]:
        if option[2] <= budget:
            for others, cost in _within(options[1:], budget - option[2]):
                yield (option, *others), option[2] + cost


def _cheapest(layer: dict[_State, list[_Path]], n: int) -> dict[_State, list[_Path]]:
    """Return the `n` cheapest states, cheapest first."""
    return dict(sorted(layer.items(), key=lambda item: item[1][0].cost)[:n])


def _free_voices(voices: Voices, time: int) -> tuple[Voices, float]:
    """Return voices at a time, those that ended before marked as silent, and the cost of their silence."""
    cost = 0.0
    row = []
    for voice in voices:
        if 0 <= voice[0] < time:
            cost += _SILENT + (_LONG if voice[2] else 0.0)
            voice = _IDLE
        row.append(voice)
    if cost and all(voice is _IDLE for voice in row):
        cost += _EMPTY
    return tuple(row), cost


def _combined(
    rows: list[list[_Placement]], budget: float
) -> Iterator[tuple[tuple[Voices, ...], tuple[Placed, ...], float]]:
    """Yield one placement of each staff, as long as they cost at most `budget` together."""
    if len(rows) == 1:
        for voices, step, cost in rows[0]:
            if cost > budget:
                return
            yield (voices,), step, cost
        return
    for voices, step, cost in rows[0]:
        if cost > budget:
            return
        for others, more, rest in _combined(rows[1:], budget - cost):
            yield (voices, *others), step + more, cost + rest


def _keep(
    layer: dict[_State, list[_Path]], state: _State, paths: list[_Path], step: tuple[Placed, ...], cost: float
) -> None:
    """Add the continuations of paths to a state, which keeps its two cheapest."""
    kept = layer.get(state)
    if kept is None:
        layer[state] = [_Path(path.cost + cost, step, path) for path in paths]
        return
    for path in paths:
        total = path.cost + cost
        if len(kept) < 2 or total < kept[-1].cost:
            kept.append(_Path(total, step, path))
            kept.sort(key=lambda p: p.cost)
            del kept[2:]
