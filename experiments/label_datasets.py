"""Eight data sets with 1, 5 and 20 labels per class: accuracy and confidence of label and of other methods.

ENTOURAGE_DATA=... python -m experiments.label_datasets

`AutoTransduction` is compared with all methods of graphlearning, with the best setting of scikit-learn's methods (by
the reported accuracy) and with logistic regression. Every method gets the same features: tables with standardised
columns and indicators of categories, text as TF-IDF, sounds as means and deviations of mel bands, images as features of
EfficientNet-Lite0 of length 1. `AutoTransduction` gets tables and sounds unscaled. At most 600 items of each set, drawn
once; several draws of labels. `AutoTransduction` takes a few seconds,
all other methods up to half a minute, most of it Poisson MBO.
"""

from __future__ import annotations

import argparse
import importlib
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn import semi_supervised as peer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from entourage.backbones.registry import load_backbone
from entourage.cluster.data import mel_spectrogram
from entourage.data.datasets.registry import find_dataset
from entourage.io.files import atomic_path
from entourage.label import AutoTransduction, GraphTransduction
from entourage.label.ensemble.stacking import coverage_table
from experiments.cluster_speakers import utterances
from experiments.command import one_or_more, run_command
from experiments.ledger import Ledger, ledger_of
from experiments.packaged_data import keel_table, text_documents
from experiments.tables import mean_and_spread, measured, table

NAME = "label_datasets"
OURS, OTHERS, SINGLE = "auto", "others", "game"
COUNTS, DRAWS, MAX_ITEMS = (1, 5, 20), 5, 600
MIN_ITEMS = 26  # of a class
BINS = 15  # of the calibration error
SOUND_FRAMES, N_SPEAKERS = 40, 16  # 0.4 s
BACKBONE = "efficientnet-lite0"
Data = tuple[Any, Any, NDArray[np.int64]]
Codes = NDArray[np.int64]


def main() -> None:
    """Measure the missing rows and write the table."""
    parser = argparse.ArgumentParser(description="Eight data sets with few labels")
    parser.add_argument("--sets", default=",".join(SETS), help="Names of data sets, separated by commas.")
    parser.add_argument("--draws", type=one_or_more, default=DRAWS, help="Draws of labels.")
    parser.add_argument("--minutes", type=float, default=1e9, help="Start no row after these minutes.")
    parser.add_argument("--results", type=Path, default=None, help="Folder of the results.")
    options = parser.parse_args()
    unknown = [name for name in options.sets.split(",") if name not in SETS]
    if unknown:
        raise ValueError(f"--sets: {', '.join(unknown)}; expected some of {', '.join(SETS)}")
    warnings.simplefilter("ignore")
    ledger = ledger_of(NAME, options.results)
    end = time.monotonic() + 60 * options.minutes
    for draw, name, count in product(range(options.draws), options.sets.split(","), COUNTS):
        for part, measure in ((OURS, measure_ours), (OTHERS, measure_others)):
            if time.monotonic() < end:
                ledger.row(f"{name} {count} {draw} {part}", partial(measure, name, count, draw), verbose=False)
    ledger.write_table("Eight data sets with few labels", text)


def measure_ours(name: str, count: int, draw: int) -> dict[str, Any]:
    """Measure `OURS` with one draw of labels: accuracy on the unlabelled items, and quality of the confidence."""
    table_of, _, truth = load(name)
    y = draw_labels(truth, count, draw)
    rest = y < 0
    ours = AutoTransduction(device="cpu").fit(table_of, y)
    correct = ours.transduction_[rest] == truth[rest]
    confidence = ours.confidence_[rest]
    ranked = correct[np.argsort(-confidence, kind="stable")]
    return {
        "accuracy": {OURS: float(correct.mean())},
        "items": len(correct),
        "calibration_gaps": calibration_gaps(correct, confidence),
        "area_under_roc": float(roc_auc_score(correct, confidence)) if 0 < correct.mean() < 1 else None,
        "checked": bool(ours.confidence_is_checked_),
        "wrong_tool": any("wrong tool" in note for note in ours.notes_),
        "coverage": [
            [row.fraction, row.accuracy, float(ranked[: max(1, round(row.fraction * len(ranked)))].mean())]
            for row in coverage_table(confidence)
        ],
    }


