from fractions import Fraction

import numpy as np

from entourage.read.assemble import SystemReading
from entourage.read.attachments import attach
from entourage.read.layout.systems import Layout, StaffLines, System
from entourage.read.score import Box, Chord, Measure, Note, Pitch
from entourage.read.spans import Span
from entourage.read.symbols.glyphs import Event, Glyph, Head

MIDDLE = 100.0


def reading(xs: list[float], steps: list[int]) -> tuple[Layout, SystemReading]:
    """Return a system with one measure of quarter notes at some places and positions."""
    staff = StaffLines(np.array([0.0, 800.0]), np.full(2, MIDDLE))
    system = System([staff], groups=[(0,)])
    events, chords = [], []
    for k, (x, step) in enumerate(zip(xs, steps, strict=True)):
        y = MIDDLE - 5 * step
        box: Box = (x - 6, y - 5, x + 6, y + 5)
        head = Head(Glyph("noteheadBlackOnLine", np.array(box), 0.9), 0, step, "black", False)
        events.append(Event(0, x, [head], None, "quarter", 0, np.array(box)))
        note = Note(Pitch(4, "CDEFGAB"[step % 7]), step, box)
        chords.append(Chord(Fraction(k), Fraction(1), "quarter", 0, [note], 1, 1, box))
    measure = Measure(1, Fraction(4), chords)
    span = Span(0.0, 800.0, None, events, [])
    found = SystemReading(system, [span], [[measure]])
    found.chords = [(event, chord, 0, 0) for event, chord in zip(events, chords, strict=True)]
    return Layout([system], np.zeros((300, 800), dtype=bool)), found


def mark(name: str, x: float, y: float, width: float = 8, height: float = 8) -> Glyph:
    """Return a symbol around a point."""
    return Glyph(name, np.array([x - width / 2, y - height / 2, x + width / 2, y + height / 2]), 0.9)


def test_a_tie_joins_neighbours_of_one_pitch() -> None:
    layout, found = reading([100, 200], [0, 0])
    attach(layout, found, [mark("tie", 150, MIDDLE + 8, 84, 6)])
    first, second = found.parts[0][0].chords
    assert (first.notes[0].tied_to, second.notes[0].tied_from) == (True, True)


def test_a_slur_over_two_equal_neighbours_is_a_tie() -> None:
    layout, found = reading([100, 200], [0, 0])
    attach(layout, found, [mark("slur", 150, MIDDLE + 8, 84, 6)])
    assert found.parts[0][0].chords[0].notes[0].tied_to
    assert not found.parts[0][0].chords[0].slurs


def test_a_slur_over_three_notes_is_not_a_tie() -> None:
    layout, found = reading([100, 200, 300], [0, 1, 0])
    attach(layout, found, [mark("slur", 200, MIDDLE + 8, 184, 6)])
    chords = found.parts[0][0].chords
    assert [slur[1] for chord in chords for slur in chord.slurs] == ["start", "stop"]
    assert chords[0].slurs[0][1] == "start"
    assert not any(note.tied_to for chord in chords for note in chord.notes)


def test_a_staccato_belongs_to_the_chord_below() -> None:
    layout, found = reading([100, 200], [0, 0])
    attach(layout, found, [mark("articStaccatoAbove", 200, MIDDLE - 15)])
    assert [chord.articulations for chord in found.parts[0][0].chords] == [[], ["staccato"]]


def test_letters_form_dynamics_at_the_time_of_the_note() -> None:
    layout, found = reading([100, 200], [0, 0])
    attach(layout, found, [mark("dynamicM", 195, MIDDLE + 45), mark("dynamicF", 204, MIDDLE + 45)])
    (direction,) = found.parts[0][0].directions
    assert (direction.kind, direction.value, direction.onset, direction.placement) == ("dynamics", "mf", 1, "below")


def test_a_hairpin_starts_and_stops() -> None:
    layout, found = reading([100, 200, 300], [0, 1, 2])
    attach(layout, found, [mark("dynamicCrescendoHairpin", 200, MIDDLE + 45, 200, 10)])
    kinds = [(direction.value, direction.onset) for direction in found.parts[0][0].directions]
    assert kinds[0] == ("crescendo", 0)
    assert kinds[1][0] == "stop"
