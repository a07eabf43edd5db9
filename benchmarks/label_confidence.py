"""Calibration of the confidence on digits with 10, 50 and 200 labels.

    python -m benchmarks.label_confidence

For `AutoTransduction`, and for the game and baselines on one graph, means over ten samples of labels: accuracy on the
unlabelled digits, mean confidence, expected calibration error over 15 bins (lower is better), and the area under the
ROC curve of confidence as a predictor of correct labels (higher is better). The last row uses the maximum of the game's
final distributions as confidence.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits
from sklearn.metrics import roc_auc_score

from benchmarks.label_accuracy import SEEDS, sample_digit_labels
from benchmarks.machine import machine
from entourage import label
from entourage.label.ensemble.stacking import calibration_error


def main() -> None:
    """Print one row per method."""
    warnings.simplefilter("ignore")
    print(machine())
    X, truth = load_digits(return_X_y=True)
    graph = label.GraphTransduction().fit(X, truth).graph_
    models: list[Any] = [
        label.AutoTransduction(),
        label.GraphTransduction(affinity="precomputed"),
        label.LabelSpreading(affinity="precomputed"),
        label.PoissonLearning(affinity="precomputed"),
        label.LabelHarmonic(affinity="precomputed"),
    ]
    for count in (10, 50, 200):
        print(f"\n{count} labels{'':14} accuracy  confidence  calibration error  area under ROC")
        raw = []
        for model in models:
            rows = []
            for seed in SEEDS:
                y = sample_digit_labels(truth, count, seed)
                model.fit(X if isinstance(model, label.AutoTransduction) else graph, y)
                correct = model.transduction_[y < 0] == truth[y < 0]
                rows.append(_scores(correct, model.confidence_[y < 0]))
                if isinstance(model, label.GraphTransduction):
                    raw.append(_scores(correct, model.label_distributions_.max(axis=1)[y < 0]))
            _print(type(model).__name__, rows)
        _print("game, raw", raw)


def _scores(correct: NDArray[np.bool_], confidence: NDArray[np.float64]) -> tuple[float, float, float, float]:
    return (
        float(correct.mean()),
        float(confidence.mean()),
        calibration_error(correct, confidence),
        float(roc_auc_score(correct, confidence)),
    )


def _print(name: str, rows: list[tuple[float, float, float, float]]) -> None:
    accuracy, confidence, error, area = np.mean(rows, axis=0)
    print(f"{name:24} {100 * accuracy:7.1f} {100 * confidence:11.1f} {100 * error:18.1f} {area:15.3f}", flush=True)


if __name__ == "__main__":
    main()
