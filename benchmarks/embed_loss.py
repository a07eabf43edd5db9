"""Time of a loss: forward and backward pass on one batch, Group Loss and baselines.

    python -m benchmarks.embed_loss                # on the CPU
    python -m benchmarks.embed_loss --device cuda

60 embeddings of 1,280 numbers, 10 classes of 6 in the batch, 100 classes in total. The losses are timed in alternation,
so that other processes slow all of them equally; the fastest and the median round of each are printed. Proxy losses
compute the product with their proxies themselves, the Group Loss takes logits: "with a classifier" adds that product.
"""

from __future__ import annotations

import argparse
import statistics
import time
import warnings
from collections.abc import Callable

import torch
from torch import Tensor, nn

from benchmarks.machine import machine
from entourage.embed import BASELINE_LOSSES, GroupLoss, baseline_loss
from entourage.embed.losses.options import PRESETS
from entourage.embed.models import make_head

SAMPLES, DIMENSIONS, CLASSES, PER_CLASS = 60, 1280, 100, 6
REFERENCE = "proxy-anchor"


def main() -> None:
    """Print one row per loss: milliseconds, and the ratio to Proxy-Anchor."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="CPU threads.")
    parser.add_argument("--rounds", type=int, default=200)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(arguments.threads)
    print(machine())
    times = race(contestants(torch.device(arguments.device)), arguments.rounds, arguments.device)
    fastest = {name: min(seconds) for name, seconds in times.items()}
    median = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"forward and backward on {arguments.device}   fastest ms  median ms  times {REFERENCE} (fastest, median)")
    for name in times:
        ratios = f"{fastest[name] / fastest[REFERENCE]:6.2f} {median[name] / median[REFERENCE]:6.2f}"
        print(f"{name:36} {1e3 * fastest[name]:9.3f} {1e3 * median[name]:10.3f} {ratios:>20}")


def contestants(device: torch.device) -> dict[str, Callable[[], None]]:
    """Return the forward and backward passes to time, with gradients of all trained parameters."""
    torch.manual_seed(0)
    embeddings = torch.randn(SAMPLES, DIMENSIONS, device=device, requires_grad=True)
    logits = torch.randn(SAMPLES, CLASSES, device=device, requires_grad=True)
    labels = torch.arange(SAMPLES // PER_CLASS, device=device).repeat_interleave(PER_CLASS)
    heads = {kind: make_head(kind, DIMENSIONS, CLASSES).to(device) for kind in ("linear", "cosine", "centres")}

    def without_head(loss: nn.Module) -> Callable[[], None]:
        return lambda: _pass(loss(embeddings, logits, labels), embeddings, logits, *loss.parameters())

    def with_head(loss: nn.Module, kind: str = "linear") -> Callable[[], None]:
        head = heads[kind]

        def once() -> None:
            _pass(loss(embeddings, head(embeddings), labels, head.weight), embeddings, *head.parameters())

        return once

    return {
        **{f"group loss, {name}": without_head(GroupLoss.from_preset(name)) for name in PRESETS},
        "group loss, no memory": without_head(GroupLoss()),
        "  with a linear classifier": with_head(GroupLoss()),
        "  with that, and class vectors": with_head(GroupLoss(class_players=1.0)),
        "  with a cosine one, and Proxy-Anchor": with_head(GroupLoss(proxy_weight=1.0), "cosine"),
        "  with ten centres a class": with_head(GroupLoss(), "centres"),
        "  with that, and memory: as trained": with_head(GroupLoss.from_preset("default"), "centres"),
        **{name: without_head(baseline_loss(name, CLASSES, DIMENSIONS).to(device)) for name in BASELINE_LOSSES},
    }


def _pass(loss: Tensor, *leaves: Tensor) -> None:
    loss.backward()  # type: ignore[no-untyped-call]
    for leaf in leaves:
        leaf.grad = None


def race(runners: dict[str, Callable[[], None]], rounds: int, device: str) -> dict[str, list[float]]:
    """Return the seconds of each round of each runner, after a tenth as many warm-up rounds."""
    times: dict[str, list[float]] = {name: [] for name in runners}
    for number in range(-(rounds // 10), rounds):
        for name, run in runners.items():
            _wait(device)
            start = time.perf_counter()
            run()
            _wait(device)
            if number >= 0:
                times[name].append(time.perf_counter() - start)
    return times


def _wait(device: str) -> None:
    if device.startswith("cuda"):
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
