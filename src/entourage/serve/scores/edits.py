"""Corrections of a score: each changes bars and symbols, and all bars that depend on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from entourage.read.formats.score_json import from_json
from entourage.read.score import Chord, Clef, Measure, Note
from entourage.serve.requests import integer, text
from entourage.serve.scores.bars import Bar, Entry, Music, copy_bar
from entourage.serve.scores.editor import Editor
from entourage.serve.scores.pitches import Signatures, signatures_before
from entourage.serve.scores.rhythm import VOICES, duration_of, next_reading
from entourage.serve.scores.symbol_edits import SYMBOL_KINDS

_ACCIDENTALS = ("", "sharp", "flat", "natural", "double-sharp", "flat-flat")
_MAX_POSITION = 40  # steps from the middle line
MAX_BEATS = 64


def make_edit(music: Music, body: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return what a correction changes.

    Args:
        music: the music; it is not changed.
        body: "kind" and the arguments of this kind; see `KINDS`.

    Returns:
        A description, and the new values by key.

    Raises:
        ValueError: the correction is not valid.
    """
    kind = text(body, "kind")
    if kind not in KINDS:
        raise ValueError(f"kind: is {kind[:40]!r}; expected one of {', '.join(KINDS)}")
    editor = Editor(music)
    KINDS[kind](editor, body)
    return _describe(music, kind, body), editor.changes()


def _describe(music: Music, kind: str, body: Mapping[str, Any]) -> str:
    if "measure" not in body:
        return f"{kind}, page {integer(body, 'page') + 1}"
    return f"{kind}, measure {music.bar(0, integer(body, 'measure')).measure.number}"


def _place(editor: Editor, body: Mapping[str, Any]) -> tuple[int, int, Bar]:
    part, index = integer(body, "part"), integer(body, "measure")
    return part, index, editor.bar(part, index)


def _entry(editor: Editor, body: Mapping[str, Any]) -> tuple[int, int, Entry]:
    part, index, bar = _place(editor, body)
    chord = integer(body, "chord")
    if not 0 <= chord < len(bar.entries):
        raise ValueError(f"chord: {chord} of measure {index} does not exist; expected 0 to {len(bar.entries) - 1}")
    return part, index, bar.entries[chord]


def _note(entry: Entry, body: Mapping[str, Any]) -> Note:
    number = integer(body, "note")
    if not 0 <= number < len(entry.chord.notes):
        raise ValueError(f"note: {number} does not exist; expected 0 to {len(entry.chord.notes) - 1}")
    return entry.chord.notes[number]


def _pitch(editor: Editor, body: Mapping[str, Any]) -> None:
    """Move a note by "steps"."""
    part, index, entry = _entry(editor, body)
    note, steps = _note(entry, body), integer(body, "steps")
    if abs(note.position + steps) > _MAX_POSITION:
        raise ValueError(f"steps: is {steps}; expected a note at most {_MAX_POSITION} steps from the middle line")
    with editor.pitches(part, index, index + 2):
        note.position += steps
    _end_broken_ties(editor, part, index)


def _accidental(editor: Editor, body: Mapping[str, Any]) -> None:
    """Set the printed "accidental" of a note; "" for none."""
    part, index, entry = _entry(editor, body)
    note, name = _note(entry, body), text(body, "accidental")
    if name not in _ACCIDENTALS:
        raise ValueError(f"accidental: is {name[:40]!r}; expected one of {', '.join(_ACCIDENTALS[1:])} or none")
    with editor.pitches(part, index, index + 2):
        note.accidental = name
    _end_broken_ties(editor, part, index)


