"""Checkpoints, and the state and result of a run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from entourage.io.files import is_unfinished
from entourage.io.weights import load_weights, read_metadata, read_weights, write_weights
from entourage.runs.directory import check_config, restart_hint, to_json_values
from entourage.runs.metrics_log import METRICS
from entourage.training.options import TrainingOptions
from entourage.training.task import Task

Read = TypeVar("Read")

CHECKPOINT = "checkpoint.safetensors"
BEST = "best.safetensors"
MODEL = "model.safetensors"
_PENDING = "pending-best.safetensors"
_SAFETENSORS_TEMPORARY = ".tmp??????"  # name of a file that safetensors is writing
_NOT_COMPARED = ("tensorboard", "workers")  # options that change neither weights nor metrics
# Options that runs of earlier versions lack, with the values these runs used.
_ADDED_OPTIONS = {"ties": "first", "nesterov": False, "final_factor": 0.0}


@dataclass(frozen=True)
class TrainingResult:
    """Result of a training by `train`.

    Attributes:
        epochs: completed epochs.
        steps: number of updates.
        metrics: metrics of the last validation.
        best: best value of the monitored metric; None if no metric is monitored.
        best_step: number of updates at the best validation.
        stopped: "done" after all epochs or steps, "early" if early stopping ended the run before.
        seconds: training time, summed over all calls.
    """

    epochs: int
    steps: int
    metrics: dict[str, float]
    best: float | None
    best_step: int | None
    stopped: Literal["done", "early"]
    seconds: float


@dataclass(frozen=True)
class RunState:
    """Progress of a run, stored in each checkpoint.

    Attributes:
        step: number of updates.
        epoch: completed epochs.
        position: number of updates in the current epoch.
        metrics, best, best_step, seconds: see `TrainingResult`.
        stale: validations since the best value was first reached.
        finished: whether the run is complete.
    """

    step: int = 0
    epoch: int = 0
    position: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    best: float | None = None
    best_step: int | None = None
    stale: int = 0
    seconds: float = 0.0
    finished: bool = False

    def validated(self, metrics: dict[str, float], options: TrainingOptions) -> RunState:
        """Return the state of the run after a validation with these metrics.

        Raises:
            ValueError: the monitored metric is missing.
        """
        state = replace(self, metrics=metrics)
        if options.monitor is None:
            return state
        if options.monitor not in metrics:
            names = ", ".join(metrics) or "no metrics"
            raise ValueError(f"monitor is {options.monitor!r}; expected a metric of Task.validate: {names}")
        value, sign = metrics[options.monitor], 1 if options.mode == "max" else -1
        if not math.isnan(value) and (self.best is None or sign * value > sign * self.best):
            return replace(state, best=value, best_step=self.step, stale=0)
        tied = options.ties == "last" and value == self.best
        return replace(state, best_step=self.step if tied else self.best_step, stale=self.stale + 1)

    def out_of_patience(self, options: TrainingOptions) -> bool:
        """Return whether early stopping ends the run."""
        return options.patience is not None and self.stale >= options.patience

    def result(self, options: TrainingOptions) -> TrainingResult:
        """Return the result of a run that ends in this state."""
        complete = self.epoch == options.epochs or self.step == options.max_steps
        stopped: Literal["done", "early"] = "early" if self.out_of_patience(options) and not complete else "done"
        return TrainingResult(self.epoch, self.step, self.metrics, self.best, self.best_step, stopped, self.seconds)


class Checkpoints:
    """Weight files of a run directory. All processes read them, the main process writes them.

    `checkpoint.safetensors` contains the model, the optimiser, the extra state and the state of the run,
    `best.safetensors` the weights of the best validation, `model.safetensors` the final weights. Each file is replaced
    in one step. New best weights have another name until the next checkpoint refers to them, so that both files agree
    whenever the process is killed.

    Args:
        folder: the run directory.
        config: configuration that must be unchanged when the run is resumed.
        root_dir: the folder to delete to start from scratch, if it is another one; see `Task`.
    """

    def __init__(self, folder: Path, config: Mapping[str, Any], root_dir: Path | None = None) -> None:
        self.folder = folder
        self.config = config
        self.root_dir = root_dir or folder
        self.path = folder / CHECKPOINT

    def save(
        self,
        state: RunState,
        task: Task[Any, Any],
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        others: Sequence[Mapping[str, Tensor]] = (),
    ) -> None:
        """Write a checkpoint, then rename the new best weights that are pending.

        Args:
            state: progress of the run.
            task: the task of the main process.
            optimizer: optimiser of the task's model.
            scaler: gradient scaler, or None.
            others: results of `per_process_tensors` in the other processes.
        """
        moments, scalars = optimizer_state(optimizer, task.model)
        parts = {"model": task.model.state_dict(), "optimizer": moments, "extra": task.extra_state()}
        parts["per_process"] = {
            f"{rank}.{name}": value for rank, tensors in enumerate(others, 1) for name, value in tensors.items()
        }
        tensors = {f"{part}.{name}": value for part, values in parts.items() for name, value in values.items()}
        notes = {"state": asdict(state), "identity": self.config, "optimizer": scalars}
        write_weights(self.path, tensors, {**notes, "scaler": None if scaler is None else scaler.state_dict()})
        self._commit_best(state)

    def load(
        self,
        task: Task[Any, Any],
        optimizer: torch.optim.Optimizer,
        scaler: torch.amp.GradScaler | None,
        rank: int = 0,
    ) -> RunState | None:
        """Restore task, optimiser and gradient scaler from the checkpoint.

        Args:
            task: the task to restore.
            optimizer: optimiser of the task's model.
            scaler: gradient scaler, or None.
            rank: rank of this process; 0 is the main process.

        Returns:
            The state of the run, or None if there is no checkpoint.

        Raises:
            ValueError: the checkpoint is damaged, or its configuration differs.
        """
        if not self.path.exists():
            return None
        tensors, notes = self._read(read_weights, self.path)
        try:
            check_config(self.folder, notes["identity"], self.config, task.mismatch_messages, self.root_dir)
            state = RunState(**notes["state"])
            parts: dict[str, dict[str, Tensor]] = {"model": {}, "optimizer": {}, "extra": {}, "per_process": {}}
            for name, value in tensors.items():
                part, _, tensor_name = name.partition(".")
                parts[part][tensor_name] = value
        except (KeyError, TypeError) as error:
            advice = f"choose another folder, or {restart_hint(self.root_dir)}"
            raise ValueError(f"{self.path}: not a checkpoint of this version; {advice}") from error
        load_weights(task.model, parts["model"], self.path)
        load_optimizer_state(optimizer, task.model, parts["optimizer"], notes["optimizer"], self.path)
        task.load_extra_state(_extra_state_of(rank, task, parts["extra"], parts["per_process"]))
        if scaler is not None and notes["scaler"]:
            scaler.load_state_dict(notes["scaler"])
        return state

    def finished(self) -> bool:
        """Return whether the folder contains a finished run of any configuration; its files no longer change."""
        if not self.path.exists():
            return False
        state = self._read(read_metadata, self.path).get("state")
        return isinstance(state, dict) and state.get("finished") is True

    def clean_up(self, state: RunState | None) -> None:
        """Delete temporary files of a killed process, and rename or delete its pending best weights."""
        self.folder.mkdir(parents=True, exist_ok=True)
        names = (CHECKPOINT, BEST, MODEL, _PENDING, METRICS)
        for path in self.folder.glob(".*"):
            if any(is_unfinished(path, target=name) for name in names) or path.match(_SAFETENSORS_TEMPORARY):
                path.unlink(missing_ok=True)
        self._commit_best(state)

    def save_pending_best(self, model: nn.Module, state: RunState) -> None:
        """Write new best weights under a temporary name; the next checkpoint renames them."""
        write_weights(self.folder / _PENDING, model.state_dict(), {"step": state.best_step, "best": state.best})

    def load_best(self, model: nn.Module) -> None:
        """Load the weights of the best validation into a model."""
        load_weights(model, self._read(read_weights, self.folder / BEST)[0], self.folder / BEST)

    def save_final(self, model: nn.Module, state: RunState) -> None:
        """Write the final weights to `model.safetensors`."""
        write_weights(self.folder / MODEL, model.state_dict(), {"step": state.step, "metrics": state.metrics})

    def _read(self, read: Callable[[Path], Read], path: Path) -> Read:
        """Read a file that the run requires; the message of an error names the folder to delete."""
        try:
            return read(path)
        except ValueError as error:
            raise ValueError(f"{error}; {restart_hint(self.root_dir)}") from error

    def _commit_best(self, state: RunState | None) -> None:
        pending = self.folder / _PENDING
        if not pending.exists():
            return
        if state is not None and self._read(read_metadata, pending)["step"] == state.best_step:
            pending.replace(self.folder / BEST)
        else:
            pending.unlink()


def per_process_tensors(task: Task[Any, Any]) -> dict[str, Tensor]:
    """Return the tensors of a task's extra state that differ between processes, on the CPU."""
    return {name: value.cpu() for name, value in task.extra_state().items() if name.startswith(task.per_process_state)}


