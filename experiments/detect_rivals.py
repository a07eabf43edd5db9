"""torchvision's detectors, trained on the same windows for the same time as the detector of the house.

Used by `experiments.detect_deepscores`; `experiments.detect_rival_models` makes them. Sixteen windows a step, which is
what the detector learns from, take a GPU with some tens of gigabytes.
"""

from __future__ import annotations

import copy
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.data import resolve_device
from entourage.detect.detections import Detections
from entourage.detect.detector import on_page
from entourage.detect.learner import Batch, Draw, cut_early, make_batch
from entourage.detect.page_task import PageTask
from entourage.detect.ready import DetectOptions, make_ready
from entourage.detect.recipe import Recipe
from entourage.detect.sheets import Sheets
from entourage.detect.windows import WindowDrawer
from entourage.training import Losses, train
from entourage.training.pace import TRIAL_STEPS, steps_within
from experiments.detect_rival_models import make_rival

# torchvision's second versions were trained with AdamW, this decay and 16 images a step, at a third of this rate: they
# began with weights from ImageNet and had days, here they begin with random ones and have minutes. The rest is the
# detector's own: as many windows a step, warm-up, cosine, average of the weights.
RATE = 3e-4
DECAY = 0.05


class RivalLearner(nn.Module):
    """A rival as the loop calls it: one batch in, its losses out.

    Args:
        model: torchvision's.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The rival's own losses."""
        height, width = batch.ink.shape[-2:]
        limits = batch.boxes.new_tensor([width, height, width, height])
        boxes = batch.boxes.clamp(min=0).minimum(limits)
        boxes = torch.cat([boxes[:, :2], torch.maximum(boxes[:, 2:], boxes[:, :2] + 0.2)], 1)  # none is empty
        targets = [
            {"boxes": boxes[batch.image == number], "labels": batch.labels[batch.image == number]}
            for number in range(len(batch.ink))
        ]
        losses: dict[str, Tensor] = self.model(list(batch.ink.expand(-1, 3, -1, -1)), targets)
        return losses


class RivalTask(PageTask[Draw]):
    """A rival on the same windows as the detector of the house.

    Args:
        model: is trained in place.
        sheets: the pages.
        recipe: how; windows and views are those of the detector's own training.
    """

    def __init__(self, model: nn.Module, sheets: Sheets, recipe: Recipe) -> None:
        super().__init__(RivalLearner(model), sheets, recipe, recipe.average)
        self._drawer = WindowDrawer(sheets, recipe.window)

    def load(self, item: int, rng: np.random.Generator) -> Draw:
        """Draws windows."""
        window = self.recipe.window
        draw = Draw(self._drawer.draw(self.recipe.batch, rng))
        return cut_early(draw, self.sheets.pixels, self.device, window.height, window.width)

    def loss(self, model: nn.Module, batch: Draw, step: int) -> Losses:
        """The sum of the rival's losses, and each."""
        window = self.recipe.window
        parts: dict[str, Tensor] = model(
            make_batch(batch, self.sheets.pixels, window.height, window.width, self.recipe.view)
        )
        return {"loss": torch.stack(list(parts.values())).sum(), **{n: v.detach() for n, v in parts.items()}}

    def describe(self) -> dict[str, Any]:
        """What makes this run this run."""
        recipe = json.loads(json.dumps(asdict(self.recipe)))
        return {"rival": type(_inner(self.model)).__name__, "recipe": recipe, "pages": len(self.sheets)}


class RivalDetector:
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
        options = DetectOptions()
        ready = make_ready(image, options)
        if ready.image is None:
            return Detections.empty(self.classes)
        ink = 1 - torch.from_numpy(ready.image).to(self.device).float() / 255
        found = {name: value.cpu() for name, value in self.model([ink.expand(3, -1, -1)])[0].items()}
        named = found["labels"] > 0  # 0 is the background, which some rivals have a score for
        found = {name: value[named] for name, value in found.items()}
        return on_page(Detections.from_dict(found, self.classes), ready, options)


def train_rival(
    name: str, sheets: Sheets, recipe: Recipe, minutes: float, run: Path, device: str = "auto"
) -> tuple[RivalDetector, dict[str, Any]]:
    """Trains a rival for a time, and says how that went."""
    torch.manual_seed(recipe.seed)
    recipe = rival_recipe(recipe)
    task = RivalTask(make_rival(name, len(sheets.classes)), sheets, recipe)
    trial = RivalTask(copy.deepcopy(_inner(task.model)), sheets, recipe)
    steps = steps_within(trial, range(TRIAL_STEPS), run, minutes, device, epoch=recipe.epoch, seed=recipe.seed)
    task.recipe = replace(recipe, steps=steps)
    result = train(task, task.recipe.training_options(), run, device=device, title=name)
    rival = RivalDetector(_inner(task.outcome()), sheets.classes, device)
    return rival, {"steps": result.steps, "seconds": result.seconds}


def rival_recipe(recipe: Recipe) -> Recipe:
    """The recipe of the detector with the optimiser's settings that are usual for the rivals."""
    return replace(recipe, optimizer="adamw", learning_rate=RATE, weight_decay=DECAY)


def _inner(learner: nn.Module) -> nn.Module:
    """The rival itself."""
    assert isinstance(learner, RivalLearner)
    return learner.model
