"""Training in the stages of the thesis: pre-training, each loss alone, energy again, then all losses.

In pre-training, the encoder classifies single symbols; then, encoder and decoder segment pages.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.detect.models.losses import TERMS
from entourage.detect.models.watershed import WatershedDetector
from entourage.detect.training.task import DetectionTask, PageTask, Recipe, WindowSample, cut_on_host, make_batch
from entourage.detect.training.windows import PagePack, WindowSampler
from entourage.training.checkpoint import TrainingResult
from entourage.training.loop import train
from entourage.training.task import Losses, Task

PATCH = 128  # height and width of a patch in pixels
_INK = 0.3  # pixels with less ink are background


class PatchClassifier(nn.Module):
    """Encoder with a linear classifier on the centres of all its maps, for patches around a symbol.

    Args:
        detector: the detector; its encoder is trained in place.
    """

    def __init__(self, detector: WatershedDetector) -> None:
        super().__init__()
        self.encoder = detector.network.encoder
        self.classes = nn.Linear(sum(self.encoder.widths), len(detector.classes))

    def forward(self, ink: Tensor) -> Tensor:
        """Compute class logits (b, classes) of patches (b, 1, h, w)."""
        centres = [_centre_mean(level) for level in self.encoder(ink)]
        logits: Tensor = self.classes(torch.cat(centres, 1))
        return logits


def _centre_mean(level: Tensor) -> Tensor:
    """Return the mean of the middle third of a map along both axes: (b, c, h, w) to (b, c)."""
    top, left = (size // 3 for size in level.shape[2:])
    weights = torch.zeros(level.shape[2:], device=level.device)
    weights[top : level.shape[2] - top, left : level.shape[3] - left] = 1.0
    return torch.einsum("bchw,hw->bc", level, (weights / weights.sum()).to(level.dtype))


class PageSegmenter(nn.Module):
    """Encoder and decoder, and a linear classifier of each cell of the finest map.

    Args:
        detector: the detector; its encoder and decoder are trained in place.
    """

    def __init__(self, detector: WatershedDetector) -> None:
        super().__init__()
        self.encoder, self.decoder = detector.network.encoder, detector.network.decoder
        self.classes = nn.Conv2d(self.decoder.widths[0], len(detector.classes) + 1, 1)

    def forward(self, ink: Tensor) -> Tensor:
        """Compute class logits (b, 1 + classes, h, w) of the cells of pages (b, 1, H, W); 0 is background."""
        logits: Tensor = self.classes(self.decoder(self.encoder(ink))[0])
        return logits


@dataclass(frozen=True)
class SegmentationBatch:
    """Windows with the class of each pixel according to the boxes, shape (b, h, w), int64."""

    sample: WindowSample
    pixel_labels: Tensor


class PatchTask(PageTask[tuple[WindowSample, Tensor]]):
    """Classification of patches around single symbols; classes are sampled as in `WindowSampler`.

    Args:
        detector: the detector; its encoder is trained in place.
        pack: the pages.
        recipe: the training recipe.
    """

    def __init__(self, detector: WatershedDetector, pack: PagePack, recipe: Recipe) -> None:
        super().__init__(PatchClassifier(detector), pack, recipe)
        self.batch = recipe.batch * 8
        window = replace(recipe.window, height=PATCH, width=PATCH, class_balanced=1.0)
        self._sampler = WindowSampler(pack, window)

    def load(self, item: int, rng: np.random.Generator) -> tuple[WindowSample, Tensor]:
        """Sample patches with a symbol in the centre, and the classes of these symbols, from 0."""
        rows = self._sampler.sample_symbols(self.batch, rng)
        centre = (self.pack.boxes[rows, :2] + self.pack.boxes[rows, 2:]) / 2
        corner = np.round(centre - PATCH / 2 + rng.normal(0, 2, centre.shape)).astype(np.float64)
        sample = WindowSample(self._sampler.cut(self.pack.page_of(rows), corner, np.ones_like(corner)))
        sample = cut_on_host(sample, self.pack.pixels, self.device, PATCH, PATCH)
        return sample, torch.from_numpy(self.pack.labels[rows] - 1)

    def loss(self, model: nn.Module, batch: tuple[WindowSample, Tensor], step: int) -> Losses:
        """Compute the cross-entropy of the predicted classes of the patches."""
        sample, labels = batch
        window_batch = make_batch(sample, self.pack.pixels, PATCH, PATCH, self.recipe.degradation)
        return {"loss": F.cross_entropy(model(window_batch.ink), labels)}

    def config(self) -> dict[str, Any]:
        """Return the configuration that must be unchanged when a run is resumed."""
        return {"pages": len(self.pack), "symbols": len(self.pack.labels), "patch": PATCH}


class SegmentationTask(PageTask[SegmentationBatch]):
    """Segmentation of pages: the class of each pixel of ink.

    Args:
        detector: the detector; its encoder and decoder are trained in place.
        pack: the pages.
        recipe: the training recipe.
    """

    def __init__(self, detector: WatershedDetector, pack: PagePack, recipe: Recipe) -> None:
        super().__init__(PageSegmenter(detector), pack, recipe)
        self._sampler = WindowSampler(pack, recipe.window)

    def load(self, item: int, rng: np.random.Generator) -> SegmentationBatch:
        """Sample windows, and the class of each of their pixels according to the boxes."""
        windows = self._sampler.sample(self.recipe.batch, rng)
        window = self.recipe.window
        shape = (self.recipe.batch, window.height, window.width)
        boxes, labels, image = (part.numpy() for part in (windows.boxes, windows.labels, windows.image))
        sample = cut_on_host(WindowSample(windows), self.pack.pixels, self.device, window.height, window.width)
        return SegmentationBatch(sample, torch.from_numpy(label_map(boxes, labels, image, shape)))

    def loss(self, model: nn.Module, batch: SegmentationBatch, step: int) -> Losses:
        """Compute the cross-entropy of the predicted classes of the cells."""
        window = self.recipe.window
        clean = make_batch(batch.sample, self.pack.pixels, window.height, window.width, None)
        window_batch = make_batch(batch.sample, self.pack.pixels, window.height, window.width, self.recipe.degradation)
        target = torch.where(clean.ink[:, 0] > _INK, batch.pixel_labels, 0)
        logits = model(window_batch.ink)  # (b, 1 + classes, h, w)
        stride = window.height // logits.shape[2]  # a cell has the class of its upper left pixel
        return {"loss": F.cross_entropy(logits, target[:, ::stride, ::stride])}

    def config(self) -> dict[str, Any]:
        """Return the configuration that must be unchanged when a run is resumed."""
        return {"pages": len(self.pack), "symbols": len(self.pack.labels)}


def label_map(
    boxes: NDArray[np.float32], labels: NDArray[np.int64], image: NDArray[np.int64], shape: tuple[int, int, int]
) -> NDArray[np.int64]:
    """Return the label of each pixel, shape (b, h, w): that of the smallest box that contains it, or 0."""
    pixel_labels = np.zeros(shape, dtype=np.int64)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    limits = np.array([shape[2], shape[1]] * 2)
    corners = np.clip(np.round(boxes), 0, limits).astype(np.int64)
    for row in np.argsort(-area, kind="stable"):
        x0, y0, x1, y1 = corners[row]
        pixel_labels[image[row], y0:y1, x0:x1] = labels[row]
    return pixel_labels


@dataclass(frozen=True)
class Stage:
    """A stage of the training schedule.

    Attributes:
        name: name of the stage; "patches" and "segmentation" are the stages of pre-training.
        fraction: fraction of all steps.
        terms: losses of the detector that are minimised; empty in pre-training.
    """

    name: str
    fraction: float
    terms: tuple[str, ...] = ()


# As in the original code: 20, 20, 20, 10 and 30 thousand steps, after two stages of pre-training.
STAGES = (
    Stage("patches", 0.10),
    Stage("segmentation", 0.15),
    Stage("energy", 0.15, ("energy",)),
    Stage("class", 0.15, ("class",)),
    Stage("box", 0.15, ("box",)),
    Stage("energy again", 0.075, ("energy",)),
    Stage("all", 0.225, TERMS),
)


def train_in_stages(
    task: DetectionTask,
    stages: Sequence[Stage] = STAGES,
    run_dir: Path | None = None,
    *,
    device: str = "auto",
    progress: bool | None = None,
) -> tuple[WatershedDetector, TrainingResult]:
    """Train the detector of a task in stages; each starts from the weights of the previous one.

    Args:
        task: the task, with detector, pages and recipe; the steps of the recipe are divided among the stages.
        stages: the stages in order; the last one must train the detector.
        run_dir: folder for checkpoints, with a subfolder per stage; None: no checkpoints.
        device: training device.
        progress: show progress; None: only on a terminal.

    Returns:
        The trained detector, in evaluation mode, and the result of all stages.

    Raises:
        ValueError: there are no stages, or the last one is a stage of pre-training.
    """
    if not stages or not stages[-1].terms:
        raise ValueError("stages: the last stage has no losses; expected a last stage that trains the detector")
    seconds, steps, metrics = 0.0, 0, {}
    last: DetectionTask = task
    for number, stage in enumerate(stages):
        recipe = replace(task.recipe, steps=max(1, round(stage.fraction * task.recipe.steps)))
        folder = None if run_dir is None else run_dir / f"stage-{number}-{stage.name.replace(' ', '-')}"
        current = _stage_task(task, stage, recipe, last=number == len(stages) - 1)
        current.root_dir = run_dir  # stages build on each other, so only all of them together can be restarted
        title = f"Stage {number + 1}: {stage.name}"
        result = train(current, recipe.training_options(), folder, device=device, progress=progress, title=title)
        seconds, steps, metrics = seconds + result.seconds, steps + result.steps, result.metrics
        if isinstance(current, DetectionTask):
            last = current
    return last.trained(), replace(result, steps=steps, seconds=seconds, metrics=metrics)


def _stage_task(task: DetectionTask, stage: Stage, recipe: Recipe, *, last: bool) -> Task[Any, Any]:
    if stage.name == "patches":
        return PatchTask(task.detector, task.pack, recipe)
    if stage.name == "segmentation":
        return SegmentationTask(task.detector, task.pack, recipe)
    if last:
        return DetectionTask(task.detector, task.pack, task.validation, recipe, terms=stage.terms, log=task.log)
    # Stages start from the weights, not from their average, which is only for the final detector.
    return DetectionTask(task.detector, task.pack, [], replace(recipe, average=0.0), terms=stage.terms)
