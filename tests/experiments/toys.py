"""Experiments with the options of results/."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from experiments.cells import Experiment
from experiments.embed_cost import cost_experiment
from experiments.embed_ensembles import ensembles_experiment
from experiments.embed_losses import EPOCHS, SEEDS, losses_experiment
from experiments.embed_robustness import robustness_experiment
from experiments.embed_trials import Bench, add_options, setting_of
from experiments.embed_variants import SEARCHED, search_experiment
from experiments.ledger import Ledger


def default_bench(epochs: int, seeds: int = 1) -> Bench:
    """Return the bench with the default options of an experiment; nothing is read."""
    parser = ArgumentParser()
    parser.add_argument("--device", default="cpu")
    add_options(parser, epochs=epochs, seeds=seeds)
    return Bench(setting_of(parser.parse_args([])))


def experiments_of_embed() -> list[Experiment]:
    """Return all experiments of embed with their default options."""
    return [
        cost_experiment(default_bench(8)),
        ensembles_experiment(default_bench(8), Ledger("embed_losses"), Path("build")),
        losses_experiment(default_bench(EPOCHS, SEEDS)),
        robustness_experiment(default_bench(5)),
        search_experiment(default_bench(SEARCHED, SEEDS)),
    ]
