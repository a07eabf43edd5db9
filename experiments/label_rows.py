"""What the experiments of chapter 3 share: images as a network sees them, and every method on them by name."""

from __future__ import annotations

import argparse
import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.metrics import f1_score
from torch import Tensor

from entourage.backbones.backbone import Backbone
from entourage.backbones.features import default_cache_dir
from entourage.backbones.finetuning import split_backbone
from entourage.backbones.registry import load_backbone
from entourage.compute import resolve_device
from entourage.data.image_set import ImageSet
from entourage.data.pixels import decode_pixels
from entourage.game import NeighborGraph
from entourage.game.similarity import normalize_rows
from entourage.io.files import atomic_path
from entourage.label.semi_supervised.baselines import FROZEN, LABELLERS, METHODS, frozen_classifier
from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.network import ImageNetwork, compute_outputs
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.self_training import self_train
from entourage.label.semi_supervised.views import LiveViews, ViewOptions, Views, cache_views
from entourage.label.transduction import GraphTransduction
from entourage.training import train
from experiments.command import one_or_more
from experiments.label_settings import BALANCED, NEIGHBOURS, OPTIONS, TRAINED, UNTOLD, VARIANTS, Settings
from experiments.ledger import Ledger, command_line, folder_of

SMALL_IMAGES = 600  # of a rehearsal


@dataclass(frozen=True, eq=False)
class Setting:
    """A data set as a frozen stem sees it, once for all methods, label counts and seeds.

    Attributes:
        backbone: the network that all methods start from.
        train: views of the training images, n of them.
        test: the test images as they are.
        labels: true classes of the training images, shape (n,).
        test_labels: and of the test images.
        classes: how many, m.
        features: of the training images, from the untrained backbone, shape (n, d), on the device.
        test_features: and of the test images.
        device: where all of it is.
    """

    backbone: str
    train: Views
    test: Views
    labels: NDArray[np.int64]
    test_labels: NDArray[np.int64]
    classes: int
    features: Tensor
    test_features: Tensor
    device: torch.device

    def network(self) -> ImageNetwork:
        """The late part of the backbone as it came, with an empty head."""
        backbone = load_backbone(self.backbone, "cpu", frozen=False)
        return ImageNetwork(split_backbone(backbone)[1], backbone.dim, self.classes)

    def examples(self, given: NDArray[np.int64]) -> SemiSupervisedData:
        """The training images, those at the given positions with their labels."""
        return SemiSupervisedData(self.train, self.codes(given), self.classes)

    def codes(self, given: NDArray[np.int64]) -> NDArray[np.int64]:
        """The labels at the given positions, -1 elsewhere."""
        codes = np.full(len(self.labels), -1)
        codes[given] = self.labels[given]
        return codes


def prepare(
    images: ImageSet,
    split: NDArray[np.uint8],
    backbone: str,
    options: AugmentOptions,
    device: str | torch.device,
    stored: int,
) -> Setting:
    """Decode a data set and let the stem look at it.

    Args:
        images: all of them.
        split: 0 for training and 1 for testing, shape (n,).
        backbone: an EfficientNet-Lite.
        options: size of the network's input, and which views of the training images are kept.
        device: where.
        stored: side at which images are decoded, their own.
    """
    place = resolve_device(device)
    pixels = decode_pixels(images, (stored, stored))
    network = load_backbone(backbone, "cpu", frozen=False)
    preprocessing = replace(network.preprocessing, size=(options.size, options.size), crop=1.0)
    parts = [split[pixels.indices] == part for part in (0, 1)]
    kinds = (options.view_options, with_views(options, ()).view_options)
    seen = [LiveViews(pixels.values[rows], preprocessing, kept) for rows, kept in zip(parts, kinds, strict=True)]
    views: Sequence[Views] = seen
    if options.views.n_strong:  # something is to be trained
        stem, tail = split_backbone(network)
        views = [cache_views(stem, one, place) for one in seen]
        features = [compute_outputs(tail, one, place) for one in views]
    else:
        features = [plain_features(replace(network, preprocessing=preprocessing), one, place) for one in seen]
    known, asked = (images.labels[pixels.indices][rows] for rows in parts)
    classes = len(images.class_names)
    return Setting(backbone, views[0], views[1], known, asked, classes, features[0], features[1], place)


def plain_features(backbone: Backbone, images: LiveViews, device: torch.device) -> Tensor:
    """What a backbone makes of images as they are, shape (n, d), computed once and then read from the cache."""
    origin = (images.bank.digest, backbone.fingerprint, images.flip, device.type)  # a GPU rounds to 16 bits
    name = hashlib.blake2b(repr(origin).encode(), digest_size=12).hexdigest()
    file = default_cache_dir() / "plain" / f"{name}.npy"
    if not file.is_file():
        with atomic_path(file) as temporary:
            np.save(temporary, compute_outputs(backbone.module, images, device).cpu().numpy())
    return torch.from_numpy(np.load(file)).to(device)


def graph_row(setting: Setting, w: Any, name: str, given: NDArray[np.int64]) -> dict[str, Any]:
    """How many unlabelled images a propagator, or the balanced game, labels right on a graph that all share."""
    codes = setting.codes(given)
    told: dict[str, Any] = {
        "affinity": "precomputed",
        "classes": np.arange(setting.classes),
        "device": str(setting.device),
    }
    labeller = GraphTransduction(class_priors="empirical", **told) if name == BALANCED else LABELLERS[name](**told)
    found = labeller.fit(w, codes).transduction_
    unknown = codes < 0
    return {"found": _percent(found[unknown] == setting.labels[unknown])}


