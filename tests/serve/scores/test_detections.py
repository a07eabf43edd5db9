from __future__ import annotations

from pathlib import Path

import pytest
from tests.serve.scores.conftest import write_detections

from entourage.detect.evaluation.ground_truth import read_ground_truth
from entourage.serve.scores.detections import page_names, page_sources, read_page_symbols
from entourage.serve.scores.saving import CORRECTED, TRAINING, save_score
from entourage.serve.scores.session import OpenScore, ReadingSession


@pytest.fixture
def found(tmp_path: Path) -> Path:
    """A folder as `entourage detect run` writes it."""
    return write_detections(tmp_path)


@pytest.fixture
def opened(found: Path) -> OpenScore:
    """The first page, whose scan may be shown."""
    return ReadingSession(found, page_names(found), [found.parent], is_detected=True).score(0)


def test_pages_and_their_symbols_are_read(found: Path) -> None:
    assert page_names(found) == ["songs/page", "blank"]
    assert page_sources(found) == [str(found.parent / "page.png")] * 2
    score, symbols = read_page_symbols(found, "songs/page")
    assert (score.pages[0].width, score.pages[0].interline, len(score.parts)) == (600, 10.0, 0)
    assert symbols[1] == {"class": "noteheadBlackOnLine", "score": 0.9, "box": [200.0, 115.0, 212.0, 125.0]}
    with pytest.raises(ValueError, match=r"has no page 'x'; expected one of songs/page"):
        read_page_symbols(found, "x")


def test_symbols_are_corrected_and_saved_as_training_data(opened: OpenScore, found: Path) -> None:
    assert opened.state()["measures"] == []
    assert len(opened.page(0)["symbols"]) == 3
    opened.edit({"kind": "class", "page": 0, "symbol": 1, "name": "noteheadHalfOnLine"}, 0)
    opened.edit({"kind": "add", "page": 0, "name": "restQuarter", "box": [300, 105, 310, 135]}, 1)
    opened.edit({"kind": "remove", "page": 0, "symbol": 2}, 2)
    again = ReadingSession(found, page_names(found), [found.parent], is_detected=True).score(0)
    assert again.page(0)["symbols"] == opened.page(0)["symbols"]
    assert [file.name for file in save_score(again)] == ["songs_page.json"]
    (page,) = read_ground_truth(found / CORRECTED / TRAINING, "train")
    assert page.interline == pytest.approx(10.0, rel=0.001)
    assert sorted(map(str, page.labels)) == ["noteheadHalfOnLine", "restQuarter", "staff"]


@pytest.mark.parametrize("text", ["", "[]", '{"categories": 3}'])
def test_damaged_results_raise(found: Path, text: str) -> None:
    other = found.parent / "other"
    found.rename(other)
    (other / "coco.json").write_text(text)
    with pytest.raises(ValueError, match=r"other: damaged: .*expected the results"):
        page_names(other)
