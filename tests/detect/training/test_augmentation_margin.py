from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.detect.engraved import Symbol, write_engraved

from entourage.detect.evaluation.ground_truth import class_names, read_ground_truth
from entourage.detect.training.augmentation import CROP_HEIGHT, CROP_WIDTH, MarginSampler, paste_margins
from entourage.detect.training.windows import PagePack, WindowOptions, WindowSampler, cut_windows, pack_pages

WINDOW = WindowOptions(height=96, width=200)


@pytest.fixture
def pack(tmp_path: Path) -> PagePack:
    """Return one page with 399 dots of a common class and a single coda in a corner."""
    dots: list[Symbol] = [
        (
            "augmentationDot",
            "augmentationDot",
            10 + 10 * (k % 21),
            10 + 14 * (k // 21),
            14 + 10 * (k % 21),
            14 + 14 * (k // 21),
        )
        for k in range(399)
    ]
    coda: Symbol = ("coda", "coda", 400, 260, 440, 300)
    pages = read_ground_truth(write_engraved(tmp_path / "data", [("p", "train", [*dots, coda])]), "train")
    return pack_pages(pages, class_names(pages), workers=1, progress=False)


def test_crops_of_rare_symbols_are_pasted_with_their_targets(pack: PagePack) -> None:
    sampler, margins = WindowSampler(pack, WINDOW), MarginSampler(pack, WINDOW, crops=3)
    windows = sampler.cut(np.zeros(2, np.int64), np.zeros((2, 2)), np.ones((2, 2)))
    batch, crops = margins.sample(windows, np.random.default_rng(0))
    coda = pack.classes.index("coda") + 1
    assert (batch.labels == coda).sum() == 6
    step = 200 // 3
    for number in range(2):
        boxes = batch.boxes[(batch.image == number) & (batch.labels == coda)]
        centres = (boxes[:, 0] + boxes[:, 2]) / 2
        assert torch.allclose(centres, torch.arange(3) * step + CROP_WIDTH / 2, atol=0.51)
    ink = paste_margins(cut_windows(pack.pixels, windows, 96, 200), pack.pixels, crops)
    for number, box in zip(batch.image.tolist(), batch.boxes[batch.labels == coda].round().int(), strict=False):
        x0, y0, x1, y1 = box.tolist()
        assert ink[number, 0, y0:y1, x0:x1].min() > 0.99  # the coda is a black square of 20 pixels
        assert ink[number, 0, y0:y1, x1 + 2].max() < 0.01


def test_covered_symbols_are_not_targets(pack: PagePack) -> None:
    sampler, margins = WindowSampler(pack, WINDOW), MarginSampler(pack, WINDOW, crops=3)
    windows = sampler.cut(np.zeros(1, np.int64), np.zeros((1, 2)), np.ones((1, 2)))
    batch, crops = margins.sample(windows, np.random.default_rng(0))
    dots = batch.boxes[batch.labels == pack.classes.index("augmentationDot") + 1]
    assert (dots[:, 1] >= CROP_HEIGHT - 1).all()
    assert len(dots) < len(windows.boxes)
    below = windows.boxes[windows.boxes[:, 1] >= CROP_HEIGHT]
    assert len(dots) >= len(below)
    ink = cut_windows(pack.pixels, windows, 96, 200)
    pasted = paste_margins(ink, pack.pixels, crops)
    assert torch.equal(pasted[:, :, CROP_HEIGHT:], ink[:, :, CROP_HEIGHT:])


def test_impossible_margins_raise(pack: PagePack) -> None:
    with pytest.raises(ValueError, match="crops is 4; expected crops of 65 x 40 pixels that fit"):
        MarginSampler(pack, WINDOW, crops=4)
    without_rare = PagePack(
        pack.classes,
        pack.pixels,
        pack.start,
        pack.heights,
        pack.widths,
        pack.boxes[:399],
        pack.labels[:399],
        np.array([0, 399]),
    )
    with pytest.raises(ValueError, match=r"pages: .* 1% .*; expected at least one"):
        MarginSampler(without_rare, WINDOW, crops=2)
