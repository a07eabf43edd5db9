"""What the training loop trains: a detector on windows of pages."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from entourage.detect.detections import Detections
from entourage.detect.evaluation.evaluate import known_objects
from entourage.detect.evaluation.ground_truth import TruthPage
from entourage.detect.evaluation.precision import score_pages, without_twins
from entourage.detect.models.model import WatershedDetector
from entourage.detect.training.learner import Draw, Learner, cut_early, make_batch
from entourage.detect.training.margin import MarginDrawer
from entourage.detect.training.page_task import PageTask
from entourage.detect.training.recipe import Recipe
from entourage.detect.training.sheets import Sheets, scaled_page
from entourage.detect.training.windows import WindowDrawer
from entourage.training.task import Losses


class DetectionTask(PageTask[Draw]):
    """What the training loop trains. A step draws windows by number; their pixels are made on the device.

    Args:
        detector: is trained in place.
        sheets: the pages to learn from.
        validation: pages to validate with.
        recipe: how.
        terms: the losses that are minimised; the others are only logged.
        say: is told of every validation in a line, e.g. print; None says nothing.

    Raises:
        ValueError: the classes of the detector are not those of the pages.
    """

    def __init__(
        self,
        detector: WatershedDetector,
        sheets: Sheets,
        validation: Sequence[TruthPage],
        recipe: Recipe,
        *,
        terms: tuple[str, ...] = ("energy", "class", "box"),
        say: Callable[[str], None] | None = None,
    ) -> None:
        if detector.classes != sheets.classes:
            raise ValueError(f"the detector has {len(detector.classes)} classes, the pages other ones; expected equal")
        detector.balance(torch.from_numpy(sheets.counts()))
        super().__init__(Learner(detector), sheets, recipe, recipe.average)
        self.detector = detector
        self.validation = list(validation[: recipe.validation])
        self.terms = terms
        self.say = say
        self.step = 0
        self._windows = WindowDrawer(sheets, recipe.window)
        self._margins = MarginDrawer(sheets, recipe.window, recipe.margin) if recipe.margin else None

    def trial(self) -> DetectionTask:
        """The same task with a detector of its own, to measure its pace with."""
        detector = copy.deepcopy(self.detector)
        return DetectionTask(detector, self.sheets, self.validation, self.recipe, terms=self.terms)

    def load(self, item: int, rng: np.random.Generator) -> Draw:
        """Draws windows and looks up their symbols; cuts them here only if the pages did not fit on the device."""
        windows = self._windows.draw(self.recipe.batch, rng)
        draw = Draw(windows) if self._margins is None else Draw(*self._margins.draw(windows, rng))
        window = self.recipe.window
        return cut_early(draw, self.sheets.pixels, self.device, window.height, window.width)

    def loss(self, model: nn.Module, batch: Draw, step: int) -> Losses:
        """The sum of the losses, and each."""
        window = self.recipe.window
        made = make_batch(batch, self.sheets.pixels, window.height, window.width, self.recipe.view)
        parts: dict[str, Tensor] = model(made)
        total = torch.stack([parts[name] for name in self.terms]).sum()
        return {"loss": total, **{name: value.detach() for name, value in parts.items()}}

    def after_step(self, step: int) -> None:
        """Keeps the average up to date, and the count for `say`."""
        super().after_step(step)
        self.step = step

    def validate(self, model: nn.Module) -> dict[str, float]:
        """Mean average precision of the network's own classes on pages it does not learn from."""
        if not self.validation:
            return {}
        assert isinstance(model, Learner)
        means = average_precision(model.detector, self.validation, self.device)
        if self.say is not None:
            found = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
            self.say(f"step {self.step} of {self.recipe.steps}: {found}")
        return means

    def trained(self) -> WatershedDetector:
        """The averaged detector, in evaluation mode."""
        learner = self.outcome()
        assert isinstance(learner, Learner)
        return learner.detector.eval()

    def describe(self) -> dict[str, Any]:
        """What makes this run this run."""
        return {
            "classes": list(self.detector.classes),
            "options": json.loads(json.dumps(self.detector.options.to_dict())),
            "recipe": json.loads(json.dumps(asdict(self.recipe))),
            "terms": list(self.terms),
            "pages": len(self.sheets),
            "symbols": len(self.sheets.labels),
        }


@torch.no_grad()
def average_precision(
    detector: WatershedDetector, pages: Sequence[TruthPage], device: torch.device
) -> dict[str, float]:
    """Mean AP and AP50 of the detector's own classes on pages, whose interline is known."""
    truth, found = [], []
    for page in pages:
        image, boxes = scaled_page(page)
        ink = 1 - torch.from_numpy(image).to(device).float()[None, None] / 255  # (1, 1, h, w)
        (seen,) = ({name: value.cpu() for name, value in each.items()} for each in detector.objects(ink))
        truth.append(without_twins(known_objects(replace(page, boxes=boxes), "own", detector.classes)))
        found.append(Detections(seen["boxes"], seen["labels"], seen["scores"], detector.classes))
    means = score_pages(truth, found).means()
    return {"map": means["mAP"], "ap50": means["AP50"]}
