"""What each part is worth: presets, margin crops, composed pages, cached boxes, disguises, rare windows, stages.

python -m experiments.detect_ablation --train pages --composed composed --test clean=pages scan=scans --minutes 4

Each row trains anew for the same time and changes one thing of the default.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.detect.detections import Detections
from entourage.detect.detector import Detector
from entourage.detect.evaluate import DetectsPages, evaluate
from entourage.detect.recipe import Recipe
from entourage.detect.teach import TrainJob
from entourage.detect.truth import TruthPage, read_truth
from experiments.claims import in_turn
from experiments.detect_rows import arguments, ledger, percent, recipe_of, scores, sets_of, trained
from experiments.ledger import Ledger
from experiments.tables import table

RARE = 100  # classes with fewer symbols in the corpus (not the composed pages) are rare


@dataclass(frozen=True)
class Variant:
    """A row: what is changed of the default.

    Attributes:
        text: what it is called.
        preset: maps, network and losses.
        composed: whether composed pages are learned from as well.
        staged: the thesis' stages.
        recipe: changes of the recipe.
        cached: whether boxes get the mean size of their class.
    """

    text: str
    preset: str = "default"
    composed: bool = True
    staged: bool = False
    recipe: tuple[tuple[str, Any], ...] = ()
    cached: bool = False


VARIANTS = {
    "default": Variant("default"),
    "thesis": Variant("preset thesis", preset="thesis", recipe=(("batch", 2), ("learning_rate", 3e-4))),
    "original": Variant("preset original", preset="original", recipe=(("batch", 2), ("learning_rate", 3e-4))),
    "margin": Variant("with 12 margin crops", recipe=(("margin", 12),)),
    "no-composed": Variant("without composed pages", composed=False),
    "no-composed-margin": Variant("margin crops in place of composed pages", composed=False, recipe=(("margin", 12),)),
    "no-rare": Variant("windows anywhere", recipe=(("rare", 0.0),)),
    "neither": Variant("windows anywhere, no composed pages", composed=False, recipe=(("rare", 0.0),)),
    "plain": Variant("without disguises", recipe=(("view", None),)),
    "staged": Variant("the thesis' stages", staged=True),
    "cached": Variant("cached boxes", cached=True),
}


def main() -> None:
    """Trains, measures, and writes the table."""
    parser = arguments("What each part of the detector is worth", minutes=4)
    parser.add_argument("--composed", nargs="*", default=[], help="folders of composed pages, learned from as well")
    parser.add_argument("--variants", default="default,margin,no-composed,neither,plain", help=",".join(VARIANTS))
    options = parser.parse_args()
    book = ledger("detect_ablation", options)
    counts = corpus_counts([page for folder in options.train for page in read_truth(folder, "train")])
    names = options.variants.split(",")
    for name in names:
        if name not in VARIANTS:
            raise ValueError(f"variant {name!r} is unknown; expected some of {', '.join(VARIANTS)}")
    sets = sets_of(options)
    in_turn([partial(measure, book, name, sets, counts, options) for name in names])
    book.write_table("Detection: what each part is worth", _text)


def measure(
    book: Ledger,
    name: str,
    sets: Mapping[str, Sequence[TruthPage]],
    counts: dict[str, int],
    options: argparse.Namespace,
) -> None:
    """The rows of one variant, on every set of pages, if no other process is at them."""
    keys = {test: f"{name}: {test}" for test in sets}
    with book.claim(f"all of {name}") as mine:
        if mine and book.free(keys.values()):
            detector, known = detector_of(name, options)
            for test, pages in sets.items():
                book.row(keys[test], lambda p=pages: {**judged(detector, p, counts), **known})  # type: ignore[misc]


def detector_of(name: str, options: argparse.Namespace) -> tuple[DetectsPages, dict[str, Any]]:
    """A variant's detector, and how it was trained."""
    variant = VARIANTS[name]
    changes = dict(variant.recipe)
    recipe = Recipe()
    if "rare" in changes:
        recipe = replace(recipe, window=replace(recipe.window, rare=changes.pop("rare")))
    recipe = recipe_of(options, replace(recipe, **changes))
    folders = [*options.train, *(options.composed if variant.composed else ())]
    job = TrainJob(folders, options.runs, preset=variant.preset, recipe=recipe, staged=variant.staged)
    # Cached boxes are another way to read the default's maps, not another training.
    detector, summary = trained(f"detect_ablation-{'default' if variant.cached else name}", job, options)
    known = {"steps": summary["steps"], "training_minutes": summary["seconds"] / 60}
    return CachedBoxes(detector, mean_sizes(folders)) if variant.cached else detector, known


def judged(detector: DetectsPages, pages: Sequence[TruthPage], counts: dict[str, int]) -> dict[str, Any]:
    """How well a detector does on pages, and on the rare classes among them."""
    row = scores(evaluate(detector, pages, "v1"))
    rare = [ap for label, (_, ap, _) in row["classes"].items() if counts.get(label, 0) < RARE]
    return {**row, "rare classes": len(rare), "mAP of rare classes": float(np.mean(rare)) if rare else None}


def corpus_counts(pages: Sequence[TruthPage]) -> dict[str, int]:
    """How many symbols of each class of V1 there are."""
    names, counts = np.unique([name for page in pages for name in page.v1 if name], return_counts=True)
    return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


def mean_sizes(folders: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The mean width and height of each class in interlines, as the thesis caches them."""
    sums: dict[str, NDArray[np.float64]] = {}
    for page in (page for folder in folders for page in read_truth(folder, "train")):
        for label, box in zip(page.labels, page.boxes, strict=True):
            if label is not None:
                size = np.array([*(box[2:] - box[:2]) / page.interline, 1.0])
                sums[label] = sums.get(label, np.zeros(3)) + size
    return {label: (float(total[0] / total[2]), float(total[1] / total[2])) for label, total in sums.items()}


class CachedBoxes:
    """A detector whose boxes get the mean size of their class, around the centre that was found.

    Args:
        detector: is asked.
        sizes: width and height of each class, in interlines.
    """

    def __init__(self, detector: Detector, sizes: dict[str, tuple[float, float]]) -> None:
        self.detector = detector
        self.classes = detector.classes
        self.sizes = torch.tensor([(0.0, 0.0), *(sizes.get(name, (1.0, 1.0)) for name in detector.classes)])

    def detect(self, image: NDArray[np.uint8]) -> Detections:
        """What is on a page."""
        sight = self.detector.look(image)
        centre = (sight.found.boxes[:, :2] + sight.found.boxes[:, 2:]) / 2
        half = self.sizes[sight.found.labels] * (sight.interline or 1.0) / 2  # (n, 2)
        return replace(sight.found, boxes=torch.cat([centre - half, centre + half], 1))


def _text(book: Ledger) -> str:
    rows = []
    for key, row in book.rows.items():
        name, _, test = key.partition(": ")
        figures = (percent(row[figure]) for figure in ("mAP", "AP50", "mAP of rare classes"))
        rows.append((VARIANTS[name].text, test, *figures, str(row["steps"])))
    return table(("variant", "pages", "mAP", "AP50", f"mAP of classes under {RARE}", "steps"), rows)


if __name__ == "__main__":
    main()
