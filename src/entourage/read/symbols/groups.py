"""Chords in their context: groups that beams join, beams that contradict those of the next chord, and shared dots."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray

from entourage.detect.options import INTERLINE
from entourage.read.symbols.beams import BOX_REACH
from entourage.read.symbols.glyphs import Event

Floats = NDArray[np.float64]

_SIDE_BY_SIDE = 1.8 * INTERLINE  # maximum distance of the heads of two voices that begin together


def group_beams(events: list[Event], beams: Floats) -> None:
    """Number the groups of chords whose stems the same beams join, and compare their beams.

    Args:
        events: chords and rests from left to right; changed in place.
        beams: boxes of the detected beams, shape (n, 4).
    """
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
    groups: dict[int | None, list[Event]] = {}
    for event in chords:
        groups.setdefault(event.beam_group, []).append(event)
    for members in groups.values():
        _compare_beams(members)


def _compare_beams(members: list[Event]) -> None:
    """Note chords of a group that have more beams than those which reach the next chord.

    The additional ones are partial beams, or other ink at the stem, such as a pedal mark or an accidental.
    """
    stems = [event.stem for event in members if event.stem is not None]
    between = [min(a.right_beams, b.left_beams) for a, b in itertools.pairwise(stems)]
    for k, event in enumerate(members):
        reaching = max(between[max(0, k - 1) : k + 1], default=0)
        if 0 < reaching < event.beams:
            event.reaching = reaching


def _joined(event: Event, other: Event, beams: Floats) -> bool:
    """Return whether a beam reaches from the free end of a stem to that of another."""
    a, b = event.stem, other.stem
    if a is None or b is None or b.x - a.x < 3 or bool(event.grace) != bool(other.grace):
        return False
    reach = 0.9 * INTERLINE
    for x0, y0, x1, y1 in beams:
        both = x0 - BOX_REACH < a.x and b.x < x1 + BOX_REACH
        if both and all(y0 - reach < stem.free_end < y1 + reach for stem in (a, b)):
            return True
    return False


def share_dots(events: list[Event]) -> None:
    """Note chords without a dot whose head stands to the left of a dotted one of another voice at the same height.

    Their dots are printed at one place, so that only one is seen.

    Args:
        events: chords and rests from left to right; changed in place.
    """
    for event, other in itertools.pairwise(events):
        if event.is_rest or event.dots or not other.dots or other.x - event.x > _SIDE_BY_SIDE:
            continue
        positions = {(head.staff, head.position) for head in other.heads}
        event.shared_dot = any((head.staff, head.position) in positions for head in event.heads)