def measure_others(name: str, count: int, draw: int) -> dict[str, Any]:
    """Measure all other methods with one draw of labels: accuracy on the unlabelled items."""
    _, features, truth = load(name)
    y = draw_labels(truth, count, draw)
    rest = y < 0
    accuracy, failed = dict[str, float](), dict[str, str]()
    for other, find in others(name, features, y, len(np.unique(truth))):
        try:
            with Path(os.devnull).open("w") as null, redirect_stdout(null):
                accuracy[other] = float((find()[rest] == truth[rest]).mean())
        except Exception as error:  # some methods of graphlearning fail on every input, others on graphs in parts
            failed[other] = f"{type(error).__name__}: {error}"
    return {"accuracy": accuracy, "errors": failed}


def draw_labels(truth: Codes, count: int, draw: int) -> Codes:
    """Return the classes of `count` items of each class and -1 for all others."""
    rng = np.random.default_rng(draw)
    y = np.full(len(truth), -1)
    for code in np.unique(truth):
        y[rng.choice(np.flatnonzero(truth == code), count, replace=False)] = code
    return y


def others(name: str, features: Any, y: Codes, n_classes: int) -> Iterator[tuple[str, Callable[[], Codes]]]:
    """Yield name and labels of every other method."""
    given = y >= 0
    yield SINGLE, partial(_transduction, GraphTransduction(device="cpu"), features, y)
    regression: Any = LogisticRegression(max_iter=1000)
    yield "logistic regression", lambda: regression.fit(features[given], y[given]).predict(features)
    dense = _dense(features)
    for k in (7, 15):
        propagation: Any = peer.LabelPropagation(kernel="knn", n_neighbors=k, max_iter=1000)
        yield f"scikit-learn propagation {k}", partial(_transduction, propagation, dense, y)
        for alpha in (0.2, 0.8, 0.99):
            spreading: Any = peer.LabelSpreading(kernel="knn", n_neighbors=k, alpha=alpha, max_iter=1000)
            yield f"scikit-learn spreading {k} {alpha}", partial(_transduction, spreading, dense, y)
    gl = importlib.import_module("graphlearning")

    weights = _graphlearning_weights(name)
    priors = np.full(n_classes, 1 / n_classes)
    methods: dict[str, Callable[[], Any]] = {
        "laplace": lambda: gl.ssl.laplace(weights),
        "laplace wnll": lambda: gl.ssl.laplace(weights, reweighting="wnll"),
        "laplace poisson": lambda: gl.ssl.laplace(weights, reweighting="poisson"),
        "poisson": lambda: gl.ssl.poisson(weights),
        "poisson_mbo": lambda: gl.ssl.poisson_mbo(weights, priors),
        "volume_mbo": lambda: gl.ssl.volume_mbo(weights, priors),
        "multiclass_mbo": lambda: gl.ssl.multiclass_mbo(weights),
        "modularity_mbo": lambda: gl.ssl.modularity_mbo(weights),
        "randomwalk": lambda: gl.ssl.randomwalk(weights),
        "sparse_label_propagation": lambda: gl.ssl.sparse_label_propagation(weights),
        "dynamic_label_propagation": lambda: gl.ssl.dynamic_label_propagation(weights),
        "centered_kernel": lambda: gl.ssl.centered_kernel(weights),
        "graph_nearest_neighbor": lambda: gl.ssl.graph_nearest_neighbor(weights),
        "peikonal": lambda: gl.ssl.peikonal(weights),
        "amle": lambda: gl.ssl.amle(weights),
        "plaplace": lambda: gl.ssl.plaplace(weights),
    }
    for method, make in methods.items():
        yield f"graphlearning {method}", partial(_fit_graphlearning, make, y)


def _transduction(model: Any, X: Any, y: Codes) -> Codes:
    return np.asarray(model.fit(X, y).transduction_)


def _dense(X: Any) -> NDArray[Any]:
    return X if isinstance(X, np.ndarray) else np.asarray(X.toarray())


def _fit_graphlearning(make: Callable[[], Any], y: Codes) -> Codes:
    given = np.flatnonzero(y >= 0)
    return np.asarray(make().fit_predict(given, y[given]), dtype=np.int64)


@cache
def _graphlearning_weights(name: str) -> Any:
    _, features, _ = load(name)
    return importlib.import_module("graphlearning").weightmatrix.knn(_dense(features), 11)


