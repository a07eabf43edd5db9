"""Measures of a system before their rhythm is solved, and the clefs, key and metre that are valid for them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from entourage.detect.options import INTERLINE
from entourage.read.layout.systems import BarLine, Layout, System
from entourage.read.rhythm.crossing import Method
from entourage.read.rhythm.durations import TICKS
from entourage.read.score import Clef
from entourage.read.symbols.beams import BeamInk
from entourage.read.symbols.events import find_events
from entourage.read.symbols.glyphs import Event, Glyph
from entourage.read.symbols.signatures import Sign, find_signs, in_key_signature


@dataclass
class Span:
    """A measure of a system before its rhythm is solved.

    Attributes:
        x0, x1: left and right end.
        bar: bar line at its right end, or None.
        events: chords and rests of all staves, grace notes included, from left to right.
        signs: clefs, key signatures and metres within.
        repeat_start: whether a repeated section starts at its left end.
    """

    x0: float
    x1: float
    bar: BarLine | None
    events: list[Event]
    signs: list[Sign]
    repeat_start: bool = False


@dataclass
class Context:
    """Clef of each staff, key and metre, which stay valid from system to system, and how rhythms are solved."""

    clefs: dict[int, Clef]
    key: int = 0
    meter: tuple[int, int, str] | None = None
    ticks: int | None = None
    method: Method = "search"


def spans_of(layout: Layout, system: System, glyphs: list[Glyph], beams: BeamInk) -> list[Span]:
    """Return the measures of a system; bar lines without music between them form one bar line."""
    signs = find_signs(system, glyphs)
    events = find_events(layout, system, [g for g in glyphs if not in_key_signature(g, system, signs)], beams)
    bars = {bar.x: bar for bar in system.bars}
    found: list[Span] = []
    repeat = False
    start: float | None = None
    for x0, x1 in system.spans():
        x0 = x0 if start is None else start
        bar = bars.get(x1)
        inside = [event for event in events if x0 <= event.x < x1]
        within = [sign for sign in signs if x0 <= (sign.x0 + sign.x1) / 2 < x1]
        if not inside:
            if bar is not None and bar.style in ("start-repeat", "both-repeat"):
                repeat = True
            if found and not within:
                _join_bar(found[-1], bar)
            start = x0  # clefs and keys before the bar line of a repeat belong to the next measure
            continue
        found.append(Span(x0, x1, bar, inside, within, repeat))
        repeat = bar is not None and bar.style in ("start-repeat", "both-repeat")
        start = None
    return found


def _join_bar(span: Span, bar: BarLine | None) -> None:
    """Let a measure end with a further bar line right after its own."""
    if span.bar is not None and bar is not None and bar.x - span.bar.x < 3 * INTERLINE and span.bar.style == "regular":
        span.bar = bar


def most_frequent_length(spans: list[Span], layout: Layout) -> int | None:
    """Return the most frequent length of the measures of a page that has no metre, in ticks, or None."""
    lengths: Counter[int] = Counter()
    for span in spans:
        for staff in {event.staff for event in span.events}:
            voice = [event for event in span.events if event.staff == staff and not event.grace]
            xs = sorted(event.x for event in voice)
            if voice and all(b - a > INTERLINE for a, b in pairwise(xs)):
                if any(event.is_rest and event.value == "whole" for event in voice):
                    continue
                lengths[sum(_printed_ticks(event) for event in voice)] += 1
    return lengths.most_common(1)[0][0] if lengths else None


def _printed_ticks(event: Event) -> int:
    from entourage.read.score import NOTE_VALUES

    return int(NOTE_VALUES[event.value] * TICKS * (2 - Fraction(1, 2**event.dots)))
