"""The rows of the student's table: their order, their options, and how they are shown."""

from __future__ import annotations

from argparse import ArgumentTypeError, Namespace
from pathlib import Path

import pytest
from experiments.label_student import NAME, all_draws, draw, figure, student_options, text
from experiments.ledger import Ledger

from entourage.label.semi_supervised.student.options import StudentOptions


def row(accuracy: float, **values: object) -> dict[str, object]:
    rest = {"rounds_accuracy": 80.0, "rounds_found": 81.0, "student_found": 85.0, "found": 86.0, "steps": 9000}
    return {"accuracy": accuracy, **rest, "rounds_seconds": 60.0, "seconds": 300.0, **values}


def test_all_numbers_of_labels_have_a_draw_before_the_next() -> None:
    draws = all_draws()
    assert draws[:5] == [(10, 0), (40, 0), (50, 0), (100, 0), (250, 0)]
    assert len(draws) == len(set(draws)) == 5 + 4 * 3
    assert draws[-2:] == [(50, 3), (50, 4)]


def test_draws_are_parsed() -> None:
    assert draw("50:3") == (50, 3)
    for word in ("50", "a:1", "5:"):
        with pytest.raises(ArgumentTypeError, match="LABELS:SEED"):
            draw(word)


def test_steps_set_the_length_of_the_training() -> None:
    plain = Namespace(small=False, steps=None)
    assert student_options(plain) == StudentOptions()
    options = student_options(Namespace(small=False, steps=7200))
    assert (options.training.max_steps, options.training.epochs) == (7200, 15)


def test_tables_have_means_costs_and_unfinished_draws(tmp_path: Path) -> None:
    ledger = Ledger(NAME, tmp_path, command="table")
    ledger.add("student/50/0", row(86.0), 300.0)
    ledger.add("student/50/1", row(88.0, seconds=420.0), 420.0)
    for key, labels, seed in (("course/50/0", 50, 0), ("course/10/0", 10, 0)):
        points = [(1.0, 79.0, 0.0), (4.5, 83.96, 0.9)]
        ledger.add(key, {"points": points, "last": 83.96, "labels": labels, "seed": seed}, 0.0)
    output = text(ledger)
    assert "| then the student |  |  | 87.0 ± 1.4 |  |  |" in output
    assert "| minutes in all |  |  | 6.0 |  |  |" in output
    assert "| steps of the student |  |  | 9,000 |  |  |" in output
    assert "| draws of the labels |  |  | 2 |  |  |" in output
    assert "| 10 labels, seed 0 | 4.5 | 84.0 |" in output
    assert "| 50 labels, seed 0 |" not in output  # finished
    assert "<svg" in figure(ledger)


def test_a_ledger_without_unfinished_draws_has_no_table_of_them(tmp_path: Path) -> None:
    ledger = Ledger(NAME, tmp_path, command="table")
    ledger.add("student/50/0", row(86.0), 300.0)
    assert "stopped" not in text(ledger)
