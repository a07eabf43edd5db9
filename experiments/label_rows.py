"""Shared parts of the experiments of chapter 3: data, features, and rows of every method."""

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
from experiments.label_settings import BALANCED, NEIGHBOURS, OPTIONS, TRAINED, VARIANTS, WITHOUT_PRIORS, Settings
from experiments.ledger import Ledger, command_line, folder_of
from experiments.renamed import stored

SMALL_IMAGES = 600  # of a trial run


@dataclass(frozen=True, eq=False)
class Setting:
    """A data set after the frozen stem, shared by all methods, label counts and seeds.

    Attributes:
        backbone: the network that all methods start from.
        train: views of the training images, n of them.
        test: unaugmented views of the test images.
        labels: true classes of the training images, shape (n,).
        test_labels: true classes of the test images.
        classes: number of classes.
        features: features of the training images from the pretrained backbone, shape (n, d), on the device.
        test_features: features of the test images.
        device: device of views and features.
        pixels: decoded training images, uint8, shape (n, h, w, 3).
        test_pixels: decoded test images.
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
    pixels: NDArray[np.uint8]
    test_pixels: NDArray[np.uint8]

    def network(self) -> ImageNetwork:
        """Return the trainable layers of the backbone with its pretrained weights and a new head."""
        backbone = load_backbone(self.backbone, "cpu", frozen=False)
        return ImageNetwork(split_backbone(backbone)[1], backbone.dim, self.classes)

    def examples(self, given: NDArray[np.int64]) -> SemiSupervisedData:
        """Return the training images, labelled at the given indices."""
        return SemiSupervisedData(self.train, self.codes(given), self.classes)

    def codes(self, given: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the labels at the given indices, -1 elsewhere."""
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
    """Decode a data set and compute the views and features that all methods share.

    Args:
        images: training and test images.
        split: 0 for training and 1 for testing, shape (n,).
        backbone: name of an EfficientNet-Lite.
        options: input size of the network, and the cached views of the training images.
        device: device of views and features.
        stored: width and height at which images are decoded.
    """
    torch_device = resolve_device(device)
    pixels = decode_pixels(images, (stored, stored))
    network = load_backbone(backbone, "cpu", frozen=False)
    preprocessing = replace(network.preprocessing, size=(options.size, options.size), crop=1.0)
    parts = [split[pixels.indices] == part for part in (0, 1)]
    kinds = (options.view_options, with_views(options, ()).view_options)
    live = [LiveViews(pixels.values[rows], preprocessing, kind) for rows, kind in zip(parts, kinds, strict=True)]
    views: Sequence[Views] = live
    if options.views.n_strong:  # some method is trained
        stem, tail = split_backbone(network)
        views = [cache_views(stem, one, torch_device) for one in live]
        features = [compute_outputs(tail, one, torch_device) for one in views]
    else:
        features = [plain_features(replace(network, preprocessing=preprocessing), one, torch_device) for one in live]
    labels, test_labels = (images.labels[pixels.indices][rows] for rows in parts)
    return Setting(
        backbone=backbone,
        train=views[0],
        test=views[1],
        labels=labels,
        test_labels=test_labels,
        classes=len(images.class_names),
        features=features[0],
        test_features=features[1],
        device=torch_device,
        pixels=live[0].bank.values,
        test_pixels=live[1].bank.values,
    )


def plain_features(backbone: Backbone, images: LiveViews, device: torch.device) -> Tensor:
    """Return the features of unaugmented images, shape (n, d); they are cached on disk."""
    origin = (images.bank.digest, backbone.fingerprint, images.flip, device.type)  # a GPU computes in 16 bits
    name = hashlib.blake2b(repr(origin).encode(), digest_size=12).hexdigest()
    file = default_cache_dir() / "plain" / f"{name}.npy"
    if not file.is_file():
        with atomic_path(file) as temporary:
            np.save(temporary, compute_outputs(backbone.module, images, device).cpu().numpy())
    return torch.from_numpy(np.load(file)).to(device)


def graph_row(setting: Setting, w: Any, name: str, given: NDArray[np.int64]) -> dict[str, Any]:
    """Return the accuracy of a propagator, or of the balanced game, on the unlabelled images of the shared graph."""
    codes = setting.codes(given)
    arguments: dict[str, Any] = {
        "affinity": "precomputed",
        "classes": np.arange(setting.classes),
        "device": str(setting.device),
    }
    labeller = (
        GraphTransduction(class_priors="empirical", **arguments) if name == BALANCED else LABELLERS[name](**arguments)
    )
    predicted = labeller.fit(w, codes).transduction_
    unlabelled = codes < 0
    return {"found": _percent(predicted[unlabelled] == setting.labels[unlabelled])}


def shared_graph(setting: Setting) -> Any:
    """Return the graph of the pretrained features, built as in `self_train`."""
    return NeighborGraph(normalize_rows(setting.features), NEIGHBOURS).w


