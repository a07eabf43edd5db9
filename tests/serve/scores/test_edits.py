from __future__ import annotations

import copy
from typing import Any

import pytest

from entourage.serve.scores.bars import Music, bar_key, bar_to_json
from entourage.serve.scores.edits import KINDS, make_edit


def edited(music: Music, kind: str, measure: int = 0, chord: int = 0, note: int = 0, **values: Any) -> Music:
    """Return the music after a correction."""
    body = {"kind": kind, "part": 0, "measure": measure, "chord": chord, "note": note, **values}
    _, changes = make_edit(music, body)
    result = copy.deepcopy(music)
    for key, value in changes.items():
        result.apply(key, value)
    return result


def names(music: Music, measure: int, staff: int = 1) -> list[str]:
    chords = music.bar(0, measure).measure.chords
    return [" ".join(str(note.pitch) for note in one.notes) for one in chords if one.staff == staff]


def test_a_note_is_moved_by_steps_in_the_key(music: Music) -> None:
    assert names(edited(music, "pitch", 0, 0, steps=-1), 0) == ["F#4", "B4", "D5 F#5"]
    assert names(edited(music, "pitch", 0, 0, steps=7), 0)[0] == "G5"
    assert names(edited(music, "pitch", 0, 2, steps=9), 0)[2] == "F#5 F#6"  # notes stay in order
    with pytest.raises(ValueError, match="steps: is 99; expected"):
        edited(music, "pitch", steps=99)


def test_an_accidental_changes_later_notes_of_its_measure(music: Music) -> None:
    flat = edited(music, "accidental", 2, 1, accidental="natural")
    assert names(flat, 2) == ["G4", "F5"]
    assert names(flat, 3) == ["F#5"]
    assert names(edited(flat, "accidental", 2, 1, accidental=""), 2) == ["G4", "F#5"]
    with pytest.raises(ValueError, match="accidental: is 'up'; expected"):
        edited(music, "accidental", accidental="up")


def test_a_tie_joins_notes_of_one_pitch_and_carries_the_accidental(music: Music) -> None:
    tied = edited(music, "tie", 2, 1)
    assert tied.bar(0, 2).measure.chords[1].notes[0].tied_to
    assert tied.bar(0, 3).measure.chords[0].notes[0].tied_from
    natural = edited(tied, "accidental", 2, 1, accidental="natural")
    assert (names(natural, 2)[1], names(natural, 3)) == ("F5", ["F5"])
    moved = edited(tied, "pitch", 2, 1, steps=1)  # ends the tie
    assert not moved.bar(0, 2).measure.chords[1].notes[0].tied_to
    assert not moved.bar(0, 3).measure.chords[0].notes[0].tied_from
    with pytest.raises(ValueError, match=r"note: .* G4 .*; expected one to tie it to"):
        edited(music, "tie", 0, 0)


def test_durations_are_fixed_and_the_measure_is_solved_again(music: Music) -> None:
    longer = edited(music, "duration", 0, 0, value="half", dots=0, tuplet=None)
    chords = [(float(c.onset), c.value) for c in longer.bar(0, 0).measure.chords if c.staff == 1]
    assert chords == [(0.0, "half"), (2.0, "quarter"), (3.0, "quarter")]
    assert longer.bar(0, 0).entries[0].mark.fixed == ["duration"]
    with pytest.raises(ValueError, match=r"tuplet: is .*expected"):
        edited(music, "duration", value="half", dots=0, tuplet=[3])


def test_voices_are_fixed(music: Music) -> None:
    moved = edited(music, "voice", 2, 1, voice=2)
    assert [c.voice for c in moved.bar(0, 2).measure.chords if c.staff == 1] == [1, 2]
    with pytest.raises(ValueError, match="voice: is 5; expected 1 to 4"):
        edited(music, "voice", voice=5)


def test_notes_chords_and_rests_are_removed(music: Music) -> None:
    assert names(edited(music, "delete", 0, 2, 0), 0) == ["G4", "B4", "F#5"]
    shorter = edited(music, "delete", 0, 1, -1)
    assert names(shorter, 0) == ["G4", "D5 F#5"]
    assert len(edited(music, "delete", 1, 4).bar(0, 1).entries) == len(music.bar(0, 1).entries) - 1


def test_a_key_changes_all_measures_until_the_next_key(music: Music) -> None:
    flat = edited(music, "key", 1, key=-2)
    assert [names(flat, m) for m in (0, 2, 3)] == [names(music, 0), ["G4", "F5"], ["F5"]]
    assert names(flat, 1)[2] == "Bb4"
    again = edited(flat, "key", 3, key=1)
    assert (names(again, 2), names(again, 3)) == (["G4", "F5"], ["F#5"])
    assert names(edited(flat, "key", 1, key=None), 3) == ["F#5"]
    with pytest.raises(ValueError, match="key: is 8; expected"):
        edited(music, "key", key=8)


