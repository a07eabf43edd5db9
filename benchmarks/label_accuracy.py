"""Accuracy on digits with 10 and 50 labels: the game next to methods of scikit-learn and graphlearning.

    python -m benchmarks.label_accuracy

Accuracy on the unlabelled digits, mean and standard deviation over ten samples of labels (equally many per class, the
same samples for all methods). The lead is over the best setting of scikit-learn on the reported accuracy itself, an
advantage over the game, which has its default setting.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray
from sklearn import semi_supervised as peer
from sklearn.datasets import load_digits

from benchmarks.machine import machine
from entourage import label

SEEDS = range(10)
Labels = NDArray[np.int64]
Method = Callable[[Labels], Labels]


def main() -> None:
    """Print the table and the lead of the game."""
    warnings.simplefilter("ignore")  # scikit-learn warns of divisions by zero and of too few iterations
    print(machine())
    X, truth = load_digits(return_X_y=True)
    for count in (10, 50):
        print(f"\n{count} labels{'':32}accuracy  spread")
        ours = _report("game, default", lambda y: label.GraphTransduction().fit(X, y).transduction_, truth, count)
        best = max(_report(name, method, truth, count) for name, method in _scikit_learn(X))
        print(f"lead over the best setting of scikit-learn: {100 * (ours - best):+.1f} points")
        for name, method in _others(X):
            _report(name, method, truth, count)


def _report(name: str, method: Method, truth: Labels, count: int) -> float:
    accuracies = []
    for seed in SEEDS:
        y = sample_digit_labels(truth, count, seed)
        accuracies.append(np.mean(method(y)[y < 0] == truth[y < 0]))
    print(f"{name:40} {100 * np.mean(accuracies):7.1f} {100 * np.std(accuracies):7.1f}", flush=True)
    return float(np.mean(accuracies))


def sample_digit_labels(truth: Labels, count: int, seed: int) -> Labels:
    """Return the labels of `count` points, equally many per class, and -1 for the others."""
    generator = np.random.default_rng(seed)
    y = np.full(len(truth), -1)
    for c in np.unique(truth):
        chosen = generator.choice(np.flatnonzero(truth == c), count // len(np.unique(truth)), replace=False)
        y[chosen] = c
    return y


def _scikit_learn(X: NDArray[np.float64]) -> Iterator[tuple[str, Method]]:
    for k in (7, 15):
        propagation = peer.LabelPropagation(kernel="knn", n_neighbors=k, max_iter=1000)
        yield f"scikit-learn LabelPropagation, k {k}", lambda y, p=propagation: p.fit(X, y).transduction_
    for alpha, k in product((0.2, 0.8, 0.99), (7, 15)):
        spreading = peer.LabelSpreading(kernel="knn", n_neighbors=k, alpha=alpha, max_iter=1000)
        yield f"scikit-learn LabelSpreading, a {alpha}, k {k}", lambda y, s=spreading: s.fit(X, y).transduction_


def _others(X: NDArray[np.float64]) -> Iterator[tuple[str, Method]]:
    """Yield the presets of the game, baselines on its graph, and methods of graphlearning on their graph."""
    without_walk = label.GraphTransduction(walk_steps=0)
    yield "game, without label diffusion", lambda y: without_walk.fit(X, y).transduction_
    for name in ("thesis", "original"):
        game = label.GraphTransduction.from_preset(name)
        yield f"game, preset {name}", lambda y, g=game: g.fit(X, y).transduction_
    graph = label.GraphTransduction().fit(X, np.zeros(len(X), dtype=int)).graph_
    for model_class in (label.LabelHarmonic, label.LabelPropagation, label.LabelSpreading, label.PoissonLearning):
        model = model_class(affinity="precomputed")
        yield f"{model_class.__name__}, the game's graph", lambda y, m=model: m.fit(graph, y).transduction_
    svm = label.LinearSVMLabeller()
    yield "LinearSVMLabeller", lambda y: svm.fit(X, y).transduction_
    try:
        import graphlearning as gl
    except ImportError:
        print('graphlearning is not installed: pip install "entourage[bench]"')
        return
    weights = gl.weightmatrix.knn(X, 11)
    for name, method in (("laplace", gl.ssl.laplace(weights)), ("poisson", gl.ssl.poisson(weights))):
        yield (
            f"graphlearning {name}, k 11",
            lambda y, m=method: m.fit_predict(np.flatnonzero(y >= 0), y[y >= 0]).astype(np.int64),
        )


if __name__ == "__main__":
    main()
