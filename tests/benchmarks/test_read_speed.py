"""Tests of the benchmark of reading, on a small page."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from benchmarks.read_speed import peak_memory, times
from tests.read.small import melody, page_of

from benchmarks import read_speed
from entourage.read import ScoreReader


def test_the_parts_of_reading_are_measured() -> None:
    reader = ScoreReader.load(device="cpu", text=False)
    found = times(reader, page_of(melody()), "rules", 1)
    assert list(found) == ["symbols", "layout", "layout, notes and rhythm", "MusicXML, MIDI and JSON", "page to score"]
    assert found["page to score"] > found["layout, notes and rhythm"] > found["layout"] > 0
    with pytest.raises(ValueError, match="no notes"):
        times(reader, np.full((300, 300), 255, np.uint8), "rules", 1)


def test_memory_is_in_gigabytes() -> None:
    assert 0.05 < peak_memory() < 100


def test_a_page_that_cannot_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cv2.imwrite(str(tmp_path / "blank.png"), np.full((200, 200), 255, np.uint8))
    monkeypatch.setattr(read_speed.torch, "set_num_threads", lambda count: None)
    monkeypatch.setattr("sys.argv", ["x", "--page", str(tmp_path / "blank.png"), "--repeats", "1"])
    with pytest.raises(SystemExit, match="no notes"):
        read_speed.main()
