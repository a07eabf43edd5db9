from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import pytest
from music21 import converter, midi, note
from tests.read.small import chord, measure, melody, score_of

from entourage.read.formats.midi import TICKS_PER_QUARTER, playing_order, to_midi, write_midi
from entourage.read.score import Direction, Measure, Part, Score


def events(content: bytes, track: int = 1) -> list[tuple[int, bytes]]:
    """Return time and message of the events of a track, read by music21."""
    file = midi.MidiFile()
    file.readstr(content)
    time, found = 0, []
    for event in file.tracks[track].events:
        if event.isDeltaTime():
            time += event.time
        else:
            found.append((time, event.getBytes()))
    return found


def sounding(content: bytes, track: int = 1) -> list[tuple[float, float, int, int]]:
    """Return onset and end in quarter notes, pitch and velocity of the notes of a track."""
    started: dict[int, tuple[int, int]] = {}
    found = []
    for time, message in events(content, track):
        kind = message[0] & 0xF0
        if kind == 0x90:
            assert message[1] not in started
            started[message[1]] = (time, message[2])
        elif kind == 0x80:
            onset, velocity = started.pop(message[1])
            found.append((onset / TICKS_PER_QUARTER, time / TICKS_PER_QUARTER, message[1], velocity))
    assert not started
    return sorted(found)


def test_notes_have_the_pitch_and_time_of_the_score(tmp_path: Path) -> None:
    write_midi(melody(), tmp_path / "a.mid")
    stream = converter.parse(tmp_path / "a.mid")
    notes = [(n.offset, n.pitch.midi, n.quarterLength) for n in stream.flatten().notes if isinstance(n, note.Note)]
    assert notes == [(0, 67, 1), (1, 69, 1), (2, 78, 2), (4, 72, 0.5), (4.5, 74, 0.5), (5, 71, 1)]
    assert stream.parts[0].partName == "Part 1"


def test_the_first_track_has_tempo_metre_and_key() -> None:
    content = to_midi(melody(), tempo=120)
    assert content[:14] == b"MThd\x00\x00\x00\x06\x00\x01\x00\x02" + TICKS_PER_QUARTER.to_bytes(2, "big")
    messages = [message for _, message in events(content, 0)]
    assert b"\xff\x51\x03" + (500_000).to_bytes(3, "big") in messages
    assert b"\xff\x58\x04\x04\x02\x18\x08" in messages
    assert b"\xff\x59\x02\x01\x00" in messages
    assert messages[-1] == b"\xff\x2f\x00"


def test_tied_notes_are_one_note() -> None:
    first, second = chord(3, "quarter", "C4"), chord(0, "half", "C4 E4")
    first.notes[0].tied_to = second.notes[0].tied_from = True
    content = to_midi(score_of(measure(1, [first]), measure(2, [second])))
    assert [tone[:3] for tone in sounding(content)] == [(3, 6, 60), (4, 6, 64)]


def test_staccato_is_shorter_and_an_accent_louder() -> None:
    row = [chord(0, "quarter", "C4", articulations=["staccato"]), chord(1, "quarter", "D4", articulations=["accent"])]
    assert sounding(to_midi(score_of(measure(1, row)))) == [(0, 0.5, 60, 80), (1, 2, 62, 96)]


def test_grace_notes_sound_before_the_beat_in_their_order() -> None:
    graces = [
        chord(1, "16th", "F4", grace="grace", box=(20.0, 0.0, 25.0, 9.0)),
        chord(1, "16th", "E4", grace="grace", box=(10.0, 0.0, 15.0, 9.0)),
    ]
    for grace in graces:
        grace.duration = Fraction(0)
    tones = sounding(to_midi(score_of(measure(1, [chord(1, "quarter", "G4"), *graces]))))
    assert [tone[:3] for tone in tones] == [(0.75, 0.875, 64), (0.875, 1, 65), (1, 2, 67)]


def test_dynamics_set_the_velocity_until_the_next_one() -> None:
    def dynamic(value: str, onset: int) -> Direction:
        return Direction("dynamics", value, Fraction(onset), 1, "below", (0, 0, 1, 1))

    rows = [[chord(k, "quarter", "C4") for k in range(4)] for _ in range(2)]
    first = measure(1, rows[0], directions=[dynamic("p", 1), dynamic("sf", 2)])
    second = measure(2, rows[1], directions=[dynamic("ff", 3)])
    velocities = [tone[3] for tone in sounding(to_midi(score_of(first, second)))]
    assert velocities == [80, 50, 104, 50, 50, 50, 50, 112]


