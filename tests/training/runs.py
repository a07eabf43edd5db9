"""Helpers for tests of the loop: start runs as programs, stop them, read and compare their files."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from entourage.training import TrainingOptions

WORKER = Path(__file__).with_name("worker.py")
ROOT = WORKER.parents[2]
SGD = TrainingOptions(epochs=2, optimizer="sgd", momentum=0.0, learning_rate=0.1)


def run_worker(what: str, folder: Path, *launcher: str) -> tuple[int, str]:
    return run_program(*launcher, str(WORKER), what, str(folder))


def run_program(*arguments: str) -> tuple[int, str]:
    """Run Python on one thread, with the tests importable; return exit code and output."""
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    with subprocess.Popen([sys.executable, *arguments], env=environment, stderr=subprocess.PIPE, text=True) as program:
        try:
            output = program.communicate(timeout=300)[1]
        except subprocess.TimeoutExpired:
            program.terminate()  # lets the launcher end its processes, unlike kill
            raise
    return program.returncode, output


def lines(run: Path) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name != "seconds"} for line in read]


def assert_same_run(one: Path, two: Path) -> None:
    assert sorted(path.name for path in one.iterdir()) == sorted(path.name for path in two.iterdir())
    assert lines(one) == lines(two)
    for name in ("model", "best", "checkpoint"):
        mine, theirs = (load_file(folder / f"{name}.safetensors") for folder in (one, two))
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[key], theirs[key]) for key in mine)


def weights_of(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def stop_at(last: int) -> Callable[..., None]:
    """Return a function that raises KeyboardInterrupt when called with this step, or at once if it is 0."""

    def interrupt(step: object, *_: object) -> None:
        if last in (0, step):
            raise KeyboardInterrupt

    return interrupt