def _extra_state_of(
    rank: int, task: Task[Any, Any], main: Mapping[str, Tensor], others: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the extra state of a process: that of the main process, with the per-process tensors of this rank."""
    if rank == 0:
        return dict(main)
    shared = {name: value for name, value in main.items() if not name.startswith(task.per_process_state)}
    prefix = f"{rank}."
    return shared | {name.removeprefix(prefix): value for name, value in others.items() if name.startswith(prefix)}


def optimizer_state(
    optimizer: torch.optim.Optimizer, model: nn.Module
) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """Return the state of an optimiser by parameter name.

    Returns:
        Tensors by "parameter.key", and other values by parameter and key.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    tensors: dict[str, Tensor] = {}
    scalars: dict[str, dict[str, Any]] = {}
    for parameter, moments in optimizer.state.items():
        name = names[id(parameter)]
        scalars[name] = {key: value for key, value in moments.items() if not isinstance(value, Tensor)}
        tensors |= {f"{name}.{key}": value for key, value in moments.items() if isinstance(value, Tensor)}
    return tensors, scalars


def load_optimizer_state(
    optimizer: torch.optim.Optimizer,
    model: nn.Module,
    tensors: Mapping[str, Tensor],
    scalars: Mapping[str, Mapping[str, Any]],
    source: Path,
) -> None:
    """Restore the state that `optimizer_state` returned, in the memory format of each parameter.

    Raises:
        ValueError: the optimiser lacks a parameter, or the shape of a tensor differs from its parameter's.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = {names[id(parameter)]: number for number, parameter in enumerate(parameters)}
    state: dict[int, dict[str, Any]] = {}
    for name, moments in scalars.items():
        if name not in numbers:
            raise ValueError(f"{source}: optimiser state of {name!r}; expected a parameter of the parameter groups")
        state[numbers[name]] = dict(moments)
    for key, value in tensors.items():
        name, _, entry = key.rpartition(".")
        parameter = parameters[numbers[name]]
        if value.ndim and value.shape != parameter.shape:
            raise ValueError(f"{source}: {key!r} has shape {tuple(value.shape)}; expected {tuple(parameter.shape)}")
        # Parameter and moments in the same memory format: an update is a single pass over both.
        stored = torch.empty_like(parameter, dtype=value.dtype).copy_(value) if value.ndim else value
        state[numbers[name]][entry] = stored
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def training_config(task: Task[Any, Any], options: TrainingOptions, precision: str, processes: int) -> dict[str, Any]:
    """Return the configuration of a run, which must not change when it is resumed.

    Args:
        task: the task; its `config()` is included.
        options: training options; those that do not affect the results are left out.
        precision: number format that "auto" was resolved to.
        processes: number of processes.

    Returns:
        Values by name, as JSON returns them.
    """
    values = {**fixed_options(options), "precision": precision, "processes": processes, "task": type(task).__name__}
    task_values = {f"task.{name}": value for name, value in task.config().items()}
    return to_json_values({**values, **task_values})


def fixed_options(options: TrainingOptions) -> dict[str, Any]:
    """Return the options that must not change when a run is resumed."""
    fixed = [(name, value) for name, value in asdict(options).items() if name not in _NOT_COMPARED]
    return {name: value for name, value in fixed if name not in _ADDED_OPTIONS or value != _ADDED_OPTIONS[name]}
