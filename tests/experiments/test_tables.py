"""Format of figures and tables."""

from __future__ import annotations

from experiments.tables import mean_and_spread, measured, missing_note, seeds_note, table


def test_a_table_has_a_header_and_keeps_its_columns() -> None:
    assert table(("a", "b|c"), [("1", "2")]) == "| a | b\\|c |\n| --- | --- |\n| 1 | 2 |"


def test_rows_without_a_figure_wait() -> None:
    assert measured([("a", "", ""), ("b", "", "1.0"), ("c", "2.0", "")]) == [("b", "", "1.0"), ("c", "2.0", "")]


def test_means_have_a_standard_deviation_with_several_values() -> None:
    assert mean_and_spread([]) == ""
    assert mean_and_spread([0.5], scale=100) == "50.0"
    assert mean_and_spread([1.0, 2.0, 3.0], digits=2) == "2.00 ± 1.00"  # of a sample, divided by n - 1


def test_methods_are_grouped_by_their_number_of_seeds() -> None:
    note = seeds_note({"game": 5, "vat": 1, "linear": 5})
    assert note == "5 seeds a cell: game, linear. 1 seed a cell, or more: vat."


def test_what_is_still_to_come_is_named() -> None:
    assert missing_note(["vat", "pi-model"]) == "Not measured yet: vat, pi-model."
    assert missing_note([]) == ""
