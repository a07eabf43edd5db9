"""Readings of the duration of a chord or rest: as printed, or with one beam, dot or tuplet more or less, at a cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache

from entourage.read.score import NOTE_VALUES
from entourage.read.symbols.glyphs import Event

TICKS = 10080 * 11 * 13  # per quarter note: divisible by 64th notes and by tuplets of 3, 5, 7, 9, 11 and 13
_VALUES = list(NOTE_VALUES)

# Costs of deviations, in units of which an implausible one has several.
_BEAM = 1.3  # one beam or flag more or less than detected
_PARTIAL_BEAM = 0.5  # beams that do not reach the next chord are other ink
_DOT = 1.6  # a dot more than detected
_SHARED_DOT = 0.2  # a dot that a chord of another voice shows
_NO_DOT = 1.0  # a dot less
_VALUE = 2.2  # quarter notes and half notes mistaken for each other
_NO_TUPLET = 0.7  # each note that a printed 3 seems to belong to, but that is not part of a triplet
_DROP = 3.0  # a detection that is dropped, times its score
_DROP_REST = 2.0  # the same for a rest
_SHARED_REST = 0.4  # a rest of a whole measure next to other notes of its staff

# Notes of a tuplet, and the number of such notes whose time they take.
RATIOS = {2: 3, 3: 2, 4: 3, 5: 4, 6: 4, 7: 4, 9: 8, 10: 8, 11: 8, 13: 8}
_UNPRINTED = (5, 7, 9, 10, 11, 13)  # tuplets that a beamed group of as many equal notes may be


@dataclass(frozen=True)
class Choice:
    """A reading of one chord or rest.

    Attributes:
        ticks: its duration; 0 if it is dropped.
        value: name of the note value.
        dots: number of dots.
        tuplet: ratio such as (3, 2), or None.
        cost: cost of the reading.
        nominal: its duration without the tuplet.
        full_measure: whether it is a rest of a whole measure.
        dropped: whether the symbol is ignored.
    """

    ticks: int
    value: str
    dots: int
    tuplet: tuple[int, int] | None
    cost: float
    nominal: int = 0
    full_measure: bool = False
    dropped: bool = False


@cache
def ticks_of(value: str, dots: int = 0) -> int:
    """Return the length of a note value with dots; 0 if it is no whole number of ticks."""
    length = NOTE_VALUES[value] * TICKS * (2 - Fraction(1, 2**dots))
    return int(length) if length.denominator == 1 else 0


def printed(event: Event) -> Choice:
    """Return the reading that takes a chord or rest as it is printed."""
    nominal = ticks_of(event.value, event.dots) or TICKS
    return Choice(nominal, event.value, event.dots, None, 0.0, nominal)


def choices_of(event: Event, number: int, group: Sequence[Event], length: int | None) -> list[Choice]:
    """Return the readings of a chord or rest, cheapest first.

    Args:
        event: the chord or rest.
        number: number of a printed tuplet that it may belong to, or 0.
        group: the chords of its beamed group, itself included.
        length: length of the measure in ticks, or None.

    Returns:
        Readings with different durations. Whether a tuplet is complete is not considered here.
    """
    found: list[Choice] = []
    if event.is_rest and event.value in ("whole", "breve") and event.dots == 0:
        full = length or 4 * TICKS
        found.append(Choice(full, "whole", 0, None, _SHARED_REST, full, full_measure=True))
    numbers = _tuplet_numbers(number, group)
    for (k, dots), cost in _variants(event).items():
        nominal = ticks_of(_VALUES[k], dots) if 0 <= k < len(_VALUES) else 0
        if not nominal:
            continue
        found.append(Choice(nominal, _VALUES[k], dots, None, cost + (_NO_TUPLET if number else 0.0), nominal))
        for n in numbers if 3 <= k <= 7 or (number and k > 1) else ():
            ratio = (n, RATIOS[n])
            found.append(Choice(nominal * ratio[1] // n, _VALUES[k], dots, ratio, cost, nominal))
    drop = (_DROP_REST if event.is_rest else _DROP) * event.confidence
    found.append(Choice(0, event.value, event.dots, None, drop, 0, dropped=True))
    return sorted(found, key=lambda choice: choice.cost)


def _tuplet_numbers(number: int, group: Sequence[Event]) -> list[int]:
    if number:
        return sorted({number, 3} if number in (3, 6) else {number}) if number in RATIOS else [3]
    same = len({(event.value, event.dots) for event in group}) == 1
    return [3, len(group)] if same and len(group) in _UNPRINTED else [3]


def _variants(event: Event) -> dict[tuple[int, int], float]:
    """Return the cost of each reading of the signs of an event, by the index of the note value and the dots."""
    base = _VALUES.index(event.value)
    variants = [(base, event.dots, 0.0)]
    if event.dots:
        variants.append((base, event.dots - 1, _NO_DOT))
    if event.dots < 2:
        cost = _SHARED_DOT if event.shared_dot else _DOT if event.dots == 0 else 2 * _DOT
        variants.append((base, event.dots + 1, cost))
    if event.value in ("half", "quarter") and not event.beams:
        variants.append((_VALUES.index("quarter" if event.value == "half" else "half"), event.dots, _VALUE))
    if event.beams or (event.value == "quarter" and not event.is_rest):
        variants.append((base + 1, event.dots, _BEAM))
        if event.beams:
            variants.append((base - 1, event.dots, _BEAM))
        if event.reaching:
            few = base - event.beams + event.reaching
            variants.extend((k, event.dots, _PARTIAL_BEAM) for k in {few, min(few + 1, base)})
        if event.beams > 1:
            variants.append((base - 2, event.dots, 2 * _BEAM))
            variants.append((base - 1, event.dots + 1, _BEAM + _DOT))
    elif event.is_rest:
        variants.extend((k, event.dots, _VALUE) for k in (base - 1, base + 1))
    costs: dict[tuple[int, int], float] = {}
    for k, dots, cost in variants:
        costs[k, dots] = min(cost, costs.get((k, dots), cost))
    return costs
