"""The baseline of chapter 5: size of the network, training and report."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from experiments.engrave_classification import Options, measure, network, read_patches
from torch import nn

from entourage.symbols import V1_IDS
from experiments import engrave_classification as baseline

HEIGHT, WIDTH = 170, 45
SMALL = Options(widths=(4, 8), blocks=1, epochs=3, batch=8, rate=1e-2)


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    """Two classes that one sees at once, some of each in every split, and one that is not of the list."""
    rng = np.random.default_rng(0)
    first, second = sorted(V1_IDS)[:2]
    rows = []
    for split, count in (("train", 24), ("val", 6), ("test", 8)):
        for name, ink in ((first, 30), (second, 200), ("no class of V1", 120)):
            for _ in range(count):
                image = np.clip(ink + rng.normal(0, 10, (HEIGHT, WIDTH)), 0, 255).astype(np.uint8)
                rows.append({"class": name, "split": split, "png": cv2.imencode(".png", image)[1].tobytes()})
    file = tmp_path / "patches.parquet"
    pq.write_table(pa.Table.from_pylist(rows), file)
    return file


def test_the_network_has_25_convolutions_and_about_eight_million_weights() -> None:
    model = network(118, Options())
    assert sum(isinstance(layer, nn.Conv2d) for layer in model.modules()) == 25
    assert 7.5e6 < sum(p.numel() for p in model.parameters()) < 8.5e6
    assert model(torch.zeros(2, 1, HEIGHT, WIDTH)).shape == (2, 118)


def test_patches_of_the_list_are_read_by_split(patches: Path) -> None:
    splits, names = read_patches(patches, torch.device("cpu"))
    assert names == sorted(V1_IDS)[:2]
    assert {name: tuple(part.images.shape) for name, part in splits.items()} == {
        "train": (48, HEIGHT, WIDTH),
        "val": (12, HEIGHT, WIDTH),
        "test": (16, HEIGHT, WIDTH),
    }


def test_what_differs_at_sight_is_learned_and_the_epoch_is_chosen_on_validation(patches: Path) -> None:
    splits, names = read_patches(patches, torch.device("cpu"))
    row = measure(splits, names, SMALL, torch.device("cpu"))
    assert row["test"] == 1.0
    assert row["validation"] == max(row["course"])
    assert row["epoch"] == 1 + row["course"].index(max(row["course"]))
    assert row["patches"] == {"train": 48, "val": 12, "test": 16}


def test_a_seed_that_was_measured_is_not_measured_again(
    patches: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def record(splits: object, names: object, options: Options, device: object) -> dict[str, object]:
        asked.append(options.seed)
        found = {"test": 0.99, "validation": 0.98, "epoch": 2, "course": [0.5, 0.98], "weights": 8_000_000}
        return {**found, "classes": 2, "patches": {"train": 48}}

    monkeypatch.setattr(baseline, "measure", record)
    for seeds in ("0", "0,1"):
        given = ["x", "--data", str(patches.parent), "--out", str(tmp_path), "--seeds", seeds, "--device", "cpu"]
        monkeypatch.setattr("sys.argv", given)
        baseline.main()
    assert asked == [0, 1]
    page = (tmp_path / "engrave_classification.md").read_text(encoding="utf-8")
    assert "| 2 | 8,000,000 | 2 | 2, 2 | 0.9800 ± 0.0000 | 0.9900 ± 0.0000 |" in page
