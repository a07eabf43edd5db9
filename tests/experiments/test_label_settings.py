"""All methods have as many candidate settings, and the tables use the best of them."""

from __future__ import annotations

import inspect
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from experiments.label_settings import (
    CANDIDATES,
    GAME,
    LABELLED,
    LARGER,
    LONGER,
    NEIGHBOURS,
    OPTIONS,
    TRAINED,
    WITHOUT_PRIORS,
    Choice,
    accuracies,
    check_choices,
    choices_text,
    choose,
    key,
    named,
    read_choices,
    search_text,
)
from experiments.ledger import FAILED, Ledger

from entourage.label.semi_supervised.baselines import LABELLERS, METHODS
from entourage.label.semi_supervised.options import AugmentOptions

Rows = dict[str, dict[str, Any]]


def measured(method: str, *by_candidate: list[float | None]) -> Rows:
    """Rows of a search: for each candidate its accuracies with seeds 100, 101, ...; None: not measured."""
    return {
        key(method, settings, 100 + place): {"accuracy": value, "method": method, "settings": dict(settings)}
        for settings, found in zip(CANDIDATES[method], by_candidate, strict=True)
        for place, value in enumerate(found)
        if value is not None
    }


def test_all_methods_have_four_settings_and_they_differ() -> None:
    assert set(CANDIDATES) == set(TRAINED)
    for candidates in CANDIDATES.values():
        assert len(candidates) == 4
        assert len({named(settings) for settings in candidates}) == 4


def test_all_that_is_trained_may_choose_among_the_same_learning_rates() -> None:
    for method, candidates in CANDIDATES.items():
        if method in LABELLED or method in METHODS:
            assert [settings["learning_rate"] for settings in candidates] == [8e-5, 2e-4, 5e-4, 2e-4]


def test_defaults_are_those_of_the_library_and_all_methods_have_as_many_steps() -> None:
    options = AugmentOptions()
    assert replace(options, balance=True, n_neighbors=NEIGHBOURS) == OPTIONS
    game = CANDIDATES[GAME][0]
    assert (game["rounds"], game["epochs"]) == (options.rounds, options.training.epochs)
    assert game["learning_rate"] == options.training.learning_rate
    assert {settings["rounds"] * settings["epochs"] for settings in CANDIDATES[GAME]} == {4}
    for name, method in METHODS.items():
        default = dict(CANDIDATES[name][0])
        assert default.pop("epochs") == 4
        default.pop("learning_rate")
        parameters = inspect.signature(method).parameters
        defaults = {own: parameters[own].default for own in default}
        assert {own: method.default_weight if value is None else value for own, value in defaults.items()} == default


def test_the_alternatives_of_the_thesis_are_trained_on_too() -> None:
    assert {"game+network", "svm+network"} < set(LABELLED) < set(TRAINED)
    assert {name.removesuffix("+network") for name in LABELLED} == set(LABELLERS)


def test_settings_have_a_name() -> None:
    assert named({"learning_rate": 5e-4, "epochs": 12}) == "learning rate 0.0005, epochs 12"
    assert key("vat", {"radius": 0.03}, 100) == "vat/radius 0.03/100"


def test_the_best_mean_is_chosen_and_of_equals_the_first() -> None:
    rows = measured("fixmatch", [60.0, 70.0], [66.0, 66.0], [80.0, 40.0], [66.0, 66.0])
    assert choose(rows)["fixmatch"].settings == CANDIDATES["fixmatch"][1]
    assert choose(rows)["fixmatch"].origin == "chosen of 4 by 2 seeds"


def test_only_seeds_with_which_all_four_were_measured_count() -> None:
    rows = measured("vat", [60.0, 10.0], [50.0, None], [40.0, 99.0], [30.0, 99.0])
    assert accuracies(rows, "vat") == [[60], [50], [40], [30]]
    assert choose(rows)["vat"] == Choice(CANDIDATES["vat"][0], "chosen of 4 by 1 seed")
    unfinished = measured("vat", [60.0], [70.0], [80.0], [None])
    assert choose(unfinished)["vat"] == Choice(CANDIDATES["vat"][0], "default")


