from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from tests.detect.small import PLAIN, RECIPE, small_data, small_detector

from entourage.detect.training.staged import PATCH, PatchTask, SegmentationTask, label_map
from entourage.training import train


def test_a_pixel_has_the_label_of_the_smallest_box() -> None:
    boxes = np.array([[2, 2, 6, 6], [0, 0, 10, 8], [-3, 7, 3, 12]], np.float32)
    pixel_labels = label_map(boxes, np.array([3, 1, 2]), np.array([0, 0, 0]), (2, 10, 12))
    assert pixel_labels[0, 3, 3] == 3
    assert pixel_labels[0, 0, 0] == 1
    assert pixel_labels[0, 7, 1] == 2  # 6 x 5 is less than 10 x 8
    assert pixel_labels[0, 9, 11] == 0
    assert not pixel_labels[1].any()


def test_patches_have_their_symbol_in_the_centre(tmp_path: Path) -> None:
    _, pack = small_data(tmp_path / "data")
    task = PatchTask(small_detector(pack.classes), pack, RECIPE)
    sample, labels = task.load(0, np.random.default_rng(0))
    assert len(labels) == task.batch == len(sample.windows.start)
    centres = (sample.windows.boxes[:, :2] + sample.windows.boxes[:, 2:]) / 2
    for number, label in enumerate(labels.tolist()):
        of_label = (sample.windows.image == number) & (sample.windows.labels == label + 1)
        hidden = sample.windows.hidden_image == number  # a staff is wider than a patch
        near = (centres[of_label] - PATCH / 2).abs().amax(1) < 12
        assert near.any() or hidden.any()


def test_pre_training_changes_the_detector_in_place_and_reduces_its_loss(tmp_path: Path) -> None:
    _, pack = small_data(tmp_path / "data")
    recipe = replace(PLAIN, steps=2, epoch=2, batch=1)
    for kind, part in ((PatchTask, "encoder"), (SegmentationTask, "decoder")):
        detector = small_detector(pack.classes)
        before = {name: value.clone() for name, value in detector.state_dict().items()}
        task = kind(detector, pack, recipe)
        train(task, recipe.training_options(), None, device="cpu", progress=False)
        changed = [name for name, value in detector.state_dict().items() if not torch.equal(value, before[name])]
        assert any(name.startswith(f"network.{part}") for name in changed)
        assert not any("head" in name for name in changed)
        batch = task.load(0, np.random.default_rng(0))
        optimizer = torch.optim.Adam(task.model.parameters(), lr=1e-2)
        losses = []
        for step in range(25):  # overfits a single batch
            loss = task.loss(task.model.train(), batch, step)["loss"]
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(float(loss.detach()))
        assert losses[-1] < 0.6 * losses[0]
