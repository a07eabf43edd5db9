"""Parts of a piece: groups of staves joined from system to system."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from entourage.read.score import Measure, Part


@dataclass
class SystemMusic:
    """The measures of a system.

    Attributes:
        sizes: number of staves of each group.
        parts: measures of each group; all groups have the same number of measures.
    """

    sizes: list[int]
    parts: list[list[Measure]]


def join_parts(systems: Sequence[SystemMusic]) -> list[Part]:
    """Join the systems of a piece to parts.

    Groups of staves are assigned to parts from the bottom of the system upwards, by their number of staves: systems
    more often leave out a resting voice at the top than an accompaniment at the bottom. A part that a system leaves out
    has rests in its measures.

    Args:
        systems: all systems of the piece, in order.

    Returns:
        The parts, measures numbered from 1.
    """
    if not systems:
        return []
    sizes = max(systems, key=lambda system: (len(system.sizes), sum(system.sizes))).sizes
    parts = [Part(f"Part {k + 1}" if n == 1 else "Piano", n) for k, n in enumerate(sizes)]
    number = 1
    for system in systems:
        chosen = _match_groups(sizes, system.sizes)
        n_measures = len(system.parts[0])
        for k, part in enumerate(parts):
            group = chosen[k]
            for m in range(n_measures):
                if group is None:
                    template = system.parts[0][m]
                    measure = Measure(0, template.length, key=template.key, meter=template.meter, right=template.right)
                    measure.new_system, measure.repeat_end = template.new_system, template.repeat_end
                    measure.repeat_start = template.repeat_start
                else:
                    measure = system.parts[group][m]
                measure.number = number + m
                part.measures.append(measure)
        number += n_measures
    return parts


def _match_groups(sizes: list[int], found: list[int]) -> list[int | None]:
    """Return for each part the group of a system that continues it, or None: matched from the bottom by size."""
    chosen: list[int | None] = [None] * len(sizes)
    group = len(found) - 1
    for k in range(len(sizes) - 1, -1, -1):
        remaining_parts = k + 1
        if group >= 0 and (found[group] == sizes[k] or remaining_parts <= group + 1):
            chosen[k] = group
            group -= 1
    return chosen


def drop_repeated_signatures(measures: Sequence[Measure]) -> None:
    """Remove keys, metres and clefs at the beginning of a page that are valid already.

    Args:
        measures: the measures of a part through all pages, which are changed in place.
    """
    key, meter = 0, None
    clefs: dict[int, object] = {}
    for index, measure in enumerate(measures):
        if index and measure.key == key:
            measure.key = None
        if measure.meter is not None and meter is not None and _same_meter(measure.meter, meter):
            measure.meter = None
        key = key if measure.key is None else measure.key
        meter = meter if measure.meter is None else measure.meter
        kept = []
        for staff, time, clef in sorted(measure.clefs, key=lambda item: item[1]):
            if time > 0 or clefs.get(staff) != clef:
                kept.append((staff, time, clef))
            clefs[staff] = clef
        measure.clefs = kept


def _same_meter(new: tuple[int, int, str], old: tuple[int, int, str]) -> bool:
    """Return whether a metre is valid already; one that is not printed is, if its measures are as long."""
    return new == old or (new[2] == "hidden" and new[0] * old[1] == old[0] * new[1])