def shared_graph(setting: Setting) -> Any:
    """The graph of the untrained backbone's features, as `self_train` makes its own."""
    return NeighborGraph(normalize_rows(setting.features), NEIGHBOURS).w


def trained_row(
    setting: Setting, name: str, given: NDArray[np.int64], seed: int, options: AugmentOptions, settings: Settings
) -> dict[str, Any]:
    """Train by a method and measure on the test images.

    Args:
        setting: the data.
        name: one of `TRAINED` or of `VARIANTS`.
        given: positions of the labelled images.
        seed: of the training.
        options: of all methods alike.
        settings: the method's own; see `CANDIDATES`.
    """
    told = {"method": name, "settings": dict(settings)}
    if name in FROZEN:
        return {**_frozen_row(setting, name, given, settings["c"]), **told}
    batches = replace(options.method_options, seed=seed)
    epochs, rate = int(settings["epochs"]), settings["learning_rate"]
    training = replace(options.training, seed=seed, epochs=epochs, learning_rate=rate)
    examples = setting.examples(given)
    began = time.perf_counter()
    row: dict[str, Any] = {}
    if name in METHODS:
        own = {key: value for key, value in settings.items() if key not in ("learning_rate", "epochs")}
        task = METHODS[name](setting.network(), examples, batches, **own)
        train(task, training, device=setting.device, progress=False)
        network = task.final_model()
    else:
        labeller = LABELLERS[name.partition("+")[0]]()
        told_shares = options.balance and name != UNTOLD
        rounds = int(settings["rounds"])
        chosen = replace(options, method_options=batches, training=training, rounds=rounds, balance=told_shares)
        outcome = self_train(setting.network(), examples, labeller, chosen, setting.device, progress=False)
        network = outcome.network
        unknown = examples.codes < 0
        row["found"] = _percent(outcome.pseudo_labels.codes[unknown] == setting.labels[unknown])
        row["rounds"] = sum(one.accepted for one in outcome.rounds)
    predicted = compute_outputs(network, setting.test, setting.device).argmax(dim=1).cpu().numpy()
    return {**_measures(setting, predicted), **row, **told, "seconds": round(time.perf_counter() - began, 1)}


def _frozen_row(setting: Setting, name: str, given: NDArray[np.int64], c: float) -> dict[str, Any]:
    features = setting.features[torch.from_numpy(given).to(setting.device)].cpu().numpy()
    fitted = frozen_classifier(name, c).fit(features, setting.labels[given])
    return _measures(setting, fitted.predict(setting.test_features.cpu().numpy()))


def _measures(setting: Setting, predicted: NDArray[np.int64]) -> dict[str, Any]:
    right = _percent(predicted == setting.test_labels)
    return {"accuracy": right, "macro_f": round(100 * f1_score(setting.test_labels, predicted, average="macro"), 3)}


def _percent(right: NDArray[np.bool_]) -> float:
    return round(100 * float(right.mean()), 3)


class Clock:
    """Ends an experiment in good time: rows that are not begun wait for the next call."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def until_late(self, cells: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """The cells, as long as there is time."""
        for cell in cells:
            if time.monotonic() > self.end:
                print("out of time: run the command again for the remaining rows", flush=True)
                return
            yield cell


def arguments(description: str) -> argparse.ArgumentParser:
    """What all experiments of the chapter can be told."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=one_or_more, default=5, help="how many, from 0")
    parser.add_argument("--methods", nargs="+", default=list(TRAINED), choices=(*TRAINED, *VARIANTS))
    parser.add_argument("--size", type=int, default=OPTIONS.size, help="side of the network's input")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no row after so many")
    parser.add_argument("--workers", type=one_or_more, default=1, help="processes that share the rows and the data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=None, help="folder for the results")
    parser.add_argument("--small", action="store_true", help="few small images, two steps each: a rehearsal")
    return parser


def rehearsal(images: ImageSet, told: argparse.Namespace) -> ImageSet:
    """All images, or in a rehearsal every so manieth of them."""
    if not told.small:
        return images
    return images.subset(np.arange(0, len(images), max(1, len(images) // SMALL_IMAGES)))


def options_of(told: argparse.Namespace) -> AugmentOptions:
    """What all methods are told alike."""
    if not told.small:
        return replace(OPTIONS, size=told.size)
    return replace(
        OPTIONS,
        size=32,
        views=ViewOptions(n_weak=2, n_strong=1),
        method_options=replace(OPTIONS.method_options, labelled_batch=4, unlabelled_batch=32, min_steps=1),
        training=replace(OPTIONS.training, max_steps=2),
    )


def with_views(options: AugmentOptions, methods: Sequence[str]) -> AugmentOptions:
    """The options with no more kept views than the methods look at: what trains nothing sees images as they are."""
    if not set(methods) <= set(FROZEN):
        return options
    return replace(options, views=replace(options.views, n_weak=2, n_strong=0))


def ledger_of(name: str, told: argparse.Namespace) -> Ledger:
    """The rows so far; those of a rehearsal have a folder of their own."""
    settings = {"size": options_of(told).size, "small": told.small}
    folder = folder_of(told.results, small=told.small)
    return Ledger(name, folder, settings, command=command_line(("--minutes",)))


def values(ledger: Ledger, prefix: str, what: str) -> list[float]:
    """One figure of all rows whose name begins so."""
    return [row[what] for key, row in ledger.rows.items() if key.startswith(prefix) and what in row]


def fewest_seeds(ledger: Ledger, prefixes: Iterable[str]) -> int:
    """With how many seeds a method was measured, where it was at all: the least over rows whose names begin so."""
    return min(len(found) for prefix in prefixes if (found := values(ledger, prefix, "accuracy")))
