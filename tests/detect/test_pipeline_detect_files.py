from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image
from tests.detect.synthetic import SquareFinder, staff_page, with_squares

from entourage.detect.detector import Detector
from entourage.detect.inference.results import PageResult, open_records, write_xml
from entourage.detect.pipeline import detect_files
from entourage.detect.preprocessing.prepare import PreparedPage

PAGE = with_squares(staff_page(20.0, 800, 600), [(100, 30, 20)])


@pytest.mark.parametrize("error", [MemoryError(), cv2.error("a resize failed")])
def test_unfinished_pages_are_processed_and_failures_do_not_stop_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    detector = Detector(SquareFinder(), device="cpu")  # type: ignore[arg-type]
    several, one, broken = (tmp_path / name for name in ("a.tif", "b.png", "c.png"))
    pages = [Image.fromarray(page) for page in (PAGE, np.roll(PAGE, 7, axis=1), np.full((640, 480), 255, np.uint8))]
    pages[0].save(several, save_all=True, append_images=pages[1:])
    pages[0].save(one)
    broken.write_bytes(b"no image")
    prepare = detector.prepare

    def fails_on_blank(image: np.ndarray) -> PreparedPage:
        if image.min() == 255:
            raise error
        return prepare(image)

    monkeypatch.setattr(detector, "prepare", fails_on_blank)
    with open_records(tmp_path / "out", {}, detector.classes, [several, one, broken]) as records:
        pass
    skipped: dict[str, Exception] = {}
    files: list[int] = []
    found = list(detect_files(detector, records, skipped.__setitem__, files.append))
    assert [(file.name, raw_page.number) for file, raw_page, _ in found] == [
        ("a.tif", 1),
        ("a.tif", 2),
        ("b.png", None),
    ]
    assert [result.detections.boxes[0].tolist() for _, _, result in found[:2]] == [
        [100, 30, 120, 50],
        [107, 30, 127, 50],
    ]
    assert set(skipped) == {f"{several}#3", str(broken)}
    assert len(files) == 3
    for (file, raw_page, result), name in zip(found[1:], ("a-2", "b"), strict=True):
        page = PageResult(name, str(file), 600, 800, result.detections, 20.0, 0.1, "", raw_page.number)
        write_xml(records.out, page)
        records.add(page)
    again = detect_files(detector, records, skipped.__setitem__, files.append)
    assert [(file.name, raw_page.number) for file, raw_page, _ in again] == [("a.tif", 1)]
