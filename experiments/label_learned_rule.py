"""A learned rule in place of the replicator dynamics (thesis, chapter 7, outlook), on data sets it was not trained on.

    python -m experiments.label_learned_rule

The rule is a small network that is applied to each node and class, unrolled like the game: it begins as the replicator
dynamics with warm start and learns a correction from distributions, payoffs, label diffusion and degrees. It is trained
on random labels of KEEL tables and tested on the data sets of `experiments.label_datasets` and on digits (the table
optdigits holds the same data and is left out); the number of training steps is chosen on other tables. All methods on
a graph use the same one, the default graph of `GraphTransduction`.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from sklearn import semi_supervised as peer
from sklearn.datasets import load_digits
from torch import Tensor, nn

from entourage.game.dynamics import payoffs, warm_start
from entourage.label import GraphTransduction, LabelHarmonic, LabelSpreading, PoissonLearning
from experiments.command import one_or_more, run_command
from experiments.label_datasets import SETS, draw_labels, keel_data, load
from experiments.ledger import Ledger, ledger_of
from experiments.tables import mean_and_spread, table

TRAINING = (
    "australian",
    "banana",
    "bands",
    "breast",
    "bupa",
    "german",
    "heart",
    "ionosphere",
    "led7digit",
    "letter",
    "magic",
    "mammographic",
    "movement_libras",
    "penbased",
    "pima",
    "ring",
    "saheart",
    "satimage",
    "sonar",
    "spambase",
    "splice",
    "texture",
    "twonorm",
    "vowel",
    "wine",
)
VALIDATION = ("contraceptive", "wisconsin", "mushroom", "tic-tac-toe", "wdbc", "marketing")
TESTS = (*SETS, "digits")
COUNTS, DRAWS, SEEDS, STEPS = (1, 5, 20), 5, 3, 600
RATE, BATCH = 1e-3, 4
MAX_ITEMS, MAX_CLASSES, SUBSETS = 600, 10, 2
ITERATIONS = 10  # applications of the rule
WALKS = (1, 2, 4, 8, 16, 32)  # lengths of the walks whose distributions the rule receives
EPSILON = 1e-6
Codes = NDArray[np.int64]


class Problem(NamedTuple):
    """A graph, w of shape (n, n), symmetric, and the class of each node, shape (n,)."""

    graph: Any
    w: Tensor
    truth: Codes


@dataclass(frozen=True)
class Draw:
    """Input of the rule for one draw of labels: m classes, n nodes.

    Attributes:
        w: similarities, normalised by the degrees on both sides, shape (n, n).
        start: distributions with the labels as one-hot rows, after the warm start, shape (n, m).
        labelled: mask of the labelled nodes, shape (n,).
        fixed_inputs: inputs that no iteration changes, shape (n, m, len(WALKS) + 1).
    """

    w: Tensor
    start: Tensor
    labelled: Tensor
    fixed_inputs: Tensor


class LearnedRule(nn.Module):
    """Update of the distributions by a network shared by all nodes and classes, hence equivariant to both.

    Args:
        width: number of hidden units.
    """

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.hidden = nn.Linear(len(WALKS) + 5, width)
        self.out = nn.Linear(width, 1)
        nn.init.zeros_(self.out.weight)  # the first rule is the replicator dynamics
        nn.init.zeros_(self.out.bias)
        self.log_temperature = nn.Parameter(torch.tensor(1.5))  # of the loss: the dynamics end near certainty

    def forward(self, draw: Draw) -> list[Tensor]:
        """Return the distributions after each iteration, shape (n, m) each."""
        x, results = draw.start, []
        for iteration in range(ITERATIONS):
            payoff = payoffs(draw.w, x)  # (n, m)
            known = torch.log(torch.stack([x, payoff / payoff.sum(1, keepdim=True).clamp_min(EPSILON)], 2) + EPSILON)
            mass = torch.log(x.mean(0) * x.shape[1] + EPSILON).expand_as(x)
            time = torch.full_like(x, iteration / ITERATIONS)
            inputs = torch.cat([known, mass[:, :, None], time[:, :, None], draw.fixed_inputs], 2)
            change = self.out(torch.tanh(self.hidden(inputs))).squeeze(2)
            updated = torch.softmax(known.sum(2) + change, 1)
            x = torch.where(draw.labelled[:, None], draw.start, updated)
            results.append(x)
        return results


def make_draw(problem: Problem, y: Codes) -> Draw:
    """Prepare a problem with labels y, shape (n,), -1 where unlabelled."""
    w = problem.w
    labelled = torch.from_numpy(y >= 0)
    m = int(problem.truth.max()) + 1
    one_hot = torch.zeros(len(y), m)
    one_hot[labelled, torch.from_numpy(y[y >= 0])] = 1.0
    uniform = torch.full_like(one_hot, 1 / m)
    start = warm_start(torch.where(labelled[:, None], one_hot, uniform), w, labelled, steps=30)
    degree = w.sum(1).clamp_min(EPSILON)
    spread, walks = one_hot / one_hot.sum(0), []
    for length in range(1, max(WALKS) + 1):
        spread = (w @ spread) / degree[:, None]
        if length in WALKS:
            walks.append(torch.log(spread / spread.sum(1, keepdim=True).clamp_min(EPSILON) + EPSILON))
    walks.append(torch.log(degree / degree.mean())[:, None].expand_as(one_hot))
    scale = degree.rsqrt()
    return Draw(scale[:, None] * w * scale, start, labelled, torch.stack(walks, 2))


def train_rule(seed: int, steps: int) -> tuple[LearnedRule, float]:
    """Train a rule on random labels of the training tables.

    Args:
        seed: seed of weights and labels.
        steps: number of gradient steps, one graph each.

    Returns:
        The rule with the best accuracy on the validation tables, and this accuracy.
    """
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    rule = LearnedRule()
    optimizer = torch.optim.Adam(rule.parameters(), RATE)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    problems = [problem for name in TRAINING for problem in subsets(name)]
    validation = [case for name in VALIDATION for case in _validation_cases(name)]
    best, best_accuracy = deepcopy(rule), _mean_accuracy(rule, validation)
    for step in range(steps):
        optimizer.zero_grad()
        for index in rng.integers(len(problems), size=BATCH):
            problem = problems[index]
            largest = min(20, int(np.bincount(problem.truth).min()) // 2)
            count, seed_of_labels = int(rng.integers(1, largest + 1)), int(rng.integers(2**31))
            draw = make_draw(problem, draw_labels(problem.truth, count, seed_of_labels))
            (loss_of(rule, draw, problem.truth) / BATCH).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(rule.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if (step + 1) % max(1, steps // 10) == 0:
            accuracy = _mean_accuracy(rule, validation)
            if accuracy > best_accuracy:
                best, best_accuracy = deepcopy(rule), accuracy
    return best, best_accuracy


def loss_of(rule: LearnedRule, draw: Draw, truth: Codes) -> Tensor:
    """Return the cross-entropy of the unlabelled nodes, averaged over the second half of the iterations."""
    expected = torch.from_numpy(truth)[~draw.labelled]
    scale = torch.exp(-rule.log_temperature)
    losses = [F.cross_entropy(scale * torch.log(x[~draw.labelled] + EPSILON), expected) for x in rule(draw)]
    return torch.stack(losses[ITERATIONS // 2 :]).mean()


def _mean_accuracy(rule: LearnedRule, cases: Sequence[tuple[Problem, Codes]]) -> float:
    return float(np.mean([accuracy_of(rule, problem, y) for problem, y in cases]))


def _validation_cases(name: str) -> Iterator[tuple[Problem, Codes]]:
    for problem, count in product(subsets(name), COUNTS):
        if np.bincount(problem.truth).min() > count:
            yield problem, draw_labels(problem.truth, count, 0)


@torch.inference_mode()
def accuracy_of(rule: LearnedRule, problem: Problem, y: Codes) -> float:
    """Return the accuracy of the rule on the unlabelled nodes."""
    found = rule(make_draw(problem, y))[-1].argmax(1).numpy()
    return float((found[y < 0] == problem.truth[y < 0]).mean())


@cache
def subsets(name: str) -> list[Problem]:
    """Return graphs of random items of a KEEL table: the most frequent classes, at most `MAX_ITEMS` items."""
    _, features, labels = keel_data(name)
    frequent = np.argsort(-np.bincount(labels), kind="stable")[:MAX_CLASSES]
    rows = np.flatnonzero(np.isin(labels, frequent) & (np.bincount(labels)[labels] >= 4))
    problems = []
    for seed in range(SUBSETS):
        chosen = np.random.default_rng(seed).permutation(rows)[:MAX_ITEMS]
        chosen = chosen[np.bincount(labels[chosen])[labels[chosen]] >= 4]
        problems.append(make_problem(features[chosen], np.unique(labels[chosen], return_inverse=True)[1]))
    return problems


@cache
def test_problem(name: str) -> tuple[Any, Problem]:
    """Return features and graph of a test set."""
    if name == "digits":
        features, truth = load_digits(return_X_y=True)
        chosen = np.random.default_rng(0).permutation(len(truth))[:MAX_ITEMS]
        features, truth = features[chosen], truth[chosen].astype(np.int64)
    else:
        _, features, truth = load(name)
    return features, make_problem(features, truth)


def make_problem(features: Any, truth: Codes) -> Problem:
    """Return the default graph of `GraphTransduction` on features, shape (n, d)."""
    y = draw_labels(truth, 1, 0)  # the graph does not depend on the labels
    graph = GraphTransduction(device="cpu").fit(features, y).graph_
    return Problem(graph, torch.from_numpy(graph.toarray()).float(), truth)


def measure(rules: Sequence[LearnedRule], name: str, count: int, draw: int) -> dict[str, Any]:
    """Return the accuracy of the rules and of the other methods for one draw of labels."""
    features, problem = test_problem(name)
    y = draw_labels(problem.truth, count, draw)
    rest = y < 0
    methods = {
        "game": GraphTransduction(device="cpu"),
        "Poisson": PoissonLearning(device="cpu"),
        "spreading": LabelSpreading(device="cpu"),
        "harmonic": LabelHarmonic(device="cpu"),
    }
    result: dict[str, Any] = {
        method: float((model.fit_graph(problem.graph, y).transduction_[rest] == problem.truth[rest]).mean())
        for method, model in methods.items()
    }
    dense = features if isinstance(features, np.ndarray) else features.toarray()
    for alpha in (0.2, 0.8, 0.99):
        model: Any = peer.LabelSpreading(kernel="knn", n_neighbors=7, alpha=alpha, max_iter=1000)
        found = model.fit(dense, y).transduction_
        result[f"scikit-learn, alpha {alpha:g}"] = float((found[rest] == problem.truth[rest]).mean())
    result["learned rule"] = [accuracy_of(rule, problem, y) for rule in rules]
    return result


def text(ledger: Ledger) -> str:
    """Return the table: mean accuracy by data set over all draws, and over all data sets."""
    rows = {key: ledger.values(key) for key in ledger.rows if not key.startswith("rule ")}
    cells: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for key, values in rows.items():
        name, number, _ = key.split()
        if values is not None:
            cells.setdefault((name, int(number)), []).append(values)
    methods = ["learned rule", "game", "Poisson", "spreading", "harmonic"]
    settings = [method for method in next(iter(cells.values()))[0] if method.startswith("scikit-learn")]
    lines = []
    columns: dict[str, list[float]] = {method: [] for method in (*methods, "best of scikit-learn")}
    for (name, count), draws in cells.items():
        shown = [mean_and_spread([float(np.mean(draw[method])) for draw in draws], scale=100) for method in methods]
        for method in methods:
            columns[method].append(float(np.mean([np.mean(draw[method]) for draw in draws])))
        best = max(float(np.mean([draw[setting] for draw in draws])) for setting in settings)
        columns["best of scikit-learn"].append(best)
        lines.append((f"{name}, {count}", *shown, f"{100 * best:.1f}"))
    means = [f"{100 * np.mean(values):.1f}" for values in columns.values()]
    note = (
        f"Accuracy in per cent on the unlabelled items: data set, labels per class; mean ± standard deviation over"
        f" {DRAWS} draws. The learned rule is the mean of {SEEDS} trainings on {len(TRAINING)} KEEL tables; the best"
        " setting of scikit-learn's label spreading is chosen by the reported accuracy."
    )
    return f"{note}\n\n{table(('data set', *columns), [*lines, ('mean', *means)])}"


def main() -> None:
    """Train the rules, measure the missing rows and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=one_or_more, default=STEPS, help="Training steps of each rule.")
    parser.add_argument("--results", type=Path, default=None, help="Folder of the results.")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    ledger = ledger_of("label_learned_rule", options.results)
    rules = [train_rule(seed, options.steps)[0] for seed in range(SEEDS)]
    for name, count, draw in product(TESTS, COUNTS, range(DRAWS)):
        ledger.row(f"{name} {count} {draw}", partial(measure, rules, name, count, draw), verbose=False)
    ledger.write_table("A learned rule in the game's place", text)


if __name__ == "__main__":
    run_command(main)
