"""From symbols to measures: rhythm, pitches and the signs attached to notes, system by system."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from math import exp

from entourage.detect import Detections
from entourage.detect.options import INTERLINE
from entourage.detect.preprocessing.reading import GrayImage
from entourage.read.attachments import attach
from entourage.read.chords import grace_chords, set_beams, set_pitches, set_tuplets, to_chord
from entourage.read.layout.ink import binarize
from entourage.read.layout.page import read_layout
from entourage.read.layout.systems import Layout, System
from entourage.read.rhythm.alignment import solve_parts
from entourage.read.rhythm.crossing import Method
from entourage.read.rhythm.durations import TICKS
from entourage.read.rhythm.readings import MeasureInput, Reading
from entourage.read.score import Chord, Measure
from entourage.read.spans import Context, Span, most_frequent_length, spans_of
from entourage.read.symbols.beams import BeamInk, measure_beams
from entourage.read.symbols.glyphs import Event, Glyph, to_glyphs
from entourage.read.symbols.signatures import Sign

_TUPLET_REACH = 3.0 * INTERLINE
_REST_REACH = 6.0 * INTERLINE  # the same for rests
_TUPLET_DISTANCE = 4.0 * INTERLINE  # between a figure and the nearest of its notes, along the staff
_STYLES = {"regular": "regular", "double": "light-light", "final": "light-heavy", "dashed": "dashed"}


@dataclass
class SystemReading:
    """A system and its measures; a group is the staves of one part.

    Attributes:
        system: the staves.
        spans: the measures on the page.
        parts: measures of each group.
        readings: for each group and measure, the readings of the rhythm, most plausible first.
        chords: each event, the chord or rest of the score made from it, and the numbers of its group and measure.
    """

    system: System
    spans: list[Span]
    parts: list[list[Measure]]
    readings: list[list[list[Reading]]] = field(default_factory=list)
    chords: list[tuple[Event, Chord, int, int]] = field(default_factory=list)  # event, chord, group, measure


def read_symbols(
    image: GrayImage,
    detections: Detections,
    page: GrayImage | None = None,
    method: Method = "search",
    layout: Layout | None = None,
) -> tuple[Layout, list[SystemReading]]:
    """Read the music of a page from its symbols.

    Args:
        image: grayscale, staff lines `INTERLINE` pixels apart, shape (h, w).
        detections: the symbols on it, in the same pixels.
        page: the same page at a higher resolution, at which the number of beams of each stem is measured.
        method: how durations and voices are found; see `solve_by`.
        layout: staves, systems and bar lines; None: they are read from the image.

    Returns:
        The layout, and the measures of each system. Boxes are in the same pixels.
    """
    layout = layout or read_layout(image, detections)
    glyphs = to_glyphs(detections)
    beams = _beam_ink(layout, glyphs, image, page)
    spans = [spans_of(layout, system, glyphs, beams) for system in layout.systems]
    context = Context({}, method=method)
    context.ticks = most_frequent_length([span for row in spans for span in row], layout)
    readings = []
    for system, row in zip(layout.systems, spans, strict=True):
        reading = _read_system(layout, system, row, glyphs, context)
        attach(layout, reading, glyphs)
        readings.append(reading)
    return layout, readings


def _beam_ink(layout: Layout, glyphs: list[Glyph], image: GrayImage, page: GrayImage | None) -> BeamInk:
    boxes = [g.box for g in glyphs if g.name == "beam" and g.score > 0.4 and g.width > 1.5 * INTERLINE]
    if page is None or page.shape[0] <= image.shape[0]:
        return measure_beams(layout.ink, boxes)
    zoom = page.shape[0] / image.shape[0]
    return measure_beams(binarize(page, zoom), boxes, zoom)


def _read_system(
    layout: Layout, system: System, spans: list[Span], glyphs: list[Glyph], context: Context
) -> SystemReading:
    reading = SystemReading(system, spans, [[] for _ in system.groups], [[] for _ in system.groups])
    for number, span in enumerate(spans):
        printed = _apply_signs(span, context, number == 0)
        upbeat = number == 0 and system is layout.systems[0]
        parts = [_rhythm_input(span, staves, glyphs, context, upbeat) for staves in system.groups]
        for group, solved in enumerate(solve_parts(context.method, parts)):
            staves = system.groups[group]
            measure, chords = _read_measure(span, staves, solved[0], context, printed)
            measure.new_system = number == 0
            measure.boxes = [_measure_box(system, staff, span) for staff in staves]
            reading.parts[group].append(measure)
            reading.readings[group].append(solved)
            reading.chords.extend((event, chord, group, number) for event, chord in chords)
        for sign in span.signs:  # clefs inside the measure are valid after it
            if sign.clef is not None:
                context.clefs[sign.staff] = sign.clef
    return reading


def _measure_box(system: System, staff: int, span: Span) -> tuple[float, float, float, float]:
    lines = system.staves[staff]
    x = (span.x0 + span.x1) / 2
    return (span.x0, lines.top(x), span.x1, lines.bottom(x))


@dataclass
class _Printed:
    """Signatures printed at the beginning of a measure."""

    key: int | None
    meter: tuple[int, int, str] | None
    clefs: list[Sign]


def _apply_signs(span: Span, context: Context, first: bool) -> _Printed:
    """Update the context by the signs at the beginning of a measure and return what is printed there."""
    begins = min((event.x for event in span.events), default=span.x1)
    key: int | None = None
    meter: tuple[int, int, str] | None = None
    clefs = []
    for sign in span.signs:
        centre = (sign.x0 + sign.x1) / 2
        if sign.clef is not None and centre < begins and context.clefs.get(sign.staff) != sign.clef:
            context.clefs[sign.staff] = sign.clef
            clefs.append(sign)
        if sign.key is not None and sign.x0 < begins and key is None:
            key = sign.key
        if sign.meter is not None and sign.x0 < begins and meter is None:
            meter = sign.meter
    if first and key is None and any(sign.clef for sign in span.signs):
        key = 0  # a line without signs is in C
    if meter is None and context.meter is None and context.ticks is not None:
        meter = _hidden_meter(context.ticks)
    changed_key = key if key is not None and key != context.key else None
    changed_meter = meter if meter is not None and meter != context.meter else None
    if key is not None:
        context.key = key
    if meter is not None:
        context.meter = meter
        context.ticks = meter[0] * 4 * TICKS // meter[1]
    return _Printed(changed_key, changed_meter, clefs)


def _hidden_meter(ticks: int) -> tuple[int, int, str] | None:
    """Return the metre of measures of a length, marked as not printed; None if no metre has it."""
    for unit in (4, 8, 16):
        if ticks * unit % (4 * TICKS) == 0:
            return (ticks * unit // (4 * TICKS), unit, "hidden")
    return None


def _rhythm_input(
    span: Span, staves: tuple[int, ...], glyphs: list[Glyph], context: Context, upbeat: bool
) -> MeasureInput:
    """Return what is known of one part of a measure before its rhythm is solved."""
    main = [event for event in span.events if event.staff in staves and not event.grace]
    return MeasureInput(
        events=main,
        staff_of=_home_staves(main, {staff: k for k, staff in enumerate(staves)}),
        n_staves=len(staves),
        length=context.ticks,
        tuplets=_printed_tuplets(main, glyphs),
        may_be_short=upbeat or _may_be_short(span),
    )


def _read_measure(
    span: Span, staves: tuple[int, ...], best: Reading, context: Context, printed: _Printed
) -> tuple[Measure, list[tuple[Event, Chord]]]:
    """Write the notes of one part of a measure."""
    here = [event for event in span.events if event.staff in staves]
    main = [event for event in here if not event.grace]
    index = {staff: k for k, staff in enumerate(staves)}
    measure = Measure(number=0, length=Fraction(best.length, TICKS), problem=best.problem if main else "")
    measure.key, measure.meter = printed.key, printed.meter
    measure.clefs = [
        (index[sign.staff] + 1, Fraction(0), sign.clef) for sign in printed.clefs if sign.staff in index and sign.clef
    ]
    measure.confidence = exp(-best.cost / 4) if main else 1.0
    _set_bars(measure, span)
    chords = [(placed.event, to_chord(placed, index)) for placed in best.placed]
    chords.extend(grace_chords(here, chords, index, best))
    chords.sort(key=lambda item: (item[1].voice, item[1].onset, not item[1].grace, item[0].x))
    _set_clef_changes(measure, span, index, chords)
    set_pitches(chords, span, index, context)
    measure.chords = [chord for _, chord in chords]
    set_beams(chords)
    set_tuplets(chords)
    return measure, chords


def _set_bars(measure: Measure, span: Span) -> None:
    style = span.bar.style if span.bar is not None else "regular"
    measure.right = _STYLES.get(style, "regular")
    measure.repeat_end = style in ("end-repeat", "both-repeat")
    measure.repeat_start = span.repeat_start
    if measure.repeat_end:
        measure.right = "light-heavy"


def _may_be_short(span: Span) -> bool:
    return span.repeat_start or (span.bar is not None and span.bar.style != "regular")


def _home_staves(events: list[Event], index: dict[int, int]) -> list[int]:
    """Return the staff of each event's voice, as an index in the part: within a beamed group, that of most events."""
    groups: dict[int, Counter[int]] = {}
    for event in events:
        if event.beam_group is not None:
            groups.setdefault(event.beam_group, Counter())[event.staff] += 1
    homes = []
    for event in events:
        staff = event.staff
        if event.beam_group is not None and len(groups[event.beam_group]) > 1:
            staff = groups[event.beam_group].most_common(1)[0][0]
        homes.append(index[staff])
    return homes


