"""torchvision's detectors, trained on the same windows for the same time as the detector of the house.

Used by `experiments.detect_deepscores`; `experiments.detect_rival_models` makes them. Sixteen windows a step, which is
what the detector learns from, may take 75 gigabytes of a GPU: they are seen in two parts.
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
from experiments.detect_rival_models import make_baseline

# torchvision's second versions were trained with AdamW, this decay and 16 images a step, at a third of this rate: they
# began with weights from ImageNet and had days, here they begin with random ones and have minutes. The rest is the
# detector's own: as many windows a step, warm-up, cosine, average of the weights.
RATE = 3e-4
DECAY = 0.05
MIN_VISIBLE = 2.0  # pixels of a symbol whose centre lies beyond the window
PARTS = 2  # of the windows of a step, whose gradients are averaged
CHECKPOINTS = 500  # steps; a rival and what its optimiser knows take half a gigabyte


class BaselineLossModule(nn.Module):
    """A rival as the loop calls it: one batch in, its losses out.

    Args:
        model: torchvision's.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The rival's own losses; what the detector of the house is not asked about is paper to a rival."""
        height, width = batch.ink.shape[-2:]
        limits = batch.boxes.new_tensor([width, height, width, height])
        boxes = batch.boxes.clamp(min=0).minimum(limits)
        boxes = torch.cat([boxes[:, :2], torch.maximum(boxes[:, 2:], boxes[:, :2] + 0.2)], 1)  # none is empty
        targets = [
            {"boxes": boxes[batch.image == number], "labels": batch.labels[batch.image == number]}
            for number in range(len(batch.ink))
        ]
        ink = batch.ink.masked_fill(batch.ignore[:, None], 0.0)
        losses: dict[str, Tensor] = self.model(list(ink.expand(-1, 3, -1, -1)), targets)
        return losses


class BaselineTask(PageTask[WindowSample]):
    """A rival on the same windows as the detector of the house.

    Args:
        model: is trained in place.
        pack: the pages.
        recipe: how; windows and views are those of the detector's own training.
        parts: in how many batches the windows of a step are seen.
    """

    def __init__(self, model: nn.Module, pack: PagePack, recipe: Recipe, parts: int = 1) -> None:
        super().__init__(BaselineLossModule(model), pack, recipe, recipe.average)
        self.parts = parts
        self._sampler = WindowSampler(pack, recipe.window)

    def plan(self, epoch: int) -> Sequence[int]:
        """The numbers of an epoch's batches."""
        batches = self.parts * self.recipe.epoch
        return range(epoch * batches, (epoch + 1) * batches)

    def load(self, item: int, rng: np.random.Generator) -> WindowSample:
        """Draws windows, with the parts of symbols whose centres lie beyond them."""
        window = self.recipe.window
        sample = WindowSample(
            add_truncated_symbols(self._sampler.sample(self.recipe.batch // self.parts, rng), self.pack, window)
        )
        return cut_on_host(sample, self.pack.pixels, self.device, window.height, window.width)

    def loss(self, model: nn.Module, batch: WindowSample, step: int) -> Losses:
        """The sum of the rival's losses, and each."""
        window = self.recipe.window
        parts: dict[str, Tensor] = model(
            make_batch(batch, self.pack.pixels, window.height, window.width, self.recipe.degradation)
        )
        return {"loss": torch.stack(list(parts.values())).sum(), **{n: v.detach() for n, v in parts.items()}}

    def config(self) -> dict[str, Any]:
        """What makes this run this run."""
        recipe = json.loads(json.dumps(asdict(self.recipe)))
        baseline = type(_inner(self.model)).__name__
        return {"baseline": baseline, "recipe": recipe, "pages": len(self.pack), "batches a step": self.parts}


class BaselineDetector:
    """A trained rival, whose boxes are turned back, drawn to the ink and rounded as those of the house are.

    Args:
        model: torchvision's.
        classes: names of its classes.
        device: where to compute.
    """

    def __init__(self, model: nn.Module, classes: tuple[str, ...], device: str | torch.device = "auto") -> None:
        self.device = resolve_device(device)
        self.model = model.to(self.device).eval()
        self.classes = classes

    @torch.inference_mode()
    def detect(self, image: NDArray[np.uint8]) -> Detections:
        """What is on a page, in its pixels."""
        options = InferenceOptions()
        prepared = prepare_page(image, options)
        if prepared.image is None:
            return Detections.empty(self.classes)
        ink = 1 - torch.from_numpy(prepared.image).to(self.device).float() / 255
        found = {name: value.cpu() for name, value in self.model([ink.expand(3, -1, -1)])[0].items()}
        named = found["labels"] > 0  # 0 is the background, which some rivals have a score for
        found = {name: value[named] for name, value in found.items()}
        return to_page_coordinates(Detections.from_dict(found, self.classes), prepared, options)


def train_baseline(
    name: str,
    pack: PagePack,
    recipe: Recipe,
    minutes: float,
    run_dir: Path,
    device: str = "auto",
    start: nn.Module | None = None,
) -> tuple[BaselineDetector, dict[str, Any]]:
    """Trains a rival for a time, from random weights or from those of `start` that fit, and says how that went."""
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
    """Gives a rival what another knows; what has another shape there, as heads for other classes, it keeps."""
    known = start.state_dict()
    fits = {name: known[name] for name, own in model.state_dict().items() if known[name].shape == own.shape}
    model.load_state_dict(fits, strict=False)


def add_truncated_symbols(windows: Windows, pack: PagePack, window: WindowOptions) -> Windows:
    """The windows with what reaches into them from beyond, which the detector of the house leaves to its neighbours.

    A rival is taught boxes, not centres: a staff that is cut off is one in the window too, as far as it can be seen.
    Slivers of less than two pixels, where there is more of the symbol beyond, are left out.
    """
    pages = np.searchsorted(pack.start, windows.start.numpy())
    size = torch.tensor([window.width, window.height], dtype=torch.float32)
    boxes, labels, image = [windows.boxes], [windows.labels], [windows.image]
    for number, page in enumerate(pages.tolist()):
        rows = slice(int(pack.first[page]), int(pack.first[page + 1]))
        corner, zoom = windows.corner[number].repeat(2), windows.zoom[number].repeat(2)
        whole = (torch.from_numpy(pack.boxes[rows]) - corner) * zoom  # (n, 4)
        part = whole.clamp(min=0).minimum(size.repeat(2))
        centre = (whole[:, :2] + whole[:, 2:]) / 2
        beyond = ((centre < 0) | (centre >= size)).any(1)
        enough = ((part[:, 2:] - part[:, :2]) >= (whole[:, 2:] - whole[:, :2]).clamp(max=MIN_VISIBLE) - 1e-3).all(1)
        kept = beyond & enough
        boxes.append(part[kept])
        labels.append(torch.from_numpy(pack.labels[rows])[kept])
        image.append(torch.full((int(kept.sum()),), number))
    return replace(windows, boxes=torch.cat(boxes), labels=torch.cat(labels), image=torch.cat(image))


def baseline_recipe(recipe: Recipe) -> Recipe:
    """The recipe of the detector with the optimiser's settings that are usual for the rivals."""
    return replace(recipe, optimizer="adamw", learning_rate=RATE, weight_decay=DECAY)


def _inner(learner: nn.Module) -> nn.Module:
    """The rival itself."""
    assert isinstance(learner, BaselineLossModule)
    return learner.model
