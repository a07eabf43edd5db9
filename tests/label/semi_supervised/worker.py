"""Train GraphConsistency in several processes, once without and once with an interruption.

torchrun --nproc-per-node 2 worker.py FOLDER
"""

import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from tests.label.semi_supervised import toys

from entourage.label.semi_supervised.graph_methods import GraphConsistency
from entourage.label.semi_supervised.method import MethodOptions
from entourage.training import TrainingOptions, train

OPTIONS = TrainingOptions(epochs=4, learning_rate=0.02, checkpoint_every=2, workers=0)
STOP = 9


class StoppedError(Exception):
    """Simulates a kill."""


class Stopped(GraphConsistency):
    stop_at: int | None = None

    def after_step(self, step: int) -> None:
        super().after_step(step)
        if step == self.stop_at:
            raise StoppedError


def task(stop_at: int | None = None) -> Stopped:
    examples, truth = toys.examples()
    found = toys.pseudo_labels(truth.tolist(), np.linspace(0.4, 1, 30).tolist())
    options = MethodOptions(min_steps=6, labelled_batch=6, unlabelled_batch=10, ema_decay=0.9)
    priors = torch.tensor([0.5, 0.3, 0.2])
    made = Stopped(toys.network(), examples, options, pseudo_labels=found, warmup_steps=2, class_priors=priors)
    made.stop_at = stop_at
    return made


def main(folder: Path) -> None:
    """Train twice, the second time with an interruption, and write the result of each process."""
    complete = task()
    train(complete, OPTIONS, folder / "complete", device="cpu", progress=False)
    try:
        train(task(STOP), OPTIONS, folder / "stopped", device="cpu", progress=False)
    except StoppedError:
        torch.distributed.barrier()  # wait until the checkpoint is written
    continued = task()
    result = train(continued, OPTIONS, folder / "stopped", device="cpu", progress=False)
    weights, resumed = (one.final_model().state_dict() for one in (complete, continued))
    summary = {
        "steps": result.steps,
        "means": [complete.mean_prediction.tolist(), continued.mean_prediction.tolist()],
        "same": all(torch.equal(value, resumed[name]) for name, value in weights.items()),
        "spread": (complete.mean_prediction - torch.tensor([0.5, 0.3, 0.2])).abs().max().item(),
    }
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(summary))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
