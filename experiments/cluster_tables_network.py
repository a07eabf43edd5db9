"""Training of the network of `LearnedClustering` for tables, on simulated tables.

python -m experiments.cluster_tables_network --minutes 22 --workers 5 --device cuda --out cluster-tables.safetensors

python -m experiments.cluster_tables_network --recalibrate cluster-tables.safetensors --seed 21 --first 620 \
    --n-max 500 --out src/entourage/weights/cluster-tables.safetensors

The second command fits the output layer again on further tables, so that P(k) is calibrated.

Tables are simulated by the processes while the network is trained. The best network so far is written once a minute,
with validation scores on simulated tables that are not in the training data in a log next to it.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from datetime import date
from pathlib import Path

import torch

from entourage.cluster.sampling.tables import TableOptions
from entourage.cluster.tables.scorer import PartitionScorer, load_scorer, save_scorer
from entourage.cluster.tables.training import ExampleStream, make_example, recalibrate, train_scorer
from experiments.command import run_command


def main() -> None:
    """Train and write the network."""
    parser = argparse.ArgumentParser(description="Train the network for tables.")
    parser.add_argument("--minutes", type=float, default=22)
    parser.add_argument("--workers", type=int, default=5, help="Processes that simulate tables.")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--n-max", type=int, default=1000, help="Maximum number of items of a table.")
    parser.add_argument("--first", type=int, default=256, help="Tables to wait for before the first step.")
    parser.add_argument("--validation", type=int, default=400, help="Tables that are held out.")
    parser.add_argument("--recalibrate", type=Path, default=None, help="Trained network whose output layer is fitted.")
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # of the processes
    notes = {"items": "tables", "trained by": "experiments.cluster_tables_network", "date": date.today().isoformat()}
    log = options.out.with_suffix(".jsonl")

    def report(scorer: PartitionScorer, scores: dict[str, float]) -> None:
        save_scorer(scorer, options.out, {**notes, "steps": str(scores["step"]), "tables": str(scores["examples"])})
        with log.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(scores) + "\n")
        print({name: round(value, 4) for name, value in scores.items()}, flush=True)

    if options.recalibrate is not None:
        scorer = load_scorer(options.recalibrate)
        tables = TableOptions(n_max=options.n_max)
        made = [make_example([options.seed, i], tables) for i in range(options.first)]
        recalibrate(scorer, [one for one in made if one is not None])
        save_scorer(scorer, options.out, {**notes, "recalibrated on": f"{options.first} further tables"})
        return
    stream = ExampleStream(options.seed, options.workers, TableOptions(n_max=options.n_max))
    train_scorer(
        stream,
        60 * options.minutes,
        device=options.device,
        first=options.first,
        validation=options.validation,
        report=report,
    )
    stream.close()
    sys.stdout.flush()


if __name__ == "__main__":
    run_command(main)
