from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.detect.engraved import some_pages

from entourage.detect.evaluation.ground_truth import class_names, read_truth
from entourage.detect.training.windows import pack_sheets, scaled_page


def test_pages_come_at_the_working_interline_with_their_boxes(tmp_path: Path) -> None:
    pages = read_truth(some_pages(tmp_path / "data"), "train")
    sheets = pack_sheets(pages, class_names(pages), workers=2, progress=False)
    assert len(sheets) == 4
    assert set(sheets.heights) == {160}
    assert set(sheets.widths) == {240}
    image, _ = scaled_page(pages[2])
    assert np.array_equal(sheets.page(2), image)
    known = [row for row, label in enumerate(pages[2].labels) if label is not None]
    rows = slice(sheets.first[2], sheets.first[3])
    assert np.array_equal(sheets.boxes[rows], pages[2].boxes[known] / 2)
    assert [sheets.classes[label - 1] for label in sheets.labels[rows]] == [pages[2].labels[row] for row in known]
    x0, y0, x1, y1 = sheets.boxes[rows][1].astype(int)  # even places at interline 20 are whole pixels at 10
    assert sheets.page(2)[y0:y1, x0:x1].max() == 0


def test_symbols_know_their_page_and_classes_are_counted(tmp_path: Path) -> None:
    pages = read_truth(some_pages(tmp_path / "data"), "train")
    sheets = pack_sheets(pages, ("restQuarter", "staff"), workers=1, progress=False)
    assert sheets.counts().tolist() == [sum(p.labels.count("restQuarter") for p in pages), 4]
    starts = sheets.first[:-1]
    assert sheets.page_of(starts).tolist() == [0, 1, 2, 3]
    assert sheets.page_of(sheets.first[1:] - 1).tolist() == [0, 1, 2, 3]
    sheets.move(torch.device("cpu"))
    assert sheets.pixels.dtype == torch.uint8


def test_pages_of_which_nothing_can_be_learned_are_refused(tmp_path: Path) -> None:
    pages = read_truth(some_pages(tmp_path / "data"), "train")
    with pytest.raises(ValueError, match="none of the 4 pages has a symbol of the 1 classes"):
        pack_sheets(pages, ("coda",), workers=1, progress=False)
