from __future__ import annotations

import json
from typing import Any

import pytest
from tests.serve.scores.conftest import piano

from entourage.read.formats.score_json import score_to_dict
from entourage.serve.scores.bars import (
    Bar,
    Entry,
    Mark,
    Music,
    Printed,
    bar_from_json,
    bar_key,
    bar_to_json,
    copy_bar,
    symbol_key,
)


def test_values_give_the_score_that_was_read(music: Music, values: dict[str, Any]) -> None:
    assert score_to_dict(music.score) == score_to_dict(piano())
    assert len(music.symbols[0]) == 19
    assert json.loads(json.dumps(values)) == values


def test_a_bar_is_read_back_with_its_marks(music: Music) -> None:
    bar = copy_bar(music.bar(0, 1))
    bar.entries[2].mark = Mark(["duration"], Printed("half", 1, 3))
    bar.dropped.append(Entry(bar.entries.pop().chord))
    again = bar_from_json(json.loads(json.dumps(bar_to_json(bar))))
    assert again == bar


def test_a_copy_is_changed_alone(music: Music) -> None:
    before = bar_to_json(music.bar(0, 0))
    bar = copy_bar(music.bar(0, 0))
    bar.entries[0].chord.notes[0].position += 3
    bar.entries[0].fix("voice")
    bar.measure.clefs.clear()
    assert bar_to_json(music.bar(0, 0)) == before
    assert bar_to_json(bar) != before


def test_what_is_printed_stays_as_it_was_read_first() -> None:
    entry = Entry(piano().parts[0].measures[0].chords[0])
    entry.fix("duration")
    entry.chord.value = "whole"
    entry.fix("duration")
    assert entry.printed == Printed("quarter", 0, 0)
    assert entry.is_fixed("duration")
    assert not entry.is_fixed("voice")


def test_bars_and_symbols_are_set_by_their_keys(music: Music, values: dict[str, Any]) -> None:
    music.apply(bar_key(0, 1), values[bar_key(0, 2)])
    assert music.bar(0, 1) == music.bar(0, 2)
    music.apply(symbol_key(0, 21), {"name": "stem", "score": 1.0, "box": [1, 2, 3, 4]})
    assert [one and one.name for one in music.symbols[0][19:]] == [None, None, "stem"]
    music.apply(symbol_key(0, 21), None)
    assert music.symbols[0][21] is None


def test_bars_that_do_not_exist_raise(music: Music) -> None:
    with pytest.raises(ValueError, match=r"measure: part 0, measure 4 .*expected"):
        music.bar(0, 4)
    assert isinstance(music.bar(0, 3), Bar)
    assert music.interline(1) == 10.0
