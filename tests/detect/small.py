"""A detector so small that a step takes milliseconds, and a matching recipe."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch
from tests.detect.engraved import some_pages

from entourage.detect.evaluation.ground_truth import GroundTruthPage, class_names, read_ground_truth
from entourage.detect.models.watershed import WatershedDetector
from entourage.detect.options import DetectorOptions, NetworkOptions
from entourage.detect.training.task import Recipe
from entourage.detect.training.windows import PagePack, WindowOptions, pack_pages

# oneDNN crashes on 1 x 1 convolutions of stride 2 with fewer than 16 channels in channels-last order
NETWORK = NetworkOptions(widths=(16, 32, 32), blocks=(1, 1, 1), upwards=(8, 16, 24), hidden=16)
OPTIONS = DetectorOptions(network=NETWORK)
RECIPE = Recipe(
    steps=4,
    batch=2,
    window=WindowOptions(height=64, width=128),
    warmup=1,
    epoch=2,
    validation=1,
    average=0.9,
    learning_rate=3e-3,
)
PLAIN = replace(RECIPE, degradation=None)


def small_data(folder: Path) -> tuple[list[GroundTruthPage], PagePack]:
    """Return pages for validation and packed pages for training."""
    data = some_pages(folder)
    pages = read_ground_truth(data, "train")
    return read_ground_truth(data, "val"), pack_pages(pages, class_names(pages), workers=1, progress=False)


def small_detector(classes: tuple[str, ...], seed: int = 0) -> WatershedDetector:
    torch.manual_seed(seed)
    return WatershedDetector(classes, OPTIONS)
