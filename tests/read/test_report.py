from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from lxml import etree
from numpy.typing import NDArray
from PIL import Image
from tests.read.small import melody, score_of

from entourage.read.reader import ScoreReader, Transcription
from entourage.read.report import (
    ReportScore,
    image_data_uri,
    number_measures,
    report_pages,
    write_report,
)

SUMMARY = {
    "pages": 1,
    "notes": 6,
    "measures": 2,
    "marked": 1,
    "complete": True,
    "skipped": [{"item": "<b>", "reason": "x & y"}],
}


@pytest.fixture
def score(reader: ScoreReader, tmp_path: Path, melody_page: NDArray[np.uint8]) -> Transcription:
    Image.fromarray(melody_page).save(tmp_path / "a.png")
    score = reader.read(tmp_path / "a.png")
    score.measures[1].problem = "a voice is <short>"
    score.measures[0].confidence = 0.3
    return score


def entry(score: Transcription, name: str = "a & b") -> dict[str, object]:
    return {"name": name, "files": ["a & b.mid"], "parts": 1, "measures": 2, "notes": score.n_notes, "marked": 1}


def test_the_report_is_one_file_with_both_pictures(score: Transcription, tmp_path: Path) -> None:
    write_report(tmp_path / "r.html", [ReportScore("a & b", score)], {**SUMMARY, "scores": [entry(score)]})
    html = (tmp_path / "r.html").read_text()
    assert html.count("data:image/jpeg;base64,") == 1
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', html)
    tree = etree.HTML(html)
    marks = tree.xpath("//g[contains(concat(' ', @class, ' '), ' m ')]")
    assert [(mark.get("data-m"), mark.get("class"), mark.get("tabindex")) for mark in marks] == [
        ("0", "m unsure", "0"),
        ("1", "m marked", "-1"),
    ]
    assert marks[1].get("aria-label").endswith("; Part 1: a voice is <short>")
    assert [g.get("data-m") for g in tree.xpath("//div[@class='engraving']//g[@class='measure']")] == ["0", "1"]
    assert "<b>" not in re.sub(r"<script type=.*", "", html, flags=re.DOTALL)
    assert tree.xpath("//ul[@class='marks']//button/@data-m") == ["1"]
    assert "a%20%26%20b.mid" in html


def test_measures_lie_where_they_were_read(score: Transcription) -> None:
    (page,) = report_pages(score)
    assert (page.width, page.height, page.source) == (1100, 400, score.pages[0].source)
    for mark, one in zip(page.measures, score.measures, strict=True):
        x0, y0, x1, y1 = one.boxes[0]
        assert (mark.box[0], mark.box[2]) == (x0, x1)
        assert mark.box[1] < y0 < y1 < mark.box[3]
    assert [mark.state for mark in page.measures] == ["unsure", "marked"]
    assert page.measures[1].problem_boxes == score.measures[1].boxes


def test_the_number_of_pages_with_pictures_is_limited(score: Transcription, tmp_path: Path) -> None:
    assert report_pages(score, 0) == []
    score.pages = score.pages * 30
    write_report(tmp_path / "r.html", [ReportScore("a", score)], {**SUMMARY, "scores": [entry(score, "a")]})
    html = (tmp_path / "r.html").read_text()
    assert html.count('class="page"') == 24
    assert "6 pages of this score without a picture here" in html


def test_a_page_that_is_gone_has_no_picture(score: Transcription, tmp_path: Path) -> None:
    (tmp_path / "a.png").unlink()
    (page,) = report_pages(score)
    assert page.picture == ""
    assert page.engraving


def test_a_score_without_place_on_a_page_has_no_marks() -> None:
    score = Transcription(melody().parts)
    assert report_pages(score) == []
    assert report_pages(Transcription(score_of().parts)) == []


def test_measures_are_numbered_and_ids_removed() -> None:
    svg = (
        '<svg>\n <g id="x1" class="note"> </g> <g id="m" class="measure"> <g id="E050-a"> </g></g>\n'
        '<g id="k" class="measure"></g></svg>'
    )
    found, count = number_measures(svg, 5)
    assert count == 2
    assert found == (
        '<svg><g class="note"></g><g class="measure" data-m="5"><g id="E050-a"></g></g>'
        '<g class="measure" data-m="6"></g></svg>'
    )


def test_scans_are_reduced() -> None:
    small = image_data_uri(np.full((300, 400), 255, dtype=np.uint8))
    large = image_data_uri(np.full((4000, 5000), 255, dtype=np.uint8))
    assert small.startswith("data:image/jpeg;base64,")
    assert len(large) < 60_000
