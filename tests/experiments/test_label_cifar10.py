"""The rows of CIFAR-10's tables: in which order they are measured, and how they are shown."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from experiments.label_cifar10 import NAME, figure, text, trained_cells
from experiments.label_settings import GAME, LARGER, LONGER, VARIANTS
from experiments.ledger import Ledger
from matplotlib.axes import Axes

from experiments import label_cifar10


def test_the_game_comes_first_and_all_methods_have_a_seed_before_the_next() -> None:
    cells = trained_cells([GAME, "vat", "linear"], 2)
    assert len(cells) == len(set(cells)) == 3 * 4 * 2
    assert {method for method, _, _ in cells[:8]} == {GAME}
    assert cells[8:14] == [(method, count, 0) for method in ("vat", "linear") for count in (10, 50, 100)]
    assert {count for _, count, _ in cells[-4:]} == {250}


def test_variants_of_the_game_are_for_one_number_of_labels() -> None:
    expected = [(variant, 50, seed) for variant in VARIANTS for seed in (0, 1)]
    assert sorted(trained_cells(VARIANTS, 2)) == sorted(expected)


def test_the_larger_network_sees_larger_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    worked: list[list[str]] = []

    def prepared(images: Any, split: Any, backbone: str, options: Any, *more: Any, **named: Any) -> str:
        asked.append((backbone, options.size))
        return backbone

    images = SimpleNamespace(split=np.zeros(1))
    monkeypatch.setattr(label_cifar10, "find_dataset", lambda name: images)
    monkeypatch.setattr(label_cifar10, "prepare", prepared)
    monkeypatch.setattr(label_cifar10, "graph_rows", lambda *given: None)
    monkeypatch.setattr(
        label_cifar10, "side_by_side", lambda n, work, setting, args, names, clock: worked.append(names)
    )
    for methods in ([LARGER], [LARGER, GAME]):
        monkeypatch.setattr(sys, "argv", ["label_cifar10", "--results", str(tmp_path), "--methods", *methods])
        label_cifar10.main()
    assert asked == [("efficientnet-lite2", 224), ("efficientnet-lite1", 160), ("efficientnet-lite2", 224)]
    assert worked == [[LARGER], [GAME], [LARGER]]


def test_the_slowest_method_comes_before_the_other_baselines() -> None:
    methods = [method for method, _, _ in trained_cells(["vat", LONGER, GAME], 2)]
    assert methods[:10] == [GAME] * 8 + [LONGER] * 2


def test_tables_say_how_many_seeds_each_method_had(tmp_path: Path) -> None:
    ledger = Ledger(NAME, tmp_path, command="table")
    for method, count, seed, accuracy in (
        (GAME, 10, 0, 60.0),
        (GAME, 10, 1, 62.0),
        (GAME, 50, 0, 80.0),
        (GAME, 50, 1, 81.0),
        ("vat", 50, 0, 70.0),
        (LONGER, 50, 0, 85.0),
    ):
        ledger.add(f"{method}/{count}/{seed}", {"accuracy": accuracy, "method": method}, 1.0)
    output = text(ledger)
    assert "| game+network | 61.0 ± 1.4 | 80.5 ± 0.7 |  |  |" in output
    assert "| game+network (four times as long) |  | 85.0 (1) |  |  |" in output
    assert "2 seeds a cell: game+network. 1 seed a cell, or more: game+network (four times as long), vat." in output
    assert "Not measured yet: poisson+network, " in output
    assert "| thesis, published (DenseNet) | 57.5 | 73.3 | 76.4 | 79.1 |" in output


def test_the_lead_is_over_the_draws_that_both_have_seen(tmp_path: Path) -> None:
    ledger = Ledger(NAME, tmp_path, command="table")
    for seed, game in enumerate((80.0, 90.0, 99.0)):
        ledger.add(f"{GAME}/50/{seed}", {"accuracy": game, "method": GAME}, 1.0)
    for seed, other in enumerate((78.0, 84.0)):  # not with the third draw, which was easy
        ledger.add(f"vat/50/{seed}", {"accuracy": other, "method": "vat"}, 1.0)
    ledger.add("fixmatch/50/0", {"accuracy": 81.0, "method": "fixmatch"}, 1.0)
    output = text(ledger).split("Lead of the game")[1]
    assert "| vat |  | +4.0 ± 2.8 |  |  |" in output
    assert "| fixmatch |  | -1.0 |  |  |" in output


def test_the_figure_has_a_line_for_all_that_was_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: dict[str, tuple[list[int], list[float], list[float]]] = {}
    monkeypatch.setattr(
        Axes, "errorbar", lambda self, x, y, spread, label, **named: lines.__setitem__(label, (x, y, spread))
    )
    ledger = Ledger(NAME, tmp_path, command="table")
    for name, count, seed, value in (
        (GAME, 10, 0, 60.0),
        (GAME, 10, 1, 64.0),
        (GAME, 50, 0, 80.0),
        ("vat", 50, 0, 7.0),
    ):
        ledger.add(f"{name}/{count}/{seed}", {"accuracy": value, "method": name}, 1.0)
    assert "<svg" in figure(ledger)
    assert lines == {
        GAME: ([10, 50], [62.0, 80.0], [pytest.approx(8**0.5), 0.0]),
        "vat": ([50], [7.0], [0.0]),
    }
