from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from tests.detect.small import RECIPE, small_data, small_detector

from entourage.detect.training.augmentation import DegradationOptions
from entourage.detect.training.task import LossModule, WindowSample, cut_ink, cut_on_host, hidden_mask, make_batch
from entourage.detect.training.windows import WindowSampler, cut_windows


def test_a_batch_without_degradation_equals_the_windows(tmp_path: Path) -> None:
    _, pack = small_data(tmp_path / "data")
    windows = WindowSampler(pack, RECIPE.window).sample(3, np.random.default_rng(0))
    ink = cut_windows(pack.pixels, windows, 64, 128)
    batch = make_batch(WindowSample(windows), pack.pixels, 64, 128, None)
    assert torch.equal(batch.ink, ink)
    assert torch.equal(batch.boxes, windows.boxes)
    assert torch.equal(cut_ink(WindowSample(windows), pack.pixels, 64, 128), ink)
    cut_before = make_batch(WindowSample(windows, ink=ink / 2), pack.pixels, 64, 128, None)
    assert torch.equal(cut_before.ink, ink / 2)
    torch.manual_seed(0)
    degraded = make_batch(WindowSample(windows), pack.pixels, 64, 128, DegradationOptions(p_clean=0.0))
    assert not torch.equal(degraded.ink, ink)


def test_windows_are_cut_on_the_cpu_if_the_pages_are_not_on_the_device(tmp_path: Path) -> None:
    _, pack = small_data(tmp_path / "data")
    sample = WindowSample(WindowSampler(pack, RECIPE.window).sample(2, np.random.default_rng(0)))
    assert cut_on_host(sample, pack.pixels, torch.device("cpu"), 64, 128) is sample
    on_host = cut_on_host(sample, pack.pixels, torch.device("meta"), 64, 128)
    assert on_host.ink is not None
    assert torch.equal(on_host.ink, cut_ink(sample, pack.pixels, 64, 128))


def test_surroundings_of_hidden_centres_are_ignored() -> None:
    boxes = torch.tensor([[-40.0, 20.0, 60.0, 30.0]])  # centre 10, 25
    mask = hidden_mask(boxes, torch.tensor([1]), (2, 50, 70))
    assert mask.shape == (2, 50, 70)
    assert not mask[0].any()
    rows, columns = torch.nonzero(mask[1], as_tuple=True)
    assert (rows.min(), rows.max()) == (16, 39)  # cells of 8 pixels: 24 to 31 and one more to each side
    assert (columns.min(), columns.max()) == (0, 23)
    assert not hidden_mask(torch.zeros(0, 4), torch.zeros(0, dtype=torch.long), (2, 50, 70)).any()


def test_the_loss_module_returns_the_losses_of_its_detector(tmp_path: Path) -> None:
    _, pack = small_data(tmp_path / "data")
    detector = small_detector(pack.classes).eval()
    windows = WindowSampler(pack, RECIPE.window).sample(2, np.random.default_rng(1))
    batch = make_batch(WindowSample(windows), pack.pixels, 64, 128, None)
    with torch.no_grad():
        losses = LossModule(detector)(batch)
        expected = detector.losses(batch.ink, batch.boxes, batch.labels, batch.image, batch.ignore)
    assert losses == expected
    assert set(losses) == {"energy", "class", "box"}
