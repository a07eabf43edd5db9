"""Chords and rests of a solved measure: grace notes, pitches, beams and tuplets."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

from entourage.read.rhythm.durations import TICKS
from entourage.read.rhythm.readings import Placed, Reading
from entourage.read.score import STEPS, Beam, Chord, Clef, Note, Pitch
from entourage.read.spans import Context, Span
from entourage.read.symbols.glyphs import Event, Head

ALTER = {"sharp": 1, "flat": -1, "natural": 0, "double-sharp": 2, "flat-flat": -2}
_SHARPS = "FCGDAEB"
_FLATS = "BEADGCF"


def to_chord(placed: Placed, index: dict[int, int]) -> Chord:
    """Return a chord or rest without its notes.

    Args:
        placed: the chord or rest with its rhythm.
        index: for each staff of the system, its number in the part, from 0.
    """
    event, choice = placed.event, placed.choice
    staff = index.get(event.staff, placed.staff)
    direction: Literal["", "up", "down"] = event.stem.direction if event.stem is not None else ""
    return Chord(
        onset=Fraction(placed.onset, TICKS),
        duration=Fraction(choice.ticks, TICKS),
        value=choice.value,
        dots=choice.dots,
        notes=[],
        staff=staff + 1,
        voice=4 * placed.staff + placed.voice + 1,
        box=_box(event),
        stem=direction,
        tuplet=choice.tuplet,
        full_measure=choice.full_measure,
    )


def _box(event: Event) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (float(v) for v in event.box)
    return (x0, y0, x1, y1)


def grace_chords(
    events: list[Event], chords: list[tuple[Event, Chord]], index: dict[int, int], reading: Reading
) -> list[tuple[Event, Chord]]:
    """Return the grace notes, each at the onset of the next chord of its staff, or at the end of the measure."""
    found = []
    for event in events:
        if not event.grace:
            continue
        staff = index[event.staff] + 1
        later = [(e.x, c) for e, c in chords if c.staff == staff and e.x > event.x and not e.is_rest]
        earlier = [(e.x, c) for e, c in chords if c.staff == staff and e.x <= event.x]
        target = min(later, key=lambda item: item[0])[1] if later else None
        voice = (
            target.voice if target else (max(earlier, key=lambda i: i[0])[1].voice if earlier else 4 * (staff - 1) + 1)
        )
        onset = target.onset if target else Fraction(reading.length, TICKS)
        direction: Literal["", "up", "down"] = event.stem.direction if event.stem is not None else ""
        value = event.value if event.value in ("eighth", "16th", "32nd", "half") else "eighth"
        chord = Chord(onset, Fraction(0), value, 0, [], staff, voice, _box(event), direction, grace=event.grace)
        found.append((event, chord))
    return found


def _clef_at(staff: int, x: float, span: Span, context: Context) -> Clef:
    """Return the clef that is valid at a place of a measure."""
    clef = context.clefs.get(staff)
    for sign in span.signs:
        if sign.clef is not None and sign.staff == staff and (sign.x0 + sign.x1) / 2 < x:
            clef = sign.clef
    return clef or Clef()


def set_pitches(chords: list[tuple[Event, Chord]], span: Span, index: dict[int, int], context: Context) -> None:
    """Fill in the notes of chords; pitches depend on clef, key and earlier accidentals of the measure."""
    valid: dict[tuple[int, int], int] = {}
    for event, chord in sorted(chords, key=lambda item: (item[1].onset, not item[1].grace, item[0].x)):
        for head in event.heads:
            clef = _clef_at(head.staff, event.x, span, context)
            diatonic = clef.diatonic(head.position)
            if head.accidental:
                valid[head.staff, diatonic] = ALTER[head.accidental]
            alter = valid.get((head.staff, diatonic), _key_alter(STEPS[diatonic % 7], context.key))
            chord.notes.append(_note(head, Pitch(diatonic // 7, STEPS[diatonic % 7], alter)))
        chord.notes.sort(key=lambda note: (note.pitch.octave, STEPS.index(note.pitch.step)))


def _note(head: Head, pitch: Pitch) -> Note:
    x0, y0, x1, y1 = (float(v) for v in head.glyph.box)
    return Note(pitch, head.position, (x0, y0, x1, y1), head.accidental, confidence=head.glyph.score)


def _key_alter(step: str, key: int) -> int:
    """Return by how many semitones a key signature raises a step."""
    if key > 0:
        return 1 if step in _SHARPS[:key] else 0
    return -1 if step in _FLATS[:-key] else 0


def set_beams(chords: list[tuple[Event, Chord]]) -> None:
    """Set the state of each beam of each chord from the groups of beamed stems and their note values."""
    groups: dict[tuple[int, int], list[tuple[Event, Chord]]] = {}
    for event, chord in chords:
        if event.beam_group is not None and not chord.is_rest:
            groups.setdefault((event.beam_group, chord.voice), []).append((event, chord))
    levels = {"eighth": 1, "16th": 2, "32nd": 3, "64th": 4, "128th": 5}
    for members in groups.values():
        members.sort(key=lambda item: item[0].x)
        counts = [levels.get(chord.value, 0) for _, chord in members]
        if len(members) < 2 or 0 in counts:
            continue
        for k, (event, chord) in enumerate(members):
            chord.beams = [_beam_state(counts, k, level, event) for level in range(counts[k])]


def _beam_state(counts: list[int], k: int, level: int, event: Event) -> Beam:
    """Return the state of a beam level at the k-th chord of a group."""
    stem = event.stem
    left = k > 0 and counts[k - 1] > level
    right = k + 1 < len(counts) and counts[k + 1] > level
    if (
        level
        and left
        and stem is not None
        and stem.left_beams
        and stem.left_beams <= level
        and stem.right_beams > level
    ):
        left = False  # a secondary beam that is interrupted here
    if (
        level
        and right
        and stem is not None
        and stem.right_beams
        and stem.right_beams <= level
        and stem.left_beams > level
    ):
        right = False
    if left and right:
        return "continue"
    if right:
        return "begin"
    if left:
        return "end"
    return "backward hook" if k > 0 and (k + 1 == len(counts) or counts[k - 1] >= counts[k + 1]) else "forward hook"


def set_tuplets(chords: list[tuple[Event, Chord]]) -> None:
    """Mark start and end of each tuplet: chords of a voice with one ratio that together fill a note value."""
    voices: dict[int, list[Chord]] = {}
    for _, chord in chords:
        if not chord.grace:
            voices.setdefault(chord.voice, []).append(chord)
    for row in voices.values():
        row.sort(key=lambda chord: chord.onset)
        start, total = None, Fraction(0)
        for chord in row:
            if chord.tuplet is None:
                start, total = None, Fraction(0)
                continue
            if start is None:
                start, total = chord, Fraction(0)
            total += chord.duration
            unit = total / chord.tuplet[1]
            if unit.numerator == 1 and unit.denominator & (unit.denominator - 1) == 0 and chord is not start:
                start.tuplet_start, chord.tuplet_stop = True, True
                start = None