def test_the_same_key_is_released_before_it_is_struck_again() -> None:
    row = [chord(0, "whole", "C4"), chord(1, "quarter", "C4", voice=2), chord(1, "half", "C4", voice=3)]
    assert [tone[:3] for tone in sounding(to_midi(score_of(measure(1, row))))] == [(0, 1, 60), (1, 3, 60)]


def test_the_pedal_is_a_control_change() -> None:
    pedal = [
        Direction("pedal", "start", Fraction(0), 1, "below", (0, 0, 1, 1)),
        Direction("pedal", "stop", Fraction(2), 1, "below", (0, 0, 1, 1)),
    ]
    content = to_midi(score_of(measure(1, [chord(0, "whole", "C4")], directions=pedal)))
    changes = [(time // TICKS_PER_QUARTER, message[1:]) for time, message in events(content) if message[0] == 0xB0]
    assert changes == [(0, b"\x40\x7f"), (2, b"\x40\x00")]


def test_parts_begin_their_measures_together() -> None:
    upper = Part("Upper", 1, [measure(1, [chord(0, "half", "C5")], 2), measure(2, [chord(0, "quarter", "D5")])])
    lower = Part("Lower", 1, [measure(1, [chord(0, "whole", "C4")], 2), measure(2, [chord(0, "quarter", "D4")])])
    content = to_midi(Score([upper, lower]))
    assert [sounding(content, track)[-1][0] for track in (1, 2)] == [4, 4]


def bars(text: str) -> list[Measure]:
    """Return measures from "|:", ":|" and endings such as "[1": one measure for each word."""
    rows = []
    for number, word in enumerate(text.split(), start=1):
        one = Measure(number, Fraction(4), repeat_start=word.startswith("|:"), repeat_end=word.endswith(":|"))
        one.ending = word.split("[")[1].removesuffix(":|") if "[" in word else ""
        rows.append(one)
    return rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a b c", "123"),
        ("a b:| c", "12123"),
        ("a |:b c:| d", "123234"),
        ("|:a b[1:| c[2 d", "12134"),
        ("|:a b[1 c[1:| d[2 e[2 f", "123" + "1456"),
        ("|:a b[1,2:| c[3 d", "1212134"),
        ("|:a:| |:b:| c", "11223"),
        ("a:| b:| c", "11223"),
        ("|:a b[1:| c[2:| d:|", "1213" + "44"),
        ("|:a |:b:|", "122"),
        ("", ""),
    ],
)
def test_repeats_are_played_as_printed(text: str, expected: str) -> None:
    assert [index + 1 for index in playing_order(bars(text))] == [int(digit) for digit in expected]


def test_repeats_can_be_left_out() -> None:
    score = score_of(measure(1, [chord(0, "whole", "C4")], repeat_end=True), measure(2, [chord(0, "whole", "D4")]))
    assert [tone[2] for tone in sounding(to_midi(score))] == [60, 60, 62]
    assert [tone[2] for tone in sounding(to_midi(score, repeats=False))] == [60, 62]


@pytest.mark.parametrize("tempo", [0, 5, 1001, float("nan")])
def test_a_tempo_out_of_range_is_an_error(tempo: float) -> None:
    with pytest.raises(ValueError, match=r"tempo is .*; expected 10 to 1000"):
        to_midi(melody(), tempo=tempo)


def test_a_score_without_parts_is_a_file_without_notes() -> None:
    file = midi.MidiFile()
    file.readstr(to_midi(Score([])))
    assert len(file.tracks) == 1


def test_more_than_fifteen_parts_avoid_the_channel_of_percussion() -> None:
    parts = [Part(f"Part {k}", 1, [measure(1, [chord(0, "whole", "C4")])]) for k in range(20)]
    content = to_midi(Score(parts))
    channels = {
        message[0] & 0xF for k in range(1, 21) for _, message in events(content, k) if message[0] & 0xF0 == 0x90
    }
    assert channels == set(range(16)) - {9}
