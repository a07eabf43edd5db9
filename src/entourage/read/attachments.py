"""Signs attached to chords: ties, slurs, articulations, ornaments, dynamics, hairpins and pedal marks.

Each sign goes to the chord or time that its position suggests. Coordinates are pixels of a page whose staff lines are
`INTERLINE` pixels apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from entourage.detect.options import INTERLINE
from entourage.read.layout.systems import Layout, Mask
from entourage.read.places import locate, staff_for
from entourage.read.score import Chord, Direction, Note, Placement
from entourage.read.symbols.glyphs import Event, Glyph, Head

if TYPE_CHECKING:
    from entourage.read.assemble import SystemReading

_MIN_ARC_SCORE = 0.3
_MIN_MARK_SCORE = 0.35
_ARC_END = 1.9 * INTERLINE  # maximum horizontal distance between the end of an arc and its chord
_ARC_HEIGHT = 4.5 * INTERLINE  # maximum vertical distance
_TIE_HEIGHT = 1.5 * INTERLINE  # maximum vertical distance between a tie and its heads
_MARK_X = 1.0 * INTERLINE
_MARK_Y = 5.0 * INTERLINE
_LETTER_GAP = 1.2 * INTERLINE
_EDGE = 3.5 * INTERLINE  # an arc that ends this close to the end of a line continues on the next

ARTICULATIONS = {
    "articStaccato": "staccato",
    "articAccent": "accent",
    "articTenuto": "tenuto",
    "articStaccatissimo": "staccatissimo",
    "articMarcato": "strong-accent",
    "stringsUpBow": "up-bow",
    "stringsDownBow": "down-bow",
}
ORNAMENTS = {
    "ornamentTrill": "trill-mark",
    "ornamentTurnInverted": "inverted-turn",
    "ornamentTurn": "turn",
    "ornamentMordent": "inverted-mordent",
}
_DYNAMICS = {"p", "pp", "ppp", "pppp", "f", "ff", "fff", "ffff", "mp", "mf", "sf", "sfp", "sfpp", "fp", "rf"}
_DYNAMICS |= {"rfz", "sfz", "sffz", "fz", "sfzp", "pf"}


@dataclass
class _Arc:
    """A slur or tie: its ends and whether it is curved upwards."""

    name: str
    x0: float
    x1: float
    y0: float
    y1: float
    above: bool
    score: float


def attach(layout: Layout, reading: SystemReading, glyphs: Sequence[Glyph]) -> None:
    """Attach the signs of a system to its chords and measures.

    Args:
        layout: the layout of the page.
        reading: a system with its chords; chords and measures are changed in place.
        glyphs: symbols of the page, highest scores first.
    """
    near = [glyph for glyph in glyphs if _nearest_system(layout, glyph) is reading.system]
    curves = [glyph for glyph in near if glyph.name in ("slur", "tie") and glyph.score > _MIN_ARC_SCORE]
    arcs = [_to_arc(glyph, layout.ink) for glyph in curves]
    _attach_arcs(_distinct_arcs(arcs), reading)
    _attach_marks(near, reading)
    _attach_tremolos(near, reading)
    _attach_arpeggios(near, reading)
    _attach_dynamics(near, reading)
    _attach_lines(near, reading)


def _nearest_system(layout: Layout, glyph: Glyph) -> object:
    return min(layout.systems, key=lambda system: system.distance(glyph.x, glyph.y), default=None)


def _to_arc(glyph: Glyph, ink: Mask) -> _Arc:
    """Return the ends of an arc: the heights of its ink at the left and right end of its box."""
    x0, y0, x1, y1 = (float(v) for v in glyph.box)
    left = _ink_height(ink, x0 + 1, x0 + 6, y0 - 2, y1 + 2)
    right = _ink_height(ink, x1 - 6, x1 - 1, y0 - 2, y1 + 2)
    middle = _ink_height(ink, (x0 + x1) / 2 - 3, (x0 + x1) / 2 + 3, y0 - 2, y1 + 2)
    above = middle < (left + right) / 2 if abs(middle - (left + right) / 2) > 0.5 else True
    return _Arc(glyph.name, x0, x1, left, right, above, glyph.score)


def _ink_height(ink: Mask, x0: float, x1: float, y0: float, y1: float) -> float:
    part = ink[max(0, int(y0)) : int(y1) + 1, max(0, int(x0)) : int(x1) + 1]
    rows = np.flatnonzero(part.any(axis=1))
    return float(max(0, int(y0)) + rows.mean()) if len(rows) else (y0 + y1) / 2


def _distinct_arcs(arcs: Iterable[_Arc]) -> list[_Arc]:
    """Return the arcs, without pieces and second detections of one arc."""
    found: list[_Arc] = []
    for arc in sorted(arcs, key=lambda arc: arc.x0 - arc.x1):
        same = (
            other
            for other in found
            if min(arc.x1, other.x1) - max(arc.x0, other.x0) > 0.6 * (arc.x1 - arc.x0)
            and abs(arc.y0 - other.y0) < INTERLINE
            and abs(arc.y1 - other.y1) < INTERLINE
        )
        if next(same, None) is None:
            found.append(arc)
    return found


def _attach_arcs(arcs: list[_Arc], reading: SystemReading) -> None:
    notes = [(event, chord) for event, chord, _, _ in reading.chords if not chord.is_rest]
    number = 0
    for arc in sorted(arcs, key=lambda arc: arc.x0):
        if _attach_tie(arc, notes, reading):
            continue
        start = _arc_chord(arc.x0, arc.y0, arc.above, notes, left=True)
        stop = _arc_chord(arc.x1, arc.y1, arc.above, notes, left=False)
        if start is None or stop is None or start is stop:
            continue
        number = number % 6 + 1
        placement: Placement = "above" if arc.above else "below"
        start.slurs.append((number, "start", placement))
        stop.slurs.append((number, "stop", placement))


def _attach_tie(arc: _Arc, notes: list[tuple[Event, Chord]], reading: SystemReading) -> bool:
    """Tie two notes of one pitch that an arc joins; return whether it is a tie."""
    main = [(event, chord) for event, chord in notes if not chord.grace]
    heads = [(event, chord, head, note) for event, chord in main for head, note in _pairs(event, chord)]
    before = [
        item
        for item in heads
        if -1.2 * INTERLINE < arc.x0 - item[2].glyph.box[2] < 1.6 * INTERLINE
        and abs(item[2].glyph.y - arc.y0) < _TIE_HEIGHT
    ]
    after = [
        item
        for item in heads
        if -1.2 * INTERLINE < item[2].glyph.box[0] - arc.x1 < 1.6 * INTERLINE
        and abs(item[2].glyph.y - arc.y1) < _TIE_HEIGHT
    ]
    matches = [
        (abs(a[2].glyph.y - arc.y0) + abs(b[2].glyph.y - arc.y1), a, b)
        for a in before
        for b in after
        if a[2].staff == b[2].staff and a[2].position == b[2].position and b[0].x > a[0].x and not a[3].tied_to
    ]
    matches = [match for match in matches if arc.name == "tie" or _adjacent(arc, match[1][2].staff, notes)]
    if matches:
        _, a, b = min(matches, key=lambda item: item[0])
        a[3].tied_to, b[3].tied_from = True, True
        if not b[3].accidental:
            b[3].pitch = a[3].pitch
        return True
    if arc.name != "tie":
        return False
    if before and arc.x1 > reading.system.right - _EDGE:  # continues on the next line
        min(before, key=lambda item: abs(item[2].glyph.y - arc.y0))[3].tied_to = True
        return True
    return not before or not after


def _adjacent(arc: _Arc, staff: int, notes: list[tuple[Event, Chord]]) -> bool:
    """Return whether no chord of a staff lies between the ends of an arc: a slur over one pitch is a tie then."""
    inside = (event for event, chord in notes if event.staff == staff and not chord.grace)
    return not any(arc.x0 + 4 < event.x < arc.x1 - 4 for event in inside)


def _pairs(event: Event, chord: Chord) -> list[tuple[Head, Note]]:
    """Return the heads of an event with the notes that were made from them."""
    boxes = [(head, tuple(map(float, head.glyph.box))) for head in event.heads]
    return [(head, note) for head, box in boxes for note in chord.notes if note.box == box]


def _arc_chord(x: float, y: float, above: bool, notes: list[tuple[Event, Chord]], left: bool) -> Chord | None:
    """Return the chord at the end of an arc, or None."""
    best: tuple[float, Chord] | None = None
    for event, chord in notes:
        dx = abs(event.x - x)
        if dx > _ARC_END:
            continue
        near = float(event.box[1] if above else event.box[3])
        heads = [head.glyph.y for head in event.heads]
        dy = min(abs(y - near), min(abs(y - h) for h in heads))
        if dy > _ARC_HEIGHT:
            continue
        cost = dx + 0.5 * dy + (2.0 if (event.x - x) * (1 if left else -1) < -0.8 * INTERLINE else 0.0)
        if best is None or cost < best[0]:
            best = (cost, chord)
    return best[1] if best is not None else None


def _attach_marks(glyphs: Iterable[Glyph], reading: SystemReading) -> None:
    """Attach articulations, ornaments and fermatas to the nearest chord above or below."""
    for glyph in glyphs:
        if glyph.score < _MIN_MARK_SCORE:
            continue
        base = glyph.name.removesuffix("Above").removesuffix("Below")
        if base not in ARTICULATIONS and base not in ORNAMENTS and base != "fermata":
            continue
        chord = _mark_chord(glyph, reading, rests=base == "fermata")
        if chord is None:
            continue
        if base == "fermata":
            chord.fermata = "upright" if glyph.name.endswith("Above") else "inverted"
        else:
            target = chord.articulations if base in ARTICULATIONS else chord.ornaments
            name = ARTICULATIONS.get(base) or ORNAMENTS[base]
            if name not in target:
                target.append(name)


def _mark_chord(glyph: Glyph, reading: SystemReading, rests: bool) -> Chord | None:
    best: tuple[float, Chord] | None = None
    below = glyph.name.endswith("Below")
    above = glyph.name.endswith("Above") or glyph.name.startswith("ornament")
    for event, chord, _, _ in reading.chords:
        if chord.grace or (chord.is_rest and not rests):
            continue
        dx = abs(event.x - glyph.x)
        if event.stem is not None:
            dx = min(dx, abs(event.stem.x - glyph.x))
        dy = max(float(event.box[1]) - glyph.y, glyph.y - float(event.box[3]), 0.0)
        limit = 1.6 * _MARK_X if glyph.name.startswith("ornament") else _MARK_X
        if dx > limit or dy > _MARK_Y:
            continue
        middle = float(event.box[1] + event.box[3]) / 2
        wrong_side = (above and glyph.y > middle) or (below and glyph.y < middle)
        cost = dx + dy + (2 * INTERLINE if wrong_side else 0.0)
        if best is None or cost < best[0]:
            best = (cost, chord)
    return best[1] if best is not None else None


def _attach_tremolos(glyphs: Iterable[Glyph], reading: SystemReading) -> None:
    for glyph in glyphs:
        if not glyph.name.startswith("tremolo") or glyph.score < _MIN_MARK_SCORE:
            continue
        for event, chord, _, _ in reading.chords:
            stem = event.stem
            if stem is not None and abs(stem.x - glyph.x) < 0.7 * INTERLINE and stem.top < glyph.y < stem.bottom:
                chord.tremolo = int(glyph.name[-1])
                break


def _attach_arpeggios(glyphs: Iterable[Glyph], reading: SystemReading) -> None:
    for glyph in glyphs:
        if glyph.name != "arpeggiato" or glyph.score < _MIN_MARK_SCORE:
            continue
        for event, chord, _, _ in reading.chords:
            gap = float(event.box[0] - glyph.box[2])
            overlap = min(event.box[3], glyph.box[3]) - max(event.box[1], glyph.box[1])
            if not chord.is_rest and -3 < gap < 3.5 * INTERLINE and overlap > 0:
                others = [
                    e.x
                    for e, c, _, _ in reading.chords
                    if not c.is_rest
                    and glyph.box[2] - 3 < e.box[0] < event.box[0] - 6
                    and min(e.box[3], glyph.box[3]) > max(e.box[1], glyph.box[1])
                ]
                chord.arpeggio = not others


def _attach_dynamics(glyphs: Iterable[Glyph], reading: SystemReading) -> None:
    """Join the letters of dynamics to words and add them to the measures."""
    letters = [g for g in glyphs if g.name in {f"dynamic{c}" for c in "PMFSZR"} and g.score > _MIN_MARK_SCORE]
    distinct: list[Glyph] = []
    for letter in letters:
        if all(abs(letter.x - other.x) > 3 or abs(letter.y - other.y) > INTERLINE for other in distinct):
            distinct.append(letter)
    words: list[list[Glyph]] = []
    for letter in sorted(distinct, key=lambda g: g.x):
        word = next(
            (
                w
                for w in words
                if abs(w[-1].y - letter.y) < INTERLINE and letter.box[0] - w[-1].box[2] < _LETTER_GAP * 0.6
            ),
            None,
        )
        if word is None:
            words.append([letter])
        else:
            word.append(letter)
    for word in words:
        text = "".join(letter.name[-1].lower() for letter in word)
        if text not in _DYNAMICS:
            continue
        x0, y0 = min(g.box[0] for g in word), min(g.box[1] for g in word)
        x1, y1 = max(g.box[2] for g in word), max(g.box[3] for g in word)
        staff, placement = staff_for((y0 + y1) / 2, x0, reading)
        if located := locate(float(x0 + x1) / 2, staff, reading):
            measure, local, onset = located
            box = (float(x0), float(y0), float(x1), float(y1))
            measure.directions.append(Direction("dynamics", text, onset, local, placement, box))


def _attach_lines(glyphs: Iterable[Glyph], reading: SystemReading) -> None:
    """Add hairpins, octave lines and pedal marks."""
    number = 0
    for glyph in glyphs:
        if glyph.score < _MIN_MARK_SCORE:
            continue
        staff, placement = staff_for(glyph.y, glyph.x, reading)
        x0, y0, x1, y1 = (float(v) for v in glyph.box)
        box = (x0, y0, x1, y1)
        kind: Literal["wedge", "octave-shift", "pedal"]
        if glyph.name in ("dynamicCrescendoHairpin", "dynamicDiminuendoHairpin"):
            kind, value = "wedge", "crescendo" if "Crescendo" in glyph.name else "diminuendo"
        elif glyph.name in ("keyboardPedalPed", "keyboardPedalUp"):
            place = locate(glyph.x, staff, reading, after=glyph.name.endswith("Up"))
            if place is not None:
                value = "start" if glyph.name.endswith("Ped") else "stop"
                place[0].directions.append(Direction("pedal", value, place[2], place[1], "below", box))
            continue
        else:
            continue
        start, stop = locate(x0, staff, reading), locate(x1, staff, reading, after=True)
        if start is None or stop is None or (start[0] is stop[0] and start[2] >= stop[2]):
            continue
        number = number % 6 + 1
        start[0].directions.append(Direction(kind, value, start[2], start[1], placement, box, number))
        stop[0].directions.append(Direction(kind, "stop", stop[2], stop[1], placement, box, number))
