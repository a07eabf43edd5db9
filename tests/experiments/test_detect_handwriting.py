from __future__ import annotations

from experiments.detect_handwriting import PUBLISHED, SYNTHETIC, handwritten_table, synthetic_table


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


def test_the_table_of_deepscores_has_sizes_and_both_figures() -> None:
    classes = {"rest16th": [40, 0.9, 0.99, 1.0], "fClef": [7, 0.5, 0.6]}
    lines = synthetic_table(classes, {"rest16th": [1.25, 2.5]}).splitlines()
    assert len(lines) == len(SYNTHETIC) + 2
    assert "| rest16th | 40 | 1.25 x 2.50 | 87.7 | 99.0 | 92.3 | 100.0 |" in lines
    assert "| fClef | 7 | - | - | 60.0 | 71.8 | - |" in lines
    assert [sum(row[at] is not None for row in SYNTHETIC) for at in (2, 3)] == [20, 20]
