"""Where a run stands, and how it ended.

Checkpoints: all that a run needs to go on as if it had never stopped, in one file.
"""

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


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended.

    Attributes:
        epochs: epochs completed.
        steps: updates made.
        metrics: of the last validation.
        best: the best value of the monitored metric, None where none is monitored.
        best_step: updates made when it was measured.
        stopped: "done" after all epochs or steps, "early" when patience ended before.
        seconds: time taken, over all sittings.
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
    """Where a run stands, as a checkpoint keeps it.

    Attributes:
        step: updates made.
        epoch: epochs completed.
        position: updates made in the epoch begun.
        metrics, best, best_step, seconds: see `TrainingResult`.
        stale: validations since the best was first reached.
        finished: whether nothing is left to do.
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
        """The state after a validation.

        Raises:
            ValueError: the monitored metric is not among the metrics.
        """
        state = replace(self, metrics=metrics)
        if options.monitor is None:
            return state
        if options.monitor not in metrics:
            names = ", ".join(metrics) or "no metrics"
            raise ValueError(f"monitor is {options.monitor!r}, but the task's validation returns {names}")
        value, sign = metrics[options.monitor], 1 if options.mode == "max" else -1
        if not math.isnan(value) and (self.best is None or sign * value > sign * self.best):
            return replace(state, best=value, best_step=self.step, stale=0)
        tied = options.ties == "last" and value == self.best
        return replace(state, best_step=self.step if tied else self.best_step, stale=self.stale + 1)

    def out_of_patience(self, options: TrainingOptions) -> bool:
        """Whether the best lies too far back."""
        return options.patience is not None and self.stale >= options.patience

    def result(self, options: TrainingOptions) -> TrainingResult:
        """What the caller of a run that has ended here gets to see."""
        complete = self.epoch == options.epochs or self.step == options.max_steps
        early = self.out_of_patience(options) and not complete
        return TrainingResult(
            self.epoch,
            self.step,
            self.metrics,
            self.best,
            self.best_step,
            "early" if early else "done",
            self.seconds,
        )


_NOT_COMPARED = ("tensorboard", "workers")  # what changes no weight and no line of the metrics
_ADDED_OPTIONS = {"ties": "first"}  # options that runs of earlier versions did not have, with what these did

Read = TypeVar("Read")

CHECKPOINT = "checkpoint.safetensors"
BEST = "best.safetensors"
MODEL = "model.safetensors"
_SAFETENSORS_TEMPORARY = ".tmp??????"  # what that library calls a file while it writes it
_PENDING = "pending-best.safetensors"


class Checkpoints:
    """The weights of a run in its folder. All processes read; the main one writes.

    `checkpoint.safetensors` holds model, optimiser, extra state and the run's state, `best.safetensors` the outcome of
    the best validation, `model.safetensors` the final one. Each is replaced in one step. New best weights wait under
    another name until a checkpoint knows of them, so that the two agree wherever the program is killed.

    Args:
        folder: the run's folder.
        config: what must be equal for the run to be continued.
        root_dir: the folder to delete to begin anew, if it is another one; see `Task`.
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
        """Write the run as it stands, and let new best weights take their place.

        Args:
            state: where the run is.
            task: what is trained, in the main process.
            optimizer: of the task's model.
            scaler: of its gradients, or None.
            others: what `per_process_tensors` gives in each of the other processes.
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
        """Put everything back as the checkpoint has it.

        Args:
            task: what is trained.
            optimizer: of the task's model.
            scaler: of its gradients, or None.
            rank: which process this is, 0 being the main one.

        Returns:
            The run's state, or None where there is no checkpoint.

        Raises:
            ValueError: the checkpoint is damaged, or of another run.
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
            raise ValueError(f"{self.path} is no checkpoint of this version; {advice}") from error
        load_weights(task.model, parts["model"], self.path)
        load_optimizer_state(optimizer, task.model, parts["optimizer"], notes["optimizer"], self.path)
        task.load_extra_state(_extra_state_of(rank, task, parts["extra"], parts["per_process"]))
        if scaler is not None and notes["scaler"]:
            scaler.load_state_dict(notes["scaler"])
        return state

    def finished(self) -> bool:
        """Whether the run in the folder, whichever it is, is over: from then on nobody changes it."""
        if not self.path.exists():
            return False
        state = self._read(read_metadata, self.path).get("state")
        return isinstance(state, dict) and state.get("finished") is True

    def clean_up(self, state: RunState | None) -> None:
        """Remove what a killed program left half-written, and finish what it had all but finished."""
        self.folder.mkdir(parents=True, exist_ok=True)
        names = (CHECKPOINT, BEST, MODEL, _PENDING, METRICS)
        for path in self.folder.glob(".*"):
            if any(is_unfinished(path, target=name) for name in names) or path.match(_SAFETENSORS_TEMPORARY):
                path.unlink(missing_ok=True)
        self._commit_best(state)

    def save_pending_best(self, model: nn.Module, state: RunState) -> None:
        """Write new best weights, to be in place with the next checkpoint."""
        write_weights(self.folder / _PENDING, model.state_dict(), {"step": state.best_step, "best": state.best})

    def load_best(self, model: nn.Module) -> None:
        """Give the outcome the best weights."""
        load_weights(model, self._read(read_weights, self.folder / BEST)[0], self.folder / BEST)

    def save_final(self, model: nn.Module, state: RunState) -> None:
        """Write the final weights."""
        write_weights(self.folder / MODEL, model.state_dict(), {"step": state.step, "metrics": state.metrics})

    def _read(self, read: Callable[[Path], Read], path: Path) -> Read:
        """What a file of the run holds; without it the run cannot go on."""
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
    """What of a task's extra state this process has for itself, on the CPU."""
    return {name: value.cpu() for name, value in task.extra_state().items() if name.startswith(task.per_process_state)}


