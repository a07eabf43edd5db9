"""Commands and rows of results/ in their former spelling stay valid; the present spelling is printed."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path

import pytest
from experiments.command import run_command
from experiments.label_settings import WITHOUT_PRIORS
from experiments.ledger import RESULTS, Ledger
from experiments.renamed import RENAMED, present, stored
from tests.experiments.toys import experiments_of_embed

from experiments import cluster_rows, detect_rows, label_rows

COMMANDS = sorted(
    {row["command"] for file in RESULTS.glob("*.json") for row in json.loads(file.read_text())["rows"].values()}
)
PARSERS = {
    "cluster": lambda: cluster_rows.arguments("", 1.0),
    "label": lambda: label_rows.arguments(""),
    "detect": lambda: detect_rows.training_parser("", 1.0),
}


def test_both_spellings_are_converted() -> None:
    for former, name in RENAMED.items():
        assert present(former) == name
        assert stored(name) == stored(former) == former
    assert stored("linear") == present("linear") == "linear"
    assert WITHOUT_PRIORS in {row["method"] for row in Ledger("label_cifar10").rows.values() if "method" in row}


@pytest.mark.parametrize("command", COMMANDS)
def test_options_of_stored_commands_are_accepted(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    words = shlex.split(command)
    name = words[2].removeprefix("experiments.")
    assert Path(RESULTS.parent, "experiments", f"{name}.py").is_file()
    parser = PARSERS.get(name.partition("_")[0])
    if parser is None:
        return
    monkeypatch.setattr(sys, "argv", words[2:])
    given: list[argparse.Namespace] = []
    run_command(lambda: given.append(parser().parse_known_args()[0]))
    if name.startswith("cluster"):
        assert given[0].baselines == ("--no-baselines" not in sys.argv)
    assert not set(sys.argv) & {option for option in RENAMED if option.startswith("--")}
    for text in sys.argv[1:]:
        assert RENAMED.get(text, text) == text or not text.startswith("--")


@pytest.mark.parametrize("experiment", experiments_of_embed(), ids=lambda experiment: experiment.name)
def test_ledgers_of_embed_open_with_the_present_settings(experiment) -> None:  # type: ignore[no-untyped-def]
    assert Ledger(experiment.name, settings=experiment.settings).rows


@pytest.mark.parametrize("name", ["label_cifar10", "label_fractions", "label_search"])
def test_ledgers_of_label_open_with_the_present_settings(name: str) -> None:
    options = label_rows.arguments("").parse_args([])
    assert label_rows.ledger_of(name, options).rows


@pytest.mark.parametrize("name", ["cluster_points", "cluster_images", "cluster_speakers"])
def test_ledgers_of_cluster_open_with_the_present_settings(name: str) -> None:
    assert cluster_rows.open_ledger(name, cluster_rows.arguments("", 1.0).parse_args([])).rows


@pytest.mark.parametrize("name", ["detect_ablation", "detect_context", "detect_deepscores", "engrave_classification"])
def test_the_other_ledgers_open_with_their_settings(name: str) -> None:
    ledger = Ledger(name, settings={"epochs": 5} if name.startswith("engrave") else {})
    assert ledger.rows
