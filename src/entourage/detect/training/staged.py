"""Pre-training of the thesis: the encoder learns to name single symbols, then all of the network to colour pages.

The thesis' schedule: pre-training, each loss by itself, energy again, then all together.
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

from entourage.detect.models.watershed import WatershedDetector
from entourage.detect.training.task import DetectionTask, PageTask, Recipe, WindowSample, cut_on_host, make_batch
from entourage.detect.training.windows import PagePack, WindowSampler
from entourage.training.checkpoint import TrainingResult
from entourage.training.loop import train
from entourage.training.task import Losses, Task

PATCH = 128  # pixels of a side of a patch
_INK = 0.3  # least ink of a pixel that is part of a symbol


class PatchClassifier(nn.Module):
    """The encoder with a classifier on the middle of all its maps, where the symbol is.

    Args:
        detector: whose encoder is trained in place.
    """

    def __init__(self, detector: WatershedDetector) -> None:
        super().__init__()
        self.encoder = detector.network.encoder
        self.classes = nn.Linear(sum(self.encoder.widths), len(detector.classes))

    def forward(self, ink: Tensor) -> Tensor:
        """Class logits (b, classes) of patches (b, 1, h, w)."""
        middles = [_middle(level) for level in self.encoder(ink)]
        logits: Tensor = self.classes(torch.cat(middles, 1))
        return logits


def _middle(level: Tensor) -> Tensor:
    """The mean of the middle third of a map each way: (b, c, h, w) to (b, c)."""
    high, wide = (size // 3 for size in level.shape[2:])
    weights = torch.zeros(level.shape[2:], device=level.device)
    weights[high : level.shape[2] - high, wide : level.shape[3] - wide] = 1.0
    return torch.einsum("bchw,hw->bc", level, (weights / weights.sum()).to(level.dtype))


class PageSegmenter(nn.Module):
    """Encoder and decoder with a class for every cell of the finest map.

    Args:
        detector: whose network is trained in place.
    """

    def __init__(self, detector: WatershedDetector) -> None:
        super().__init__()
        self.encoder, self.decoder = detector.network.encoder, detector.network.decoder
        self.classes = nn.Conv2d(self.decoder.widths[0], len(detector.classes) + 1, 1)

    def forward(self, ink: Tensor) -> Tensor:
        """Class logits (b, 1 + classes, h, w) of the cells of pages (b, 1, H, W); 0 is background."""
        logits: Tensor = self.classes(self.decoder(self.encoder(ink))[0])
        return logits


@dataclass(frozen=True)
class SegmentationBatch:
    """A draw with the class of every pixel by the boxes it is in, (b, h, w) int64."""

    sample: WindowSample
    pixel_labels: Tensor


class PatchTask(PageTask[tuple[WindowSample, Tensor]]):
    """Patches around single symbols, every class as often as the recipe's windows have it.

    Args:
        detector: whose encoder is trained in place.
        pack: the pages.
        recipe: how.
    """

    def __init__(self, detector: WatershedDetector, pack: PagePack, recipe: Recipe) -> None:
        super().__init__(PatchClassifier(detector), pack, recipe)
        self.batch = recipe.batch * 8
        window = replace(recipe.window, height=PATCH, width=PATCH, class_balanced=1.0)
        self._sampler = WindowSampler(pack, window)

    def load(self, item: int, rng: np.random.Generator) -> tuple[WindowSample, Tensor]:
        """Patches with the symbol in the middle, and its class, from 0."""
        rows = self._sampler.sample_symbols(self.batch, rng)
        centre = (self.pack.boxes[rows, :2] + self.pack.boxes[rows, 2:]) / 2
        corner = np.round(centre - PATCH / 2 + rng.normal(0, 2, centre.shape)).astype(np.float64)
        sample = WindowSample(self._sampler.cut(self.pack.page_of(rows), corner, np.ones_like(corner)))
        sample = cut_on_host(sample, self.pack.pixels, self.device, PATCH, PATCH)
        return sample, torch.from_numpy(self.pack.labels[rows] - 1)

    def loss(self, model: nn.Module, batch: tuple[WindowSample, Tensor], step: int) -> Losses:
        """Cross-entropy of the class."""
        sample, labels = batch
        made = make_batch(sample, self.pack.pixels, PATCH, PATCH, self.recipe.degradation)
        return {"loss": F.cross_entropy(model(made.ink), labels)}

    def config(self) -> dict[str, Any]:
        """What makes this run this run."""
        return {"pages": len(self.pack), "symbols": len(self.pack.labels), "patch": PATCH}


class SegmentationTask(PageTask[SegmentationBatch]):
    """The class of every inked pixel.

    Args:
        detector: whose network is trained in place.
        pack: the pages.
        recipe: how.
    """

    def __init__(self, detector: WatershedDetector, pack: PagePack, recipe: Recipe) -> None:
        super().__init__(PageSegmenter(detector), pack, recipe)
        self._sampler = WindowSampler(pack, recipe.window)

    def load(self, item: int, rng: np.random.Generator) -> SegmentationBatch:
        """Windows, and the class of every pixel by the boxes it is in."""
        windows = self._sampler.sample(self.recipe.batch, rng)
        window = self.recipe.window
        shape = (self.recipe.batch, window.height, window.width)
        boxes, labels, image = (part.numpy() for part in (windows.boxes, windows.labels, windows.image))
        sample = cut_on_host(WindowSample(windows), self.pack.pixels, self.device, window.height, window.width)
        return SegmentationBatch(sample, torch.from_numpy(label_map(boxes, labels, image, shape)))

    def loss(self, model: nn.Module, batch: SegmentationBatch, step: int) -> Losses:
        """Cross-entropy of the class of cells."""
        window = self.recipe.window
        plain = make_batch(batch.sample, self.pack.pixels, window.height, window.width, None)
        made = make_batch(batch.sample, self.pack.pixels, window.height, window.width, self.recipe.degradation)
        target = torch.where(plain.ink[:, 0] > _INK, batch.pixel_labels, 0)
        logits = model(made.ink)  # (b, 1 + classes, h, w)
        stride = window.height // logits.shape[2]  # cells stand for their upper left pixels
        return {"loss": F.cross_entropy(logits, target[:, ::stride, ::stride])}

    def config(self) -> dict[str, Any]:
        """What makes this run this run."""
        return {"pages": len(self.pack), "symbols": len(self.pack.labels)}


def label_map(
    boxes: NDArray[np.float32], labels: NDArray[np.int64], image: NDArray[np.int64], shape: tuple[int, int, int]
) -> NDArray[np.int64]:
    """The label of every pixel (b, h, w): that of the smallest box it is in, 0 where there is none."""
    pixel_labels = np.zeros(shape, dtype=np.int64)
    area = (boxes[:, 2:] - boxes[:, :2]).prod(axis=1)
    limits = np.array([shape[2], shape[1]] * 2)
    corners = np.clip(np.round(boxes), 0, limits).astype(np.int64)
    for row in np.argsort(-area, kind="stable"):
        x0, y0, x1, y1 = corners[row]
        pixel_labels[image[row], y0:y1, x0:x1] = labels[row]
    return pixel_labels


ALL = ("energy", "class", "box")


@dataclass(frozen=True)
class Stage:
    """A part of the schedule.

    Attributes:
        name: of the stage.
        fraction: of all steps.
        terms: the losses that are minimised; none in the two stages of pre-training, "patches" and "segmentation".
    """

    name: str
    fraction: float
    terms: tuple[str, ...] = ()


# The shares of the original's recipe: 20, 20, 20, 10 and 30 thousand steps, after two kinds of pre-training.
STAGES = (
    Stage("patches", 0.10),
    Stage("segmentation", 0.15),
    Stage("energy", 0.15, ("energy",)),
    Stage("class", 0.15, ("class",)),
    Stage("box", 0.15, ("box",)),
    Stage("energy again", 0.075, ("energy",)),
    Stage("all", 0.225, ALL),
)


def train_in_stages(
    task: DetectionTask,
    stages: Sequence[Stage] = STAGES,
    run_dir: Path | None = None,
    *,
    device: str = "auto",
    progress: bool | None = None,
) -> tuple[WatershedDetector, TrainingResult]:
    """Trains the task's detector stage by stage, each going on with the weights of the one before.

    Args:
        task: gives the detector, the pages and the recipe, whose steps the stages share.
        stages: in order; the last must train the detector.
        run_dir: the folder for checkpoints, one below it a stage; None keeps none.
        device: where to train.
        progress: show a line; None: only on a terminal.

    Returns:
        The trained detector, in evaluation mode, and how it all went.

    Raises:
        ValueError: there is no stage, or the last trains no loss of the detector.
    """
    if not stages or not stages[-1].terms:
        raise ValueError("the last stage trains no loss of the detector; expected one that does")
    seconds, steps, metrics = 0.0, 0, {}
    last: DetectionTask = task
    for number, stage in enumerate(stages):
        recipe = replace(task.recipe, steps=max(1, round(stage.fraction * task.recipe.steps)))
        folder = None if run_dir is None else run_dir / f"stage-{number}-{stage.name.replace(' ', '-')}"
        current = _stage_task(task, stage, recipe, last=number == len(stages) - 1)
        current.root_dir = run_dir  # each stage goes on from the one before
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
    # Between stages the weights themselves go on; their average is for the end.
    return DetectionTask(task.detector, task.pack, [], replace(recipe, average=0.0), terms=stage.terms)
