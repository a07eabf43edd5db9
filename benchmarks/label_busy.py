"""The game on a machine whose cores are busy with other processes, compared with scikit-learn's LabelSpreading.

    python -m benchmarks.label_busy [--n 100000] [--quiet]

One process per core computes without a pause while a mixture of Gaussians is labelled; `--quiet` starts none. Every
method runs in a new process, because OpenMP reads its settings once. "threads spin" is what torch does by default;
`import entourage` before torch makes waiting threads sleep. Times are those of the first `fit`.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

OURS, PEER = "game", "scikit-learn"
VARIANTS: dict[str, tuple[str, dict[str, str]]] = {
    "game": (OURS, {}),
    "game, one thread": (OURS, {"OMP_NUM_THREADS": "1"}),
    "scikit-learn LabelSpreading": (PEER, {}),
    "game, threads spin": (OURS, {"OMP_WAIT_POLICY": "ACTIVE"}),
}
LIMIT = 180  # seconds after which a variant is stopped
CHOSEN = ("OMP_WAIT_POLICY", "OMP_NUM_THREADS", "GOMP_SPINCOUNT", "KMP_BLOCKTIME")


def main() -> None:
    """Print the time of each variant, or, with --measure, measure one in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--quiet", action="store_true", help="keep no core busy")
    parser.add_argument("--measure", choices=(OURS, PEER), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(arguments.measure, arguments.n)))
        return
    from benchmarks.machine import machine

    cores = len(os.sched_getaffinity(0))
    print(machine())
    print(f"n = {arguments.n:,}, {0 if arguments.quiet else cores} busy processes on {cores} cores")
    seconds: dict[str, float] = {}
    with busy_cores(0 if arguments.quiet else cores):
        for name, (method, variables) in VARIANTS.items():
            try:
                result = run(method, arguments.n, variables)
            except subprocess.TimeoutExpired:
                seconds[name] = float(LIMIT)
                print(f"{name:28} more than {LIMIT} s", flush=True)
                continue
            seconds[name] = result["seconds"]
            print(f"{name:28} {result['seconds']:7.1f} s, accuracy {result['accuracy']:.3f}", flush=True)
    ours = seconds["game"]
    peer = seconds["scikit-learn LabelSpreading"]
    print(f"scikit-learn takes {'more than ' if peer == LIMIT else ''}{peer / ours:.1f} times as long as the game,")
    print(f"the game {ours / seconds['game, one thread']:.1f} times as long as with one thread")


@contextmanager
def busy_cores(count: int) -> Iterator[None]:
    """Keep `count` processes computing within the block."""
    processes = [multiprocessing.Process(target=spin, daemon=True) for _ in range(count)]
    for process in processes:
        process.start()
    try:
        yield
    finally:
        for process in processes:
            process.terminate()
            process.join()


def spin() -> None:
    """Compute until the process ends."""
    value = 1
    while True:
        value = value * 3 % 1_000_003


def run(method: str, n: int, variables: dict[str, str]) -> dict[str, float]:
    """Run `measure` in a new process with environment variables."""
    environment = {name: value for name, value in os.environ.items() if name not in CHOSEN}
    command = [sys.executable, "-m", "benchmarks.label_busy", "--n", str(n), "--measure", method]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env=environment | variables, timeout=LIMIT
    )
    result: dict[str, float] = json.loads(done.stdout)
    return result


def measure(method: str, n: int) -> dict[str, float]:
    """Label a mixture of n points and return seconds and accuracy."""
    import entourage.label  # before torch: it sets how threads wait  # isort: skip
    import numpy as np
    from sklearn.semi_supervised import LabelSpreading

    from benchmarks.mixtures import few_labels, mixture
    from entourage.game.graph import default_n_neighbors

    X, classes = mixture(n)
    y = few_labels(classes, min(1000, n // 10))
    k = default_n_neighbors(n)
    models = {
        OURS: entourage.label.GraphTransduction(n_neighbors=k, device="cpu"),
        PEER: LabelSpreading(kernel="knn", n_neighbors=k),
    }
    start = time.perf_counter()
    model = models[method].fit(X, y)
    seconds = time.perf_counter() - start
    return {"seconds": seconds, "accuracy": float(np.mean(model.transduction_[y < 0] == classes[y < 0]))}


if __name__ == "__main__":
    main()
