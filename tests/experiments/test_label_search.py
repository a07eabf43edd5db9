"""The search uses only training images and separate labels, and the tables use its choice."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from experiments.label_rows import Setting
from experiments.label_search import HELD_OUT_SEED, LABELS, SEEDS, cells, row, training_images
from experiments.label_settings import CANDIDATES, GAME, OPTIONS, TRAINED, key
from experiments.ledger import FAILED
from tests.experiments.colours import coloured

from entourage.data.image_set import ImageSet
from entourage.data.splits import sample_labels, stratified_split
from entourage.training import NonFiniteLossError
from experiments import label_cifar10, label_search


@pytest.fixture
def images() -> ImageSet:
    """Ten colours, 12 images of each for training and 4 for testing."""
    return coloured(10, 16, tested=40)


def test_every_method_has_its_turn_and_a_second_seed_comes_last() -> None:
    planned = cells(TRAINED, SEEDS)
    assert len(planned) == len(TRAINED) * 4 * 2
    assert [seed for seed, _, _ in planned] == [100] * (len(planned) // 2) + [101] * (len(planned) // 2)
    order = list(dict.fromkeys(method for _, method, _ in planned))
    assert order[:5] == ["linear", "linear-svm", "kernel-svm", GAME, "fixmatch"]
    assert set(order) == set(TRAINED)
    assert [settings for _, method, settings in planned if method == "vat"] == list(CANDIDATES["vat"]) * 2


def test_no_table_has_its_seeds() -> None:
    assert min(SEEDS) >= 100
    assert HELD_OUT_SEED not in SEEDS


def run(monkeypatch: pytest.MonkeyPatch, module: Any, folder: Path, *words: str) -> None:
    monkeypatch.setenv("ENTOURAGE_CACHE", str(folder / "cache"))
    monkeypatch.setattr(sys, "argv", ["x.py", "--small", "--device", "cpu", "--results", str(folder), *words])
    module.main()


def test_only_training_images_are_used(images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[ImageSet, np.ndarray]] = []
    settings: list[Setting] = []
    real = label_search.prepare

    def noted(given: ImageSet, split: np.ndarray, *more: Any, **named: Any) -> Setting:
        seen.append((given, split))
        settings.append(real(given, split, *more, **named))
        return settings[0]

    monkeypatch.setattr(label_search, "prepare", noted)
    monkeypatch.setattr(label_search, "find_dataset", lambda name: images)
    run(monkeypatch, label_search, tmp_path, "--methods", "linear", "supervised", "--seeds", "1")
    ((given, split),) = seen
    assert given.items == [f"{n}" for n in range(120)]
    assert len(settings[0].train) == 110  # of twelve images a class, a tenth is held out
    assert len(settings[0].test) == 10
    assert np.array_equal(split, stratified_split(images.labels[:120], 0.9, HELD_OUT_SEED))
    rows = json.loads((tmp_path / "label_search.json").read_text())["rows"]
    assert set(rows) == {key(name, one, 100) for name in ("linear", "supervised") for one in CANDIDATES[name]}
    assert all(set(found) >= {"accuracy", "settings", "method"} for found in rows.values())

    # A second run reads no data. Then a table uses the choice.
    monkeypatch.setattr(label_search, "find_dataset", lambda name: pytest.fail("the data were read again"))
    run(monkeypatch, label_search, tmp_path, "--methods", "linear", "supervised", "--seeds", "1")
    assert (tmp_path / "label_search.md").read_text().count("chosen |") == 2
    monkeypatch.setattr(label_cifar10, "find_dataset", lambda name: images)
    monkeypatch.setattr(label_cifar10, "COUNTS", (10,))
    monkeypatch.setattr(label_cifar10, "PROPAGATORS", ("game",))
    run(monkeypatch, label_cifar10, tmp_path, "--methods", "linear", "--seeds", "1")
    chosen = max((rows[key("linear", one, 100)]["accuracy"], -place) for place, one in enumerate(CANDIDATES["linear"]))
    table = json.loads((tmp_path / "label_cifar10.json").read_text())["rows"]
    assert table["linear/10/0"]["settings"] == CANDIDATES["linear"][-chosen[1]]
    assert "chosen by `python -m experiments.label_search`" in (tmp_path / "label_cifar10.md").read_text()


def test_labels_are_drawn_by_the_seed_and_a_failure_is_kept(images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    class Known:
        labels = training_images(images).labels

    asked: list[tuple[Any, ...]] = []

    def diverges(*given: Any) -> dict[str, Any]:
        asked.append(given)
        raise NonFiniteLossError("the loss is not finite")

    monkeypatch.setattr(label_search, "trained_row", diverges)
    found = row(Known(), "vat", 101, OPTIONS, CANDIDATES["vat"][2])  # type: ignore[arg-type]
    assert found == {FAILED: "the loss is not finite", "method": "vat", "settings": CANDIDATES["vat"][2]}
    ((_, method, given, seed, _, settings),) = asked
    assert (method, seed, settings) == ("vat", 101, CANDIDATES["vat"][2])
    assert np.array_equal(given, sample_labels(Known.labels, LABELS, 101))


def test_out_of_time_nothing_is_started(images: ImageSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(label_search, "find_dataset", lambda name: images)
    monkeypatch.setattr(label_search, "prepare", lambda *given, **named: None)
    run(monkeypatch, label_search, tmp_path, "--methods", "linear", "--minutes", "-1")
    assert not (tmp_path / "label_search.json").exists()
