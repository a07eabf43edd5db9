from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.detect.engraved import some_pages

from entourage.detect.evaluation.ground_truth import class_names, read_ground_truth
from entourage.detect.training.windows import pack_pages, scaled_page


def test_pages_and_boxes_are_scaled_to_the_working_interline(tmp_path: Path) -> None:
    pages = read_ground_truth(some_pages(tmp_path / "data"), "train")
    pack = pack_pages(pages, class_names(pages), workers=2, progress=False)
    assert len(pack) == 4
    assert set(pack.heights) == {160}
    assert set(pack.widths) == {240}
    image, _ = scaled_page(pages[2])
    assert np.array_equal(pack.page(2), image)
    labelled = [row for row, label in enumerate(pages[2].labels) if label is not None]
    rows = slice(pack.first[2], pack.first[3])
    assert np.array_equal(pack.boxes[rows], pages[2].boxes[labelled] / 2)
    assert [pack.classes[label - 1] for label in pack.labels[rows]] == [pages[2].labels[row] for row in labelled]
    x0, y0, x1, y1 = pack.boxes[rows][1].astype(int)  # even coordinates at interline 20 are whole pixels at 10
    assert pack.page(2)[y0:y1, x0:x1].max() == 0


def test_pages_of_symbols_and_counts_of_classes(tmp_path: Path) -> None:
    pages = read_ground_truth(some_pages(tmp_path / "data"), "train")
    pack = pack_pages(pages, ("restQuarter", "staff"), workers=1, progress=False)
    assert pack.counts().tolist() == [sum(p.labels.count("restQuarter") for p in pages), 4]
    starts = pack.first[:-1]
    assert pack.page_of(starts).tolist() == [0, 1, 2, 3]
    assert pack.page_of(pack.first[1:] - 1).tolist() == [0, 1, 2, 3]
    pack.move(torch.device("cpu"))
    assert pack.pixels.dtype == torch.uint8


def test_pages_without_symbols_of_the_classes_raise(tmp_path: Path) -> None:
    pages = read_ground_truth(some_pages(tmp_path / "data"), "train")
    with pytest.raises(ValueError, match="pages: none of 4 has a symbol of the 1 classes; expected at least one"):
        pack_pages(pages, ("coda",), workers=1, progress=False)
