"""Noteheads, stems, beams, flags, dots and accidentals of a system, assembled to chords and rests by their geometry.

Coordinates are pixels of a page whose staff lines are `INTERLINE` pixels apart. Levels of beams are measured in the ink
next to the free end of each stem, because the boxes of beams that lie one above the other overlap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from entourage.detect import Detections
from entourage.detect.options import INTERLINE
from entourage.read.beams import BeamInk
from entourage.read.layout import Layout, Mask, StaffLines, System

Floats = NDArray[np.float64]

MIN_SCORE = 0.3  # minimum score of noteheads and rests
_MIN_PART_SCORE = 0.2  # minimum score of parts of notes: they count only where a note is
_MAX_OVERLAP = 0.4  # intersection over union above which two heads or rests are one
_MAX_DETOUR = 6  # steps by which the farther of two staves may be farther away than the nearer
_STEM_REACH = 3.5  # pixels between a stem and the edge of its head
_STEM_END = 7.0  # pixels by which the centre of a head may lie beyond the end of its stem
_DOT_REACH = 2.4 * INTERLINE
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


@dataclass
class Glyph:
    """A detected symbol.

    Attributes:
        name: its class.
        box: x0, y0, x1, y1.
        score: score of the detection.
    """

    name: str
    box: Floats
    score: float

    @property
    def x(self) -> float:
        """Centre."""
        return float(self.box[0] + self.box[2]) / 2

    @property
    def y(self) -> float:
        """Centre."""
        return float(self.box[1] + self.box[3]) / 2

    @property
    def width(self) -> float:
        """Width of the box."""
        return float(self.box[2] - self.box[0])

    @property
    def height(self) -> float:
        """Height of the box."""
        return float(self.box[3] - self.box[1])


@dataclass
class Head:
    """A notehead on a staff.

    Attributes:
        glyph: the detection.
        staff: staff of the system, from 0.
        position: steps above the middle line.
        kind: "black", "half", "whole" or "breve".
        small: whether it has the size of a grace note.
        accidental: printed accidental, as in `score.Note`.
        dots: number of augmentation dots.
    """

    glyph: Glyph
    staff: int
    position: int
    kind: str
    small: bool
    accidental: str = ""
    dots: int = 0


@dataclass
class Stem:
    """A stem: its column, its ends and its direction."""

    x: float
    top: float
    bottom: float
    direction: Literal["up", "down"]
    left_beams: int = 0
    right_beams: int = 0
    flags: int = 0

    @property
    def free_end(self) -> float:
        """The y coordinate of the end without heads."""
        return self.top if self.direction == "up" else self.bottom


@dataclass
class Event:
    """A chord or a rest.

    Attributes:
        staff: staff of the system, from 0; that of most of the heads.
        x: column: centre of the heads without those on the wrong side of the stem, or of the rest.
        heads: from low to high; empty for a rest.
        stem: the stem, or None.
        value: name of the note value, as printed.
        dots: number of augmentation dots.
        box: box around heads and stem, or of the rest.
        grace: "" for normal notes; "grace" or "slashed".
        beam_group: number of the group of beamed chords in the system, or None.
        position: steps above the middle line of a rest or of the middle of the heads.
        confidence: lowest score of its heads, or that of the rest.
    """

    staff: int
    x: float
    heads: list[Head]
    stem: Stem | None
    value: str
    dots: int
    box: Floats
    grace: Literal["", "grace", "slashed"] = ""
    beam_group: int | None = None
    position: float = 0.0
    confidence: float = 1.0
    marks: list[Glyph] = field(default_factory=list)

    @property
    def is_rest(self) -> bool:
        """Whether it is a rest."""
        return not self.heads

    @property
    def beams(self) -> int:
        """Number of beams or flags."""
        return 0 if self.stem is None else max(self.stem.left_beams, self.stem.right_beams, self.stem.flags)


def to_glyphs(detections: Detections, min_score: float = _MIN_PART_SCORE) -> list[Glyph]:
    """Return the detections with at least a score, best first."""
    order = detections.scores.argsort(descending=True, stable=True).tolist()
    names, boxes, scores = detections.names, detections.boxes.numpy().astype(np.float64), detections.scores.tolist()
    return [Glyph(names[i], boxes[i], scores[i]) for i in order if scores[i] >= min_score]


def find_events(layout: Layout, system: System, glyphs: list[Glyph], beam_ink: BeamInk | None = None) -> list[Event]:
    """Assemble the chords and rests of a system.

    Args:
        layout: the layout of the page.
        system: one of its systems.
        glyphs: the symbols of the page, best first.
        beam_ink: where levels of beams are measured; without it, in the ink of the layout.

    Returns:
        Chords and rests from left to right.
    """
    near = [g for g in glyphs if _belongs(system, layout, g)]
    heads = _find_heads(system, layout.ink, near)
    stems = _find_stems(near, heads, layout.ink)
    attached = _attach_stems(heads, stems)
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
    _group_beams(events, boxes)
    return events


def _belongs(system: System, layout: Layout, glyph: Glyph) -> bool:
    """Return whether a symbol is nearer to a system than to all others."""

    def distance(other: System) -> float:
        top, bottom = other.staves[0].top(glyph.x), other.staves[-1].bottom(glyph.x)
        return max(top - glyph.y, glyph.y - bottom, 0.0)

    own = distance(system)
    return own < 12 * INTERLINE and all(own <= distance(other) for other in layout.systems)


def _iou(a: Floats, b: Floats) -> float:
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    return float(both / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - both))


def _distinct(glyphs: Iterable[Glyph]) -> list[Glyph]:
    """Return the symbols without those that overlap one with a higher score; they come best first."""
    found: list[Glyph] = []
    for glyph in glyphs:
        if all(_iou(glyph.box, other.box) < _MAX_OVERLAP for other in found):
            found.append(glyph)
    return found


def _find_heads(system: System, ink: Mask, glyphs: list[Glyph]) -> list[Head]:
    heads = []
    for glyph in _distinct(g for g in glyphs if g.name.startswith("notehead") and g.score >= MIN_SCORE):
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


def _find_stems(glyphs: list[Glyph], heads: list[Head], ink: Mask) -> list[Stem]:
    """Return stems: those detected, lengthened to the ends of their ink, and those that the ink next to heads shows."""
    found: list[Stem] = []
    for glyph in (g for g in glyphs if g.name == "stem"):
        stem = _trace_stem(ink, glyph.x, float(glyph.box[1]), float(glyph.box[3]))
        if all(not _same_stem(stem, other) for other in found):
            found.append(stem)
    for head in heads:
        if head.kind in ("whole", "breve") or any(_side(head, stem) for stem in found):
            continue
        for x in (float(head.glyph.box[2]) - 1, float(head.glyph.box[0]) + 1):
            seen = _stem_from_ink(ink, x, head.glyph.y)
            if seen is not None and all(not _same_stem(seen, other) for other in found):
                found.append(seen)
    return found


def _same_stem(a: Stem, b: Stem) -> bool:
    overlap = min(a.bottom, b.bottom) - max(a.top, b.top)
    return abs(a.x - b.x) < 3 and overlap > 0.5 * min(a.bottom - a.top, b.bottom - b.top)


def _trace_stem(ink: Mask, x: float, top: float, bottom: float) -> Stem:
    """Return a stem with its ends moved along its ink by at most an interline."""
    column = int(np.clip(round(x - 0.5), 1, ink.shape[1] - 2))
    strip: Mask = np.asarray(ink[:, column - 1 : column + 2].any(axis=1))
    low, high = int(max(0, top)), int(min(ink.shape[0] - 1, bottom))
    limit = round(INTERLINE)
    for _ in range(limit):
        if low > 0 and strip[low - 1]:
            low -= 1
    for _ in range(limit):
        if high < len(strip) - 1 and strip[high + 1]:
            high += 1
    return Stem(x, float(low), float(high + 1), "up")


def _stem_from_ink(ink: Mask, x: float, y: float) -> Stem | None:
    """Return the vertical line of at least two interlines that starts at a head's edge, or None."""
    best: Stem | None = None
    for column in range(max(1, int(x) - 2), min(ink.shape[1] - 1, int(x) + 3)):
        strip = ink[:, column]
        low = high = int(np.clip(y, 0, len(strip) - 1))
        while low > 0 and strip[low - 1]:
            low -= 1
        while high < len(strip) - 1 and strip[high + 1]:
            high += 1
        long_enough = 2 * INTERLINE < high - low < 12 * INTERLINE
        if long_enough and (best is None or high - low > best.bottom - best.top):
            best = Stem(column + 0.5, float(low), float(high + 1), "up")
    return best


