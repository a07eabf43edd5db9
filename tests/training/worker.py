"""Tasks for the tests of training, and a program that runs them in processes that are killed or distributed.

python worker.py kill FOLDER
torchrun --nproc-per-node 2 worker.py processes FOLDER
torchrun --nproc-per-node 2 worker.py continued FOLDER
"""

import atexit
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional as F

from entourage.io import weights
from entourage.runs.metrics_log import MetricsLog
from entourage.training import NonFiniteLossError, Task, TrainingOptions, train
from entourage.training.checkpoint import Checkpoints, RunState
from entourage.training.task import EMA


class Rows(Task[Any, tuple[Tensor, Tensor]]):
    """Deterministic regression of 24 rows in float64, in equal batches in order."""

    def __init__(self, batch: int = 4, model: nn.Module | None = None) -> None:
        rng = np.random.default_rng(0)
        self.x = torch.from_numpy(rng.normal(size=(24, 3)))
        self.y = torch.from_numpy(rng.normal(size=(24, 1)))
        torch.manual_seed(0)
        self.model = nn.Linear(3, 1).double() if model is None else model
        self.batch = batch

    def plan(self, epoch: int) -> Sequence[Any]:
        return np.arange(24).reshape(-1, self.batch)

    def load(self, item: Any, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        return self.x[item], self.y[item]

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor], step: int) -> dict[str, Tensor]:
        return {"loss": F.mse_loss(model(batch[0]), batch[1])}


class Noisy(Rows):
    """The same with noise, shuffling, dropout, batch normalisation and an average of the weights."""

    def __init__(self, batch_norm: bool = True) -> None:
        super().__init__()
        self.x, self.y = self.x.float(), self.y.float()
        self.model = nn.Sequential(
            nn.Linear(3, 8), nn.BatchNorm1d(8) if batch_norm else nn.Identity(), nn.Dropout(0.3), nn.Linear(8, 1)
        )
        self.average = EMA(self.model, 0.9)

    def plan(self, epoch: int) -> Sequence[Any]:
        return np.random.default_rng([5, epoch]).permutation(24).reshape(-1, 4)

    def load(self, item: Any, rng: np.random.Generator) -> tuple[Tensor, Tensor]:
        noise = torch.from_numpy(rng.normal(size=(len(item), 3)).astype(np.float32))
        return self.x[item] + 0.1 * noise, self.y[item]

    def validate(self, model: nn.Module) -> dict[str, float]:
        return {"error": float(F.mse_loss(model(self.x), self.y))}

    def after_step(self, step: int) -> None:
        self.average.update(self.model)

    def final_model(self) -> nn.Module:
        return self.average.module

    def extra_state(self) -> dict[str, Tensor]:
        return self.average.state()

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        self.average.load_state(state)


NOISY = TrainingOptions(
    epochs=6, learning_rate=0.01, schedule="cosine", warmup_steps=3, monitor="error", mode="min", restore_best=True,
    checkpoint_every=4, log_every=3,
)  # fmt: skip


def kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_at_call(owner: Any, name: str, call: int, half: Callable[..., None] | None = None) -> None:
    """Replace a function so that the process is killed after the given call, or in the middle of it."""
    function, calls = getattr(owner, name), iter(range(call))

    def deadly(*arguments: Any) -> Any:
        if next(calls, None) is not None:
            return function(*arguments)
        (half or function)(*arguments)
        return kill_process()

    setattr(owner, name, deadly)


def write_half_file(tensors: Mapping[str, Tensor], path: Path, notes: dict[str, str]) -> None:
    save_file(tensors, path, notes)
    path.write_bytes(path.read_bytes()[:-50])


def write_half_line(journal: MetricsLog, line: dict[str, Any]) -> None:
    assert journal._file is not None
    journal._file.write(json.dumps(line)[:25])
    journal._file.flush()


def kill_with_new_best(checkpoints: Checkpoints, state: RunState | None) -> None:
    if (
        state is not None
        and state.step == state.best_step
        and (checkpoints.folder / "pending-best.safetensors").exists()
    ):
        kill_process()


# Points at which a child is killed: each is a moment at which two files could disagree.
MOMENTS: list[Callable[[], None]] = [
    lambda: kill_at_call(Noisy, "after_step", 2),  # before the first checkpoint
    lambda: kill_at_call(weights, "save_file", 0, write_half_file),  # in the first checkpoint
    lambda: kill_at_call(Noisy, "after_step", 5),  # within an epoch
    lambda: kill_at_call(weights, "save_file", 2),  # a file is complete but not renamed
    lambda: kill_at_call(
        Checkpoints, "save_pending_best", 0
    ),  # new best weights without a checkpoint that refers to them
    lambda: setattr(
        Checkpoints, "_commit_best", kill_with_new_best
    ),  # such a checkpoint, before the weights are renamed
    lambda: kill_at_call(MetricsLog, "_write", 4, write_half_line),
    lambda: kill_at_call(weights, "save_file", 3, write_half_file),
    lambda: kill_at_call(Noisy, "validate", 0),
    lambda: kill_at_call(Checkpoints, "load_best", 0),
    lambda: kill_at_call(Checkpoints, "save_final", 0),  # the final weights, before the run is marked as finished
]


