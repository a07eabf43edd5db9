"""What the music says of a symbol: when, on which staff, for which notes, and where it comes from in the score."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from entourage.engrave.annotate.mei import Event
from entourage.engrave.render.instances import Symbol


def describe(symbol: Symbol, events: Mapping[str, Event], ids: Collection[str]) -> None:
    """Completes a symbol by its own event, or that of the nearest group that has one.

    Args:
        symbol: what is known already stays.
        events: what the music says, by id.
        ids: the ids of the score's elements, to which symbols lead back.
    """
    for group in symbol.group.up():
        if not symbol.element and group.id in ids and group.kind != "measure":
            symbol.element = group.id
        event = events.get(group.id) if group.id else None
        if event is None or group.kind in ("system", "page-margin"):
            continue
        if symbol.label == "staff":
            symbol.staff = event.staff
            break
        _take(symbol, event, group.kind, events)
    if symbol.group.kind == "notehead" and (note := symbol.group.within("note")):
        symbol.notes = (note.id,)
    if not symbol.element:
        measure = symbol.group.within("measure")  # the first part's; nothing better for what has no note
        nearest = [*symbol.notes, measure.id if measure else ""]
        symbol.element = next((element for element in nearest if element in ids), "")


def _take(symbol: Symbol, event: Event, kind: str, events: Mapping[str, Event]) -> None:
    """What a group of that kind says, where groups within it have said nothing."""
    silent = ("measure", "staff") if symbol.label == "legerLine" else ("measure",)  # a line of no note has no onset
    if symbol.onset is None and event.onset is not None and kind not in silent:
        symbol.onset = float(event.onset)
    if not symbol.notes and kind not in ("staff", "layer", "measure"):
        symbol.notes = tuple(note for one in event.notes for note in _notes_of(one, events))
    if event.kind in ("rest", "mRest", "multiRest") and symbol.duration is None and event.duration is not None:
        symbol.duration = float(event.duration)
    symbol.staff = symbol.staff or event.staff


def _notes_of(identity: str, events: Mapping[str, Event]) -> tuple[str, ...]:
    """The notes of a chord, or a note itself."""
    event = events.get(identity)
    return event.notes if event and event.kind == "chord" and event.notes else (identity,)
