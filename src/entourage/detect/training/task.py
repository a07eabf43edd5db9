"""The training task of the detector: recipe, batches of windows, losses and validation.

`WindowBatch` contains the pixels of a step, `LossModule` computes the losses on them, `PageTask` is the base class of
all trainings on windows of pages, and `DetectionTask` trains a detector.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from entourage.detect.detections import Detections
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from entourage.detect.evaluation.metrics import average_precision, drop_duplicates
from entourage.detect.evaluation.page_evaluation import ground_truth_detections
from entourage.detect.models.losses import TERMS
from entourage.detect.models.watershed import WatershedDetector
from entourage.detect.training.augmentation import DegradationOptions, Margins, MarginSampler, degrade, paste_margins
from entourage.detect.training.windows import PagePack, WindowOptions, Windows, WindowSampler, cut_windows, scaled_page
from entourage.training.options import StepRecipe, TrainingOptions
from entourage.training.task import Batch, EMATask, Losses

_CELL = 8  # pixels of a cell of the mask of ignored pixels


@dataclass(frozen=True)
class WindowSample:
    """Windows of a training step, sampled but usually not yet cut out of the pages.

    Attributes:
        windows: positions of the windows and their symbols.
        margins: crops to paste at their top, if any.
        ink: pixels of the windows if the pages do not fit on the training device; else None.
    """

    windows: Windows
    margins: Margins | None = None
    ink: Tensor | None = None


@dataclass(frozen=True)
class WindowBatch:
    """Input of the losses: windows (b, 1, h, w), their objects, and the mask of ignored pixels (b, h, w)."""

    ink: Tensor
    boxes: Tensor
    labels: Tensor
    image: Tensor
    ignore: Tensor


def cut_ink(sample: WindowSample, pixels: Tensor, height: int, width: int) -> Tensor:
    """Cut out the windows with their margins, shape (b, 1, height, width), on the device of the pixels."""
    ink = cut_windows(pixels, sample.windows, height, width)
    return ink if sample.margins is None else paste_margins(ink, pixels, sample.margins)


def cut_on_host(sample: WindowSample, pixels: Tensor, device: torch.device, height: int, width: int) -> WindowSample:
    """Cut out the windows on the CPU if the pages are not on the training device; otherwise, return the sample."""
    if pixels.device.type == device.type:
        return sample
    return WindowSample(sample.windows, None, cut_ink(sample, pixels, height, width))


@torch.no_grad()
def make_batch(
    sample: WindowSample, pixels: Tensor, height: int, width: int, degradation: DegradationOptions | None
) -> WindowBatch:
    """Compute the pixels of a batch of windows, on the training device.

    Args:
        sample: the windows, on the device.
        pixels: `PagePack.pixels`, on the same device unless `sample.ink` is set.
        height, width: size of the windows.
        degradation: options of the degradation; None: the windows are not degraded.

    Returns:
        The batch.
    """
    ink = cut_ink(sample, pixels, height, width) if sample.ink is None else sample.ink
    if degradation is not None:
        ink = degrade(ink, degradation)
    windows = sample.windows
    ignore = hidden_mask(windows.hidden, windows.hidden_image, (len(ink), height, width))
    ink = ink.contiguous(memory_format=torch.channels_last)
    return WindowBatch(ink, windows.boxes, windows.labels, windows.image, ignore)


def hidden_mask(boxes: Tensor, image: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Return a mask (b, h, w) of pixels near the centres of symbols that are mostly cut off."""
    batch, height, width = shape
    rows, columns = -(-height // _CELL), -(-width // _CELL)
    cell = ((boxes[:, :2] + boxes[:, 2:]) / (2 * _CELL)).long()  # (n, 2) x, y
    flat_index = (image * rows + cell[:, 1].clamp(0, rows - 1)) * columns + cell[:, 0].clamp(0, columns - 1)
    mask = torch.zeros(batch * rows * columns, device=boxes.device).index_fill_(0, flat_index, 1.0)
    mask = F.max_pool2d(mask.view(batch, 1, rows, columns), 3, 1, 1)
    return F.interpolate(mask, scale_factor=_CELL, mode="nearest")[:, 0, :height, :width] > 0


class LossModule(nn.Module):
    """Module that computes the losses of the detector on a batch, as the training loop requires.

    Args:
        detector: the detector; trained in place.
    """

    def __init__(self, detector: WatershedDetector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, batch: WindowBatch) -> dict[str, Tensor]:
        """Compute the losses "energy", "class" and "box"."""
        return self.detector.losses(batch.ink, batch.boxes, batch.labels, batch.image, batch.ignore)


CHECKPOINT_STEPS = 100  # steps between checkpoints, as many as an interrupted run can lose; an epoch has thousands


@dataclass(frozen=True, kw_only=True)
class Recipe(StepRecipe):
    """Training recipe of the detector; `validation` is the maximum number of validation pages.

    Attributes:
        batch: windows per step.
        window: options of the windows.
        degradation: options of their degradation; None: no degradation.
        margin: number of crops of rare symbols at the top of each window; the thesis has 12.
        clip_norm: maximum norm of the gradient.
    """

    batch: int = 16
    window: WindowOptions = field(default_factory=WindowOptions)
    degradation: DegradationOptions | None = field(default_factory=DegradationOptions)
    margin: int = 0
    warmup: int = 300
    weight_decay: float = 0.02
    clip_norm: float = 5.0
    validation: int = 8
    epoch: int = 3000

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.batch < 1:
            raise ValueError(f"batch is {self.batch}; expected 1 or more")
        if self.margin < 0:
            raise ValueError(f"margin is {self.margin}; expected 0 crops or more")

    @classmethod
    def for_handwriting(cls) -> Recipe:
        """Return the recipe for fine-tuning on a few pages of handwriting from a detector of printed music.

        Windows are wider and vary more, and the learning rate is lower.
        """
        window = WindowOptions(height=384, width=1280, unscaled=0.15, zoom=0.12, stretch=0.08)
        return cls(steps=4000, batch=12, window=window, learning_rate=7e-4, warmup=200, epoch=1000)

    def training_options(self) -> TrainingOptions:
        """Return the options of the training loop."""
        return replace(super().training_options(), clip_norm=self.clip_norm, checkpoint_every=CHECKPOINT_STEPS)


class PageTask(EMATask[int, Batch]):
    """Base class of training tasks on windows of pages; the items of a plan are numbers of steps.

    Args:
        model: the model; trained in place.
        pack: the pages.
        recipe: the training recipe.
        decay: decay of the average of the weights, as for `EMATask`.

    Attributes:
        device: the training device.
    """

    def __init__(self, model: nn.Module, pack: PagePack, recipe: Recipe, decay: float | None = None) -> None:
        super().__init__(model, decay)
        self.pack = pack
        self.recipe = recipe
        self.device = torch.device("cpu")

    def prepare(self, device: torch.device) -> None:
        """Move the pages to the training device if they fit."""
        super().prepare(device)
        self.device = device
        self.pack.move(device)

    def plan(self, epoch: int) -> Sequence[int]:
        """Return the items of an epoch, the numbers of its steps."""
        return range(epoch * self.recipe.epoch, (epoch + 1) * self.recipe.epoch)


class DetectionTask(PageTask[WindowSample]):
    """Training of a detector on windows of pages; pixels are computed on the training device.

    Args:
        detector: the detector; trained in place.
        pack: training pages.
        validation: validation pages.
        recipe: the training recipe.
        terms: losses that are minimised; the others are only logged.
        log: called with one line per validation, such as print; None: no output.

    Raises:
        ValueError: the classes of the detector differ from those of the pages.
    """

    def __init__(
        self,
        detector: WatershedDetector,
        pack: PagePack,
        validation: Sequence[GroundTruthPage],
        recipe: Recipe,
        *,
        terms: tuple[str, ...] = TERMS,
        log: Callable[[str], None] | None = None,
    ) -> None:
        if detector.classes != pack.classes:
            raise ValueError(
                f"detector: {len(detector.classes)} classes that are not those of the pages; expected the same"
            )
        detector.set_class_weights(torch.from_numpy(pack.counts()))
        super().__init__(LossModule(detector), pack, recipe, recipe.average)
        self.detector = detector
        self.validation = list(validation[: recipe.validation])
        self.terms = terms
        self.log = log
        self.step = 0
        self._windows = WindowSampler(pack, recipe.window)
        self._margins = MarginSampler(pack, recipe.window, recipe.margin) if recipe.margin else None

    def trial(self) -> DetectionTask:
        """Return the same task with a copy of the detector, to measure the time per step."""
        detector = copy.deepcopy(self.detector)
        return DetectionTask(detector, self.pack, self.validation, self.recipe, terms=self.terms)

    def load(self, item: int, rng: np.random.Generator) -> WindowSample:
        """Sample the windows of a step; they are cut out here only if the pages do not fit on the device."""
        windows = self._windows.sample(self.recipe.batch, rng)
        sample = WindowSample(windows) if self._margins is None else WindowSample(*self._margins.sample(windows, rng))
        window = self.recipe.window
        return cut_on_host(sample, self.pack.pixels, self.device, window.height, window.width)

    def loss(self, model: nn.Module, batch: WindowSample, step: int) -> Losses:
        """Compute the losses of the detector, and their sum over `terms`, which is minimised."""
        window = self.recipe.window
        window_batch = make_batch(batch, self.pack.pixels, window.height, window.width, self.recipe.degradation)
        parts: dict[str, Tensor] = model(window_batch)
        total = torch.stack([parts[name] for name in self.terms]).sum()
        return {"loss": total, **{name: value.detach() for name, value in parts.items()}}

    def after_step(self, step: int) -> None:
        """Update the running average of the weights, and the number of the step for `log`."""
        super().after_step(step)
        self.step = step

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Compute the mean average precision on the validation pages, over the classes of the detector."""
        if not self.validation:
            return {}
        assert isinstance(model, LossModule)
        means = mean_precision(model.detector, self.validation, self.device)
        if self.log is not None:
            values = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
            self.log(f"step {self.step} of {self.recipe.steps}: {values}")
        return means

    def trained(self) -> WatershedDetector:
        """Return the detector with the averaged weights, in evaluation mode."""
        module = self.final_model()
        assert isinstance(module, LossModule)
        return module.detector.eval()

    def config(self) -> dict[str, Any]:
        """Return the configuration that must be unchanged when a run is resumed."""
        return {
            "classes": list(self.detector.classes),
            "options": json.loads(json.dumps(self.detector.options.to_dict())),
            "recipe": json.loads(json.dumps(asdict(self.recipe))),
            "terms": list(self.terms),
            "pages": len(self.pack),
            "symbols": len(self.pack.labels),
        }


@torch.no_grad()
def mean_precision(
    detector: WatershedDetector, pages: Sequence[GroundTruthPage], device: torch.device
) -> dict[str, float]:
    """Compute mean AP and AP50 of a detector on pages with known interline, over the classes of the detector."""
    truth, predictions = [], []
    for page in pages:
        image, boxes = scaled_page(page)
        ink = 1 - torch.from_numpy(image).to(device).float()[None, None] / 255  # (1, 1, h, w)
        (objects,) = detector.objects(ink)
        found = {name: value.cpu() for name, value in objects.items()}
        truth.append(drop_duplicates(ground_truth_detections(replace(page, boxes=boxes), "own", detector.classes)))
        predictions.append(Detections(found["boxes"], found["labels"], found["scores"], detector.classes))
    means = average_precision(truth, predictions).means()
    return {"map": means["mAP"], "ap50": means["AP50"]}