def _duration(editor: Editor, body: Mapping[str, Any]) -> None:
    """Set the note "value", the "dots" and the "tuplet" (two numbers, or null) of a chord or rest."""
    part, index, entry = _entry(editor, body)
    value, dots, tuplet = text(body, "value"), integer(body, "dots"), body.get("tuplet")
    if tuplet is not None:
        is_pair = isinstance(tuplet, list) and len(tuplet) == 2 and all(isinstance(n, int) for n in tuplet)
        if not is_pair:
            raise ValueError(f"tuplet: is {tuplet!r:.40}; expected two whole numbers, or null")
        tuplet = (int(tuplet[0]), int(tuplet[1]))
    duration, chord = duration_of(value, dots, tuplet), entry.chord
    if chord.grace:
        raise ValueError("chord: is a grace note, which takes no time; expected a normal note")
    entry.fix("duration")
    chord.value, chord.dots, chord.tuplet, chord.duration, chord.full_measure = value, dots, tuplet, duration, False
    editor.solve(part, index)
    _end_broken_ties(editor, part, index)


def _voice(editor: Editor, body: Mapping[str, Any]) -> None:
    """Set the "voice" of a chord or rest, from 1 to 4 on its staff."""
    part, index, entry = _entry(editor, body)
    voice = integer(body, "voice")
    if not 1 <= voice <= VOICES:
        raise ValueError(f"voice: is {voice}; expected 1 to {VOICES}")
    entry.fix("voice")
    entry.chord.voice = VOICES * (entry.chord.staff - 1) + voice
    editor.solve(part, index)


def _tie(editor: Editor, body: Mapping[str, Any]) -> None:
    """Tie a note to the next one of its pitch, or end its tie."""
    part, index, entry = _entry(editor, body)
    note = _note(entry, body)
    following = _next_note(editor, part, index, entry.chord, note)
    if following is None:
        raise ValueError(f"note: no note of the pitch {note.pitch} follows; expected one to tie it to")
    with editor.pitches(part, index, index + 2):
        note.tied_to = following.tied_from = not note.tied_to


def _next_note(editor: Editor, part: int, index: int, chord: Chord, note: Note) -> Note | None:
    """Return the note of the same pitch that begins when a note ends, in its measure or the next."""
    if chord.end < editor.bar(part, index).measure.length or index + 1 >= editor.n_measures(part):
        entries, onset = editor.bar(part, index).entries, chord.end
    else:
        entries, onset = editor.bar(part, index + 1).entries, chord.end - chord.end
    found = [
        other
        for entry in entries
        if entry.chord.onset == onset and entry.chord is not chord and not entry.chord.grace
        for other in entry.chord.notes
        if (other.pitch.octave, other.pitch.step) == (note.pitch.octave, note.pitch.step)
    ]
    return found[0] if found else None


def _end_broken_ties(editor: Editor, part: int, index: int) -> None:
    """Remove ties from and to a measure that no longer join two notes of one pitch."""
    end = min(index + 2, editor.n_measures(part))
    joined = set()
    for m in range(max(0, index - 1), end):
        for entry in editor.bar(part, m).entries:
            for note in entry.chord.notes:
                following = _next_note(editor, part, m, entry.chord, note) if note.tied_to else None
                note.tied_to = following is not None
                joined.add(id(following))
    for m in range(index, end):
        for entry in editor.bar(part, m).entries:
            for note in entry.chord.notes:
                note.tied_from = note.tied_from and id(note) in joined


def _delete(editor: Editor, body: Mapping[str, Any]) -> None:
    """Remove a note; a whole chord or a rest if "note" is -1."""
    part, index, entry = _entry(editor, body)
    bar = editor.bar(part, index)
    if integer(body, "note") >= 0 and len(entry.chord.notes) > 1:
        note = _note(entry, body)
        with editor.pitches(part, index, index + 2):
            entry.chord.notes.remove(note)
    else:
        with editor.pitches(part, index, index + 2):
            bar.entries.remove(entry)
            bar.sort()
        editor.solve(part, index)
    _end_broken_ties(editor, part, index)


