"""Corrections of symbols: their classes and boxes, with the notes and rests that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from entourage.read.score import Box, Chord, Note, Pitch
from entourage.read.symbols.events import ACCIDENTALS, RESTS
from entourage.serve.requests import integer, text
from entourage.serve.scores.bars import Bar, Entry, Symbol
from entourage.serve.scores.editor import Editor
from entourage.serve.scores.rhythm import VOICES, duration_of
from entourage.symbols import EXTENDED_IDS

_HEADS = {"Black": "quarter", "Half": "half", "DoubleWhole": "breve", "Whole": "whole"}  # in this order
_SAME_CHORD = 0.7  # in staff-line distances between centres: heads with one stem
_ACCIDENTAL_REACH = 4.2  # from an accidental to its note
_MARGIN = 8.0  # above and below a staff
_MIN_SIDE = 1.0  # pixels


def _class(editor: Editor, body: Mapping[str, Any]) -> None:
    """Set the class ("name") of a symbol; a note or rest gets the value of its new class."""
    page, index = integer(body, "page"), integer(body, "symbol")
    symbol, name = editor.symbol(page, index), check_class(text(body, "name"))
    editor.set_symbol(page, index, replace(symbol, name=name, score=1.0))
    place = _find(editor, page, index)
    if place is None:
        return
    part, measure, entry, _ = place
    value = RESTS.get(name) or _head_value(name)
    if value is None or bool(entry.chord.notes) == (name in RESTS):
        _remove(editor, place)
        _insert(editor, page, index, name, symbol.box)
    elif value != entry.chord.value and not (value == "quarter" and entry.chord.beams):
        chord = entry.chord
        entry.fix("duration")
        chord.value, chord.tuplet, chord.full_measure = value, None, False
        chord.duration = duration_of(value, chord.dots, None)
        editor.solve(part, measure)


def _box(editor: Editor, body: Mapping[str, Any]) -> None:
    """Set the "box" of a symbol; the pitch of a note follows."""
    page, index = integer(body, "page"), integer(body, "symbol")
    symbol, box = editor.symbol(page, index), _to_box(editor, page, body)
    editor.set_symbol(page, index, replace(symbol, box=box, score=1.0))
    place = _find(editor, page, index)
    if place is None:
        return
    part, measure, entry, note = place
    if note is None:
        entry.chord.box = box
        return
    with editor.pitches(part, measure, measure + 2):
        note.box = box
        note.position = _position(editor, part, measure, entry.chord.staff, box)


def _remove_symbol(editor: Editor, body: Mapping[str, Any]) -> None:
    """Remove a symbol, and the note or rest that it is."""
    page, index = integer(body, "page"), integer(body, "symbol")
    editor.symbol(page, index)
    editor.set_symbol(page, index, None)
    place = _find(editor, page, index)
    if place is not None:
        _remove(editor, place)


def _add(editor: Editor, body: Mapping[str, Any]) -> None:
    """Add a symbol of a class ("name") with a "box"; noteheads, rests and accidentals also become music."""
    page, name = integer(body, "page"), check_class(text(body, "name"))
    if not 0 <= page < len(editor.music.symbols):
        raise ValueError(f"page: is {page}; expected 0 to {len(editor.music.symbols) - 1}")
    box, index = _to_box(editor, page, body), len(editor.music.symbols[page])
    editor.set_symbol(page, index, Symbol(name, 1.0, box))
    _insert(editor, page, index, name, box)


SYMBOL_KINDS: dict[str, Callable[[Editor, Mapping[str, Any]], None]] = {
    "class": _class,
    "box": _box,
    "remove": _remove_symbol,
    "add": _add,
}


def check_class(name: str) -> str:
    """Return the name of a class of symbols.

    Raises:
        ValueError: there is no such class.
    """
    if name not in EXTENDED_IDS:
        raise ValueError(f"name: is {name[:40]!r}; expected a class of symbols, such as noteheadBlackOnLine")
    return name


_Place = tuple[int, int, Entry, Note | None]


def _find(editor: Editor, page: int, index: int) -> _Place | None:
    """Return part, measure, chord and note of a symbol; the note of a rest is None."""
    for part, row in enumerate(editor.music.bars):
        for m, bar in enumerate(row):
            if bar.measure.page != page + 1:
                continue
            for k, entry in enumerate(bar.entries):
                numbers = [note.symbol for note in entry.chord.notes]
                if index in numbers or (not numbers and entry.chord.symbol == index):
                    found = editor.bar(part, m).entries[k]
                    return part, m, found, found.chord.notes[numbers.index(index)] if numbers else None
    return None


def _remove(editor: Editor, place: _Place) -> None:
    part, measure, entry, note = place
    bar = editor.bar(part, measure)
    with editor.pitches(part, measure, measure + 2):
        if note is not None and len(entry.chord.notes) > 1:
            entry.chord.notes.remove(note)
            return
        bar.entries.remove(entry)
        bar.sort()
    editor.solve(part, measure)


def _insert(editor: Editor, page: int, index: int, name: str, box: Box) -> None:
    """Make music of a symbol: a note of a chord, a new chord, a rest, or the accidental of a note."""
    place = _nearest_staff(editor, page, box)
    if place is None:
        return
    part, measure, staff = place
    interline = editor.music.interline(page + 1)
    if name.removesuffix("Small") in ACCIDENTALS and not name.startswith("key"):
        _insert_accidental(editor, place, ACCIDENTALS[name.removesuffix("Small")], box, interline)
        return
    head = _head_value(name)
    value = RESTS.get(name) or head
    if value is None:
        return  # of no note: the symbol only counts as training data
    bar, centre = editor.bar(part, measure), (box[0] + box[2]) / 2
    with editor.pitches(part, measure, measure + 2):  # gives new notes their pitches
        if head is None:
            notes: list[Note] = []
        else:
            notes = [Note(Pitch(4, "C"), _position(editor, part, measure, staff, box), box, symbol=index)]
        chord = next(
            (c for c in bar.measure.chords if notes and _has_head_at(c, staff, centre, value, interline)), None
        )
        if chord is not None:
            chord.notes += notes
        else:
            bar.entries.append(Entry(_new_chord(bar, value, staff, box, notes, index)))
            bar.sort()
    editor.solve(part, measure)


def _new_chord(bar: Bar, value: str, staff: int, box: Box, notes: list[Note], index: int) -> Chord:
    """Return a chord or rest at the end of those to its left; the rhythm is solved afterwards."""
    earlier = [entry.chord for entry in bar.entries if entry.chord.staff == staff and entry.chord.box[0] < box[0]]
    onset = max((one.end for one in earlier), default=Fraction(0))
    voice = earlier[-1].voice if earlier else VOICES * (staff - 1) + 1
    chord = Chord(onset, duration_of(value, 0, None), value, 0, notes, staff, voice, box)
    chord.symbol = None if notes else index
    return chord


def _insert_accidental(editor: Editor, place: tuple[int, int, int], name: str, box: Box, interline: float) -> None:
    """Give an accidental to the nearest note to its right at the same height, if there is one."""
    part, measure, staff = place
    y = box[1] + 0.7 * (box[3] - box[1]) if "flat" in name else (box[1] + box[3]) / 2
    near = [
        (note.box[0] - box[2], note)
        for entry in editor.bar(part, measure).entries
        if entry.chord.staff == staff
        for note in entry.chord.notes
        if -0.5 * interline < note.box[0] - box[2] < _ACCIDENTAL_REACH * interline
        and abs((note.box[1] + note.box[3]) / 2 - y) < 0.6 * interline
    ]
    if near:
        with editor.pitches(part, measure, measure + 2):
            min(near, key=lambda item: item[0])[1].accidental = name


def _nearest_staff(editor: Editor, page: int, box: Box) -> tuple[int, int, int] | None:
    """Return part, measure and staff (from 1) of the place of a box, or None far from all staves."""
    x, y = (box[0] + box[2]) / 2, (box[1] + box[3]) / 2
    best: tuple[float, tuple[int, int, int]] | None = None
    for part, row in enumerate(editor.music.bars):
        for m, bar in enumerate(row):
            if bar.measure.page != page + 1:
                continue
            for staff, (x0, y0, x1, y1) in enumerate(bar.measure.boxes, start=1):
                distance = max(y0 - y, y - y1, 0.0)
                if x0 <= x < x1 and (best is None or distance < best[0]):
                    best = (distance, (part, m, staff))
    return best[1] if best is not None and best[0] < _MARGIN * editor.music.interline(page + 1) else None


def _position(editor: Editor, part: int, measure: int, staff: int, box: Box) -> int:
    """Return the steps of the centre of a box above the middle line of a staff."""
    boxes = editor.bar(part, measure).measure.boxes
    if not 1 <= staff <= len(boxes):
        return 0
    _, top, _, bottom = boxes[staff - 1]
    return round(((top + bottom) - (box[1] + box[3])) / max(bottom - top, 1.0) * 4)


def _has_head_at(chord: Chord, staff: int, centre: float, value: str, interline: float) -> bool:
    """Return whether a chord has heads of the same kind in a column."""
    if chord.staff != staff or not chord.notes or chord.grace:
        return False
    x = min(abs((note.box[0] + note.box[2]) / 2 - centre) for note in chord.notes)
    open_heads = ("half", "whole", "breve")
    is_same = chord.value == value or (value not in open_heads and chord.value not in open_heads)
    return is_same and x < _SAME_CHORD * interline


def _head_value(name: str) -> str | None:
    """Return the note value of a class of noteheads without beams and flags, or None."""
    if not name.startswith("notehead"):
        return None
    return next(value for kind, value in _HEADS.items() if kind in name)


def _to_box(editor: Editor, page: int, body: Mapping[str, Any]) -> Box:
    """Return the "box" of a correction, within its page."""
    value = body.get("box")
    if isinstance(value, list) and len(value) == 4 and all(map(_is_number, value)):
        info = editor.music.pages[page]
        x0, y0, x1, y1 = (float(side) for side in value)
        inside = x0 >= 0 and y0 >= 0 and x1 <= info.width and y1 <= info.height
        if inside and x1 - x0 >= _MIN_SIDE and y1 - y0 >= _MIN_SIDE:
            return (x0, y0, x1, y1)
    raise ValueError(f"box: is {value!r:.80}; expected x0, y0, x1, y1 within the page, at least a pixel apart")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
