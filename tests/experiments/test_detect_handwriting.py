from __future__ import annotations

from experiments.detect_handwriting import PUBLISHED, handwritten_table


def test_the_table_has_published_and_measured_figures_and_means_of_split_classes() -> None:
    classes = {"restHalf": [10, 0.5, 0.9, 0.95], "flag8thUp": [30, 0.1, 0.8, 0.9], "flag8thDown": [10, 0.1, 0.4, 0.5]}
    lines = handwritten_table(classes).splitlines()
    assert "| half-rest | 10 | 89.8 | 90.0 | 89.8 | 95.0 |" in lines
    assert "| 8th-flag | 40 | 60.5 | 70.0 | 70.5 | 80.0 |" in lines  # (30 x 0.8 + 10 x 0.4) / 40
    assert "| ledger-line | 0 | - | - | 91.6 | - |" in lines
    assert len(lines) == 2 + len(PUBLISHED)


def test_the_chapter_lists_its_best_of_each_overlap() -> None:
    for at in (2, 3):
        assert sum(row[at] is not None for row in PUBLISHED) == 19  # twenty, of which letter-c stands there twice