def _clef(editor: Editor, body: Mapping[str, Any]) -> None:
    """Set the "clef" (sign, line and octave, or null) of a "staff" from a "chord" on; -1: from the beginning."""
    part, index, bar = _place(editor, body)
    staff, chord, value = integer(body, "staff"), integer(body, "chord"), body.get("clef")
    if not 1 <= staff <= editor.music.parts[part][1]:
        raise ValueError(f"staff: is {staff}; expected 1 to {editor.music.parts[part][1]}")
    time = bar.entries[chord].chord.onset if 0 <= chord < len(bar.entries) else bar.measure.length * 0
    clef = None if value is None else _to_clef(value)
    measures = editor.measures(part)
    later = (m for m in range(index + 1, len(measures)) if any(s == staff and t == 0 for s, t, _ in measures[m].clefs))
    with editor.pitches(part, index, next(later, len(measures)) + 1):
        kept = [one for one in bar.measure.clefs if one[:2] != (staff, time)]
        bar.measure.clefs = kept + ([] if clef is None else [(staff, time, clef)])


def _to_clef(value: Any) -> Clef:
    try:
        clef = from_json(Clef, value)
        is_valid = clef.sign in ("G", "F", "C") and 1 <= clef.line <= 5 and -2 <= clef.octave <= 2
    except (TypeError, KeyError, AttributeError):
        is_valid = False
    if not is_valid:
        raise ValueError(f"clef: is {value!r:.60}; expected sign (G, F or C), line (1 to 5) and octave (-2 to 2)")
    return clef


def _key(editor: Editor, body: Mapping[str, Any]) -> None:
    """Set the "key" of all parts from a measure on; null removes the key signature."""
    index, key = integer(body, "measure"), body.get("key")
    if key is not None and not -7 <= integer(body, "key") <= 7:
        raise ValueError(f"key: is {key}; expected -7 to 7 sharps, or null")
    for part in range(len(editor.music.parts)):
        measures = editor.measures(part)
        later = (m for m in range(index + 1, len(measures)) if measures[m].key is not None)
        bar = editor.bar(part, index)
        with editor.pitches(part, index, next(later, len(measures)) + 1):
            bar.measure.key = key


def _meter(editor: Editor, body: Mapping[str, Any]) -> None:
    """Set the "meter" (beats, their value, and "", "common" or "cut") of all parts from a measure on; null: none."""
    index, value = integer(body, "measure"), body.get("meter")
    meter = None if value is None else _to_meter(value)
    for part in range(len(editor.music.parts)):
        measures = editor.measures(part)
        before = [_valid(measures, m).length for m in range(index, len(measures))]
        editor.bar(part, index).measure.meter = meter
        measures = editor.measures(part)
        for m in range(index, len(measures)):
            if m > index and measures[m].meter is not None:
                break
            if _valid(measures, m).length != before[m - index]:
                editor.solve(part, m)


def _valid(measures: list[Measure], index: int) -> Signatures:
    found = signatures_before(measures, index)
    found.enter(measures[index])
    return found


def _to_meter(value: Any) -> tuple[int, int, str]:
    if isinstance(value, list) and len(value) == 3 and value[2] in ("", "common", "cut"):
        beats, unit, sign = value
        is_number = isinstance(beats, int) and not isinstance(beats, bool) and unit in (1, 2, 4, 8, 16, 32)
        if is_number and 1 <= beats <= MAX_BEATS:
            return beats, int(unit), str(sign)
    raise ValueError(f'meter: is {value!r:.60}; expected beats, their value, and "", "common" or "cut"')


def _split(editor: Editor, body: Mapping[str, Any]) -> None:
    """Let a chord or rest begin another measure, in all parts: a bar line that was not found."""
    part, index, entry = _entry(editor, body)
    interline = editor.music.interline(editor.music.bar(part, index).measure.page)
    x = entry.chord.box[0] - interline
    for p in range(len(editor.music.parts)):
        first = copy_bar(editor.music.bar(p, index))
        editor.replace_bars(p, index, index + 1, [first, _cut(first, x)])
        for m in (index, index + 1):
            editor.solve(p, m)