@cache
def load(name: str) -> Data:
    """Return a data set: its items as a user has them, as numeric features, and their classes."""
    data, features, truth = SETS[name]()
    rng = np.random.default_rng(0)
    frequent = np.flatnonzero(np.bincount(truth) >= MIN_ITEMS)
    chosen = rng.permutation(np.flatnonzero(np.isin(truth, frequent)))[:MAX_ITEMS]
    kept = np.flatnonzero(np.bincount(truth[chosen]) >= MIN_ITEMS)
    chosen = chosen[np.isin(truth[chosen], kept)]
    rows = data.iloc[chosen].reset_index(drop=True) if isinstance(data, pd.DataFrame) else data[chosen]
    return rows, features[chosen], np.unique(truth[chosen], return_inverse=True)[1]


def keel_data(name: str) -> Data:
    """Return a KEEL table: its columns, standardised numbers and indicators of categories, and its classes."""
    frame, truth = keel_table(name)
    text = [column for column in frame if not pd.api.types.is_numeric_dtype(frame[column])]
    parts = [StandardScaler().fit_transform(frame.drop(columns=text))] if len(text) < frame.shape[1] else []
    if text:
        parts.append(OneHotEncoder(sparse_output=False).fit_transform(frame[text]))
    return frame, np.concatenate(parts, axis=1), truth


def _newsgroups() -> Data:
    documents, truth = text_documents("20newsgroups-test")
    rng = np.random.default_rng(0)
    chosen = rng.permutation(len(truth))[: 2 * MAX_ITEMS]
    vectorizer = TfidfVectorizer(sublinear_tf=True, max_features=2000, stop_words="english")
    X = sparse.csr_matrix(vectorizer.fit_transform([documents[i] for i in chosen]))
    return X, X, truth[chosen]


def _speakers() -> Data:
    readers: dict[str, list[Callable[[], NDArray[np.float32]]]] = {}
    for speaker, read in utterances(Path(os.environ.get("ENTOURAGE_DATA", ""))):
        readers.setdefault(speaker, []).append(read)
    rows, truth = [], []
    for code, speaker in enumerate(sorted(readers)[-N_SPEAKERS:]):
        spectrogram = mel_spectrogram(torch.from_numpy(readers[speaker][0]()))  # (128, frames)
        for start in range(0, spectrogram.shape[1] - SOUND_FRAMES + 1, SOUND_FRAMES):
            part = spectrogram[:, start : start + SOUND_FRAMES]
            rows.append(torch.cat([part.mean(dim=1), part.std(dim=1)]).numpy())
            truth.append(code)
    X = np.stack(rows).astype(np.float64)
    return X, StandardScaler().fit_transform(X), np.array(truth)


def _images(name: str, first: int, n_classes: int) -> Data:
    """Features of the images of some classes, kept in the cache."""
    folder = Path(os.environ.get("ENTOURAGE_CACHE", Path.home() / ".cache" / "entourage"))
    path = folder / f"label_datasets_{name}_{BACKBONE}.npz"
    if not path.exists():
        images = find_dataset(name)
        labels = np.asarray(images.labels)
        members = np.flatnonzero((labels >= first) & (labels < first + n_classes))
        members = np.random.default_rng(0).permutation(members)[:MAX_ITEMS]
        backbone = load_backbone(BACKBONE, "cpu")
        parts = []
        for start in range(0, len(members), 32):
            pixels = [backbone.preprocess(images.source.read(int(i))) for i in members[start : start + 32]]
            parts.append(backbone.embed(torch.stack(pixels)).numpy())
        X = np.concatenate(parts)
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            np.savez(stream, X=X / np.linalg.norm(X, axis=1, keepdims=True), truth=labels[members])
    with np.load(path, allow_pickle=False) as file:
        X, truth = file["X"], file["truth"].astype(np.int64)
    return X, X, truth


SETS: dict[str, Callable[[], Data]] = {
    "vehicle": partial(keel_data, "vehicle"),
    "segment": partial(keel_data, "segment"),
    "phoneme": partial(keel_data, "phoneme"),
    "crx": partial(keel_data, "crx"),
    "newsgroups": _newsgroups,
    "speakers": _speakers,
    "coil100": partial(_images, "coil100", 0, 15),
    "birds": partial(_images, "cub200", 0, 12),
}


def _group(method: str) -> str:
    return "scikit-learn, best setting" if method.startswith("scikit-learn") else method


def cells(ledger: Ledger) -> dict[tuple[str, int], list[dict[str, Any]]]:
    """Return the draws of each cell (data set and labels per class) for which all methods are measured."""
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for name, count, draw in product(SETS, COUNTS, range(DRAWS)):
        ours, others = (ledger.values(f"{name} {count} {draw} {part}") for part in (OURS, OTHERS))
        if ours is not None and others is not None:
            row = {**others, **ours, "accuracy": ours["accuracy"] | others["accuracy"]}
            found.setdefault((name, count), []).append(row)
    return found


