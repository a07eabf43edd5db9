"""Stems, detected or read from the ink next to noteheads, and the heads that belong to each of them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import numpy as np

from entourage.detect.options import INTERLINE
from entourage.read.layout.systems import Mask
from entourage.read.symbols.glyphs import Glyph, Head, Stem

_STEM_REACH = 3.5  # pixels between a stem and the edge of its head
_STEM_END = 7.0  # pixels by which the centre of a head may lie beyond the end of its stem


def find_stems(glyphs: list[Glyph], heads: list[Head], ink: Mask) -> list[Stem]:
    """Return the detected stems, extended to the ends of their ink, and stems found in the ink next to noteheads."""
    found: list[Stem] = []
    for glyph in (g for g in glyphs if g.name == "stem"):
        stem = _trace_stem(ink, glyph.x, float(glyph.box[1]), float(glyph.box[3]))
        if all(not _same_stem(stem, other) for other in found):
            found.append(stem)
    for head in heads:
        if head.kind in ("whole", "breve") or any(side_of(head, stem) for stem in found):
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


def side_of(head: Head, stem: Stem) -> Literal["", "left", "right"]:
    """Return on which side of a head a stem is, or "" if it does not touch the head."""
    y = head.glyph.y
    if not stem.top - _STEM_END < y < stem.bottom + _STEM_END:
        return ""
    to_left, to_right = abs(stem.x - head.glyph.box[0] - 0.5), abs(stem.x - head.glyph.box[2] + 0.5)
    if min(to_left, to_right) > _STEM_REACH:
        return ""
    return "left" if to_left < to_right else "right"


def attach_stems(heads: list[Head], stems: list[Stem]) -> list[tuple[Stem | None, list[Head]]]:
    """Return chords: each stem with its heads, and heads without a stem that are one above the other.

    A head is at the end of its stem, or between it and another head of the chord. A head at the lower end of one stem
    and the upper end of another belongs to two voices and to both chords.
    """
    touching: dict[int, list[tuple[Head, str]]] = {}
    for head in heads:
        if head.kind in ("whole", "breve"):
            continue
        for i, stem in enumerate(stems):
            if side := side_of(head, stem):
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
