"""Training and inference of torchvision's detectors on the windows and in the time of the Deep Watershed Detector.

Used by `experiments.detect_deepscores`; `experiments.detect_baseline_models` builds the models. The sixteen windows of
a step may take 75 GB of GPU memory and are therefore split into two batches with accumulated gradients.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.compute import resolve_device
from entourage.detect.detections import Detections
from entourage.detect.detector import to_page_coordinates
from entourage.detect.options import InferenceOptions
from entourage.detect.preprocessing.prepare import prepare_page
from entourage.detect.training.task import PageTask, Recipe, WindowSample, cut_on_host, make_batch
from entourage.detect.training.task import WindowBatch as Batch
from entourage.detect.training.windows import PagePack, WindowOptions, Windows, WindowSampler
from entourage.training import TrainingOptions, train
from entourage.training.task import Losses
from entourage.training.time_budget import TRIAL_STEPS, steps_in_budget
from experiments.detect_baseline_models import make_baseline

# torchvision's v2 models were trained with AdamW, this decay and 16 images per step, at a third of this rate, for days
# from ImageNet weights; here training takes minutes from random weights. Windows per step, warm-up, cosine schedule and
# weight averaging are those of the Deep Watershed Detector.
RATE = 3e-4
DECAY = 0.05
MIN_VISIBLE = 2.0  # visible pixels, in each direction, of a symbol whose centre lies outside the window
PARTS = 2  # batches per step, whose gradients are averaged
CHECKPOINTS = 500  # steps between checkpoints of half a gigabyte


class BaselineLossModule(nn.Module):
    """A torchvision detector that maps a batch of windows to its losses.

    Args:
        model: the torchvision detector.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Return the losses of the model; ignored regions are painted as paper."""
        height, width = batch.ink.shape[-2:]
        limits = batch.boxes.new_tensor([width, height, width, height])
        boxes = batch.boxes.clamp(min=0).minimum(limits)
        boxes = torch.cat([boxes[:, :2], torch.maximum(boxes[:, 2:], boxes[:, :2] + 0.2)], 1)  # no box is empty
        targets = [
            {"boxes": boxes[batch.image == number], "labels": batch.labels[batch.image == number]}
            for number in range(len(batch.ink))
        ]
        ink = batch.ink.masked_fill(batch.ignore[:, None], 0.0)
        losses: dict[str, Tensor] = self.model(list(ink.expand(-1, 3, -1, -1)), targets)
        return losses


class BaselineTask(PageTask[WindowSample]):
    """Training of a torchvision detector on the windows of the Deep Watershed Detector.

    Args:
        model: trained in place.
        pack: training pages.
        recipe: training recipe; windows and augmentation are those of the Deep Watershed Detector.
        parts: number of batches into which the windows of a step are split.
    """

    def __init__(self, model: nn.Module, pack: PagePack, recipe: Recipe, parts: int = 1) -> None:
        super().__init__(BaselineLossModule(model), pack, recipe, recipe.average)
        self.parts = parts
        self._sampler = WindowSampler(pack, recipe.window)

    def plan(self, epoch: int) -> Sequence[int]:
        """Return the indices of the batches of an epoch."""
        batches = self.parts * self.recipe.epoch
        return range(epoch * batches, (epoch + 1) * batches)

    def load(self, item: int, rng: np.random.Generator) -> WindowSample:
        """Sample windows, including the visible parts of symbols whose centres lie outside."""
        window = self.recipe.window
        sample = WindowSample(
            add_truncated_symbols(self._sampler.sample(self.recipe.batch // self.parts, rng), self.pack, window)
        )
        return cut_on_host(sample, self.pack.pixels, self.device, window.height, window.width)

    def loss(self, model: nn.Module, batch: WindowSample, step: int) -> Losses:
        """Return the sum of the losses and each of them."""
        window = self.recipe.window
        parts: dict[str, Tensor] = model(
            make_batch(batch, self.pack.pixels, window.height, window.width, self.recipe.degradation)
        )
        return {"loss": torch.stack(list(parts.values())).sum(), **{n: v.detach() for n, v in parts.items()}}

    def config(self) -> dict[str, Any]:
        """Return the configuration that a resumed run must match."""
        recipe = json.loads(json.dumps(asdict(self.recipe)))
        baseline = type(_inner(self.model)).__name__
        return {"baseline": baseline, "recipe": recipe, "pages": len(self.pack), "batches a step": self.parts}


class BaselineDetector:
    """A trained torchvision detector with the pre- and postprocessing of the Deep Watershed Detector.

    Boxes are mapped back to the page, refined to the ink and rounded.

    Args:
        model: the torchvision detector.
        classes: names of its classes.
        device: device of the computation.
    """

    def __init__(self, model: nn.Module, classes: tuple[str, ...], device: str | torch.device = "auto") -> None:
        self.device = resolve_device(device)
        self.model = model.to(self.device).eval()
        self.classes = classes

    @torch.inference_mode()
    def detect(self, image: NDArray[np.uint8]) -> Detections:
        """Return the detections on a page, in page coordinates."""
        options = InferenceOptions()
        prepared = prepare_page(image, options)
        if prepared.image is None:
            return Detections.empty(self.classes)
        ink = 1 - torch.from_numpy(prepared.image).to(self.device).float() / 255
        output = {name: value.cpu() for name, value in self.model([ink.expand(3, -1, -1)])[0].items()}
        is_symbol = output["labels"] > 0  # 0 is the background, which some models score
        output = {name: value[is_symbol] for name, value in output.items()}
        return to_page_coordinates(Detections.from_dict(output, self.classes), prepared, options)


def train_baseline(
    name: str,
    pack: PagePack,
    recipe: Recipe,
    minutes: float,
    run_dir: Path,
    device: str = "auto",
    start: nn.Module | None = None,
) -> tuple[BaselineDetector, dict[str, Any]]:
    """Train a torchvision detector for some minutes, from random weights or the matching ones of `start`.

    Returns:
        The detector, and the steps and seconds of its training.
    """
    torch.manual_seed(recipe.seed)
    recipe = baseline_recipe(recipe)
    model = make_baseline(name, len(pack.classes))
    if start is not None:
        load_matching_weights(model, start)
    parts = PARTS if recipe.batch % PARTS == 0 else 1
    task = BaselineTask(model, pack, recipe, parts)
    trial = BaselineTask(copy.deepcopy(_inner(task.model)), pack, recipe, parts)
    steps = steps_in_budget(
        trial,
        range(TRIAL_STEPS),
        run_dir,
        minutes,
        device,
        steps_per_epoch=recipe.epoch,
        seed=recipe.seed,
        options=_training_options(recipe, parts),
    )
    task.recipe = replace(recipe, steps=steps)
    result = train(task, _training_options(task.recipe, parts), run_dir, device=device, title=name)
    baseline = BaselineDetector(_inner(task.final_model()), pack.classes, device)
    return baseline, {"steps": result.steps, "seconds": result.seconds}


def _training_options(recipe: Recipe, parts: int) -> TrainingOptions:
    return replace(recipe.training_options(), accumulate=parts, checkpoint_every=CHECKPOINTS)


def load_matching_weights(model: nn.Module, start: nn.Module) -> None:
    """Copy the weights of `start` with equal shapes; heads for other classes keep theirs."""
    weights = start.state_dict()
    fits = {name: weights[name] for name, value in model.state_dict().items() if weights[name].shape == value.shape}
    model.load_state_dict(fits, strict=False)


def add_truncated_symbols(windows: Windows, pack: PagePack, window: WindowOptions) -> Windows:
    """Add the visible parts of symbols whose centres lie outside their window.

    The Deep Watershed Detector is supervised at centres and needs only symbols whose centre is inside; torchvision's
    detectors are supervised with boxes, so the visible part of a truncated staff is an object as well. Parts of less
    than two pixels in a direction are left out, unless the symbol itself is as thin.
    """
    pages = np.searchsorted(pack.start, windows.start.numpy())
    size = torch.tensor([window.width, window.height], dtype=torch.float32)
    boxes, labels, image = [windows.boxes], [windows.labels], [windows.image]
    for number, page in enumerate(pages.tolist()):
        rows = slice(int(pack.first[page]), int(pack.first[page + 1]))
        corner, zoom = windows.corner[number].repeat(2), windows.zoom[number].repeat(2)
        full = (torch.from_numpy(pack.boxes[rows]) - corner) * zoom  # (n, 4)
        part = full.clamp(min=0).minimum(size.repeat(2))
        centre = (full[:, :2] + full[:, 2:]) / 2
        outside = ((centre < 0) | (centre >= size)).any(1)
        enough = ((part[:, 2:] - part[:, :2]) >= (full[:, 2:] - full[:, :2]).clamp(max=MIN_VISIBLE) - 1e-3).all(1)
        added = outside & enough
        boxes.append(part[added])
        labels.append(torch.from_numpy(pack.labels[rows])[added])
        image.append(torch.full((int(added.sum()),), number))
    return replace(windows, boxes=torch.cat(boxes), labels=torch.cat(labels), image=torch.cat(image))


def baseline_recipe(recipe: Recipe) -> Recipe:
    """Return the recipe with the optimiser settings of torchvision's detectors."""
    return replace(recipe, optimizer="adamw", learning_rate=RATE, weight_decay=DECAY)


def _inner(learner: nn.Module) -> nn.Module:
    """Return the torchvision detector."""
    assert isinstance(learner, BaselineLossModule)
    return learner.model
