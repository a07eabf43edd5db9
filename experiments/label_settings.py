"""Four candidate settings for each method of chapter 3, and the choice of `label_search` among them.

Every trained method has three learning rates and, at the second of them, another value of its most important setting.
The first candidate is the default, which is used without a search.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from entourage.label.semi_supervised.baselines import DEFAULT_C, FROZEN, METHODS
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.report.page import pluralize
from experiments.ledger import FAILED, RESULTS, Ledger
from experiments.renamed import stored
from experiments.tables import mean_and_spread, table

PROPAGATORS = ("game", "poisson", "spreading", "propagation", "harmonic")
BALANCED = "game, classes as frequent as given"  # as in the rounds; Poisson learning balances classes itself
GAME = "game+network"
LONGER = f"{GAME} (four times as long)"
WITHOUT_PRIORS = stored(f"{GAME} (without class frequencies)")  # the default of the library
LARGER = f"{GAME} (EfficientNet-Lite2, 224 pixels)"
VARIANTS = (LONGER, LARGER, WITHOUT_PRIORS)
LABELLED = tuple(f"{name}+network" for name in (*PROPAGATORS, "svm"))  # the SVM uses features instead of a graph
TRAINED = (*LABELLED, *METHODS, *FROZEN)
NEIGHBOURS = 20
# Labels are sampled in proportion to the classes; see PROTOCOL.
OPTIONS = AugmentOptions(balance=True, n_neighbors=NEIGHBOURS)
SEARCH = "label_search"

PROTOCOL = (
    "Labels are sampled in proportion to the classes, at least one of each, and all graph methods use these class "
    "frequencies (`AugmentOptions(balance=True)`, off by default): the game in its dynamics, the other propagators by"
    " rescaling their distributions in proportion to their confidence, and the training on their labels by matching "
    "the network's mean prediction. Methods without a graph (FixMatch, Mean Teacher and others) are as published and "
    "do not use them. All methods have as many steps as the game's rounds together, far fewer than in their "
    "publications."
)

_EARLIER = (
    "Not searched: the settings of all methods (input of 160 pixels, three trainable stages) and those of the game's "
    f"rounds ({NEIGHBOURS} neighbours, product of the labels of graph and network, the schedule of accepted "
    "pseudo-labels). They were set using the game's test accuracy with 50 labels and seed 0, which favours the game."
)

Settings = Mapping[str, float]
"""Numbers by name: learning rate, rounds, epochs, and the specific settings of a method."""

_RATES = (OPTIONS.training.learning_rate, 2e-4, 5e-4)
_ROUNDS, _EPOCHS = OPTIONS.rounds, OPTIONS.training.epochs
_COSTS = (0.01, 0.1, 10.0)  # multiples of the default


def _candidates(default: Settings, other: Settings) -> tuple[Settings, ...]:
    """Return the default, two other learning rates, and the second rate with `other`."""
    rated = [{"learning_rate": rate, **default} for rate in _RATES]
    return (*rated, {**rated[1], **other})


_GAME = _candidates({"rounds": _ROUNDS, "epochs": _EPOCHS}, {"rounds": _ROUNDS // 2, "epochs": 2 * _EPOCHS})
_STEPS = {"epochs": _ROUNDS * _EPOCHS}  # methods without rounds make as many steps as all rounds together

CANDIDATES: Mapping[str, tuple[Settings, ...]] = {
    **dict.fromkeys(LABELLED, _GAME),
    "supervised": _candidates(_STEPS, {"epochs": _EPOCHS}),  # few labels may need fewer epochs
    "pi-model": _candidates({**_STEPS, "weight": 0.1}, {"weight": 1.0}),
    "mean-teacher": _candidates({**_STEPS, "weight": 10.0}, {"weight": 50.0}),
    "pseudo-label": _candidates({**_STEPS, "threshold": 0.95}, {"threshold": 0.7}),
    "vat": _candidates({**_STEPS, "radius": 0.003}, {"radius": 0.01}),
    "fixmatch": _candidates({**_STEPS, "threshold": 0.95}, {"threshold": 0.8}),
    **{name: ({"c": DEFAULT_C[name]}, *({"c": DEFAULT_C[name] * cost} for cost in _COSTS)) for name in FROZEN},
}


@dataclass(frozen=True)
class Choice:
    """The settings of a method.

    Attributes:
        settings: the numbers.
        origin: how they were chosen, for the table.
    """

    settings: Settings
    origin: str


def named(settings: Settings) -> str:
    """Format settings: "learning rate 0.0005, epochs 12"."""
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items())


def key(method: str, settings: Settings, seed: int | str) -> str:
    """Return the key of a row of the search."""
    return f"{method}/{named(settings)}/{seed}"


def accuracies(rows: Mapping[str, Mapping[str, Any]], method: str) -> list[list[float]]:
    """Return the accuracies of each candidate, over the seeds with which all four have been measured.

    A failed training, e.g. with a learning rate that is too high, counts as 0.
    """
    by_candidate: list[dict[str, float]] = []
    for settings in CANDIDATES[method]:
        start = key(method, settings, "")
        matching = {name.removeprefix(start): row for name, row in rows.items() if name.startswith(start)}
        by_candidate.append({seed: 0.0 if FAILED in row else float(row["accuracy"]) for seed, row in matching.items()})
    seeds = sorted(set.intersection(*map(set, by_candidate)))
    return [[by_seed[seed] for seed in seeds] for by_seed in by_candidate]


def choose(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Choice]:
    """Choose for every method the candidate with the highest mean accuracy, the first of equal ones.

    A labeller without rows has the settings of the game, so that only the labels differ; another method without rows
    has its default.

    Args:
        rows: rows of the search, by `key`.
    """
    chosen: dict[str, Choice] = {}
    for method, candidates in CANDIDATES.items():
        by_candidate = accuracies(rows, method)
        if by_candidate[0]:
            best = max(range(len(candidates)), key=lambda index: statistics.fmean(by_candidate[index]))
            chosen[method] = Choice(
                candidates[best], f"chosen of {len(candidates)} by {pluralize(len(by_candidate[0]), 'seeds')}"
            )
        elif method in LABELLED and method != GAME:  # the game comes first
            chosen[method] = Choice(chosen[GAME].settings, "as the game")
        else:
            chosen[method] = Choice(candidates[0], "default")
    game = chosen[GAME].settings
    longer = {**game, "rounds": 2 * game["rounds"], "epochs": 2 * game["epochs"]}
    return {
        **chosen,
        LONGER: Choice(longer, "as the game, twice as many rounds of twice as many epochs"),
        LARGER: Choice(game, "as the game"),
        WITHOUT_PRIORS: Choice(game, "as the game"),
    }


def read_choices(folder: Path = RESULTS) -> dict[str, Choice]:
    """Return the choices of the search in a folder; the defaults without a search."""
    return choose(Ledger(SEARCH, folder).rows)


def check_choices(ledger: Ledger, choices: Mapping[str, Choice]) -> None:
    """Check that stored rows were measured with the chosen settings.

    Raises:
        ValueError: a row has other settings.
    """
    for name, row in ledger.rows.items():
        if "settings" in row and dict(choices[row["method"]].settings) != row["settings"]:
            then, now = named(row["settings"]), named(choices[row["method"]].settings)
            raise ValueError(f"{ledger.path}: row {name!r} has {then}; expected {now} or another folder")


def choices_text(choices: Mapping[str, Choice], methods: Sequence[str]) -> list[str]:
    """Return the paragraphs on the settings of the methods of a table; none without methods."""
    if not methods:
        return []
    searched = any(choices[method].origin.startswith("chosen") for method in methods)
    how = (
        f"chosen by `python -m experiments.{SEARCH}` on held-out training images of CIFAR-10, with 50 labels"
        if searched
        else f"all at their defaults: `python -m experiments.{SEARCH}` has not been run"
    )
    rows = [(method, named(choices[method].settings), choices[method].origin) for method in methods]
    return [f"Settings, {how}:", table(("method", "settings", "origin"), rows), PROTOCOL, _EARLIER]


def search_text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a table with the accuracy of all candidates, the chosen ones marked."""
    choices, lines = choose(rows), []
    for method, candidates in CANDIDATES.items():
        for settings, seeds in zip(candidates, accuracies(rows, method), strict=True):
            if seeds:
                mark = "chosen" if settings == choices[method].settings else ""
                lines.append((method, named(settings), mean_and_spread(seeds), mark))
    return table(("method", "settings", "accuracy", ""), lines)
