"""What each part is worth: presets, margin crops, composed pages, cached boxes, disguises, rare windows, stages.

python -m experiments.detect_ablation --train pages --composed composed --test clean=pages scan=scans --minutes 4

Each row trains anew for the same time, or for --steps, and changes one thing of the default; two read the default's
maps another way. Trainings side by side are to be compared by steps: their time is that of what runs beside them.
The presets of the thesis and of its code have the thesis' stages and boxes as their maps say, but learn from the same
disguised windows for the same time as the others, not from crops of 960 pixels for days.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from entourage.detect.detector import Detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage, read_ground_truth
from entourage.detect.evaluation.page_evaluation import PageDetector, evaluate
from entourage.detect.models.decode import typical_box_sizes
from entourage.detect.options import InferenceOptions
from entourage.detect.training.task import Recipe
from entourage.detect.training.train import TrainConfig
from entourage.detect.training.windows import PagePack
from experiments.command import run_command
from experiments.detect_rows import (
    load_test_sets,
    make_recipe,
    measured_rows,
    packed_pages,
    percent,
    record_training,
    require_test_sets,
    score_row,
    sort_rows,
    train_or_load,
    training_parser,
    training_row,
)
from experiments.ledger import Ledger, ledger_of
from experiments.tables import missing_told, table

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
        refined: whether boxes are drawn to the ink and to whole pixels, or are left as the maps say.
        typical_sizes: whether boxes have the size of their class.
        trained: False: this is another way to read the default's maps, not another training.
    """

    text: str
    preset: str = "default"
    composed: bool = True
    staged: bool = False
    recipe: tuple[tuple[str, Any], ...] = ()
    refined: bool = True
    typical_sizes: bool = False
    trained: bool = True


_LARGE = (("batch", 2), ("learning_rate", 3e-4))  # of the presets with ResNet-101 and a map cell a pixel
VARIANTS = {
    "default": Variant("default"),
    "undrawn": Variant("default, boxes not drawn to the ink", refined=False, trained=False),
    "cached": Variant("default, cached boxes, not drawn to the ink", refined=False, typical_sizes=True, trained=False),
    "thesis": Variant("preset thesis, in stages", preset="thesis", staged=True, recipe=_LARGE, refined=False),
    "original": Variant("preset original, in stages", preset="original", staged=True, recipe=_LARGE, refined=False),
    "margin": Variant("with 12 margin crops", recipe=(("margin", 12),)),
    "no-composed": Variant("without composed pages", composed=False),
    "no-composed-margin": Variant("margin crops in place of composed pages", composed=False, recipe=(("margin", 12),)),
    "no-rare": Variant("windows anywhere", recipe=(("class_balanced", 0.0),)),
    "neither": Variant("windows anywhere, no composed pages", composed=False, recipe=(("class_balanced", 0.0),)),
    "plain": Variant("without disguises", recipe=(("degradation", None),)),
    "staged": Variant("the thesis' stages", staged=True),
}
UNREFINED = InferenceOptions(refine_boxes=False, round_boxes=False)


def main() -> None:
    """Trains, measures, and writes the table."""
    parser = training_parser("What each part of the detector is worth", minutes=4)
    parser.add_argument("--composed", nargs="*", default=[], help="folders of composed pages, learned from as well")
    parser.add_argument("--steps", type=int, default=None, help="of each training, in place of --minutes")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="some of these, which are all")
    options = parser.parse_args()
    require_test_sets(options)
    if options.steps is not None:
        options.minutes = None
    book = ledger_of("detect_ablation", options.results, small=options.small)
    counts = corpus_counts([page for folder in options.train for page in read_ground_truth(folder, "train")])
    names = options.variants.split(",")
    for name in names:
        if name not in VARIANTS:
            raise ValueError(f"variant {name!r} is unknown; expected some of {', '.join(VARIANTS)}")
    sets = load_test_sets(options)
    book.work_through({name: partial(measure, book, name, sets, counts, options) for name in names})
    book.write_table("Detection: what each part is worth", _text)


