"""Tests of titles, names of parts, words and lyrics on a drawn page."""

from __future__ import annotations

from fractions import Fraction

from tests.read.drawn import LEFT, MIDDLES, Page

from entourage.read.assemble import SystemReading, read_symbols
from entourage.read.layout.systems import Layout
from entourage.read.text.attach import attach_text
from entourage.read.text.recognition import TextLine, Word


def song() -> tuple[Layout, SystemReading]:
    """Return a page of four quarter notes in each measure above half notes; the two staves are two parts."""
    page = Page()
    page.clef(0, "clefG")
    page.clef(1, "clefF")
    for start in (100, 370):
        for k in range(4):
            page.note(0, start + 50 * k, 0)
        for k in range(2):
            page.note(1, start + 100 * k, 0, "Half")
    page.image[MIDDLES[0] - 20 : MIDDLES[1] + 21, LEFT - 7 : LEFT] = 0  # a bracket
    layout, (reading,) = read_symbols(page.image, page.detections(), method="rules")
    assert reading.system.groups == [(0,), (1,)]
    return layout, reading


def line(text: str, x0: float, y: float, x1: float | None = None, height: float = 20.0) -> TextLine:
    words = text.split()
    step = ((x1 or x0 + 9 * len(text)) - x0) / len(words)
    row = tuple(Word(word, x0 + k * step, x0 + k * step + 12) for k, word in enumerate(words))
    return TextLine(row, (x0, y - height / 2, row[-1].x1, y + height / 2))


def test_headings() -> None:
    layout, reading = song()
    lines = [
        line("Frühling", 300, 5, height=18),
        line("E. Mörike", 50, 8, height=10),
        line("H. Wolf", 600, 8, height=10),
    ]
    headings = attach_text([reading], lines, layout.ink)
    assert headings.title == "Frühling"
    assert headings.authors == [("lyricist", "E. Mörike"), ("composer", "H. Wolf")]


def test_names_of_parts_are_to_the_left_of_the_staves() -> None:
    layout, reading = song()
    names = [line("Voice", LEFT - 38, 100, LEFT - 5), line("Piano", LEFT - 38, 205, LEFT - 5)]
    assert attach_text([reading], names, layout.ink).names == ["Voice", "Piano"]


def test_words_have_the_time_of_the_chord_at_their_beginning() -> None:
    layout, reading = song()
    attach_text([reading], [line("Andante con moto", 95, 62), line("p dolce 3", 200, 240)], layout.ink)
    (tempo,) = [d for d in reading.parts[0][0].directions if d.kind == "words"]
    assert (tempo.value, tempo.onset, tempo.placement) == ("Andante con moto", Fraction(0), "above")
    (dolce,) = [d for d in reading.parts[1][0].directions if d.kind == "words"]
    assert (dolce.value, dolce.onset, dolce.placement) == ("dolce", Fraction(2), "below")


def test_lyrics_are_no_words() -> None:
    layout, reading = song()
    words = [Word(text, 94.0 + 50 * k, 106.0 + 50 * k) for k, text in enumerate(("Im", "wun-", "der", "Mai"))]
    attach_text([reading], [TextLine(tuple(words), (94.0, 140.0, 256.0, 160.0))], layout.ink)
    chords = sorted(reading.parts[0][0].chords, key=lambda chord: chord.onset)
    assert [chord.lyrics[0].text for chord in chords] == ["Im", "wun", "der", "Mai"]
    assert [chord.lyrics[0].syllabic for chord in chords] == ["single", "begin", "end", "single"]
    assert not reading.parts[0][0].directions


def test_signs_and_numbers_are_no_words() -> None:
    layout, reading = song()
    attach_text([reading], [line("mf", 200, 240), line("12", 45, 60), line("Ped.", 100, 240)], layout.ink)
    assert not any(measure.directions for row in reading.parts for measure in row)
