"""A few percent of labels: which images are labelled and split off, and what tables and figure make of the rows."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.label_fractions import BACKBONES, SHARES, figure, text
from experiments.label_settings import TRAINED
from experiments.ledger import Ledger
from matplotlib.axes import Axes
from tests.experiments.colours import coloured

from entourage.data.image_set import ImageSet
from entourage.data.splits import sample_labels, stratified_split
from experiments import label_fractions

METHODS = ("linear", "supervised", "svm+network")


@pytest.fixture
def images() -> ImageSet:
    """Four colours, 20 images of each."""
    return coloured(4, 20)


def run(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    words = ["--small", "--device", "cpu", "--results", str(folder), "--seeds", "1", "--methods", *METHODS]
    monkeypatch.setattr(sys, "argv", ["label_fractions.py", *words])
    label_fractions.main()


def filled(folder: Path, accuracy: dict[str, list[float]]) -> Ledger:
    """Rows of some methods, by seed; F is always ten less, and the second backbone two better."""
    ledger = Ledger("label_fractions", folder, command="fractions")
    for better, backbone in enumerate(BACKBONES):
        for method, found in accuracy.items():
            for share in SHARES:
                for seed, value in enumerate(found):
                    row = {"accuracy": value + 2 * better, "macro_f": value + 2 * better - 10}
                    ledger.add(f"{backbone}/{method}/{share}/{seed}", row, 1.0)
    return ledger


def test_every_cell_is_measured_once_on_its_own_split(
    images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(label_fractions, "find_dataset", lambda name: images)
    monkeypatch.setattr(label_fractions, "SHARES", (0.2,))
    asked: list[tuple[Any, ...]] = []
    real = label_fractions.trained_row
    monkeypatch.setattr(label_fractions, "trained_row", lambda *words: (asked.append(words), real(*words))[1])
    run(monkeypatch, tmp_path)
    rows = json.loads((tmp_path / "label_fractions.json").read_text())["rows"]
    assert set(rows) == {f"{backbone}/{method}/0.2/0" for backbone in BACKBONES for method in METHODS}
    assert all(0 <= row["accuracy"] <= 100 and 0 <= row["macro_f"] <= 100 for row in rows.values())
    assert rows[f"{BACKBONES[0]}/linear/0.2/0"]["accuracy"] > 90  # colours are easy to classify
    assert {"found", "rounds"} <= set(rows[f"{BACKBONES[0]}/svm+network/0.2/0"])
    learnt = images.labels[stratified_split(images.labels, 0.7, 0) == 0]
    for setting, method, given, seed, _, settings in asked:
        assert np.array_equal(setting.labels, learnt)
        assert len(setting.test_labels) == 80 - len(learnt)
        assert np.array_equal(given, sample_labels(learnt, 0.2, 0))
        assert seed == 0
        assert rows[f"{setting.backbone}/{method}/0.2/0"]["settings"] == settings
    page = (tmp_path / "label_fractions.md").read_text()
    assert page.startswith("## A few percent of labels on Caltech-101\n")
    assert (tmp_path / "label_fractions.svg").read_text().startswith("<svg")

    # A second run reads no images.
    monkeypatch.setattr(label_fractions, "prepare", lambda *words, **named: pytest.fail("the images were read again"))
    run(monkeypatch, tmp_path)
    assert json.loads((tmp_path / "label_fractions.json").read_text())["rows"] == rows


def test_tables_have_mean_and_spread_of_every_method_and_backbone(tmp_path: Path) -> None:
    output = text(filled(tmp_path, {"supervised": [40.0, 42.0], "svm+network": [50.0, 50.0]}))
    assert output.count("| method | 2% labelled | 5% labelled | 10% labelled |") == 4
    for better, backbone in enumerate(BACKBONES):
        accuracy = output.split(f"Accuracy on the test images, in percent, {backbone}:")[1].split("Macro F")[0]
        macro_f = output.split(f"Macro F on the test images, in percent, {backbone}:")[1].split("Accuracy")[0]
        for part, mean in ((accuracy, 41.0 + 2 * better), (macro_f, 31.0 + 2 * better)):
            assert "| supervised |" + f" {mean:.1f} ± 1.4 |" * 3 in part
            assert "| svm+network |" + f" {mean + 9:.1f} ± 0.0 |" * 3 in part
    shown = {name: output.count(f"| {name} |") for name in TRAINED}
    assert {name for name, times in shown.items() if times == 5} == {"supervised", "svm+network"}  # and the settings
    assert sum(shown.values()) == 10  # what was not measured leaves no empty line
    assert "2 seeds a cell: svm+network, supervised." in output


def test_the_figure_shows_the_gain_over_the_supervised_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[str, list[float]]] = []
    real = Axes.plot

    def noted(self: Axes, x: list[str], y: list[float], *style: str, **named: Any) -> Any:
        drawn.append((named["label"], y))
        assert x == ["2%", "5%", "10%"]
        return real(self, x, y, *style, **named)

    monkeypatch.setattr(Axes, "plot", noted)
    accuracy = {"supervised": [40.0, 60.0], "game+network": [60.0, 65.0], "svm+network": [45.0], "vat": [99.0]}
    svg = figure(filled(tmp_path, accuracy))
    assert svg.startswith("<svg")
    assert [name for name, _ in drawn] == ["game+network", "svm+network"] * len(BACKBONES)  # others are still to come
    first, second = (dict(drawn[:2]), dict(drawn[2:]))
    assert first["game+network"] == pytest.approx([25.0] * 3)
    assert first["svm+network"] == pytest.approx([-10.0] * 3)
    assert second["game+network"] == pytest.approx([100 * (64.5 / 52 - 1)] * 3)