def _extra_state_of(
    rank: int, task: Task[Any, Any], main: Mapping[str, Tensor], others: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """The extra state of a process: the main one's, with this one's own in place of the main one's own."""
    if rank == 0:
        return dict(main)
    shared = {name: value for name, value in main.items() if not name.startswith(task.per_process_state)}
    prefix = f"{rank}."
    return shared | {name.removeprefix(prefix): value for name, value in others.items() if name.startswith(prefix)}


def optimizer_state(
    optimizer: torch.optim.Optimizer, model: nn.Module
) -> tuple[dict[str, Tensor], dict[str, dict[str, Any]]]:
    """What an optimiser remembers, by the names of the parameters.

    Returns:
        Tensors by "parameter.key", and what is no tensor by parameter and key.
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
    """Give an optimiser back what `optimizer_state` took, each tensor in its parameter's order of storage.

    Raises:
        ValueError: a parameter is not among the optimiser's, or a tensor has another shape than its parameter.
    """
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    numbers = {names[id(parameter)]: number for number, parameter in enumerate(parameters)}
    state: dict[int, dict[str, Any]] = {}
    for name, moments in scalars.items():
        if name not in numbers:
            raise ValueError(f"{source} holds optimiser state of {name!r}, which is not in the parameter groups")
        state[numbers[name]] = dict(moments)
    for key, value in tensors.items():
        name, _, entry = key.rpartition(".")
        parameter = parameters[numbers[name]]
        if value.ndim and value.shape != parameter.shape:
            raise ValueError(f"{source} holds {key!r} of shape {tuple(value.shape)}; expected {tuple(parameter.shape)}")
        # An update reads parameter and moments in step: the same order of storage keeps it a single pass.
        stored = torch.empty_like(parameter, dtype=value.dtype).copy_(value) if value.ndim else value
        state[numbers[name]][entry] = stored
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})


def training_config(task: Task[Any, Any], options: TrainingOptions, precision: str, processes: int) -> dict[str, Any]:
    """What makes a run this run and not another.

    Args:
        task: gives its own description.
        options: all count but those that change no result.
        precision: what "auto" came to on this machine.
        processes: how many share the work.

    Returns:
        Values by name, as they come back from JSON.
    """
    values = {**fixed_options(options), "precision": precision, "processes": processes, "task": type(task).__name__}
    task_values = {f"task.{name}": value for name, value in task.config().items()}
    return to_json_values({**values, **task_values})


def fixed_options(options: TrainingOptions) -> dict[str, Any]:
    """The options that a run keeps to from its first step to its last."""
    fixed = [(name, value) for name, value in asdict(options).items() if name not in _NOT_COMPARED]
    return {name: value for name, value in fixed if name not in _ADDED_OPTIONS or value != _ADDED_OPTIONS[name]}
