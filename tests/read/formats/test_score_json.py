from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path

import pytest
import torch
from tests.read.small import chord, measure, melody, score_of

from entourage.detect import Detections
from entourage.read.formats.score_json import read_score, score_from_dict, score_to_dict, write_score
from entourage.read.score import Clef, Direction, PageInfo, Score


def test_a_score_read_back_is_equal(tmp_path: Path) -> None:
    score = melody()
    triplet = [chord(Fraction(k, 3), "eighth", "C4", tuplet=(3, 2)) for k in range(3)]
    for note in triplet:
        note.duration = Fraction(1, 3)
    triplet[0].slurs = [(1, "start", "above")]
    triplet[1].notes[0].symbol = 7
    wedge = Direction("wedge", "crescendo", Fraction(1, 3), 1, "below", (1.0, 2.0, 3.0, 4.0), 2)
    clefs = [(1, Fraction(5, 7), Clef("F", 4, -1))]
    third = measure(3, triplet, Fraction(7, 4), directions=[wedge], clefs=clefs, boxes=[(0.25, 1.0, 2.0, 3.0)])
    score.parts[0].measures.append(third)
    score.pages = [PageInfo("a.png", 100, 200, 9.5, 1.5, 90, "turned by 90 degrees")]
    score.title = "Tune"
    write_score(score, tmp_path / "a.json")
    assert read_score(tmp_path / "a.json") == score


def test_symbols_are_listed_page_by_page() -> None:
    score = melody()
    score.pages = [PageInfo("a.png", 100, 200, 9.5)]
    boxes = torch.tensor([[1.0, 2.0, 3.004, 4.0]])
    found = Detections(boxes, torch.tensor([2]), torch.tensor([0.87654]), ("stem", "beam"))
    values = score_to_dict(score, [found])
    assert values["pages"][0]["symbols"] == [{"class": "beam", "score": 0.8765, "box": [1.0, 2.0, 3.0, 4.0]}]
    assert values["onsets"] == [0.0, 4.0, 8.0]
    assert score_from_dict(json.loads(json.dumps(values))) == score


def test_default_values_are_left_out() -> None:
    values = score_to_dict(score_of(measure(1, [chord(0, "quarter", "C4")])))
    note = values["parts"][0]["measures"][0]["chords"][0]["notes"][0]
    assert note == {"pitch": {"octave": 4, "step": "C"}, "position": 0, "box": [0.0, 0.0, 1.0, 1.0]}


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "entourage-score", "version": 2}', '{"format": "entourage-score", "version": 1}'],
)
def test_what_is_no_score_is_an_error(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=r"a\.json: .*; expected the JSON of a score"):
        read_score(path)
    with pytest.raises(ValueError, match=r"missing\.json: .*; expected the JSON of a score"):
        read_score(tmp_path / "missing.json")


def test_a_field_that_is_unknown_is_an_error() -> None:
    values = score_to_dict(Score([], [PageInfo("a", 1, 1, 1.0)]))
    values["pages"][0]["sauce"] = 1
    with pytest.raises(ValueError, match="score: 'sauce'; expected the JSON of a score"):
        score_from_dict(values)