def test_a_training_that_failed_is_never_the_best() -> None:
    rows = measured("pi-model", [10.0], [20.0], [30.0], [15.0])
    rows[key("pi-model", CANDIDATES["pi-model"][2], 100)] = {FAILED: "the loss is not finite"}
    assert accuracies(rows, "pi-model") == [[10], [20], [0], [15]]
    assert choose(rows)["pi-model"].settings == CANDIDATES["pi-model"][1]


def test_what_labels_in_the_games_place_has_the_games_settings_unless_it_was_searched_for() -> None:
    rows = measured(GAME, [50.0], [60.0], [40.0], [30.0])
    chosen = choose(rows)
    assert chosen["poisson+network"] == Choice(CANDIDATES[GAME][1], "as the game")
    own = choose(rows | measured("poisson+network", [50.0], [10.0], [40.0], [55.0]))
    assert own["poisson+network"].settings == CANDIDATES[GAME][3]
    assert own["spreading+network"].settings == CANDIDATES[GAME][1]
    assert own["svm+network"] == Choice(CANDIDATES[GAME][1], "as the game")


def test_without_a_search_all_methods_have_their_defaults(tmp_path: Path) -> None:
    choices = read_choices(tmp_path)
    longer = {**CANDIDATES[GAME][0], "rounds": 8, "epochs": 2}
    assert {method: choice.settings for method, choice in choices.items()} == {
        **{method: candidates[0] for method, candidates in CANDIDATES.items()},
        LONGER: longer,
        LARGER: CANDIDATES[GAME][0],
        WITHOUT_PRIORS: CANDIDATES[GAME][0],
    }
    output = choices_text(choices, ["vat"])
    assert output[0] == "Settings, all at their defaults: `python -m experiments.label_search` has not been run:"
    assert choices_text(choices, []) == []  # a table without a training has no settings


def test_a_search_is_read_from_its_ledger(tmp_path: Path) -> None:
    ledger = Ledger("label_search", tmp_path, command="search")
    for name, row in measured("linear", [1.0], [2.0], [4.0], [3.0]).items():
        ledger.add(name, row, 1.0)
    choices = read_choices(tmp_path)
    assert choices["linear"].settings == {"c": 10.0}
    output = "\n".join(choices_text(choices, ["linear", "vat"]))
    assert "| pi-model" not in output
    assert "chosen by `python -m experiments.label_search` on held-out training images of CIFAR-10" in output
    assert "| linear | c 10 | chosen of 4 by 1 seed |" in output
    assert "| vat | learning rate 8e-05, epochs 4, radius 0.003 | default |" in output


def test_all_that_was_measured_is_shown_and_what_was_chosen_is_marked() -> None:
    output = search_text(measured("vat", [60.0, 62.0], [50.0, 50.0], [70.0, 70.0], [30.0, 30.0]))
    assert "| vat | learning rate 0.0005, epochs 4, radius 0.003 | 70.0 ± 0.0 | chosen |" in output
    assert "| vat | learning rate 8e-05, epochs 4, radius 0.003 | 61.0 ± 1.4 |  |" in output
    assert output.count("chosen") == 1
    assert output.count("\n") == 5


def test_rows_of_other_settings_are_not_added_to(tmp_path: Path) -> None:
    ledger = Ledger("label_cifar10", tmp_path, command="table")
    ledger.add("graph/game/10/0", {"found": 40.0}, 1.0)
    ledger.add("vat/10/0", {"method": "vat", "settings": dict(CANDIDATES["vat"][0])}, 1.0)
    check_choices(ledger, choose({}))
    changed = choose(measured("vat", [1.0], [2.0], [0.0], [0.0]))
    with pytest.raises(ValueError, match=r"row 'vat/10/0' has learning rate 8e-05, .*expected learning rate 0\.0002"):
        check_choices(ledger, changed)