def trained_row(
    setting: Setting, name: str, given: NDArray[np.int64], seed: int, options: AugmentOptions, settings: Settings
) -> dict[str, Any]:
    """Train with a method and evaluate it on the test images.

    Args:
        setting: the data.
        name: one of `TRAINED` or of `VARIANTS`.
        given: indices of the labelled images.
        seed: random seed of the training.
        options: options shared by all methods.
        settings: settings of the method; see `CANDIDATES`.
    """
    about = {"method": name, "settings": dict(settings)}
    if name in FROZEN:
        return {**_frozen_row(setting, name, given, settings["c"]), **about}
    batches = replace(options.method_options, seed=seed)
    epochs, rate = int(settings["epochs"]), settings["learning_rate"]
    training = replace(options.training, seed=seed, epochs=epochs, learning_rate=rate)
    examples = setting.examples(given)
    start = time.perf_counter()
    row: dict[str, Any] = {}
    if name in METHODS:
        method_settings = {key: value for key, value in settings.items() if key not in ("learning_rate", "epochs")}
        task = METHODS[name](setting.network(), examples, batches, **method_settings)
        train(task, training, device=setting.device, progress=False)
        network = task.final_model()
    else:
        labeller = LABELLERS[name.partition("+")[0]]()
        balance = options.balance and name != WITHOUT_PRIORS
        rounds = int(settings["rounds"])
        chosen = replace(options, method_options=batches, training=training, rounds=rounds, balance=balance)
        outcome = self_train(setting.network(), examples, labeller, chosen, setting.device, progress=False)
        network = outcome.network
        unlabelled = examples.codes < 0
        row["found"] = _percent(outcome.pseudo_labels.codes[unlabelled] == setting.labels[unlabelled])
        row["rounds"] = sum(one.accepted for one in outcome.rounds)
    predicted = compute_outputs(network, setting.test, setting.device).argmax(dim=1).cpu().numpy()
    return {**_measures(setting, predicted), **row, **about, "seconds": round(time.perf_counter() - start, 1)}


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
    """Time budget of a run; the next run measures the remaining rows."""

    def __init__(self, minutes: float) -> None:
        self.end = time.monotonic() + 60 * minutes

    def within_budget(self, cells: Sequence[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        """Yield cells until the time is up."""
        for cell in cells:
            if time.monotonic() > self.end:
                print("out of time: run the command again for the remaining rows", flush=True)
                return
            yield cell


def arguments(description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that the experiments of the chapter share."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--seeds", type=one_or_more, default=5, help="Number of random seeds, from 0.")
    parser.add_argument(
        "--methods",
        nargs="+",
        default=list(TRAINED),
        choices=(*TRAINED, *VARIANTS),
        type=stored,
        metavar="METHOD",
        help="Methods to measure.",
    )
    parser.add_argument("--size", type=int, default=OPTIONS.size, help="Width and height of the network's input.")
    parser.add_argument("--minutes", type=float, default=1e6, help="Start no row after this time.")
    parser.add_argument("--workers", type=one_or_more, default=1, help="Processes that share rows and data.")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--results", type=Path, default=None, help="Folder of the results; default: results/.")
    parser.add_argument("--small", action="store_true", help="Trial run: few small images, two steps per method.")
    return parser


def subset_for(images: ImageSet, args: argparse.Namespace) -> ImageSet:
    """Return all images, or an evenly spaced subset for a trial run."""
    if not args.small:
        return images
    return images.subset(np.arange(0, len(images), max(1, len(images) // SMALL_IMAGES)))


def options_of(args: argparse.Namespace) -> AugmentOptions:
    """Return the options that all methods share."""
    if not args.small:
        return replace(OPTIONS, size=args.size)
    return replace(
        OPTIONS,
        size=32,
        views=ViewOptions(n_weak=2, n_strong=1),
        method_options=replace(OPTIONS.method_options, labelled_batch=4, unlabelled_batch=32, min_steps=1),
        training=replace(OPTIONS.training, max_steps=2),
    )


def with_views(options: AugmentOptions, methods: Sequence[str]) -> AugmentOptions:
    """Return the options without strong views if no method is trained: frozen features need unaugmented images only."""
    if not set(methods) <= set(FROZEN):
        return options
    return replace(options, views=replace(options.views, n_weak=2, n_strong=0))


def ledger_of(name: str, args: argparse.Namespace) -> Ledger:
    """Open the ledger; trial runs have a separate folder."""
    settings = {"size": options_of(args).size, "small": args.small}
    folder = folder_of(args.results, small=args.small)
    return Ledger(name, folder, settings, command=command_line(("--minutes",)))


def values(ledger: Ledger, prefix: str, measure: str) -> list[float]:
    """Return one measure of all rows whose keys start with a prefix."""
    return [row[measure] for key, row in ledger.rows.items() if key.startswith(prefix) and measure in row]


def fewest_seeds(ledger: Ledger, prefixes: Iterable[str]) -> int:
    """Return the minimum number of seeds over the prefixes that have rows."""
    return min(len(seeds) for prefix in prefixes if (seeds := values(ledger, prefix, "accuracy")))
