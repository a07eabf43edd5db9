"""Tests of syllables and the chords they belong to."""

from __future__ import annotations

import numpy as np
import pytest
from tests.read.small import chord

from entourage.read.text.lyrics import Row, attach_lyrics, find_hyphens, is_lyrics, to_rows, to_syllables
from entourage.read.text.recognition import TextLine, Word

PLACES = [50.0, 100.0, 150.0, 200.0, 250.0]


def line(text: str, x0: float = 44.0, step: float = 50.0, y: float = 100.0) -> TextLine:
    """Return a line of words, one at each multiple of `step`; a hyphen by itself is between two of them."""
    words, x = [], x0
    for word in text.split():
        if word == "-":
            words.append(Word("-", x - step / 2, x - step / 2 + 4))
        else:
            words.append(Word(word, x, x + 12))
            x += step
    return TextLine(tuple(words), (x0, y - 12, x, y + 12))


def test_hyphens_divide_words() -> None:
    syllables = to_syllables(line("Früh - ling läßt sein").words)
    assert [(one.text, one.hyphen) for one in syllables] == [
        ("Früh", True),
        ("ling", False),
        ("läßt", False),
        ("sein", False),
    ]
    one, other = to_syllables([Word("Früh-ling", 0, 90)])
    assert (one.text, one.hyphen, other.text, other.hyphen) == ("Früh", True, "ling", False)
    assert (one.x1, other.x0) == (40, 50)


def test_numbers_of_verses_and_punctuation_belong_to_syllables() -> None:
    syllables = to_syllables(line("2. Dem fer - nen ! _").words)
    assert [one.text for one in syllables] == ["2. Dem", "fer", "nen!"]


def test_syllables_belong_to_the_chords_above_them() -> None:
    chords = [chord(k, "quarter", "C4") for k in range(5)]
    row = Row([line("Früh - ling läßt"), line("Band", x0=244)], 30.0)
    page = (np.zeros((200, 400), dtype=np.bool_), 300.0)
    assert not attach_lyrics(row, list(zip(PLACES, chords, strict=True)), 1, False, page)
    found = [[(one.text, one.syllabic, one.verse) for one in c.lyrics] for c in chords]
    assert found == [[("Früh", "begin", 1)], [("ling", "end", 1)], [("läßt", "single", 1)], [], [("Band", "single", 1)]]


def test_a_word_continues_in_the_next_row() -> None:
    chords = [chord(0, "quarter", "C4")]
    page = (np.zeros((200, 400), dtype=np.bool_), 300.0)
    assert attach_lyrics(Row([line("Früh -")], 30.0), [(50.0, chords[0])], 1, False, page)
    assert not attach_lyrics(Row([line("ling")], 30.0), [(50.0, chords[0])], 2, True, page)
    assert [one.syllabic for one in chords[0].lyrics] == ["begin", "end"]


@pytest.mark.parametrize(("height", "expected"), [(2, True), (9, False)])
def test_hyphens_are_found_in_the_ink(height: int, expected: bool) -> None:
    ink = np.zeros((200, 400), dtype=np.bool_)
    ink[100 : 100 + height, 75:80] = True
    row = Row([line("Früh ling")], 30.0)
    syllables = to_syllables(row.words)
    find_hyphens(row, syllables, ink, 300.0)
    assert [one.hyphen for one in syllables] == [expected, False]


def test_rows() -> None:
    lines = [(30.0, line("a")), (55.0, line("c")), (33.0, line("b"))]
    assert [[one.text for one in row.lines] for row in to_rows(lines)] == [["a", "b"], ["c"]]


def test_lyrics_have_syllables_below_chords() -> None:
    assert is_lyrics(Row([line("Früh - ling läßt")], 30.0), PLACES, ())
    assert not is_lyrics(Row([line("dolce")], 30.0), PLACES, ())
    assert is_lyrics(Row([line("Band")], 30.0), PLACES, (32.0,))  # as deep as lyrics elsewhere
    assert not is_lyrics(Row([line("eins zwei drei vier fünf", x0=20.0)], 30.0), PLACES, ())  # between the chords
    assert not is_lyrics(Row([line("Früh - ling läßt")], 30.0), [], ())
