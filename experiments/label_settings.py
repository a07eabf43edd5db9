"""The settings that each method of chapter 3 may have: four for everybody, and which of them `label_search` chose.

Three learning rates for all that is trained, and at the second of them another value of the number that matters most to
the method. The first of the four is the default, for as long as nothing has been searched.
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
from experiments.tables import mean_and_spread, table

PROPAGATORS = ("game", "poisson", "spreading", "propagation", "harmonic")
BALANCED = "game, classes as frequent as given"  # how the rounds play it; Poisson knows that of itself
GAME = "game+network"
LONGER = f"{GAME} (four times as long)"
UNTOLD = f"{GAME} (not told how frequent classes are)"  # as the library does where nothing is said
LARGER = f"{GAME} (EfficientNet-Lite2, 224 pixels)"
VARIANTS = (LONGER, LARGER, UNTOLD)
LABELLED = tuple(f"{name}+network" for name in (*PROPAGATORS, "svm"))  # the SVM looks at features, not at neighbours
TRAINED = (*LABELLED, *METHODS, *FROZEN)
NEIGHBOURS = 20
# Labels are drawn here as frequent as the classes are; see FAIRLY.
OPTIONS = AugmentOptions(balance=True, n_neighbors=NEIGHBOURS)
SEARCH = "label_search"

FAIRLY = (
    "Labels are drawn in proportion to the classes, at least one of each, and all that labels images over a graph is "
    "told so (`AugmentOptions(balance=True)`, off by default): the game while it is played, every propagator in its "
    "place by scaling its distributions as far as they are sure, and the training that follows by holding the "
    "network's answers to it. Methods without a graph (FixMatch, Mean Teacher and the others) are as their authors "
    "have them and are not told. All make as many steps as the game's rounds together, which is far fewer than these "
    "were published with."
)

_EARLIER = (
    "Not searched for: what all methods share (the side of 160 pixels, the three stages that are trained) and what the "
    f"game's rounds have of their own ({NEIGHBOURS} neighbours, labels of graph and network multiplied, the pace at "
    "which classes are believed). These were set while the game's test accuracy with 50 labels and seed 0 was looked "
    "at."
)

Settings = Mapping[str, float]
"""Numbers by name: the learning rate, rounds and epochs, and what a method calls its own."""

_RATES = (OPTIONS.training.learning_rate, 2e-4, 5e-4)
_ROUNDS, _EPOCHS = OPTIONS.rounds, OPTIONS.training.epochs
_COSTS = (0.01, 0.1, 10.0)  # times the usual


def _candidates(usual: Settings, other: Settings) -> tuple[Settings, ...]:
    """The default, two other learning rates, and something else that may differ."""
    rated = [{"learning_rate": rate, **usual} for rate in _RATES]
    return (*rated, {**rated[1], **other})


_GAME = _candidates({"rounds": _ROUNDS, "epochs": _EPOCHS}, {"rounds": _ROUNDS // 2, "epochs": 2 * _EPOCHS})
_STEPS = {"epochs": _ROUNDS * _EPOCHS}  # methods without rounds make as many steps as all rounds together

CANDIDATES: Mapping[str, tuple[Settings, ...]] = {
    **dict.fromkeys(LABELLED, _GAME),
    "supervised": _candidates(_STEPS, {"epochs": _EPOCHS}),  # few labels may be learnt sooner
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
        origin: where they are from, in words.
    """

    settings: Settings
    origin: str


def named(settings: Settings) -> str:
    """The settings in words: "learning rate 0.0005, epochs 12"."""
    return ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in settings.items())


def key(method: str, settings: Settings, seed: int | str) -> str:
    """The name of a row of the search."""
    return f"{method}/{named(settings)}/{seed}"


def accuracies(rows: Mapping[str, Mapping[str, Any]], method: str) -> list[list[float]]:
    """For each of the method's candidates its accuracies, over the seeds with which all four have been measured.

    A training that failed, because its learning rate was too high, counts as 0.
    """
    found: list[dict[str, float]] = []
    for settings in CANDIDATES[method]:
        start = key(method, settings, "")
        own = {name.removeprefix(start): row for name, row in rows.items() if name.startswith(start)}
        found.append({seed: 0.0 if FAILED in row else float(row["accuracy"]) for seed, row in own.items()})
    seeds = sorted(set.intersection(*(set(own) for own in found)))
    return [[own[seed] for seed in seeds] for own in found]


def choose(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Choice]:
    """For every method the candidate with the highest mean accuracy, of equals the first.

    What labels in the game's place and was not searched for has the game's settings, so that nothing but the labels
    differs; anything else that was not searched for has its default.

    Args:
        rows: of the search, by `key`.
    """
    chosen: dict[str, Choice] = {}
    for method, candidates in CANDIDATES.items():
        found = accuracies(rows, method)
        if found[0]:
            best = max(range(len(candidates)), key=lambda place: statistics.fmean(found[place]))
            chosen[method] = Choice(
                candidates[best], f"chosen of {len(candidates)} by {pluralize(len(found[0]), 'seeds')}"
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
        UNTOLD: Choice(game, "as the game"),
    }


def read_choices(folder: Path = RESULTS) -> dict[str, Choice]:
    """What the search in that folder chose; the defaults where there is none."""
    return choose(Ledger(SEARCH, folder).rows)


def check_choices(ledger: Ledger, choices: Mapping[str, Choice]) -> None:
    """Refuse to add to rows that were measured with other settings.

    Raises:
        ValueError: the search has changed its mind since.
    """
    for name, row in ledger.rows.items():
        if "settings" in row and dict(choices[row["method"]].settings) != row["settings"]:
            then, now = named(row["settings"]), named(choices[row["method"]].settings)
            raise ValueError(f"{ledger.path}: row {name!r} has {then}, the search now says {now}; move the file away")


def choices_text(choices: Mapping[str, Choice], methods: Sequence[str]) -> list[str]:
    """What a table says of the settings of its methods, in paragraphs; nothing where none was trained."""
    if not methods:
        return []
    searched = any(choices[method].origin.startswith("chosen") for method in methods)
    how = (
        f"chosen by `python -m experiments.{SEARCH}` on training images of CIFAR-10 that were held out, with 50 labels"
        if searched
        else f"all at their defaults: `python -m experiments.{SEARCH}` has not been run"
    )
    rows = [(method, named(choices[method].settings), choices[method].origin) for method in methods]
    return [f"Settings, {how}:", table(("method", "settings", "origin"), rows), FAIRLY, _EARLIER]


def search_text(rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Accuracy of all candidates, and which were chosen."""
    choices, shown = choose(rows), []
    for method, candidates in CANDIDATES.items():
        for settings, found in zip(candidates, accuracies(rows, method), strict=True):
            if found:
                mark = "chosen" if settings == choices[method].settings else ""
                shown.append((method, named(settings), mean_and_spread(found), mark))
    return table(("method", "settings", "accuracy", ""), shown)