def child(run: Path, arm: Callable[[], None]) -> int:
    number = os.fork()
    if number == 0:
        status = 1
        try:
            arm()
            train(Noisy(), NOISY, run, device="cpu")
            status = 0
        finally:
            os._exit(status)
    return number


def kill(folder: Path) -> None:
    """One uninterrupted run, one killed at each of the points above, one killed at random times."""
    torch.set_num_threads(1)
    train(Noisy(), NOISY, folder / "left-alone", device="cpu")
    for number, arm in enumerate(MOMENTS):
        status = os.waitpid(child(folder / "killed", arm), 0)[1]
        assert status == signal.SIGKILL, f"child {number} outlived its moment: {status}"
    assert os.waitpid(child(folder / "killed", lambda: None), 0)[1] == 0
    for seconds in np.random.default_rng(3).uniform(0, 0.08, size=20):
        number = child(folder / "killed-at-random", lambda: None)
        time.sleep(seconds)
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)
    assert os.waitpid(child(folder / "killed-at-random", lambda: None), 0)[1] == 0


class NonFiniteInOne(Rows):
    """Task with a NaN loss at the fourth step in the second of two processes."""

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor], step: int) -> dict[str, Tensor]:
        loss = super().loss(model, batch, step)["loss"]
        broken = step == 3 and torch.distributed.get_rank() == 1
        return {"loss": loss, "part": loss * (float("nan") if broken else 1)}


class StoresLastBatch(Noisy):
    """Task whose loss depends on the previous batch of the process."""

    per_process_state = ("last.",)

    def __init__(self) -> None:
        super().__init__()
        self.last = torch.zeros(3)

    def loss(self, model: nn.Module, batch: tuple[Tensor, Tensor], step: int) -> dict[str, Tensor]:
        x = batch[0] + 0.1 * self.last
        self.last = batch[0].mean(dim=0)
        return super().loss(model, (x, batch[1]), step)

    def extra_state(self) -> dict[str, Tensor]:
        return {**super().extra_state(), "last.mean": self.last}

    def load_extra_state(self, state: Mapping[str, Tensor]) -> None:
        self.last = state["last.mean"]
        super().load_extra_state({name: value for name, value in state.items() if name != "last.mean"})


class KilledInOne(StoresLastBatch):
    """Task that kills the second of two processes after its eleventh step."""

    def __init__(self, killed: bool) -> None:
        super().__init__()
        self.killed = killed

    def after_step(self, step: int) -> None:
        super().after_step(step)
        if self.killed and step == 11 and torch.distributed.get_rank() == 1:
            kill_process()


def same_in_both(value: Tensor) -> bool:
    both = [torch.empty_like(value) for _ in range(2)]
    torch.distributed.all_gather(both, value.detach())
    return torch.equal(*both)


def processes(folder: Path) -> None:
    """Several runs one after the other in the same two processes; the last one is killed."""
    rows = TrainingOptions(epochs=3, learning_rate=0.05, optimizer="sgd")
    train(Rows(2), rows, folder / "rows", device="cpu")
    ragged = Rows(8)  # three batches, two processes
    assert train(ragged, rows, device="cpu").steps == 6
    assert same_in_both(ragged.model.weight)
    train(Noisy(batch_norm=False), NOISY, folder / "noisy", device="cpu")
    train(KilledInOne(killed=False), NOISY, folder / "left-alone", device="cpu")
    early = Noisy()
    options = TrainingOptions(epochs=9, monitor="error", mode="min", patience=2, restore_best=True)
    result = train(early, options, device="cpu")
    assert (result.stopped, result.epochs) == ("early", result.best_step // 3 + 2)
    assert same_in_both(early.average.module[1].running_mean)
    try:
        train(NonFiniteInOne(2), TrainingOptions(epochs=2, checkpoint_every=2), folder / "broken", device="cpu")
    except NonFiniteLossError as error:
        (folder / f"non-finite-{torch.distributed.get_rank()}.txt").write_text(str(error))
    train(KilledInOne(killed=True), NOISY, folder / "killed", device="cpu")


def note_threads(folder: Path) -> None:
    tasks = Path("/proc/self/task").iterdir()
    names = [(task / "comm").read_text().strip() for task in tasks]
    (folder / f"threads-{os.environ['RANK']}.json").write_text(json.dumps(names))


def continued(folder: Path) -> None:
    """Resume the killed run; each process writes the names of its threads when it exits."""
    atexit.register(note_threads, folder)  # registered first, called last
    train(KilledInOne(killed=False), NOISY, folder / "killed", device="cpu")


if __name__ == "__main__":
    globals()[sys.argv[1]](Path(sys.argv[2]))