def cell_means(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the mean accuracy of each method in a cell; of scikit-learn's settings, the best."""
    means: dict[str, float] = {}
    for method in rows[0]["accuracy"]:
        mean = float(np.mean([row["accuracy"].get(method, 0.0) for row in rows]))
        means[_group(method)] = max(mean, means.get(_group(method), 0.0))
    return means


def calibration_gaps(correct: NDArray[np.bool_], confidence: NDArray[np.float64]) -> list[float]:
    """Return the sum of confidence minus correctness of the items in each of BINS equal bins of the confidence."""
    index = np.clip((confidence * BINS).astype(int), 0, BINS - 1)
    return [round(float(gap), 3) for gap in np.bincount(index, confidence - correct, minlength=BINS)]


def cell_calibration_error(rows: list[dict[str, Any]]) -> float:
    """Return the calibration error over the items of all draws of a cell.

    That of one draw would be mostly sampling error: with 200 items in 15 bins it is about 7 % by chance.
    """
    gaps = np.sum([row["calibration_gaps"] for row in rows], axis=0)
    return float(np.abs(gaps).sum() / sum(row["items"] for row in rows))


def text(ledger: Ledger) -> str:
    """Return the tables: accuracy of all methods, and the quality of the confidence."""
    found = cells(ledger)
    ordered = list(found)
    means = {cell: cell_means(found[cell]) for cell in ordered}
    methods = list(dict.fromkeys(method for cell in ordered for method in means[cell]))
    lines: list[tuple[str, ...]] = []
    confidence_rows: list[tuple[str, ...]] = []
    first, within5, calibrated, flagged_bad, bad, flagged_good, good = 0, 0, 0, 0, 0, 0, 0
    failed = sorted({method for rows in found.values() for row in rows for method in row["errors"]})
    for cell in ordered:
        rows, mean = found[cell], means[cell]
        best = max(value for method, value in mean.items() if method not in (OURS, SINGLE))
        gap = 100 * (mean[OURS] - best)
        first, within5 = first + (gap >= -1), within5 + (gap >= -5)
        error = cell_calibration_error(rows)
        flagged = np.mean([not row["checked"] for row in rows]) > 0.5
        calibrated += error <= 0.06 or bool(flagged)
        bad, flagged_bad = bad + (error > 0.06), flagged_bad + bool(error > 0.06 and flagged)
        good, flagged_good = good + (error <= 0.06), flagged_good + bool(error <= 0.06 and flagged)
        area = [row["area_under_roc"] for row in rows if row["area_under_roc"] is not None]
        estimate, actual = (np.mean([row["coverage"][1][i] for row in rows]) for i in (1, 2))
        confidence_rows.append(
            (
                f"{cell[0]}, {cell[1]}",
                f"{100 * error:.1f}",
                "yes" if flagged else "no",
                mean_and_spread(area, digits=2),
                f"{100 * estimate:.0f}",
                f"{100 * actual:.0f}",
            )
        )
    for method in methods:
        values = [
            mean_and_spread([row["accuracy"].get(method, 0.0) for row in found[cell]], scale=100)
            if method in found[cell][0]["accuracy"]
            else f"{100 * means[cell].get(method, 0.0):.1f}"
            for cell in ordered
        ]
        lines.append((method, *values))
    n = len(ordered)
    summary = (
        f"`auto` is the best or within a point of the best other method in {first} of {n} cells, within five points in "
        f"{within5}. Its calibration error is 6 % or less, or it flags its confidences, in {calibrated} of {n}; it "
        f"flags {flagged_bad} of {bad} cells with a larger error and {flagged_good} of {good} of the others."
    )
    if failed:
        summary += f" These raise an error in some cells or all, which counts as 0 %: {', '.join(failed)}."
    header = ("method", *(f"{name}, {count}" for name, count in ordered))
    second = ["data set, labels per class", "calibration error of all draws", "flagged", "area under ROC"]
    second += ["surest 80 %: estimated accuracy", "actual accuracy"]
    return "\n\n".join(
        [
            "Accuracy in percent on the unlabelled items: data set, labels per class. `game` is `GraphTransduction`.",
            table(header, measured(lines)),
            summary,
            "Confidence of `auto`; the accuracy on the surest 80 % is estimated without the truth:",
            table(second, confidence_rows),
        ]
    )


if __name__ == "__main__":
    run_command(main)
