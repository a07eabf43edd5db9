"""Retrieval with pretrained features, the whole way on toys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from experiments.cells import run_experiment
from experiments.embed_frozen import FEATURES, PARTS, FrozenBench, frozen_experiment, whiten
from tests.embed import toys
from tests.experiments.colours import coloured

from entourage.data.image_set import ImageSet
from experiments import embed_frozen


@pytest.fixture
def images(monkeypatch: pytest.MonkeyPatch) -> ImageSet:
    """Eight colours, whose second half is for testing."""
    images = coloured(8, 6)
    split = (images.labels >= 4).astype(np.uint8)
    halved = ImageSet("toys", images.source, images.labels, images.class_names, split, images.items)
    monkeypatch.setattr(embed_frozen, "find_dataset", lambda name: halved)
    monkeypatch.setattr(embed_frozen, "load_backbone", lambda *_, **__: toys.backbone())
    return halved


def test_methods_are_measured_on_both_halves_and_marked_by_the_first(images: ImageSet, tmp_path: Path) -> None:
    ledger = run_experiment(frozen_experiment(FrozenBench("cpu"), ["cub200"]), tmp_path, verbose=False)
    page = (tmp_path / "embed_frozen.md").read_text()
    rows = [row.split(" | ") for row in page.splitlines() if " | " in row and "---" not in row]
    marked = [row[0].lstrip("| ") for row in rows if row[0].endswith(" *")]
    assert len(marked) == 2  # one of each table
    best = max(float(row[1]) for row in rows if row[0].lstrip("| ").rstrip(" *") in FEATURES)
    assert next(float(row[1]) for row in rows if row[0].lstrip("| ") == marked[0]) == best
    values = ledger.values(f"cub200/{marked[0].rstrip(' *')}")
    assert values is not None
    assert set(values) == set(PARTS)
    assert all(0 < values[part]["recall@1"] <= 1 for part in PARTS)


def test_features_are_computed_once(images: ImageSet, monkeypatch: pytest.MonkeyPatch) -> None:
    calls, embed = [], embed_frozen.embed_rows
    monkeypatch.setattr(embed_frozen, "embed_rows", lambda *args, **options: calls.append(1) or embed(*args, **options))
    bench = FrozenBench("cpu")
    features = FEATURES[embed_frozen.BASE]
    assert bench.measure("cub200", features, 0, 0.0) == bench.measure("cub200", features, 0, 0.0)
    assert len(calls) == 1


def test_whitening_gives_uncorrelated_components() -> None:
    x = torch.randn(400, 6, generator=torch.Generator().manual_seed(0)) @ torch.diag(torch.arange(1.0, 7.0)) + 3.0
    white = whiten(x, 4)
    covariance = white.T @ white
    assert white.shape == (400, 4)
    torch.testing.assert_close(covariance, torch.diag(covariance.diagonal()), atol=1e-3, rtol=0)
    spread = torch.nn.functional.normalize(x, dim=1)
    scales = torch.linalg.svdvals(spread - spread.mean(0))[:4]
    torch.testing.assert_close(covariance.diagonal(), scales, rtol=1e-3, atol=1e-3)  # of s^2 remains s