def measure(
    book: Ledger,
    name: str,
    sets: Mapping[str, Sequence[GroundTruthPage]],
    counts: dict[str, int],
    options: argparse.Namespace,
) -> None:
    """The rows of one variant, on every set of pages; it is trained if any is missing."""
    keys = {test: f"{name}: {test}" for test in sets}
    if not book.free(keys.values()):
        return
    detector, summary = detector_of(name, options)
    record_training(book, _trained_variant(name), summary)
    for test, pages in sets.items():
        book.row(keys[test], partial(scored_row, detector, pages, counts))


def detector_of(name: str, options: argparse.Namespace) -> tuple[Detector, dict[str, Any]]:
    """A variant's detector, and how its training went."""
    variant = VARIANTS[name]
    changes = dict(variant.recipe)
    recipe = Recipe() if options.steps is None else Recipe(steps=options.steps)
    if "class_balanced" in changes:
        recipe = replace(recipe, window=replace(recipe.window, class_balanced=changes.pop("class_balanced")))
    recipe = make_recipe(options, replace(recipe, **changes))
    folders = [*options.train, *(options.composed if variant.composed else ())]
    config = TrainConfig(folders, options.runs, preset=variant.preset, recipe=recipe, staged=variant.staged)
    inference = InferenceOptions() if variant.refined else UNREFINED
    detector, summary = train_or_load(f"detect_ablation-{_trained_variant(name)}", config, options, inference)
    return with_typical_sizes(detector, packed_pages(config)) if variant.typical_sizes else detector, summary


def _trained_variant(name: str) -> str:
    """The variant that learns what a variant knows."""
    return name if VARIANTS[name].trained else "default"


def with_typical_sizes(detector: Detector, pack: PagePack) -> Detector:
    """The detector with cached boxes, as the thesis has them: around every centre the typical box of its class.

    Args:
        detector: is left as it is.
        pack: the pages that it learned from.
    """
    model = deepcopy(detector.model)
    boxes, labels = torch.from_numpy(pack.boxes), torch.from_numpy(pack.labels)
    model.set_typical_sizes(typical_box_sizes(boxes, labels, len(pack.classes)))
    model.options = replace(model.options, decode=replace(model.options.decode, box="class"))
    return Detector(model, detector.options, detector.device)


def scored_row(detector: PageDetector, pages: Sequence[GroundTruthPage], counts: dict[str, int]) -> dict[str, Any]:
    """How well a detector does on pages, and on the rare classes among them."""
    row = score_row(evaluate(detector, pages, "v1"))
    rare = [values[1] for label, values in row["classes"].items() if counts.get(label, 0) < RARE]
    return {**row, "rare classes": len(rare), "mAP of rare classes": float(np.mean(rare)) if rare else None}


def corpus_counts(pages: Sequence[GroundTruthPage]) -> dict[str, int]:
    """How many symbols of each class of V1 there are."""
    names, counts = np.unique([name for page in pages for name in page.v1 if name], return_counts=True)
    return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


def _text(book: Ledger) -> str:
    rows = []
    for key, row in sort_rows(measured_rows(book), VARIANTS).items():
        name, _, test = key.partition(": ")
        known = training_row(book, _trained_variant(name)) or row  # a row may tell its own
        figures = (percent(row[figure]) for figure in ("mAP", "AP50", "mAP of rare classes"))
        minutes = f"{known['training_minutes']:.1f}" if "training_minutes" in known else ""
        learned = (str(known.get("steps", "")), minutes)
        rows.append((VARIANTS[name].text, test, *figures, str(row["rare classes"]), *learned))
    header = ("variant", "pages", "mAP", "AP50", f"mAP of classes under {RARE}", "of these", "steps", "minutes")
    missing = [one.text for name, one in VARIANTS.items() if not any(key.startswith(f"{name}: ") for key in book.rows)]
    return f"{table(header, rows)}\n\n{missing_told(missing)}"  # blanks at the end are cut off


if __name__ == "__main__":
    run_command(main)