def _side(head: Head, stem: Stem) -> Literal["", "left", "right"]:
    """Return on which side of a head a stem is, or "" if it does not touch the head."""
    y = head.glyph.y
    if not stem.top - _STEM_END < y < stem.bottom + _STEM_END:
        return ""
    to_left, to_right = abs(stem.x - head.glyph.box[0] - 0.5), abs(stem.x - head.glyph.box[2] + 0.5)
    if min(to_left, to_right) > _STEM_REACH:
        return ""
    return "left" if to_left < to_right else "right"


def _attach_stems(heads: list[Head], stems: list[Stem]) -> list[tuple[Stem | None, list[Head]]]:
    """Return chords: each stem with its heads, and heads without a stem that are one above the other.

    A head is at the end of its stem, or between it and another head of the chord. A head at the lower end of one stem
    and the upper end of another belongs to two voices and to both chords.
    """
    touching: dict[int, list[tuple[Head, str]]] = {}
    for head in heads:
        if head.kind in ("whole", "breve"):
            continue
        for i, stem in enumerate(stems):
            if side := _side(head, stem):
                touching.setdefault(i, []).append((head, side))
    chords: list[tuple[Stem | None, list[Head]]] = []
    used: set[int] = set()
    for i, members in touching.items():
        stem = stems[i]
        middle = float(np.mean([head.glyph.y for head, _ in members]))
        stem.direction = "up" if middle > (stem.top + stem.bottom) / 2 else "down"
    for i, stem, chosen in _assign_heads(heads, stems, touching):
        if chosen:
            chords.append((stem, sorted(chosen, key=lambda head: -head.glyph.y)))
            used.update(id(head) for head in chosen)
            del i
    loose = [head for head in heads if id(head) not in used]
    chords.extend((None, group) for group in _stack(loose))
    return chords


