"""The classification baseline of chapter 5: a residual network of 25 convolutions on patches of engraved symbols.

    entourage engrave SCORES --out pages --formats patches
    python -m experiments.engrave_classification --data pages

Trains with Adam as its authors propose it for ten epochs on the works of the training split, chooses the epoch on the
validation split, and reports the accuracy on the held-out works of the test split.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import cv2
import numpy as np
import pyarrow.parquet as pq
import torch
from benchmarks.machine import machine
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from entourage.data import atomic_path, progress_bar, resolve_device

RESULTS = Path(__file__).parent.parent / "results"


@dataclass(frozen=True)
class Options:
    """How the network is built and trained."""

    widths: tuple[int, ...] = (40, 80, 160, 356)  # of the four stages: eight million weights in all
    blocks: int = 3  # a stage, of two convolutions each: 1 + 4 * 3 * 2 = 25
    epochs: int = 10
    batch: int = 128
    rate: float = 1e-3  # Adam's own
    seed: int = 0


@dataclass(frozen=True)
class Patches:
    """Patches of one split: images (n, 170, 45) and class numbers (n,)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]


class Block(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.BatchNorm2d(outside) for _ in range(2)])
        self.stride, self.grown = stride, outside - inside

    def forward(self, x: Tensor) -> Tensor:
        """Shape (b, inside, h, w) to (b, outside, h / stride, w / stride)."""
        y = F.relu(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        # The way around has no weights: it skips pixels and pads channels with zeros.
        around = x if self.stride == 1 else F.avg_pool2d(x, self.stride, ceil_mode=True)
        return F.relu(y + F.pad(around, (0, 0, 0, 0, 0, self.grown)))


def network(classes: int, options: Options) -> nn.Sequential:
    """The residual network: a convolution, four stages, the mean over the patch, a linear layer."""
    layers: list[nn.Module] = [nn.Conv2d(1, options.widths[0], 3, 1, 1, bias=False)]
    layers += [nn.BatchNorm2d(options.widths[0]), nn.ReLU()]
    inside = options.widths[0]
    for stage, outside in enumerate(options.widths):
        for block in range(options.blocks):
            layers.append(Block(inside, outside, 2 if block == 0 and stage > 0 else 1))
            inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, classes))


def read_patches(path: Path) -> tuple[dict[str, Patches], list[str]]:
    """The patches of each split, and the names of the classes."""
    table = pq.read_table(path)
    names = sorted(set(table["class"].to_pylist()))
    number = {name: k for k, name in enumerate(names)}
    pngs = table["png"].to_pylist()
    images = np.stack([cv2.imdecode(np.frombuffer(png, np.uint8), cv2.IMREAD_GRAYSCALE) for png in pngs])
    labels = np.array([number[name] for name in table["class"].to_pylist()])
    split = np.array(table["split"].to_pylist())
    return {name: Patches(images[split == name], labels[split == name]) for name in ("train", "val", "test")}, names


def accuracy(model: nn.Module, patches: Patches, device: torch.device) -> float:
    """The share of patches whose class the network finds."""
    model.eval()
    right = 0
    with torch.inference_mode():
        for start in range(0, len(patches.labels), 512):
            x, y = _batch(patches, np.arange(start, min(start + 512, len(patches.labels))), device)
            right += int((model(x).argmax(dim=1) == y).sum())
    return right / max(len(patches.labels), 1)


def train(splits: dict[str, Patches], classes: int, options: Options, device: torch.device) -> dict[str, object]:
    """Trains; returns the accuracy on test at the epoch that was best on validation, and the course of training."""
    torch.manual_seed(options.seed)
    random = np.random.default_rng(options.seed)
    model = network(classes, options).to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=options.rate)
    data = splits["train"]
    course, best = [], (-1.0, 0.0, 0)
    steps = options.epochs * -(-len(data.labels) // options.batch)
    with progress_bar("Training", steps) as advance:
        for epoch in range(1, options.epochs + 1):
            model.train()
            order = random.permutation(len(data.labels))
            for start in range(0, len(order), options.batch):
                x, y = _batch(data, order[start : start + options.batch], device)
                loss = F.cross_entropy(model(x), y)
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                advance(1)
            found = accuracy(model, splits["val"], device)
            course.append(round(found, 4))
            if found > best[0]:
                best = (found, accuracy(model, splits["test"], device), epoch)
    weights = sum(p.numel() for p in model.parameters())
    return {"test": best[1], "validation": best[0], "epoch": best[2], "course": course, "weights": weights}


def _batch(patches: Patches, rows: NDArray[np.int64], device: torch.device) -> tuple[Tensor, Tensor]:
    x = torch.from_numpy(patches.images[rows]).to(device)[:, None].float()  # (b, 1, 170, 45)
    return 1 - x / 255, torch.from_numpy(patches.labels[rows]).to(device)


def main() -> None:
    """Trains on the patches of a data set and writes results/engrave_classification.json and .md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder that `entourage engrave` has made")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--out", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    options, device = Options(epochs=arguments.epochs), resolve_device(arguments.device)
    splits, names = read_patches(arguments.data / "patches.parquet")
    start = time.perf_counter()
    result = train(splits, len(names), options, device)
    minutes = (time.perf_counter() - start) / 60
    sizes = {name: len(patches.labels) for name, patches in splits.items()}
    facts = {"options": asdict(options), "patches": sizes, "classes": len(names), "minutes": round(minutes, 2)}
    with atomic_path(arguments.out / "engrave_classification.json") as temporary:
        temporary.write_text(json.dumps(result | facts | {"machine": machine()}, indent=1) + "\n", encoding="utf-8")
    with atomic_path(arguments.out / "engrave_classification.md") as temporary:
        temporary.write_text(_text(result, facts), encoding="utf-8")
    print(f"accuracy on held-out works: {result['test']:.4f} (epoch {result['epoch']} of {options.epochs})")


def _text(result: dict[str, object], facts: dict[str, object]) -> str:
    known = (facts["classes"], f"{result['weights']:,}", result["epoch"], f"{result['test']:.4f}", facts["minutes"])
    rows = "| " + " | ".join(map(str, known)) + " |"
    return (
        "## Classification of symbols, the baseline of chapter 5\n\n"
        "`python -m experiments.engrave_classification`: 25 convolutions, Adam; thesis: over 0.98 in ten epochs.\n\n"
        "| classes | weights | best epoch | accuracy on held-out works | minutes |\n|---|---|---|---|---|\n"
        f"{rows}\n\n{machine()}; patches: {facts['patches']}; validation by epoch: {result['course']}\n"
    )


if __name__ == "__main__":
    main()
