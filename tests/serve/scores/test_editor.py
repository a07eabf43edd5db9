from __future__ import annotations

from fractions import Fraction

import pytest

from entourage.serve.scores.bars import Music, bar_key, bar_to_json, copy_bar, symbol_key
from entourage.serve.scores.editor import Editor


def test_bars_are_copied_before_they_change(music: Music) -> None:
    before, editor = bar_to_json(music.bar(0, 2)), Editor(music)
    editor.bar(0, 2).measure.problem = "reason"
    assert editor.bar(0, 2) is editor.bar(0, 2)
    assert [measure.problem for measure in editor.measures(0)] == ["", "", "reason", ""]
    assert bar_to_json(music.bar(0, 2)) == before
    assert list(editor.changes()) == [bar_key(0, 2)]


def test_pitches_follow_a_change_within_the_block(music: Music) -> None:
    editor = Editor(music)
    with editor.pitches(0, 0, 2):
        editor.bar(0, 0).measure.key = -1
    assert [str(note.pitch) for note in editor.bar(0, 0).measure.chords[2].notes] == ["D5", "F5"]
    assert [str(note.pitch) for note in music.bar(0, 0).measure.chords[2].notes] == ["D5", "F#5"]


def test_a_frame_has_the_length_that_the_metre_gives(music: Music) -> None:
    editor = Editor(music)
    frames = [editor.frame(0, index) for index in range(4)]
    assert {(frame.length, frame.n_staves, frame.interline) for frame in frames} == {(Fraction(4), 2, 10.0)}
    assert [frame.may_be_short for frame in frames] == [True, False, False, True]
    editor.bar(0, 1).measure.meter = (6, 8, "")
    assert editor.frame(0, 2).length == Fraction(3)


def test_bars_are_replaced_by_another_number_of_bars(music: Music) -> None:
    editor = Editor(music)
    editor.replace_bars(0, 1, 3, [copy_bar(music.bar(0, 1))])
    assert (editor.n_measures(0), [measure.number for measure in editor.measures(0)]) == (3, [1, 2, 3])
    assert editor.changes()[bar_key(0, 3)] is None
    assert [bar.measure.number for bar in music.bars[0]] == [1, 2, 3, 4]


def test_symbols_are_set_and_removed(music: Music) -> None:
    editor = Editor(music)
    editor.set_symbol(0, 3, None)
    assert editor.changes() == {symbol_key(0, 3): None}
    assert music.symbols[0][3] is not None
    with pytest.raises(ValueError, match=r"symbol: 99 of page 1 does not exist"):
        editor.symbol(0, 99)