def _assign_heads(
    heads: list[Head], stems: list[Stem], touching: dict[int, list[tuple[Head, str]]]
) -> Iterable[tuple[int, Stem, list[Head]]]:
    """Choose for each head the stem, or the two stems of two voices, that it belongs to."""
    chosen: dict[int, list[Head]] = {i: [] for i in touching}
    for head in heads:
        options = [(i, side) for i, members in touching.items() for member, side in members if member is head]
        if not options:
            continue
        if len(options) == 1:
            chosen[options[0][0]].append(head)
            continue
        up = [i for i, side in options if side == "right" and stems[i].direction == "up"]
        down = [i for i, side in options if side == "left" and stems[i].direction == "down"]
        if up and down and _is_end(head, stems[up[0]]) and _is_end(head, stems[down[0]]):
            chosen[up[0]].append(head)
            chosen[down[0]].append(head)
            continue
        natural = up + down or [i for i, _ in options]
        best = min(natural, key=lambda i: min(abs(stems[i].x - head.glyph.box[0]), abs(stems[i].x - head.glyph.box[2])))
        chosen[best].append(head)
    return [(i, stems[i], members) for i, members in chosen.items()]


def _is_end(head: Head, stem: Stem) -> bool:
    """Return whether a head is at the end of a stem that is not its free end."""
    end = stem.bottom if stem.direction == "up" else stem.top
    return abs(head.glyph.y - end) < 0.8 * INTERLINE


