from __future__ import annotations

import json
from pathlib import Path

import pytest

from entourage.detect.evaluation.ground_truth import read_ground_truth
from entourage.read.formats.score_json import read_score
from entourage.serve.scores.saving import CORRECTED, TRAINING, list_saved, save_score
from entourage.serve.scores.session import OpenScore, ReadingSession


def test_a_corrected_score_is_written_as_files(opened: OpenScore, reading: Path) -> None:
    body = {"kind": "pitch", "part": 0, "measure": 0, "chord": 0, "note": 0, "steps": 2}
    opened.edit(body, 0)
    files = save_score(opened)
    assert list_saved(reading) == sorted(file.name for file in files) == ["page.json", "page.mid", "page.musicxml"]
    score = read_score(files[0])
    assert str(score.parts[0].measures[0].chords[0].notes[0].pitch) == "B4"
    assert len(json.loads(files[0].read_text())["pages"][0]["symbols"]) == 19
    assert files[1].read_text().count("<step>B</step>") == 3
    assert files[2].read_bytes().startswith(b"MThd")
    before = [file.read_bytes() for file in files]
    save_score(opened)
    assert [file.read_bytes() for file in files] == before


def test_corrected_boxes_are_training_data_of_detect(opened: OpenScore, reading: Path) -> None:
    opened.edit({"kind": "class", "page": 0, "symbol": 0, "name": "noteheadHalfInSpace"}, 0)
    opened.edit({"kind": "remove", "page": 0, "symbol": 1}, 1)
    save_score(opened)
    (page,) = read_ground_truth(reading / CORRECTED / TRAINING, "train")
    assert page.name == "page-1"
    assert page.interline == pytest.approx(10.0, rel=0.001)  # the box of a staff contains its lines
    assert page.path.is_file()
    assert len(page.labels) == 18 + 2  # symbols and staves
    assert page.labels.count("noteheadHalfInSpace") == 1
    box = opened.music.symbols[0][0]
    assert box is not None
    row = page.boxes[page.labels.index("noteheadHalfInSpace")].tolist()
    assert row == list(box.box)


def test_pages_whose_scan_is_not_confirmed_are_no_training_data(reading: Path) -> None:
    opened = ReadingSession(reading, ["page"]).score(0)
    save_score(opened)
    assert not (reading / CORRECTED / TRAINING).exists()
