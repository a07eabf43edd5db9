"""Retrieval with pretrained features without training: size of the input, pooling, ensembles, use of neighbours.

    python -m experiments.embed_frozen

Nothing is trained, so that all classes are unseen. The training classes serve as validation data: the best method by
their Recall@1 is marked, separately for methods that embed each image by itself and for those that use the other
images of the test set. Images of the packs have 128 x 128 pixels and are enlarged to the size of the input.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from entourage.backbones.backbone import Preprocessing
from entourage.backbones.registry import load_backbone
from entourage.compute import resolve_device
from entourage.data.datasets.registry import find_dataset
from entourage.data.pixels import decode_pixels
from entourage.embed import expand_with_neighbors, retrieval_metrics
from entourage.embed.models import build_network, concatenate_embeddings, embed_rows
from entourage.training.images import ImageBank
from experiments.cells import Cell, Experiment, Table, arguments, main
from experiments.command import run_command
from experiments.ledger import Ledger

PARTS = ("training classes", "test classes")  # validation and test
METRICS = ("recall@1", "recall@2", "recall@4", "recall@8", "map@r")
BASE = "Lite1, 128 px, mean"
DEFAULT = "Lite1, 240 px, generalised mean"  # of `embed index`
ENSEMBLE = "Lite0 + Lite1 + Lite2, native sizes, generalised mean"
NATIVE = {"lite0": 224, "lite1": 240, "lite2": 260}


@dataclass(frozen=True)
class Features:
    """Features of images: networks with their input sizes, pooling, and whether mirror images are added."""

    sizes: tuple[tuple[str, int], ...]
    suffix: str = "-gem"
    flip: bool = False
    whitened: bool = False


def _lite1(size: int, **options: Any) -> Features:
    return Features((("lite1", size),), **options)


FEATURES = {
    BASE: _lite1(128, suffix=""),
    "Lite1, 128 px, generalised mean": _lite1(128),
    "Lite1, 192 px, mean": _lite1(192, suffix=""),
    "Lite1, 192 px, generalised mean": _lite1(192),
    "Lite1, 240 px, mean": _lite1(240, suffix=""),
    DEFAULT: _lite1(240),
    "Lite1, 240 px, generalised mean, mirrored": _lite1(240, flip=True),
    "Lite1, 240 px, generalised mean, whitened": _lite1(240, whitened=True),
    "Lite1, 288 px, generalised mean": _lite1(288),
    "Lite1, 320 px, generalised mean": _lite1(320),
    "Lite0, 224 px, generalised mean": Features((("lite0", 224),)),
    "Lite2, 260 px, generalised mean": Features((("lite2", 260),)),
    ENSEMBLE: Features(tuple(NATIVE.items())),
}
EXPANDED = {  # name of features, neighbours and power of `expand_with_neighbors`
    f"{name}; {k} neighbours, power {power:g}": (name, k, power)
    for name in (BASE, DEFAULT, ENSEMBLE)
    for k, power in ((5, 1.0), (5, 3.0), (10, 1.0), (10, 3.0), (20, 3.0))
}


@dataclass
class FrozenBench:
    """Features of the data sets, each computed once.

    Attributes:
        device: device of the computation.
        classes: number of classes of either half; None for all.
    """

    device: str = "auto"
    classes: int | None = None
    _stored: dict[tuple[str, str, int, bool], tuple[Tensor, Any, Any]] = field(default_factory=dict)

    def embed(self, dataset: str, network: str, size: int, flip: bool) -> tuple[Tensor, Any, Any]:
        """Return features, shape (n, d), labels and split, both (n,), of all images."""
        key = (dataset, network, size, flip)
        if key not in self._stored:
            images = find_dataset(dataset)
            if self.classes is not None:
                few = [np.unique(images.labels[images.split == part])[: self.classes] for part in (0, 1)]
                images = images.subset(np.flatnonzero(np.isin(images.labels, np.concatenate(few))))
            pixels = decode_pixels(images, (size, size), progress=False)
            backbone = load_backbone(f"efficientnet-{network}", self.device)
            old = backbone.preprocessing
            preprocessing = Preprocessing((size, size), old.mean, old.std)
            bank = ImageBank(pixels.values)
            bank.move(resolve_device(self.device))
            model = build_network(backbone, 1).to(resolve_device(self.device)).eval()
            features = embed_rows(model, bank, np.arange(len(pixels.indices)), preprocessing, flip=flip)
            self._stored[key] = features, images.labels[pixels.indices], images.split[pixels.indices]
        return self._stored[key]

    def measure(self, dataset: str, features: Features, neighbors: int, power: float) -> dict[str, Any]:
        """Return the metrics of both halves of the classes."""
        parts = [
            self.embed(dataset, f"{network}{features.suffix}", size, features.flip) for network, size in features.sizes
        ]
        labels, split = parts[0][1:]
        result = {}
        for number, name in enumerate(PARTS):
            rows = torch.from_numpy(np.flatnonzero(split == number))
            chosen = [embeddings[rows.to(embeddings.device)] for embeddings, _, _ in parts]
            if features.whitened:
                chosen = [whiten(one) for one in chosen]
            embeddings = concatenate_embeddings(chosen)
            if neighbors:
                embeddings = expand_with_neighbors(embeddings, n_neighbors=neighbors, power=power)
            result[name] = retrieval_metrics(embeddings, labels[rows.numpy()], nmi=False)
        return {name: {metric: values[metric] for metric in METRICS} for name, values in result.items()}


def whiten(embeddings: Tensor, dim: int = 256) -> Tensor:
    """Project onto the first principal components, each divided by the root of its standard deviation.

    Args:
        embeddings: shape (n, d).
        dim: number of components.

    Returns:
        Shape (n, min(n, d, dim)). It depends on all embeddings, but hardly on single ones.
    """
    unit = torch.nn.functional.normalize(embeddings, dim=1)
    centred = unit - unit.mean(dim=0)
    _, scales, axes = torch.linalg.svd(centred, full_matrices=False)
    white: Tensor = centred @ axes[:dim].T / scales[:dim].clamp(min=1e-6).sqrt()
    return white


def frozen_experiment(bench: FrozenBench, datasets: Iterable[str]) -> Experiment:
    """Return the experiment: a cell for each method and data set."""
    cells = []
    for dataset in datasets:
        for name, features in FEATURES.items():
            work = partial(_cell, bench, dataset, features, 0, 0.0)
            cells.append(Cell(f"{dataset}/{name}", work, 20.0))
        for name, (base, neighbors, power) in EXPANDED.items():
            work = partial(_cell, bench, dataset, FEATURES[base], neighbors, power)
            cells.append(Cell(f"{dataset}/{name}", work, 5.0))
    note = (
        "EfficientNet-Lite with ImageNet weights, no training on these images. Recall@K and MAP@R in per cent. Of each"
        " table, the method with the best Recall@1 on the training classes, which nothing was trained on, is marked"
        " with *. The expansion by neighbours and the whitening use all images of the evaluated half."
    )
    tables = partial(_tables, list(datasets))
    settings = {"classes": bench.classes}
    return Experiment("embed_frozen", "Pretrained features without training", cells, tables, settings, note)


def _cell(
    bench: FrozenBench, dataset: str, features: Features, neighbors: int, power: float, ledger: Ledger
) -> dict[str, Any]:
    return bench.measure(dataset, features, neighbors, power)


def _tables(datasets: Iterable[str], ledger: Ledger) -> Iterable[Table]:
    for dataset in datasets:
        for title, names in (("each image by itself", FEATURES), ("with neighbours in the evaluated half", EXPANDED)):
            results = {name: ledger.values(f"{dataset}/{name}") for name in names}
            known = {name: values for name, values in results.items() if values is not None}
            if known:
                yield Table(f"{dataset}, {title}", _rows(known))


def _rows(results: dict[str, dict[str, Any]]) -> list[tuple[str, ...]]:
    validation, test = PARTS
    best = max(results, key=lambda name: results[name][validation]["recall@1"])
    rows: list[tuple[str, ...]] = [("method", f"recall@1, {validation}", *METRICS)]
    for name, values in results.items():
        figures = [f"{100 * values[test][metric]:.1f}" for metric in METRICS]
        mark = " *" if name == best else ""
        rows.append((f"{name}{mark}", f"{100 * values[validation]['recall@1']:.1f}", *figures))
    return rows


def run() -> None:
    """Run the experiment."""
    parser = arguments(__doc__)
    parser.add_argument("--datasets", nargs="+", default=["cub200", "cars196"])
    parser.add_argument("--small", action="store_true", help="Trial run: few classes.")
    options = parser.parse_args()
    bench = FrozenBench(options.device, 4 if options.small else None)
    main(frozen_experiment(bench, options.datasets), options)


if __name__ == "__main__":
    run_command(run)