def _printed_tuplets(events: list[Event], glyphs: list[Glyph]) -> list[int]:
    """Return for each event the number of the printed tuplet that it may belong to, or 0."""
    found = [0] * len(events)
    left, right = min((event.x for event in events), default=0.0), max((event.x for event in events), default=0.0)
    for glyph in glyphs:
        if not glyph.name.startswith("tuplet") or not glyph.name[-1].isdigit() or glyph.score < 0.3:
            continue
        if not left - INTERLINE < glyph.x < right + 2 * INTERLINE:
            continue  # of another measure
        number = int(glyph.name[-1])
        near = []
        for i, event in enumerate(events):
            above, below = event.box[1] - glyph.y, glyph.y - event.box[3]
            reach = _REST_REACH if event.is_rest else _TUPLET_REACH
            far = max(above, below) > reach or abs(event.x - glyph.x) > _TUPLET_DISTANCE
            if not far and not (event.is_rest and event.value == "whole"):
                near.append((abs(event.x - glyph.x) + max(above, below, 0.0), i))
        if not near:
            continue
        _, closest = min(near)
        group = events[closest].beam_group
        members = [i for i, event in enumerate(events) if group is not None and event.beam_group == group]
        centre = sum(events[i].x for i in members) / max(len(members), 1)
        if not members or abs(centre - glyph.x) > 3 * INTERLINE or len(members) % number:
            same = [i for _, i in sorted(near) if events[i].staff == events[closest].staff]
            members = same[:number]
        for i in members:
            found[i] = number
    return found


def _set_clef_changes(measure: Measure, span: Span, index: dict[int, int], chords: list[tuple[Event, Chord]]) -> None:
    """Add clefs that are printed between notes, at the time of the next chord of their staff."""
    begins = min((event.x for event in span.events), default=span.x1)
    for sign in span.signs:
        centre = (sign.x0 + sign.x1) / 2
        if sign.clef is None or sign.staff not in index or centre < begins:
            continue
        after = [c.onset for e, c in chords if e.staff == sign.staff and e.x > centre and not c.grace]
        measure.clefs.append((index[sign.staff] + 1, min(after, default=measure.length), sign.clef))