def _cut(bar: Bar, x: float) -> Bar:
    """Cut a bar at a place of the page; it keeps what is to the left, and what is to the right is returned."""
    measure = bar.measure
    right = [entry for entry in bar.entries if entry.chord.box[0] > x]
    time = min((entry.chord.onset for entry in right), default=measure.length)
    for entry in right:
        entry.chord.onset = max(entry.chord.onset - time, time * 0)
    other = replace(measure, number=measure.number, chords=[], new_system=False, key=None, meter=None, left="regular")
    other.boxes = [(max(x, x0), y0, x1, y1) for x0, y0, x1, y1 in measure.boxes]
    other.directions = [
        replace(one, onset=max(one.onset - time, time * 0)) for one in measure.directions if one.box[0] > x
    ]
    other.clefs = [(staff, at - time, clef) for staff, at, clef in measure.clefs if at > 0 and at >= time]
    other.repeat_start = other.ending_start = False
    measure.boxes = [(x0, y0, min(x, x1), y1) for x0, y0, x1, y1 in measure.boxes]
    measure.directions = [one for one in measure.directions if one.box[0] <= x]
    measure.clefs = [one for one in measure.clefs if one[1] == 0 or one[1] < time]
    measure.right, measure.repeat_end, measure.ending_stop = "regular", False, False
    bar.entries = [entry for entry in bar.entries if entry.chord.box[0] <= x]
    bar.sort()
    result = Bar(other, right)
    result.sort()
    return result


def _join(editor: Editor, body: Mapping[str, Any]) -> None:
    """Join a measure with the next one of its system, in all parts; the bar line between them was no bar line."""
    index = integer(body, "measure")
    following = editor.music.bar(0, index + 1).measure
    if following.new_system:
        raise ValueError(f"measure: {following.number} begins a system; expected a measure of the same system")
    for p in range(len(editor.music.parts)):
        first, second = copy_bar(editor.music.bar(p, index)), copy_bar(editor.music.bar(p, index + 1))
        _append(first, second)
        editor.replace_bars(p, index, index + 2, [first])
        editor.solve(p, index)


def _append(bar: Bar, other: Bar) -> None:
    """Add the content of the next bar to a bar."""
    measure, later, length = bar.measure, other.measure, bar.measure.length
    for entry in other.entries:
        entry.chord.onset += length
    bar.entries += other.entries
    bar.dropped += other.dropped
    pairs = zip(measure.boxes, later.boxes, strict=True)
    measure.boxes = [(x0, y0, x1, y1) for (x0, y0, _, y1), (_, _, x1, _) in pairs]
    measure.directions = [*measure.directions, *(replace(one, onset=one.onset + length) for one in later.directions)]
    measure.clefs = [*measure.clefs, *((staff, at + length, clef) for staff, at, clef in later.clefs)]
    measure.right, measure.repeat_end, measure.ending_stop = later.right, later.repeat_end, later.ending_stop
    measure.length = length + later.length
    bar.sort()


def _reading(editor: Editor, body: Mapping[str, Any]) -> None:
    """Give a bar its next reading."""
    part, index, bar = _place(editor, body)
    if not next_reading(bar, editor.frame(part, index)):
        raise ValueError(f"measure: {bar.measure.number} has no other reading; expected one with several")


def _accept(editor: Editor, body: Mapping[str, Any]) -> None:
    """Mark a bar of all parts as right."""
    index = integer(body, "measure")
    for part in range(len(editor.music.parts)):
        measure = editor.bar(part, index).measure
        measure.problem, measure.confidence = "", 1.0


KINDS: dict[str, Callable[[Editor, Mapping[str, Any]], None]] = {
    "pitch": _pitch,
    "accidental": _accidental,
    "duration": _duration,
    "voice": _voice,
    "tie": _tie,
    "delete": _delete,
    "clef": _clef,
    "key": _key,
    "meter": _meter,
    "split": _split,
    "join": _join,
    "reading": _reading,
    "accept": _accept,
    **SYMBOL_KINDS,
}
