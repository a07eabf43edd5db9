"""Noteheads, stems, beams, flags, dots and accidentals of a system, assembled to chords and rests by their geometry.

Coordinates are pixels of a page whose staff lines are `INTERLINE` pixels apart. The number of beams of a stem is
measured in the ink next to its free end, because the boxes of beams that lie one above the other overlap.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from entourage.detect.options import INTERLINE
from entourage.read.layout.systems import Layout, Mask, StaffLines, System
from entourage.read.symbols.beams import BeamInk
from entourage.read.symbols.glyphs import Event, Glyph, Head, Stem, distinct, iou
from entourage.read.symbols.groups import group_beams, share_dots
from entourage.read.symbols.stems import attach_stems, find_stems, side_of

Floats = NDArray[np.float64]

MIN_SCORE = 0.3  # minimum score of noteheads and rests
_MAX_DETOUR = 6  # steps by which the farther of two staves may be farther away than the nearer
_DOT_REACH = 2.4 * INTERLINE
_DOT_COLUMN = 4.0  # pixels: the dots of one head are farther from each other
_ACCIDENTAL_REACH = 4.2 * INTERLINE
_FLAT_CENTRE = 0.70  # height of the reference point of a flat, as a fraction of its box from the top

RESTS = {
    "restDoubleWhole": "breve",
    "restWhole": "whole",
    "restHalf": "half",
    "restQuarter": "quarter",
    "rest8th": "eighth",
    "rest16th": "16th",
    "rest32nd": "32nd",
    "rest64th": "64th",
    "rest128th": "128th",
}
FLAGS = {"flag8th": 1, "flag16th": 2, "flag32nd": 3, "flag64th": 4, "flag128th": 5}
ACCIDENTALS = {
    "accidentalSharp": "sharp",
    "accidentalFlat": "flat",
    "accidentalNatural": "natural",
    "accidentalDoubleSharp": "double-sharp",
    "accidentalDoubleFlat": "flat-flat",
    "keySharp": "sharp",
    "keyFlat": "flat",
    "keyNatural": "natural",
}


def find_events(layout: Layout, system: System, glyphs: list[Glyph], beam_ink: BeamInk | None = None) -> list[Event]:
    """Assemble the chords and rests of a system.

    Args:
        layout: the layout of the page.
        system: one of its systems.
        glyphs: the symbols of the page, highest scores first.
        beam_ink: ink in which the number of beams is measured; None: the ink of the layout.

    Returns:
        Chords and rests from left to right.
    """
    near = [g for g in glyphs if _belongs(system, layout, g)]
    heads = _find_heads(system, layout.ink, near)
    stems = find_stems(near, heads, layout.ink)
    attached = attach_stems(heads, stems)
    boxes = np.array([g.box for g in near if g.name == "beam"]).reshape(-1, 4)
    beam_ink = beam_ink or BeamInk(layout.ink)
    for stem, members in attached:
        if stem is not None:
            heights = [head.glyph.y for head in members]
            stem.left_beams, stem.right_beams = beam_ink.count(stem.x, stem.free_end, stem.direction, heights, boxes)
    _attach_flags(near, [stem for stem, _ in attached if stem is not None])
    _attach_accidentals(near, heads)
    rests = _find_rests(system, near)
    _attach_dots(near, heads, rests)
    events = [_to_event(stem, members, near) for stem, members in attached] + rests
    events.sort(key=lambda event: event.x)
    group_beams(events, boxes)
    share_dots(events)
    return events


def _belongs(system: System, layout: Layout, glyph: Glyph) -> bool:
    """Return whether a symbol is nearer to a system than to all others."""
    own = system.distance(glyph.x, glyph.y)
    return own < 12 * INTERLINE and all(own <= other.distance(glyph.x, glyph.y) for other in layout.systems)


def _find_heads(system: System, ink: Mask, glyphs: list[Glyph]) -> list[Head]:
    heads = []
    for glyph in distinct(g for g in glyphs if g.name.startswith("notehead") and g.score >= MIN_SCORE):
        staff = _nearest_staff(system, ink, glyph)
        exact = system.staves[staff].position(glyph.x, glyph.y)
        on_line = "OnLine" in glyph.name
        # The class distinguishes lines from spaces more reliably than the centre of the box, unless the box is between.
        same = 2 * round(exact / 2) if on_line else 2 * round((exact - 1) / 2) + 1
        position = same if abs(same - exact) < 0.8 else round(exact)
        kinds = (("Black", "black"), ("Half", "half"), ("DoubleWhole", "breve"), ("Whole", "whole"))
        kind = next(kind for text, kind in kinds if text in glyph.name)
        heads.append(Head(glyph, staff, position, kind, glyph.name.endswith("Small")))
    return heads


def _nearest_staff(system: System, ink: Mask, glyph: Glyph) -> int:
    """Return the staff of a head: the nearest, and between two staves that to which ledger lines lead."""
    positions = [staff.position(glyph.x, glyph.y) for staff in system.staves]
    order = sorted(range(len(positions)), key=lambda k: abs(positions[k]))
    best = order[0]
    if len(order) == 1 or abs(positions[best]) <= 5.5:
        return best
    other = order[1]
    if abs(positions[other]) > abs(positions[best]) + _MAX_DETOUR:
        return best
    ledgers = {k: _ledger_fraction(system.staves[k], ink, glyph, positions[k]) for k in (best, other)}
    return other if ledgers[other] > ledgers[best] + 0.3 else best


def _ledger_fraction(staff: StaffLines, ink: Mask, glyph: Glyph, position: float) -> float:
    """Return the fraction of the ledger lines between a staff and a head that are there."""
    sign = 1 if position > 0 else -1
    expected = range(6, int(abs(position) + 0.6) + 1, 2)
    hits = []
    for step in expected:
        y = round(staff.y(glyph.x) - sign * step * staff.spacing / 2)
        x0, x1 = int(glyph.box[0]), int(glyph.box[2])
        rows = ink[max(0, y - 2) : y + 3, max(0, x0 - 2) : x1 + 3]
        hits.append(rows.any(axis=0).mean() > 0.85 if rows.size else False)
    return float(np.mean(hits)) if hits else 1.0


def _attach_flags(glyphs: list[Glyph], stems: list[Stem]) -> None:
    for glyph in (g for g in glyphs if g.name.startswith("flag")):
        number = next((n for text, n in FLAGS.items() if glyph.name.startswith(text)), 0)
        options = [
            stem
            for stem in stems
            if abs(glyph.box[0] - stem.x) < 0.6 * INTERLINE
            and glyph.box[1] - INTERLINE < stem.free_end < glyph.box[3] + INTERLINE
        ]
        if options and number:
            stem = min(options, key=lambda stem: abs(float(glyph.box[0]) - stem.x))
            if stem.flags == 0:  # glyphs come best first
                stem.flags = number


def _attach_accidentals(glyphs: list[Glyph], heads: list[Head]) -> None:
    """Give each accidental to the nearest head to its right at the same height."""
    taken: set[int] = set()
    for glyph in distinct(g for g in glyphs if g.name.removesuffix("Small") in ACCIDENTALS and g.score >= MIN_SCORE):
        flat = "Flat" in glyph.name
        y = float(glyph.box[1]) + _FLAT_CENTRE * glyph.height if flat else glyph.y
        options = [
            head
            for head in heads
            if id(head) not in taken
            and -4 < head.glyph.box[0] - glyph.box[2] < _ACCIDENTAL_REACH
            and abs(head.glyph.y - y) < 0.5 * INTERLINE
        ]
        if options:
            head = min(options, key=lambda head: head.glyph.x + 2 * abs(head.glyph.y - y))
            head.accidental = ACCIDENTALS[glyph.name.removesuffix("Small")]
            taken.add(id(head))


def _find_rests(system: System, glyphs: list[Glyph]) -> list[Event]:
    rests = []
    for glyph in distinct(g for g in glyphs if g.name in RESTS and g.score >= MIN_SCORE):
        positions = [staff.position(glyph.x, glyph.y) for staff in system.staves]
        staff = min(range(len(positions)), key=lambda k: abs(positions[k]))
        rests.append(
            Event(
                staff=staff,
                x=glyph.x,
                heads=[],
                stem=None,
                value=RESTS[glyph.name],
                dots=0,
                box=glyph.box,
                position=positions[staff],
                confidence=glyph.score,
            )
        )
    return rests


def _attach_dots(glyphs: list[Glyph], heads: list[Head], rests: list[Event]) -> None:
    """Count the augmentation dots of heads and rests: each belongs to the nearest one to its left."""
    columns: dict[int, list[float]] = {}  # places of the dots of each head or rest, by its identity
    for glyph in distinct(g for g in glyphs if g.name == "augmentationDot" and g.score >= MIN_SCORE):
        options: list[tuple[float, Head | Event]] = []
        for head in heads:
            dx, dy = glyph.x - float(head.glyph.box[2]), glyph.y - head.glyph.y
            if -1 < dx < _DOT_REACH and abs(dy) < 0.75 * INTERLINE:
                options.append((dx + abs(dy), head))
        for rest in rests:
            dx, dy = glyph.x - float(rest.box[2]), glyph.y - float(rest.box[1] + rest.box[3]) / 2
            if -1 < dx < _DOT_REACH and abs(dy) < 1.3 * INTERLINE:
                options.append((dx + abs(dy), rest))
        for _, item in sorted(options, key=lambda option: option[0]):
            places = columns.setdefault(id(item), [])
            if all(abs(glyph.x - x) > _DOT_COLUMN for x in places):  # dots one above the other are of two heads
                places.append(glyph.x)
                item.dots += 1
                break


def _to_event(stem: Stem | None, heads: list[Head], glyphs: list[Glyph]) -> Event:
    boxes = np.array([head.glyph.box for head in heads])
    box = np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])
    small = sum(head.small for head in heads) * 2 > len(heads)
    kinds = [head.kind for head in heads]
    kind = max(set(kinds), key=kinds.count)
    if stem is not None:
        box = np.array([min(box[0], stem.x), min(box[1], stem.top), max(box[2], stem.x), max(box[3], stem.bottom)])
        right = [head for head in heads if side_of(head, stem) == ("right" if stem.direction == "up" else "left")]
        column = float(np.mean([head.glyph.x for head in right or heads]))
        beams = max(stem.left_beams, stem.right_beams, stem.flags)
    else:
        column, beams = float(np.median([head.glyph.x for head in heads])), 0
    values = {"black": ("quarter", "eighth", "16th", "32nd", "64th", "128th"), "half": ("half",)}
    value = values[kind][min(beams, len(values[kind]) - 1)] if kind in values else kind
    staves = [head.staff for head in heads]
    staff = max(sorted(set(staves)), key=staves.count)
    slashed = small and any(g.name.startswith("graceNoteAcciaccatura") and iou(g.box, box) > 0.1 for g in glyphs)
    grace: Literal["", "grace", "slashed"] = "" if not small else "slashed" if slashed else "grace"
    return Event(
        staff=staff,
        x=column,
        heads=heads,
        stem=stem,
        value=value,
        dots=min(2, max(head.dots for head in heads)),
        box=box,
        grace=grace,
        position=float(np.mean([head.position for head in heads])),
        confidence=min(head.glyph.score for head in heads),
    )
