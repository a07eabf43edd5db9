"""What a step looks at: windows cut out and disguised on the device, and the detector's losses on them.

How a detector is trained: steps, windows, disguise, optimiser.

What all trainings on windows of pages share: the pages, where they are, and steps by number.

What the training loop trains: a detector on windows of pages.
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
from entourage.detect.models.watershed import WatershedDetector
from entourage.detect.training.augmentation import DegradationOptions, Margins, MarginSampler, degrade, paste_margins
from entourage.detect.training.windows import PagePack, WindowOptions, Windows, WindowSampler, cut_windows, scaled_page
from entourage.training.options import StepRecipe, TrainingOptions
from entourage.training.task import Batch, EMATask, Losses

_CELL = 8  # pixels of a cell of the mask of what is not looked at


@dataclass(frozen=True)
class WindowSample:
    """What is drawn for a step, before any pixel is touched.

    Attributes:
        windows: where, and the symbols there.
        margins: crops on top of them, if any.
        ink: the windows' pixels, where the pages do not fit on the device; else None.
    """

    windows: Windows
    margins: Margins | None = None
    ink: Tensor | None = None


@dataclass(frozen=True)
class WindowBatch:
    """What the detector is given: pages (b, 1, h, w), their objects, and what is not looked at (b, h, w)."""

    ink: Tensor
    boxes: Tensor
    labels: Tensor
    image: Tensor
    ignore: Tensor


def cut_ink(sample: WindowSample, pixels: Tensor, height: int, width: int) -> Tensor:
    """The ink of a draw, shape (b, 1, height, width), on the device of the pixels."""
    ink = cut_windows(pixels, sample.windows, height, width)
    return ink if sample.margins is None else paste_margins(ink, pixels, sample.margins)


def cut_on_host(sample: WindowSample, pixels: Tensor, device: torch.device, height: int, width: int) -> WindowSample:
    """The draw as it is where the pages are on the device of training; otherwise with its ink, cut where they are."""
    if pixels.device.type == device.type:
        return sample
    return WindowSample(sample.windows, None, cut_ink(sample, pixels, height, width))


@torch.no_grad()
def make_batch(
    sample: WindowSample, pixels: Tensor, height: int, width: int, degradation: DegradationOptions | None
) -> WindowBatch:
    """All pixels of a step, on the device.

    Args:
        sample: on the device.
        pixels: `PagePack.pixels`, on the same device unless the draw has its ink already.
        height, width: of a window.
        degradation: how windows are disguised; None leaves them as they are.
    """
    ink = cut_ink(sample, pixels, height, width) if sample.ink is None else sample.ink
    if degradation is not None:
        ink = degrade(ink, degradation)
    windows = sample.windows
    ignore = hidden_mask(windows.hidden, windows.hidden_image, (len(ink), height, width))
    ink = ink.contiguous(memory_format=torch.channels_last)
    return WindowBatch(ink, windows.boxes, windows.labels, windows.image, ignore)


def hidden_mask(boxes: Tensor, image: Tensor, shape: tuple[int, int, int]) -> Tensor:
    """Where centres of symbols lie that can mostly not be seen, and some pixels around: (b, h, w) bool."""
    batch, height, width = shape
    rows, columns = -(-height // _CELL), -(-width // _CELL)
    cell = ((boxes[:, :2] + boxes[:, 2:]) / (2 * _CELL)).long()  # (n, 2) x, y
    at = (image * rows + cell[:, 1].clamp(0, rows - 1)) * columns + cell[:, 0].clamp(0, columns - 1)
    mask = torch.zeros(batch * rows * columns, device=boxes.device).index_fill_(0, at, 1.0)
    mask = F.max_pool2d(mask.view(batch, 1, rows, columns), 3, 1, 1)
    return F.interpolate(mask, scale_factor=_CELL, mode="nearest")[:, 0, :height, :width] > 0


class LossModule(nn.Module):
    """The detector as the loop calls it: one batch in, its losses out.

    Args:
        detector: is trained in place.
    """

    def __init__(self, detector: WatershedDetector) -> None:
        super().__init__()
        self.detector = detector

    def forward(self, batch: WindowBatch) -> dict[str, Tensor]:
        """Energy, class and box loss."""
        return self.detector.losses(batch.ink, batch.boxes, batch.labels, batch.image, batch.ignore)


CHECKPOINT_STEPS = 100  # what a run that is stopped loses at most; an epoch has thousands


@dataclass(frozen=True, kw_only=True)
class Recipe(StepRecipe):
    """How a detector is trained; `validation` counts pages, at most.

    Attributes:
        batch: windows a step.
        window: how they are drawn.
        degradation: how they are disguised; None leaves them as they are.
        margin: crops of rare symbols on top of each window; the thesis has 12.
        clip_norm: longest gradient.
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
            raise ValueError(f"margin is {self.margin}; expected a number of crops, or 0 for none")

    @classmethod
    def for_handwriting(cls) -> Recipe:
        """For a few pages by many hands, from a detector that knows print: wider pages, more variation, slower."""
        window = WindowOptions(height=384, width=1280, unscaled=0.15, zoom=0.12, stretch=0.08)
        return cls(steps=4000, batch=12, window=window, learning_rate=7e-4, warmup=200, epoch=1000)

    def training_options(self) -> TrainingOptions:
        """The same for the training loop."""
        return replace(super().training_options(), clip_norm=self.clip_norm, checkpoint_every=CHECKPOINT_STEPS)


