"""From symbols to measures: rhythm, pitches and the signs attached to notes, system by system."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from math import exp
from typing import Literal

from entourage.detect import Detections
from entourage.detect.options import INTERLINE
from entourage.detect.preprocessing.reading import GrayImage
from entourage.read.attachments import attach
from entourage.read.beams import BeamInk, measure_beams
from entourage.read.crossing import Method, solve_by
from entourage.read.durations import TICKS
from entourage.read.events import Event, Glyph, Head, find_events, to_glyphs
from entourage.read.layout import BarLine, Layout, System, binarize, read_layout
from entourage.read.rhythm import MeasureInput, Placed, Reading
from entourage.read.score import STEPS, Beam, Chord, Clef, Measure, Note, Pitch
from entourage.read.signatures import Sign, find_signs, in_key_signature

_ALTER = {"sharp": 1, "flat": -1, "natural": 0, "double-sharp": 2, "flat-flat": -2}
_SHARPS, _FLATS = "FCGDAEB", "BEADGCF"
_TUPLET_REACH = 3.0 * INTERLINE
_TUPLET_DISTANCE = 4.0 * INTERLINE  # between a figure and the nearest of its notes, along the staff
_STYLES = {"regular": "regular", "double": "light-light", "final": "light-heavy", "dashed": "dashed"}


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
class SystemReading:
    """A system with its measures, part by part.

    Attributes:
        system: the staves.
        spans: the measures on the page.
        parts: for each group of staves, its measures.
        readings: for each group and measure, the readings of its rhythm, best first.
        chords: chord or rest of the score for each event, by the identity of the event and its voice.
    """

    system: System
    spans: list[Span]
    parts: list[list[Measure]]
    readings: list[list[list[Reading]]] = field(default_factory=list)
    chords: list[tuple[Event, Chord, int, int]] = field(default_factory=list)  # event, chord, group, measure


@dataclass
class _Context:
    """Clef of each staff, key and metre as the music continues from system to system, and how rhythms are solved."""

    clefs: dict[int, Clef]
    key: int = 0
    meter: tuple[int, int, str] | None = None
    ticks: int | None = None
    method: Method = "search"


def read_symbols(
    image: GrayImage, detections: Detections, page: GrayImage | None = None, method: Method = "search"
) -> tuple[Layout, list[SystemReading]]:
    """Read the music of a page from its symbols.

    Args:
        image: grayscale, staff lines `INTERLINE` pixels apart, shape (h, w).
        detections: the symbols on it, in the same pixels.
        page: the same page at a higher resolution, in which levels of beams are measured.
        method: how durations and voices are found; see `solve_by`.

    Returns:
        The layout, and the measures of each system. Boxes are in the same pixels.
    """
    layout = read_layout(image, detections)
    glyphs = to_glyphs(detections)
    beams = _beam_ink(layout, glyphs, image, page)
    spans = [_spans(layout, system, glyphs, beams) for system in layout.systems]
    context = _Context({}, method=method)
    context.ticks = _most_frequent_length([span for row in spans for span in row], layout)
    readings = []
    for system, row in zip(layout.systems, spans, strict=True):
        reading = _read_system(system, row, glyphs, context)
        attach(layout, reading, glyphs)
        readings.append(reading)
    return layout, readings


def _beam_ink(layout: Layout, glyphs: list[Glyph], image: GrayImage, page: GrayImage | None) -> BeamInk:
    boxes = [g.box for g in glyphs if g.name == "beam" and g.score > 0.4 and g.width > 1.5 * INTERLINE]
    if page is None or page.shape[0] <= image.shape[0]:
        return measure_beams(layout.ink, boxes)
    zoom = page.shape[0] / image.shape[0]
    return measure_beams(binarize(page, zoom), boxes, zoom)


def _spans(layout: Layout, system: System, glyphs: list[Glyph], beams: BeamInk) -> list[Span]:
    """Return the measures of a system; bar lines with no music between them are one."""
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


def _most_frequent_length(spans: list[Span], layout: Layout) -> int | None:
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


def _read_system(system: System, spans: list[Span], glyphs: list[Glyph], context: _Context) -> SystemReading:
    reading = SystemReading(system, spans, [[] for _ in system.groups], [[] for _ in system.groups])
    for number, span in enumerate(spans):
        printed = _apply_signs(span, context, number == 0)
        for group, staves in enumerate(system.groups):
            measure, solved, chords = _read_measure(span, staves, glyphs, context, printed)
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


def _apply_signs(span: Span, context: _Context, first: bool) -> _Printed:
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


def _read_measure(
    span: Span, staves: tuple[int, ...], glyphs: list[Glyph], context: _Context, printed: _Printed
) -> tuple[Measure, list[Reading], list[tuple[Event, Chord]]]:
    """Solve the rhythm of one part of a measure and write its notes."""
    here = [event for event in span.events if event.staff in staves]
    main = [event for event in here if not event.grace]
    index = {staff: k for k, staff in enumerate(staves)}
    homes = _home_staves(main, index)
    solved = solve_by(
        context.method,
        MeasureInput(
            events=main,
            staff_of=homes,
            n_staves=len(staves),
            length=context.ticks,
            tuplets=_printed_tuplets(main, glyphs),
            may_be_short=_may_be_short(span),
        ),
    )
    best = solved[0]
    measure = Measure(number=0, length=Fraction(best.length, TICKS), problem=best.problem if main else "")
    measure.key, measure.meter = printed.key, printed.meter
    measure.clefs = [
        (index[sign.staff] + 1, Fraction(0), sign.clef) for sign in printed.clefs if sign.staff in index and sign.clef
    ]
    measure.confidence = exp(-best.cost / 4) if main else 1.0
    _set_bars(measure, span)
    chords = [(placed.event, _to_chord(placed, index)) for placed in best.placed]
    chords.extend(_grace_chords(here, chords, index, best))
    chords.sort(key=lambda item: (item[1].voice, item[1].onset, not item[1].grace, item[0].x))
    _set_clef_changes(measure, span, index, chords)
    _set_pitches(chords, span, index, context)
    measure.chords = [chord for _, chord in chords]
    _set_beams(chords)
    _set_tuplets(chords)
    return measure, solved, chords


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
    """Return for each event the staff of the part whose voice it belongs to: that of most of its beamed group."""
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
    for glyph in glyphs:
        if not glyph.name.startswith("tuplet") or not glyph.name[-1].isdigit() or glyph.score < 0.3:
            continue
        number = int(glyph.name[-1])
        near = []
        for i, event in enumerate(events):
            above, below = event.box[1] - glyph.y, glyph.y - event.box[3]
            far = max(above, below) > _TUPLET_REACH or abs(event.x - glyph.x) > _TUPLET_DISTANCE
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


def _to_chord(placed: Placed, index: dict[int, int]) -> Chord:
    event, choice = placed.event, placed.choice
    staff = index.get(event.staff, placed.staff)
    direction: Literal["", "up", "down"] = event.stem.direction if event.stem is not None else ""
    return Chord(
        onset=Fraction(placed.onset, TICKS),
        duration=Fraction(choice.ticks, TICKS),
        value=choice.value,
        dots=choice.dots,
        notes=[],
        staff=staff + 1,
        voice=4 * placed.staff + placed.voice + 1,
        box=_box(event),
        stem=direction,
        tuplet=choice.tuplet,
        full_measure=choice.full_measure,
    )


def _box(event: Event) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (float(v) for v in event.box)
    return (x0, y0, x1, y1)


def _grace_chords(
    events: list[Event], chords: list[tuple[Event, Chord]], index: dict[int, int], reading: Reading
) -> list[tuple[Event, Chord]]:
    """Return the grace notes, each at the onset of the next chord of its staff, or at the end of the measure."""
    found = []
    for event in events:
        if not event.grace:
            continue
        staff = index[event.staff] + 1
        later = [(e.x, c) for e, c in chords if c.staff == staff and e.x > event.x and not e.is_rest]
        earlier = [(e.x, c) for e, c in chords if c.staff == staff and e.x <= event.x]
        target = min(later, key=lambda item: item[0])[1] if later else None
        voice = (
            target.voice if target else (max(earlier, key=lambda i: i[0])[1].voice if earlier else 4 * (staff - 1) + 1)
        )
        onset = target.onset if target else Fraction(reading.length, TICKS)
        direction: Literal["", "up", "down"] = event.stem.direction if event.stem is not None else ""
        value = event.value if event.value in ("eighth", "16th", "32nd", "half") else "eighth"
        chord = Chord(onset, Fraction(0), value, 0, [], staff, voice, _box(event), direction, grace=event.grace)
        found.append((event, chord))
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


def _clef_at(staff: int, x: float, span: Span, context: _Context) -> Clef:
    """Return the clef that is valid at a place of a measure."""
    clef = context.clefs.get(staff)
    for sign in span.signs:
        if sign.clef is not None and sign.staff == staff and (sign.x0 + sign.x1) / 2 < x:
            clef = sign.clef
    return clef or Clef()


def _set_pitches(chords: list[tuple[Event, Chord]], span: Span, index: dict[int, int], context: _Context) -> None:
    """Fill in the notes of chords: pitches by clef, key and the accidentals before them in the measure."""
    valid: dict[tuple[int, int], int] = {}
    for event, chord in sorted(chords, key=lambda item: (item[1].onset, not item[1].grace, item[0].x)):
        for head in event.heads:
            clef = _clef_at(head.staff, event.x, span, context)
            diatonic = clef.diatonic(head.position)
            if head.accidental:
                valid[head.staff, diatonic] = _ALTER[head.accidental]
            alter = valid.get((head.staff, diatonic), _key_alter(STEPS[diatonic % 7], context.key))
            chord.notes.append(_note(head, Pitch(diatonic // 7, STEPS[diatonic % 7], alter)))
        chord.notes.sort(key=lambda note: (note.pitch.octave, STEPS.index(note.pitch.step)))


def _note(head: Head, pitch: Pitch) -> Note:
    x0, y0, x1, y1 = (float(v) for v in head.glyph.box)
    return Note(pitch, head.position, (x0, y0, x1, y1), head.accidental, confidence=head.glyph.score)


def _key_alter(step: str, key: int) -> int:
    """Return by how many semitones a key signature raises a step."""
    if key > 0:
        return 1 if step in _SHARPS[:key] else 0
    return -1 if step in _FLATS[:-key] else 0


def _set_beams(chords: list[tuple[Event, Chord]]) -> None:
    """Set the state of each beam of each chord from the groups of beamed stems and their note values."""
    groups: dict[tuple[int, int], list[tuple[Event, Chord]]] = {}
    for event, chord in chords:
        if event.beam_group is not None and not chord.is_rest:
            groups.setdefault((event.beam_group, chord.voice), []).append((event, chord))
    levels = {"eighth": 1, "16th": 2, "32nd": 3, "64th": 4, "128th": 5}
    for members in groups.values():
        members.sort(key=lambda item: item[0].x)
        counts = [levels.get(chord.value, 0) for _, chord in members]
        if len(members) < 2 or 0 in counts:
            continue
        for k, (event, chord) in enumerate(members):
            chord.beams = [_beam_state(counts, k, level, event) for level in range(counts[k])]


def _beam_state(counts: list[int], k: int, level: int, event: Event) -> Beam:
    """Return the state of a beam level at the k-th chord of a group."""
    stem = event.stem
    left = k > 0 and counts[k - 1] > level
    right = k + 1 < len(counts) and counts[k + 1] > level
    if (
        level
        and left
        and stem is not None
        and stem.left_beams
        and stem.left_beams <= level
        and stem.right_beams > level
    ):
        left = False  # a secondary beam that is interrupted here
    if (
        level
        and right
        and stem is not None
        and stem.right_beams
        and stem.right_beams <= level
        and stem.left_beams > level
    ):
        right = False
    if left and right:
        return "continue"
    if right:
        return "begin"
    if left:
        return "end"
    return "backward hook" if k > 0 and (k + 1 == len(counts) or counts[k - 1] >= counts[k + 1]) else "forward hook"


def _set_tuplets(chords: list[tuple[Event, Chord]]) -> None:
    """Mark where tuplets start and stop: runs of chords of a voice with one ratio that fill a note value."""
    voices: dict[int, list[Chord]] = {}
    for _, chord in chords:
        if not chord.grace:
            voices.setdefault(chord.voice, []).append(chord)
    for row in voices.values():
        row.sort(key=lambda chord: chord.onset)
        start, total = None, Fraction(0)
        for chord in row:
            if chord.tuplet is None:
                start, total = None, Fraction(0)
                continue
            if start is None:
                start, total = chord, Fraction(0)
            total += chord.duration
            unit = total / chord.tuplet[1]
            if unit.numerator == 1 and unit.denominator & (unit.denominator - 1) == 0 and chord is not start:
                start.tuplet_start, chord.tuplet_stop = True, True
                start = None
