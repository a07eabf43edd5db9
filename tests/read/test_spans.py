"""Measures of a system of whole notes, before their rhythm is solved."""

from __future__ import annotations

import numpy as np
import pytest

from entourage.read.layout.systems import BarLine, BarStyle, Layout, StaffLines, System
from entourage.read.rhythm.durations import TICKS
from entourage.read.spans import Span, most_frequent_length, spans_of
from entourage.read.symbols.beams import BeamInk
from entourage.read.symbols.glyphs import Event, Glyph, Head

MIDDLE = 100.0
INK = np.zeros((200, 800), dtype=bool)


def glyph(name: str, x: float, width: float = 12) -> Glyph:
    return Glyph(name, np.array([x - width / 2, MIDDLE - 5, x + width / 2, MIDDLE + 5]), 0.9)


def note(x: float) -> Glyph:
    return glyph("noteheadWholeOnLine", x)


def measures(glyphs: list[Glyph], bars: dict[float, BarStyle]) -> list[Span]:
    """Return the measures of a staff from 0 to 800 with bar lines."""
    lines = [BarLine(x, style, x - 2, x + 2) for x, style in bars.items()]
    system = System([StaffLines(np.array([0.0, 800.0]), np.full(2, MIDDLE))], lines, [(0,)])
    return spans_of(Layout([system], INK), system, glyphs, BeamInk(INK))


def test_bar_lines_divide_notes_and_signs() -> None:
    clefs = [glyph("clefG", 20), glyph("clefF", 420)]
    spans = measures([note(100), note(300), *clefs, note(600)], {400: "regular", 798: "final"})
    assert [(span.x0, span.x1) for span in spans] == [(0, 400), (400, 798)]
    assert [[event.x for event in span.events] for span in spans] == [[100, 300], [600]]
    assert [[sign.x0 for sign in span.signs] for span in spans] == [[14], [414]]
    assert [span.bar.style if span.bar else None for span in spans] == ["regular", "final"]


def test_music_without_a_bar_line_at_the_end_is_a_measure() -> None:
    assert [(span.x1, span.bar is None) for span in measures([note(100), note(600)], {400: "regular"})] == [
        (400, False),
        (800, True),
    ]


@pytest.mark.parametrize(("style", "repeats"), [("regular", False), ("start-repeat", True), ("both-repeat", True)])
def test_a_repeat_starts_after_its_bar_line(style: BarStyle, repeats: bool) -> None:
    spans = measures([note(100), note(600)], {400: style, 798: "final"})
    assert [span.repeat_start for span in spans] == [False, repeats]


def test_a_repeat_at_the_beginning_makes_no_measure_and_keeps_the_clef_before_it() -> None:
    (span,) = measures([glyph("clefG", 20), note(300)], {60: "start-repeat", 798: "final"})
    assert (span.x0, span.x1, span.repeat_start) == (0, 798, True)
    assert len(span.signs) == 1


def test_bar_lines_next_to_each_other_are_one() -> None:
    first, second = measures([note(100), note(600)], {390: "regular", 410: "end-repeat", 798: "final"})
    assert first.bar is not None
    assert first.bar.style == "end-repeat"
    assert second.x0 == 390
    (first, _) = measures([note(100), note(600)], {350: "regular", 410: "end-repeat", 798: "final"})
    assert first.bar is not None
    assert first.bar.style == "regular"  # too far away


def played(x: float, value: str = "quarter", dots: int = 0, staff: int = 0, rest: bool = False) -> Event:
    """Return a chord of one head, or a rest, with a printed note value."""
    heads = [] if rest else [Head(note(x), staff, 0, "black", False)]
    return Event(staff, x, heads, None, value, dots, np.zeros(4))


def span_of(*events: Event) -> Span:
    return Span(0.0, 800.0, None, list(events), [])


def test_the_most_frequent_length_is_in_ticks() -> None:
    layout = Layout([], INK)
    three = span_of(played(100), played(200, "half"))
    dotted = span_of(played(100, "half", dots=1))
    four = span_of(played(100, "half"), played(200, "half"))
    assert most_frequent_length([three, four, dotted], layout) == 3 * TICKS
    assert most_frequent_length([three, four, four, dotted, four], layout) == 4 * TICKS
    assert most_frequent_length([], layout) is None


def test_staves_whose_length_is_uncertain_are_left_out() -> None:
    layout = Layout([], INK)
    two_voices = span_of(played(100), played(105, "half"))
    whole_rest = span_of(played(100, "whole", rest=True))
    assert most_frequent_length([two_voices, whole_rest], layout) is None
    one = span_of(played(100), played(105, "half"), played(100, "eighth", staff=1))
    assert most_frequent_length([two_voices, one], layout) == TICKS // 2
