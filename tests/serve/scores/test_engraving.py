from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.serve.scores.conftest import piano

from entourage.read.score import Score
from entourage.serve.scores.engraving import Engraver, System, systems_of


@pytest.fixture(scope="module")
def engraver() -> Engraver:
    return Engraver()


def test_systems_are_the_lines_of_the_page() -> None:
    assert systems_of(piano()) == [System(0, 0, 1), System(0, 2, 3)]
    assert systems_of(Score([])) == []


def test_measures_and_notes_have_their_places(engraver: Engraver) -> None:
    score = piano()
    svg = engraver.engrave(score, System(0, 2, 3))
    ET.fromstring(svg)
    assert re.findall(r'data-m="(\d+)"', svg) == ["2", "3"]
    found = set(re.findall(r'data-note="([\d-]+)"', svg))
    expected = {
        f"0-{m}-{c}-{k}"
        for m in (2, 3)
        for c, chord in enumerate(score.parts[0].measures[m].chords)
        for k in range(max(1, len(chord.notes)))
    }
    assert found == expected


def test_a_system_shows_the_key_that_is_valid_there(engraver: Engraver) -> None:
    score = piano()
    for key in (1, 4):
        score.parts[0].measures[0].key = key
        assert engraver.engrave(score, System(0, 2, 3)).count('class="keyAccid"') == 2 * key


def test_nothing_that_the_page_forbids_is_left(engraver: Engraver) -> None:
    score = piano()
    score.parts[0].name = "<script>alert(1)</script>"
    svg = engraver.engrave(score, System(0, 0, 1))
    assert "<style" not in svg
    assert " style=" not in svg
    assert "<script" not in svg
    assert "script&gt;" in svg


def test_every_thread_gets_the_same_engraving(engraver: Engraver) -> None:
    score, system = piano(), System(0, 0, 1)
    first = engraver.engrave(score, system)
    with ThreadPoolExecutor(6) as threads:
        assert set(threads.map(lambda _: engraver.engrave(score, system), range(12))) == {first}
    assert Engraver().engrave(score, system) == first
