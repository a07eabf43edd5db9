"""Ablations of the detector: presets, margin crops, composed pages, cached boxes, degradation, sampling, stages.

python -m experiments.detect_ablation --train pages --composed composed --test clean=pages scan=scans --minutes 4

Each variant is trained from scratch for the same time, or for --steps, and changes one setting of the default; two
variants only decode the default differently. Compare trainings that ran in parallel by their steps, since they slow
each other down. The presets of the thesis and of its code have the thesis' stages and unrefined boxes, but train on the
same degraded windows for the same time as the others, not on crops of 960 pixels for days.
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
    set_title,
    sort_rows,
    train_or_load,
    training_parser,
    training_row,
)
from experiments.ledger import Ledger, ledger_of
from experiments.tables import missing_note, table

RARE = 100  # classes with fewer symbols in the corpus (without the composed pages) are rare
TITLE = "Detection: ablations"


@dataclass(frozen=True)
class Variant:
    """A variant of the default detector.

    Attributes:
        text: name in the table.
        preset: preset of maps, network and losses.
        composed: whether the training data include composed pages.
        staged: whether training has the thesis' stages.
        recipe: changed fields of the recipe.
        refined: whether boxes are refined to the ink and rounded.
        typical_sizes: whether boxes have the typical size of their class.
        trained: whether the variant is trained; False only decodes the default differently.
    """

    text: str
    preset: str = "default"
    composed: bool = True
    staged: bool = False
    recipe: tuple[tuple[str, Any], ...] = ()
    refined: bool = True
    typical_sizes: bool = False
    trained: bool = True


_LARGE = (("batch", 2), ("learning_rate", 3e-4))  # for the presets with ResNet-101 and maps of stride 1
VARIANTS = {
    "default": Variant("default"),
    "undrawn": Variant("default, boxes not refined to the ink", refined=False, trained=False),
    "cached": Variant(
        "default, cached boxes, not refined to the ink", refined=False, typical_sizes=True, trained=False
    ),
    "thesis": Variant("preset thesis, in stages", preset="thesis", staged=True, recipe=_LARGE, refined=False),
    "original": Variant("preset original, in stages", preset="original", staged=True, recipe=_LARGE, refined=False),
    "margin": Variant("with 12 margin crops", recipe=(("margin", 12),)),
    "no-composed": Variant("without composed pages", composed=False),
    "no-composed-margin": Variant("margin crops instead of composed pages", composed=False, recipe=(("margin", 12),)),
    "no-rare": Variant("uniformly sampled windows", recipe=(("class_balanced", 0.0),)),
    "neither": Variant(
        "uniformly sampled windows, no composed pages", composed=False, recipe=(("class_balanced", 0.0),)
    ),
    "plain": Variant("without degradation", recipe=(("degradation", None),)),
    "staged": Variant("the thesis' stages", staged=True),
}
UNREFINED = InferenceOptions(refine_boxes=False, round_boxes=False)


def main() -> None:
    """Train, measure and write the table."""
    parser = training_parser("Ablations of the detector.", minutes=4)
    parser.add_argument("--composed", nargs="*", default=[], help="Folders of composed training pages.")
    parser.add_argument("--steps", type=int, default=None, help="Steps of each training, instead of --minutes.")
    parser.add_argument("--variants", default=",".join(VARIANTS), help="Variants to measure; default: all.")
    options = parser.parse_args()
    require_test_sets(options)
    if options.steps is not None:
        options.minutes = None
    book = ledger_of("detect_ablation", options.results, small=options.small)
    counts = corpus_counts([page for folder in options.train for page in read_ground_truth(folder, "train")])
    names = options.variants.split(",")
    for name in names:
        if name not in VARIANTS:
            raise ValueError(f"--variants: {name!r} is unknown; expected some of {', '.join(VARIANTS)}")
    sets = load_test_sets(options)
    book.run_jobs({name: partial(measure, book, name, sets, counts, options) for name in names})
    book.write_table(TITLE, _text)


def measure(
    book: Ledger,
    name: str,
    sets: Mapping[str, Sequence[GroundTruthPage]],
    counts: dict[str, int],
    options: argparse.Namespace,
) -> None:
    """Measure the missing rows of one variant on all test sets; train it if there are any."""
    keys = {test: f"{name}: {test}" for test in sets}
    if not book.missing(keys.values()):
        return
    detector, summary = detector_of(name, options)
    record_training(book, _trained_variant(name), summary)
    for test, pages in sets.items():
        book.row(keys[test], partial(scored_row, detector, pages, counts))


def detector_of(name: str, options: argparse.Namespace) -> tuple[Detector, dict[str, Any]]:
    """Return the detector of a variant and the summary of its training."""
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
    """Return the variant whose training a variant uses."""
    return name if VARIANTS[name].trained else "default"


def with_typical_sizes(detector: Detector, pack: PagePack) -> Detector:
    """Return a copy of a detector with cached boxes: the typical box of its class around every centre (thesis).

    Args:
        detector: the detector; not modified.
        pack: its training pages.
    """
    model = deepcopy(detector.model)
    boxes, labels = torch.from_numpy(pack.boxes), torch.from_numpy(pack.labels)
    model.set_typical_sizes(typical_box_sizes(boxes, labels, len(pack.classes)))
    model.options = replace(model.options, decode=replace(model.options.decode, box="class"))
    return Detector(model, detector.options, detector.device)


def scored_row(detector: PageDetector, pages: Sequence[GroundTruthPage], counts: dict[str, int]) -> dict[str, Any]:
    """Evaluate a detector on pages, with a separate mean over the rare classes."""
    row = score_row(evaluate(detector, pages, "v1"))
    rare = [values[1] for label, values in row["classes"].items() if counts.get(label, 0) < RARE]
    return {**row, "rare classes": len(rare), "mAP of rare classes": float(np.mean(rare)) if rare else None}


def corpus_counts(pages: Sequence[GroundTruthPage]) -> dict[str, int]:
    """Count the symbols of each class of V1."""
    names, counts = np.unique([name for page in pages for name in page.v1 if name], return_counts=True)
    return {str(name): int(count) for name, count in zip(names, counts, strict=True)}


def _text(book: Ledger) -> str:
    rows = []
    for key, row in sort_rows(measured_rows(book), VARIANTS).items():
        name, _, test = key.partition(": ")
        training = training_row(book, _trained_variant(name)) or row  # older rows contain it themselves
        figures = (percent(row[figure]) for figure in ("mAP", "AP50", "mAP of rare classes"))
        minutes = f"{training['training_minutes']:.1f}" if "training_minutes" in training else ""
        cost = (str(training.get("steps", "")), minutes)
        rows.append((VARIANTS[name].text, set_title(test), *figures, str(row["rare classes"]), *cost))
    header = (
        "variant",
        "pages",
        "mAP",
        "AP50",
        f"mAP of classes with under {RARE} symbols",
        "number of these",
        "steps",
        "minutes",
    )
    missing = [one.text for name, one in VARIANTS.items() if not any(key.startswith(f"{name}: ") for key in book.rows)]
    return f"{table(header, rows)}\n\n{missing_note(missing)}"


if __name__ == "__main__":
    run_command(main)
