"""Data types of the search for the rhythm of a measure: its input and its readings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from entourage.read.rhythm.durations import Choice, choices_of
from entourage.read.symbols.glyphs import Event

_COLUMN = 7.5  # pixels: chords that are nearer to each other begin together
_CLEAR = 16.0  # pixels: chords that are farther from each other do not begin together

Anchor = tuple[float, int]  # place of a chord of another part and its onset in ticks


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


@dataclass
class MeasureInput:
    """Input of the search: what is known of a measure before its rhythm is solved.

    Attributes:
        events: chords and rests without grace notes, from left to right.
        staff_of: for each of them, the staff whose voice it belongs to.
        n_staves: number of staves of the part.
        length: expected length in ticks, or None.
        tuplets: for each event, the number of a printed tuplet that it may belong to, or 0.
        may_be_short: whether the measure may be incomplete: an upbeat, or a part of a measure at a repeat.
        tuplet_cost: cost of a tuplet without a number.
        choices: for each event its readings, cheapest first; those of `choices_of` if empty.
        anchors: places and onsets of chords of other parts, from left to right.
    """

    events: list[Event]
    staff_of: list[int]
    n_staves: int
    length: int | None
    tuplets: list[int] = field(default_factory=list)
    may_be_short: bool = False
    tuplet_cost: float = 1.6
    choices: list[list[Choice]] = field(default_factory=list)
    anchors: tuple[Anchor, ...] = ()


def readings_of(measure: MeasureInput) -> list[list[Choice]]:
    """Return the readings of each chord and rest of a measure, cheapest first."""
    if measure.choices:
        return measure.choices
    groups: dict[int | None, list[Event]] = {}
    for event in measure.events:
        groups.setdefault(event.beam_group, []).append(event)
    numbers = measure.tuplets or [0] * len(measure.events)
    return [
        choices_of(event, number, [] if event.beam_group is None else groups[event.beam_group], measure.length)
        for event, number in zip(measure.events, numbers, strict=True)
    ]


def columns_of(measure: MeasureInput) -> list[list[int]]:
    """Return the indices of chords and rests, grouped by those that begin at about the same x, from left to right."""
    return group_columns(measure.events, list(range(len(measure.events))))


def group_columns(events: Sequence[Event], active: list[int]) -> list[list[int]]:
    """Return the indices in `active`, grouped by events that begin at about the same x, from left to right."""
    columns: list[list[int]] = []
    for i in sorted(active, key=lambda i: events[i].x):
        if columns and events[i].x - events[columns[-1][0]].x < _COLUMN:
            columns[-1].append(i)
        else:
            columns.append([i])
    return columns


def deviates(anchors: Sequence[Anchor], x: float, onset: int) -> bool:
    """Return whether a chord contradicts the chords of other parts.

    Args:
        anchors: places and onsets of chords of other parts.
        x: place of the chord.
        onset: its onset in ticks.

    Returns:
        True if a chord of another part at this place begins at another time, one before it does not begin earlier, or
        one after it does not begin later.
    """
    for place, time in anchors:
        if abs(place - x) < _COLUMN:
            if time != onset:
                return True
        elif abs(place - x) > _CLEAR and (time >= onset if place < x else time <= onset):
            return True
    return False
