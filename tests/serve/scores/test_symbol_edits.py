from __future__ import annotations

import copy
from typing import Any

import pytest
from tests.serve.scores.conftest import LEFT, TOPS, WIDTH

from entourage.serve.scores.bars import Music
from entourage.serve.scores.edits import make_edit


def edited(music: Music, kind: str, symbol: int = 0, **values: Any) -> Music:
    """Return the music after a correction of a symbol."""
    _, changes = make_edit(music, {"kind": kind, "page": 0, "symbol": symbol, **values})
    result = copy.deepcopy(music)
    for key, value in changes.items():
        result.apply(key, value)
    return result


def upper(music: Music, measure: int) -> list[tuple[float, str, str]]:
    chords = music.bar(0, measure).measure.chords
    return [(float(c.onset), c.value, " ".join(str(n.pitch) for n in c.notes)) for c in chords if c.staff == 1]


def test_a_note_gets_the_value_of_its_new_class(music: Music) -> None:
    half = edited(music, "class", 0, name="noteheadHalfOnLine")
    assert upper(half, 0)[0] == (0.0, "half", "G4")
    symbol = half.symbols[0][0]
    assert symbol is not None
    assert (symbol.name, symbol.score) == ("noteheadHalfOnLine", 1.0)


def test_a_note_becomes_a_rest(music: Music) -> None:
    rest = edited(music, "class", 1, name="restQuarter")
    assert upper(rest, 0)[:2] == [(0.0, "quarter", "G4"), (1.0, "quarter", "")]
    other = edited(music, "class", 1, name="stem")  # no music at all
    assert len(upper(other, 0)) == 2


def test_the_pitch_follows_the_box(music: Music) -> None:
    symbol = music.symbols[0][0]
    assert symbol is not None
    x0, y0, x1, y1 = symbol.box
    moved = edited(music, "box", 0, box=[x0, y0 - 10, x1, y1 - 10])
    assert upper(moved, 0)[0][2] == "B4"
    assert moved.bar(0, 0).measure.chords[0].notes[0].box == (x0, y0 - 10, x1, y1 - 10)


def test_a_symbol_is_removed_with_its_note_and_added_again(music: Music) -> None:
    symbol = music.symbols[0][1]
    assert symbol is not None
    removed = edited(music, "remove", 1)
    assert removed.symbols[0][1] is None
    assert [name for _, _, name in upper(removed, 0)] == ["G4", "D5 F#5"]
    added = edited(removed, "add", name="noteheadBlackOnLine", box=list(symbol.box))
    assert upper(added, 0) == upper(music, 0)


def test_a_head_in_the_column_of_a_chord_belongs_to_it(music: Music) -> None:
    x = LEFT + 20
    added = edited(music, "add", name="noteheadBlackOnLine", box=[x + 1, TOPS[0] + 35, x + 13, TOPS[0] + 45])
    assert upper(added, 0)[0] == (0.0, "quarter", "E4 G4")


def test_an_accidental_belongs_to_the_note_to_its_right(music: Music) -> None:
    note = music.bar(0, 2).measure.chords[0].notes[0]  # G4
    x0, y0, _, y1 = note.box
    added = edited(music, "add", name="accidentalSharp", box=[x0 - 14, y0 - 6, x0 - 4, y1 + 6])
    assert upper(added, 2)[0][2] == "G#4"


def test_other_symbols_change_no_music(music: Music) -> None:
    body = {"kind": "add", "page": 0, "name": "beam", "box": [LEFT, TOPS[0], LEFT + WIDTH, TOPS[0] + 9]}
    _, changes = make_edit(music, body)
    assert list(changes) == ["symbol/0/19"]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"kind": "add", "name": "noteheadGreen", "box": [0, 0, 9, 9]}, "name"),
        ({"kind": "add", "name": "stem", "box": [0, 0, 9]}, "box"),
        ({"kind": "add", "name": "stem", "box": [0, 0, 9, True]}, "box"),
        ({"kind": "add", "name": "stem", "box": [0, 0, float("nan"), 9]}, "box"),
        ({"kind": "box", "box": [5, 0, 2, 9]}, "box"),
        ({"kind": "box", "box": [0, 0, 9, 1e9]}, "box"),
        ({"kind": "remove", "symbol": 500}, "symbol"),
    ],
)
def test_invalid_corrections_raise(music: Music, fields: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}: .*expected"):
        edited(music, **fields)