def test_a_clef_changes_its_staff_from_its_time_on(music: Music) -> None:
    clef = {"sign": "F", "line": 4, "octave": 0}
    low = edited(music, "clef", 2, -1, staff=1, clef=clef)
    assert (names(low, 2), names(low, 3)) == (["B2", "A3"], ["A3"])
    assert names(low, 1) == names(music, 1)
    within = edited(music, "clef", 2, 1, staff=1, clef=clef)
    assert (names(within, 2), names(within, 3)) == (["G4", "A3"], ["A3"])
    assert names(edited(within, "clef", 2, 1, staff=1, clef=None), 2) == names(music, 2)
    with pytest.raises(ValueError, match=r"clef: is .*expected sign"):
        edited(music, "clef", staff=1, clef={"sign": "X"})
    with pytest.raises(ValueError, match="staff: is 3; expected 1 to 2"):
        edited(music, "clef", staff=3, clef=clef)


def test_a_metre_solves_the_measures_that_it_is_valid_in(music: Music) -> None:
    short = edited(music, "meter", 1, meter=[3, 4, ""])
    assert [short.bar(0, m).measure.length == 3 for m in range(3)] == [False, True, True]
    assert short.bar(0, 3).measure.problem == "a voice is longer than the measure"
    back = edited(short, "meter", 1, meter=None)
    rhythm = [[(c.onset, c.value) for c in back.bar(0, m).measure.chords] for m in range(4)]
    assert rhythm == [[(c.onset, c.value) for c in music.bar(0, m).measure.chords] for m in range(4)]
    same = make_edit(music, {"kind": "meter", "measure": 1, "meter": [4, 4, "common"]})[1]
    assert list(same) == [bar_key(0, 1)]  # no measure has another length
    with pytest.raises(ValueError, match=r"meter: is .*expected beats"):
        edited(music, "meter", meter=[4, 5, ""])


def test_a_measure_is_accepted(music: Music) -> None:
    accepted = edited(edited(music, "meter", 0, meter=[3, 4, ""]), "accept", 3)
    assert (accepted.bar(0, 3).measure.problem, accepted.bar(0, 3).measure.confidence) == ("", 1.0)


def test_another_reading_changes_the_rhythm_only(music: Music) -> None:
    longer = edited(music, "duration", 0, 0, value="half", dots=0, tuplet=None)
    other = edited(longer, "reading", 0)
    assert bar_to_json(other.bar(0, 0)) != bar_to_json(longer.bar(0, 0))


def test_the_music_before_is_not_changed(music: Music) -> None:
    before = [bar_to_json(bar) for bar in music.bars[0]]
    edited(music, "key", 0, key=3)
    edited(music, "duration", 0, 0, value="half", dots=1, tuplet=None)
    assert [bar_to_json(bar) for bar in music.bars[0]] == before


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"kind": "other"}, "kind"),
        ({"kind": "pitch", "part": 3, "measure": 0, "chord": 0, "note": 0, "steps": 1}, "measure"),
        ({"kind": "pitch", "part": 0, "measure": 0, "chord": 9, "note": 0, "steps": 1}, "chord"),
        ({"kind": "pitch", "part": 0, "measure": 0, "chord": 0, "note": 4, "steps": 1}, "note"),
        ({"kind": "pitch", "part": 0, "measure": 0, "chord": 0, "note": 0}, "steps"),
        ({"kind": "key", "measure": 77, "key": 1}, "measure"),
        ({"kind": "class", "page": 5, "symbol": 0, "name": "stem"}, "symbol"),
    ],
)
def test_invalid_corrections_raise(music: Music, body: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: .*expected"):
        make_edit(music, body)
    assert body["kind"] == "other" or body["kind"] in KINDS


def test_a_measure_is_split_and_joined_again(music: Music) -> None:
    split = edited(music, "split", 1, 2)  # at the third beat of the upper staff
    assert [bar.measure.number for bar in split.bars[0]] == [1, 2, 3, 4, 5]
    assert names(split, 1) + names(split, 2) == names(music, 1)
    assert names(split, 1, 2) + names(split, 2, 2) == names(music, 1, 2)
    left, right = split.bar(0, 1).measure.boxes[0], split.bar(0, 2).measure.boxes[0]
    assert (left[0], left[2], right[2]) == (
        music.bar(0, 1).measure.boxes[0][0],
        right[0],
        music.bar(0, 1).measure.boxes[0][2],
    )
    joined = edited(split, "join", 1)
    rhythm = [[(c.onset, c.value) for c in bar.measure.chords] for bar in joined.bars[0]]
    assert rhythm == [[(c.onset, c.value) for c in bar.measure.chords] for bar in music.bars[0]]
    assert [bar.measure.number for bar in joined.bars[0]] == [1, 2, 3, 4]
    with pytest.raises(ValueError, match=r"measure: 3 begins a system; expected"):
        edited(music, "join", 1)
    with pytest.raises(ValueError, match=r"measure: .*does not exist; expected"):
        edited(music, "join", 3)
