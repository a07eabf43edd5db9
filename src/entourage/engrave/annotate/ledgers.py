"""Which notes ledger lines are for: the engraver draws them staff by staff, apart from the notes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from entourage.engrave.annotate.mei import Event
from entourage.engrave.annotate.staves import Place, Staves
from entourage.engrave.render.instances import Symbol
from entourage.engrave.render.marks import Mark


def attach_ledgers(
    symbols: Iterable[Symbol],
    marks: Sequence[Mark],
    staves: Staves,
    events: Mapping[str, Event],
    ids: Collection[str],
) -> None:
    """Leads each ledger line to the noteheads that need it: those on it, and those beyond it at the same place.

    The notes of a chord share the lines nearest to the staff, so a line may have several notes. The one nearest to it
    comes first, and the line has its onset and element. Lines of rests, or of notes that are not drawn, lead to none.

    Args:
        symbols: of the page; heads know their staff and position.
        marks: what they are made of.
        staves: the staff lines of the page.
        events: what the music says, by id.
        ids: the ids of the score's elements, to which symbols lead back.
    """
    heads: dict[Place, list[Symbol]] = {}
    lines = []
    for symbol in symbols:
        if symbol.label == "legerLine":
            lines.append(symbol)
        elif symbol.group.kind == "notehead":
            heads.setdefault((symbol.group.within("measure"), symbol.staff), []).append(symbol)
    for line in lines:
        mark = marks[line.marks[0]]
        line.staff = staves.number(mark)
        position, _ = staves.position(mark, line.staff)
        near = heads.get((line.group.within("measure"), line.staff), [])
        found = [head for head in near if _needs(head, position) and _crosses(mark, marks[head.marks[0]])]
        found.sort(key=lambda head: abs((head.position or 0) - position))
        line.notes = tuple(note.id for head in found if (note := head.group.within("note")))
        line.element = next((note for note in line.notes if note in ids), "")
        event = events.get(line.notes[0]) if line.notes else None
        if event and event.onset is not None:
            line.onset = float(event.onset)


def _needs(head: Symbol, line: int) -> bool:
    position = head.position or 0
    return position >= line if line > 0 else position <= line


def _crosses(line: Mark, head: Mark) -> bool:
    """The middle of the head is above, on or below the line."""
    middle = (head.edges[:, 0].min() + head.edges[:, 0].max()) / 2
    return bool(line.points[:, 0].min() <= middle <= line.points[:, 0].max())
