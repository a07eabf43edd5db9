"""The presets of the thesis and of its original code as a whole, on Caltech-101.

ENTOURAGE_DATA=... python -m experiments.label_presets

2, 5 and 10 percent of each class are labelled, at least one image. Graph rows have the accuracy of the game on the
unlabelled images of the whole data set, on features of one backbone and of both; variants of the default preset use
class frequencies or the similarity of classes. Whole rows train a classifier with all options of a preset on 70 % of
the images, split by the seed as in `experiments.label_fractions`, and have its accuracy on the others. A whole row of
the original code takes many minutes, as its batches have eight images.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.backbones.registry import load_backbone
from entourage.compute import resolve_device
from entourage.data.datasets.registry import find_dataset
from entourage.data.pixels import decode_pixels
from entourage.data.splits import sample_labels, stratified_split
from entourage.game.similarity import normalize_rows
from entourage.label.semi_supervised.augmenter import LabelAugmenter
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.pseudo_labels import join_features
from entourage.label.semi_supervised.views import LiveViews, ViewOptions
from entourage.label.transduction import GraphTransduction
from experiments.command import run_command
from experiments.label_fractions import BACKBONES, SHARES, SIDE, TRAIN_SHARE
from experiments.label_rows import Clock, arguments, ledger_of, options_of, plain_features, subset_for, values
from experiments.label_settings import NEIGHBOURS
from experiments.ledger import Ledger
from experiments.tables import mean_and_spread, measured, table

NAME = "label_presets"
BOTH = "both side by side"
DEFAULT, FREQUENCIES, SIMILARITY = "default", "default, class frequencies", "default, similarity of classes"
PRESETS = ("thesis", "original")
VARIANTS = (DEFAULT, FREQUENCIES, SIMILARITY, *PRESETS)
WHOLE_SHARE, WHOLE_BACKBONE = 0.05, "efficientnet-lite1"
STRENGTH = 0.1  # of the similarity of two classes with equal mean features, relative to a class and itself


def main() -> None:
    """Measure the missing rows and write the table."""
    parser = arguments("Presets on Caltech-101.")
    parser.set_defaults(seeds=3)
    parser.add_argument("--whole", nargs="*", default=["thesis", "original"], help="Presets to train as a whole.")
    args = parser.parse_args()
    ledger, clock, images = ledger_of(NAME, args), Clock(args.minutes), subset_for(find_dataset("caltech101"), args)
    graph = list(product((*BACKBONES, BOTH), VARIANTS, SHARES, range(args.seeds)))
    whole = [f"whole/{preset}/{WHOLE_BACKBONE}/{WHOLE_SHARE}/0" for preset in args.whole]
    if ledger.missing([*(_key(*cell) for cell in graph), *whole]):
        pixels = decode_pixels(images, (SIDE, SIDE))
        labels = images.labels[pixels.indices]
        features = _features(pixels.values, args)
        for kind, variant, share, seed in clock.within_budget(graph):
            measure = partial(graph_row, features[kind], labels, variant, share, seed)
            ledger.row(_key(kind, variant, share, seed), measure)
        for preset in args.whole:
            measure = partial(whole_row, pixels.values, labels, preset, args)
            ledger.row(f"whole/{preset}/{WHOLE_BACKBONE}/{WHOLE_SHARE}/0", measure)
    ledger.write_table("Presets of the thesis on Caltech-101", text)


def graph_row(
    features: torch.Tensor, labels: NDArray[np.int64], variant: str, share: float, seed: int
) -> dict[str, Any]:
    """Return the accuracy of a variant of the game on the unlabelled images."""
    given = sample_labels(labels, share, seed)
    codes = np.full(len(labels), -1)
    codes[given] = labels[given]
    start = time.perf_counter()
    points = features.cpu().numpy()
    model = GraphTransduction.from_preset(variant if variant in PRESETS else "default")
    model.set_params(**_arguments(variant, points, codes), device=str(features.device))
    predicted = model.fit(points, codes).transduction_
    unlabelled = codes < 0
    found = round(100 * float((predicted[unlabelled] == labels[unlabelled]).mean()), 3)
    return {"found": found, "seconds": round(time.perf_counter() - start, 2)}


def whole_row(pixels: NDArray[np.uint8], labels: NDArray[np.int64], preset: str, args: Namespace) -> dict[str, Any]:
    """Return the test accuracy of a classifier with all options of a preset."""
    train = stratified_split(labels, TRAIN_SHARE, 0) == 0
    given = sample_labels(labels[train], WHOLE_SHARE, 0)
    codes = np.full(int(train.sum()), -1)
    codes[given] = labels[train][given]
    options = AugmentOptions.from_preset(preset)
    if args.small:
        options = replace(options, size=32, training=replace(options.training, max_steps=1))
    model = LabelAugmenter(
        GraphTransduction.from_preset(preset), WHOLE_BACKBONE, options, device=args.device, progress=False
    )
    start = time.perf_counter()
    predicted = model.fit(pixels[train], codes).predict(pixels[~train])
    accuracy = round(100 * float((predicted == labels[~train]).mean()), 3)
    found = model.transduction_[codes < 0] == labels[train][codes < 0]
    seconds = round(time.perf_counter() - start, 1)
    return {"accuracy": accuracy, "found": round(100 * float(found.mean()), 3), "seconds": seconds}


def text(ledger: Ledger) -> str:
    """Return a table for each set of features, and one of the whole presets."""
    header = ("game", *(f"{share:.0%} labelled" for share in SHARES))
    size = (ledger.settings or {}).get("size", "")
    parts = []
    for kind in (*BACKBONES, BOTH):
        rows = measured(
            (name, *(mean_and_spread(values(ledger, _key(kind, name, share, ""), "found")) for share in SHARES))
            for name in VARIANTS
        )
        if rows:
            source = " and ".join(BACKBONES) if kind == BOTH else kind
            parts += [
                "Accuracy on the unlabelled images, in percent, mean and standard deviation over draws of the labels; "
                f"features of {source} (ImageNet) at {size} pixels, not trained further:",
                table(header, rows),
            ]
    whole = [
        (key.split("/")[1], f"{row['accuracy']:.1f}", f"{row['found']:.1f}", f"{row['seconds'] / 60:.1f}")
        for key, row in ledger.rows.items()
        if key.startswith("whole/")
    ]
    if whole:
        parts += [
            f"Classifiers trained with all options of a preset, {WHOLE_BACKBONE}, {WHOLE_SHARE:.0%} labelled, one "
            "draw: accuracy in percent on the test images and of the labels of the unlabelled training images, and "
            "minutes on a GPU that other processes used, too:",
            table(("preset", "test", "labels found", "minutes"), whole),
        ]
    return "\n\n".join(parts)


def _features(pixels: NDArray[np.uint8], args: Namespace) -> Mapping[str, torch.Tensor]:
    """Return the features of every backbone and of both, shape (n, d), with rows of length 1."""
    device, size = resolve_device(args.device), options_of(args).size
    features = {}
    for name in BACKBONES:
        backbone = load_backbone(name, "cpu", frozen=False)
        backbone = replace(backbone, preprocessing=replace(backbone.preprocessing, size=(size, size), crop=1.0))
        views = LiveViews(pixels, backbone.preprocessing, ViewOptions())
        features[name] = normalize_rows(plain_features(backbone, views, device))
    return {**features, BOTH: join_features(*features.values())}


def _arguments(variant: str, points: NDArray[np.float32], codes: NDArray[np.int64]) -> dict[str, Any]:
    """Return the arguments that differ from those of the preset."""
    classes = np.unique(codes[codes >= 0])
    if variant in PRESETS:
        return {"classes": classes}
    arguments: dict[str, Any] = {"classes": classes, "n_neighbors": NEIGHBOURS}
    if variant == FREQUENCIES:
        arguments["class_priors"] = "empirical"
    if variant == SIMILARITY:
        means = np.stack([points[codes == label].mean(axis=0) for label in classes])
        means /= np.linalg.norm(means, axis=1, keepdims=True)
        arguments["class_similarity"] = np.eye(len(classes)) * (1 - STRENGTH) + STRENGTH * (means @ means.T).clip(0)
    return arguments


def _key(kind: str, variant: str, share: float, seed: int | str) -> str:
    return f"graph/{kind}/{variant}/{share}/{seed}"


if __name__ == "__main__":
    run_command(main)
