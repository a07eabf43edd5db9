from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from benchmarks.detect_speed import baseline_line

from benchmarks import detect_speed


def test_the_line_of_a_baseline_has_its_time_and_ratio() -> None:
    assert baseline_line("fcos, bfloat16", 0.05, 0.02).split() == ["fcos,", "bfloat16", "50.0", "ms", "2.5", "x"]


@pytest.mark.parametrize(("name", "problem"), [("blank.png", "no staves found"), ("none.png", "no such file")])
def test_a_page_that_cannot_be_measured_is_reported_in_one_line(
    name: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(detect_speed.torch, "set_num_threads", lambda count: None)
    cv2.imwrite(str(tmp_path / "blank.png"), np.full((200, 200), 255, np.uint8))
    monkeypatch.setattr("sys.argv", ["x", "--page", str(tmp_path / name)])
    with pytest.raises(SystemExit, match=problem) as ended:
        detect_speed.main()
    assert "\n" not in str(ended.value)