def _stack(heads: list[Head]) -> list[list[Head]]:
    """Return groups of heads without stem that are one above the other on one staff, from low to high."""
    groups: list[list[Head]] = []
    for head in sorted(heads, key=lambda head: (head.staff, head.kind, head.glyph.x)):
        last = groups[-1] if groups else None
        if (
            last is not None
            and last[-1].staff == head.staff
            and last[-1].kind == head.kind
            and abs(last[-1].glyph.x - head.glyph.x) < 1.3 * head.glyph.width
            and head.kind in ("whole", "breve")
        ):
            last.append(head)
        else:
            groups.append([head])
    return [sorted(group, key=lambda head: -head.glyph.y) for group in groups]


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
    for glyph in _distinct(g for g in glyphs if g.name.removesuffix("Small") in ACCIDENTALS and g.score >= MIN_SCORE):
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
    for glyph in _distinct(g for g in glyphs if g.name in RESTS and g.score >= MIN_SCORE):
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
    for glyph in _distinct(g for g in glyphs if g.name == "augmentationDot" and g.score >= MIN_SCORE):
        options: list[tuple[float, Callable[[], None]]] = []
        for head in heads:
            dx, dy = glyph.x - float(head.glyph.box[2]), glyph.y - head.glyph.y
            if -1 < dx < _DOT_REACH and abs(dy) < 0.75 * INTERLINE:
                options.append((dx + abs(dy), lambda head=head: setattr(head, "dots", head.dots + 1)))  # type: ignore[misc]
        for rest in rests:
            dx, dy = glyph.x - float(rest.box[2]), glyph.y - float(rest.box[1] + rest.box[3]) / 2
            if -1 < dx < _DOT_REACH and abs(dy) < 1.3 * INTERLINE:
                options.append((dx + abs(dy), lambda rest=rest: setattr(rest, "dots", rest.dots + 1)))  # type: ignore[misc]
        if options:
            min(options, key=lambda option: option[0])[1]()


def _to_event(stem: Stem | None, heads: list[Head], glyphs: list[Glyph]) -> Event:
    boxes = np.array([head.glyph.box for head in heads])
    box = np.concatenate([boxes[:, :2].min(axis=0), boxes[:, 2:].max(axis=0)])
    small = sum(head.small for head in heads) * 2 > len(heads)
    kinds = [head.kind for head in heads]
    kind = max(set(kinds), key=kinds.count)
    if stem is not None:
        box = np.array([min(box[0], stem.x), min(box[1], stem.top), max(box[2], stem.x), max(box[3], stem.bottom)])
        right = [head for head in heads if _side(head, stem) == ("right" if stem.direction == "up" else "left")]
        column = float(np.mean([head.glyph.x for head in right or heads]))
        beams = max(stem.left_beams, stem.right_beams, stem.flags)
    else:
        column, beams = float(np.median([head.glyph.x for head in heads])), 0
    values = {"black": ("quarter", "eighth", "16th", "32nd", "64th", "128th"), "half": ("half",)}
    value = values[kind][min(beams, len(values[kind]) - 1)] if kind in values else kind
    staves = [head.staff for head in heads]
    staff = max(sorted(set(staves)), key=staves.count)
    slashed = small and any(g.name.startswith("graceNoteAcciaccatura") and _iou(g.box, box) > 0.1 for g in glyphs)
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


def _group_beams(events: list[Event], beams: Floats) -> None:
    """Number the groups of chords whose stems the same beams join."""
    chords = [event for event in events if event.stem is not None and event.beams and not event.stem.flags]
    group = 0
    for k, event in enumerate(chords):
        if event.beam_group is None:
            group += 1
            event.beam_group = group
        if not event.stem or not event.stem.right_beams:
            continue
        following = next((other for other in chords[k + 1 :] if _joined(event, other, beams)), None)
        if following is not None and following.beam_group is None:
            following.beam_group = event.beam_group
            if following.stem is not None:
                following.stem.left_beams = max(1, following.stem.left_beams)


def _joined(event: Event, other: Event, beams: Floats) -> bool:
    """Return whether a beam reaches from the free end of a stem to that of another."""
    a, b = event.stem, other.stem
    if a is None or b is None or b.x - a.x < 3 or bool(event.grace) != bool(other.grace):
        return False
    reach = 0.9 * INTERLINE
    for x0, y0, x1, y1 in beams:
        both = x0 - 4 < a.x and b.x < x1 + 4
        if both and all(y0 - reach < stem.free_end < y1 + reach for stem in (a, b)):
            return True
    return False
