"""Tests of the reading of a drawn system: onsets, pitches, metres and grace notes."""

from __future__ import annotations

from fractions import Fraction

import pytest
from tests.read.drawn import MIDDLES, Page

from entourage.read.assemble import SystemReading, read_symbols
from entourage.read.rhythm.crossing import Method


def page_of_quarters() -> Page:
    """Return two measures of four quarter notes above two half notes."""
    page = Page()
    page.clef(0, "clefG")
    page.clef(1, "clefF")
    for start in (100, 370):
        for k in range(4):
            page.note(0, start + 50 * k, k)
        for k in range(2):
            page.note(1, start + 100 * k, 0, "Half")
    return page


def read(page: Page, method: Method = "search") -> SystemReading:
    _, (reading,) = read_symbols(page.image, page.detections(), method=method)
    return reading


@pytest.mark.parametrize("method", ["rules", "search", "game"])
def test_notes_have_onsets_durations_and_pitches(method: Method) -> None:
    for measure in read(page_of_quarters(), method).parts[0]:
        notes = {(c.staff, c.onset, c.duration, str(c.notes[0].pitch)) for c in measure.chords}
        upper = {(1, Fraction(k), Fraction(1), pitch) for k, pitch in enumerate(("B4", "C5", "D5", "E5"))}
        assert notes == upper | {(2, Fraction(k), Fraction(2), "D3") for k in (0, 2)}
        assert measure.problem == ""


def test_a_metre_that_is_not_printed_is_inferred_and_marked() -> None:
    first, second = read(page_of_quarters()).parts[0]
    assert (first.meter, second.meter) == ((4, 4, "hidden"), None)
    assert (first.length, second.length) == (4, 4)


def test_an_accidental_is_valid_until_the_end_of_the_measure() -> None:
    page = Page()
    page.clef(0, "clefG")
    page.clef(1, "clefF")
    for start in (100, 370):
        for k in range(4):
            page.note(0, start + 50 * k, 1)
        page.note(1, start, 0, "Half")
        page.note(1, start + 100, 0, "Half")
    y = MIDDLES[0] - 5
    page.add("accidentalSharp", 130, y - 12, 139, y + 12)  # before the second note of the first measure
    first, second = read(page).parts[0]
    upper = [[str(c.notes[0].pitch) for c in m.chords if c.staff == 1] for m in (first, second)]
    assert upper == [["C5", "C#5", "C#5", "C#5"], ["C5"] * 4]
    assert [c.notes[0].accidental for c in first.chords if c.staff == 1] == ["", "sharp", "", ""]


def test_a_grace_note_has_the_onset_of_the_next_chord() -> None:
    page = page_of_quarters()
    y = MIDDLES[0] - 5
    page.add("noteheadBlackInSpaceSmall", 132, y - 3, 140, y + 3)
    first = read(page).parts[0][0]
    (grace,) = [chord for chord in first.chords if chord.grace]
    assert (grace.onset, grace.duration, str(grace.notes[0].pitch)) == (1, 0, "C5")


def test_a_figure_of_another_system_makes_no_triplet() -> None:
    page = page_of_quarters()
    page.add("tuplet3", 145, 285, 153, 295)
    assert all(chord.tuplet is None for measure in read(page).parts[0] for chord in measure.chords)
