"""Ink of a page: threshold by the paper around it, and the fraction of ink in columns."""

import numpy as np

from entourage.read.layout.ink import binarize, gap_coverage, leaning_coverage
from entourage.read.layout.systems import StaffLines


def test_ink_is_darker_than_halfway_to_the_paper_around_it() -> None:
    paper = np.tile(np.linspace(250, 120, 300), (200, 1))  # uneven illumination
    page = paper.astype(np.uint8)
    page[100:104, :] = (0.2 * paper[100:104]).astype(np.uint8)
    ink = binarize(page)
    assert ink[101:103, 20:280].all()
    assert not ink[:90].any()


def test_columns_next_to_ink_are_covered() -> None:
    ink = np.zeros((20, 10), dtype=bool)
    ink[:10, 4] = ink[10:, 5] = True  # a line that leans by a pixel
    assert leaning_coverage(ink, 2, 8, 0, 20).tolist() == [0, 0.5, 1, 1, 0.5, 0]


def test_gaps_between_staves_are_measured_in_columns() -> None:
    x = np.array([0.0, 100.0])
    above, below = StaffLines(x, np.array([50.0, 50.0])), StaffLines(x, np.array([150.0, 150.0]))
    ink = np.zeros((200, 100), dtype=bool)
    ink[:, 40] = True
    covered = gap_coverage(above, below, ink, 38, 42)
    assert covered.tolist() == [0, 1, 1, 1, 0]
    assert gap_coverage(above, below, ink, 90, 80).size == 0


def test_faint_lines_on_grey_paper_are_ink() -> None:
    image = np.full((120, 120), 180, dtype=np.uint8)
    image[60:62] = 90
    ink = binarize(image)
    assert ink[60:62].all()
    assert ink.sum() == ink[60:62].sum()