class PageTask(EMATask[int, Batch]):
    """A task whose steps are numbers; what they draw comes from the loop's generator.

    Args:
        model: is trained in place.
        pack: the pages.
        recipe: how.
        decay: of the average of the weights, as for `EMATask`.

    Attributes:
        device: where training takes place.
    """

    def __init__(self, model: nn.Module, pack: PagePack, recipe: Recipe, decay: float | None = None) -> None:
        super().__init__(model, decay)
        self.pack = pack
        self.recipe = recipe
        self.device = torch.device("cpu")

    def prepare(self, device: torch.device) -> None:
        """Takes the pages to the device, if they fit."""
        super().prepare(device)
        self.device = device
        self.pack.move(device)

    def plan(self, epoch: int) -> Sequence[int]:
        """The numbers of an epoch's steps."""
        return range(epoch * self.recipe.epoch, (epoch + 1) * self.recipe.epoch)


class DetectionTask(PageTask[WindowSample]):
    """What the training loop trains. A step draws windows by number; their pixels are made on the device.

    Args:
        detector: is trained in place.
        pack: the pages to learn from.
        validation: pages to validate with.
        recipe: how.
        terms: the losses that are minimised; the others are only logged.
        log: is told of every validation in a line, e.g. print; None says nothing.

    Raises:
        ValueError: the classes of the detector are not those of the pages.
    """

    def __init__(
        self,
        detector: WatershedDetector,
        pack: PagePack,
        validation: Sequence[GroundTruthPage],
        recipe: Recipe,
        *,
        terms: tuple[str, ...] = ("energy", "class", "box"),
        log: Callable[[str], None] | None = None,
    ) -> None:
        if detector.classes != pack.classes:
            raise ValueError(f"the detector has {len(detector.classes)} classes, the pages other ones; expected equal")
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
        """The same task with a detector of its own, to measure its pace with."""
        detector = copy.deepcopy(self.detector)
        return DetectionTask(detector, self.pack, self.validation, self.recipe, terms=self.terms)

    def load(self, item: int, rng: np.random.Generator) -> WindowSample:
        """Draws windows and looks up their symbols; cuts them here only if the pages did not fit on the device."""
        windows = self._windows.sample(self.recipe.batch, rng)
        sample = WindowSample(windows) if self._margins is None else WindowSample(*self._margins.sample(windows, rng))
        window = self.recipe.window
        return cut_on_host(sample, self.pack.pixels, self.device, window.height, window.width)

    def loss(self, model: nn.Module, batch: WindowSample, step: int) -> Losses:
        """The sum of the losses, and each."""
        window = self.recipe.window
        made = make_batch(batch, self.pack.pixels, window.height, window.width, self.recipe.degradation)
        parts: dict[str, Tensor] = model(made)
        total = torch.stack([parts[name] for name in self.terms]).sum()
        return {"loss": total, **{name: value.detach() for name, value in parts.items()}}

    def after_step(self, step: int) -> None:
        """Keeps the average up to date, and the count for `log`."""
        super().after_step(step)
        self.step = step

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean average precision of the network's own classes on pages it does not learn from."""
        if not self.validation:
            return {}
        assert isinstance(model, LossModule)
        means = mean_precision(model.detector, self.validation, self.device)
        if self.log is not None:
            found = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
            self.log(f"step {self.step} of {self.recipe.steps}: {found}")
        return means

    def trained(self) -> WatershedDetector:
        """The averaged detector, in evaluation mode."""
        learner = self.final_model()
        assert isinstance(learner, LossModule)
        return learner.detector.eval()

    def config(self) -> dict[str, Any]:
        """What makes this run this run."""
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
    """Mean AP and AP50 of the detector's own classes on pages, whose interline is known."""
    truth, found = [], []
    for page in pages:
        image, boxes = scaled_page(page)
        ink = 1 - torch.from_numpy(image).to(device).float()[None, None] / 255  # (1, 1, h, w)
        (seen,) = ({name: value.cpu() for name, value in each.items()} for each in detector.objects(ink))
        truth.append(drop_duplicates(ground_truth_detections(replace(page, boxes=boxes), "own", detector.classes)))
        found.append(Detections(seen["boxes"], seen["labels"], seen["scores"], detector.classes))
    means = average_precision(truth, found).means()
    return {"map": means["mAP"], "ap50": means["AP50"]}
