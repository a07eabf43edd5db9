"""Copies that a correction changes, on the score `piano` of four measures in G major."""

from __future__ import annotations

import copy
from fractions import Fraction

import pytest

from entourage.read.score import Clef
from entourage.serve.scores.bars import Music, Symbol, bar_key, bar_to_json, symbol_key
from entourage.serve.scores.editor import Editor


def test_bars_are_copied_once_and_the_music_is_not_changed(music: Music) -> None:
    before = copy.deepcopy(music.bar(0, 1))
    editor = Editor(music)
    bar = editor.bar(0, 1)
    bar.entries[0].chord.notes[0].position += 1
    bar.measure.key = 3
    assert editor.bar(0, 1) is bar
    assert music.bar(0, 1) == before
    assert editor.measures(0)[1] is bar.measure
    assert editor.measures(0)[0] is music.bar(0, 0).measure  # not changed, so not copied
    assert editor.n_measures(0) == 4
    with pytest.raises(ValueError, match=r"measure: part 0, measure 4 .*; expected one of the score"):
        editor.bar(0, 4)


def test_changes_are_the_values_of_all_bars_and_symbols_that_were_opened(music: Music) -> None:
    editor = Editor(music)
    assert editor.changes() == {}
    bar = editor.bar(0, 2)
    bar.measure.key = -1
    editor.set_symbol(0, 3, None)
    editor.set_symbol(0, 4, Symbol("restHalf", 1.0, (1.234, 2.0, 3.0, 4.001)))
    assert editor.changes() == {
        bar_key(0, 2): bar_to_json(bar),
        symbol_key(0, 3): None,
        symbol_key(0, 4): {"name": "restHalf", "score": 1.0, "box": [1.23, 2.0, 3.0, 4.0]},
    }
    assert editor.changes()[bar_key(0, 2)]["measure"]["key"] == -1


def test_symbols_are_those_of_a_page(music: Music) -> None:
    editor = Editor(music)
    assert editor.symbol(0, 0) is music.symbols[0][0]
    music.symbols[0][1] = None
    for page, index in ((0, 1), (0, -1), (0, 999), (1, 0), (-1, 0)):
        with pytest.raises(ValueError, match=f"symbol: {index} of page {page + 1} .*; expected one of the page"):
            editor.symbol(page, index)


def test_pitches_follow_the_key_that_is_changed_within_the_block(music: Music) -> None:
    editor = Editor(music)
    with editor.pitches(0, 1, 3):
        editor.bar(0, 1).measure.key = 0
    pitches = [[str(note.pitch) for one in measure.chords for note in one.notes] for measure in editor.measures(0)]
    assert pitches[0] == ["G4", "B4", "D5", "F#5", "G3"]  # before the change
    assert pitches[1] == ["C5", "D5", "B4", "A4", "D3", "F3"]
    assert pitches[2] == ["G4", "F5", "E3", "A3"]
    assert pitches[3][0] == "F#5"  # behind the block, so the caller has to include it
    assert set(editor.changes()) == {bar_key(0, 1), bar_key(0, 2)}


def test_pitches_follow_the_clef_and_a_block_may_end_behind_the_last_measure(music: Music) -> None:
    editor = Editor(music)
    with editor.pitches(0, 3, 9):
        editor.bar(0, 3).measure.clefs = [(1, Fraction(0), Clef("F", 4))]
    assert str(editor.measures(0)[3].chords[0].notes[0].pitch) == "A3"  # the line of F#5 in the treble clef


def test_what_is_valid_in_a_measure(music: Music) -> None:
    editor = Editor(music)
    frames = [editor.frame(0, index) for index in range(4)]
    assert [frame.may_be_short for frame in frames] == [True, False, False, True]
    assert {(frame.n_staves, frame.length, frame.interline) for frame in frames} == {(2, 4, 10.0)}
    editor.bar(0, 1).measure.meter = (3, 4, "")
    editor.bar(0, 2).measure.repeat_start = True
    assert [editor.frame(0, index).length for index in range(4)] == [4, 3, 3, 3]
    assert [editor.frame(0, index).may_be_short for index in range(4)] == [True, False, True, True]


def test_a_bar_is_solved_in_its_copy(music: Music) -> None:
    editor = Editor(music)
    entry = editor.bar(0, 0).entries[0]
    entry.fix("duration")
    entry.chord.value, entry.chord.duration = "half", Fraction(2)
    editor.solve(0, 0)
    assert [(one.onset, one.value) for one in editor.measures(0)[0].chords if one.staff == 1] == [
        (0, "half"),
        (2, "quarter"),
        (3, "quarter"),
    ]
    assert [one.value for one in music.bar(0, 0).measure.chords[:3]] == ["quarter", "quarter", "half"]
