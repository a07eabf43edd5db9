"""The training loop of all commands, for one process or several."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from entourage.runs.directory import lock_directory
from entourage.runs.metrics_log import MetricsLog
from entourage.training.accelerator import accelerated, prepared_model, reseed, resolve_precision
from entourage.training.checkpoint import Checkpoints, RunState, TrainingResult, per_process_tensors, training_config
from entourage.training.loader import BatchLoader, StepPosition
from entourage.training.meters import LossMeter, NonFiniteLossError, ProgressLine, progress_line
from entourage.training.optim import learning_rate_factor, make_optimizer, set_learning_rate
from entourage.training.options import TrainingOptions
from entourage.training.task import Batch, Item, Task

if TYPE_CHECKING:
    from accelerate import Accelerator

_DEFAULTS = TrainingOptions()


def train(
    task: Task[Item, Batch],
    options: TrainingOptions = _DEFAULTS,
    run_dir: str | Path | None = None,
    *,
    device: str | torch.device = "auto",
    progress: bool | None = None,
    title: str = "Training",
) -> TrainingResult:
    """Train a task, resuming from the last checkpoint.

    With a run directory, the process may be killed at any time. The next call resumes from the last checkpoint and ends
    with the same weights (bit for bit on a CPU in float32). A call after the end loads the weights and returns. Several
    processes, started by `torchrun` or `accelerate launch`, share the batches; the directory must be visible to all of
    them. The trained network is `task.final_model()`, in evaluation mode.

    Args:
        task: network, data and loss.
        options: options of the optimisation, of early stopping and of the log.
        run_dir: folder for checkpoints, weights and metrics; None writes no files.
        device: the device to train on; "auto" chooses one.
        progress: whether to show a progress line on stderr; None: only on a terminal.
        title: title of the progress line.

    Returns:
        Number of steps, metrics, and the reason why the training ended.

    Raises:
        NonFiniteLossError: a loss or a weight became infinite or NaN; the last checkpoint was written before.
        ValueError: the directory contains a run with another configuration, another process is writing to it, or the
            losses, metrics or parameter groups of the task are invalid.
    """
    folder = None if run_dir is None else Path(run_dir)
    if options.tensorboard and folder is None:
        raise ValueError("tensorboard is True without a run directory; expected run_dir, the folder to write to")
    with accelerated(device, options.precision, task.skips_parameters) as accelerator:
        return _Training(task, options, accelerator, folder).run(progress, title)


class _Training:
    """State and steps of a call of `train` in one process."""

    def __init__(
        self, task: Task[Any, Any], options: TrainingOptions, accelerator: Accelerator, folder: Path | None
    ) -> None:
        self.task = task
        self.options = options
        self.accelerator = accelerator
        device = accelerator.device
        task.model.to(device).train()
        task.autocast = accelerator.autocast
        task.prepare(device)
        self.optimizer = make_optimizer(options, task.parameter_groups(), task.model, device)
        self.loader = BatchLoader(task, options, device, accelerator.process_index, accelerator.num_processes)
        self.meter = LossMeter(options.accumulate)
        self.checkpoints: Checkpoints | None = None
        self.state = RunState()
        if folder is not None:
            precision = resolve_precision(options.precision, device)
            config = training_config(task, options, precision, accelerator.num_processes)
            self.checkpoints = Checkpoints(folder, config, task.root_dir)
        self.best: dict[str, Tensor] = {}  # the best weights of a run without a directory

    def run(self, progress: bool | None, title: str) -> TrainingResult:
        """Run the remaining training steps."""
        with self._locked():
            self._resume()
            if not self.state.finished:
                self.total = self.loader.total_steps()
                with self._reporting(progress, title):
                    if not self.state.out_of_patience(self.options):
                        self._make_steps()
                    self._finish()
        self.task.model.eval()
        self.task.final_model().eval()
        return self.state.result(self.options)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the run directory before the checkpoint is read; a finished run is read without a lock."""
        with ExitStack() as stack:
            checkpoints = self.checkpoints
            if checkpoints is not None and self.accelerator.is_main_process and not checkpoints.finished():
                stack.enter_context(lock_directory(checkpoints.folder))
            self.accelerator.wait_for_everyone()  # until the main process has locked the directory
            yield

    def _resume(self) -> None:
        """Restore the state of the run from the last checkpoint."""
        if self.checkpoints is not None:
            scaler, rank = self.accelerator.scaler, self.accelerator.process_index
            self.state = self.checkpoints.load(self.task, self.optimizer, scaler, rank) or self.state
        self.saved_step = self.state.step
        self.started = time.perf_counter() - self.state.seconds

    @contextmanager
    def _reporting(self, progress: bool | None, title: str) -> Iterator[None]:
        """Wrap the model for distributed training, and open the log of metrics and the progress line."""
        main, folder = self.accelerator.is_main_process, None
        with ExitStack() as stack:
            if main and self.checkpoints is not None:
                folder = self.checkpoints.folder
                self.checkpoints.clean_up(self.state)
            self.accelerator.wait_for_everyone()  # until all processes have read the checkpoint
            self.model = stack.enter_context(prepared_model(self.accelerator, self.task.model))
            self.metrics_log = stack.enter_context(MetricsLog(folder, self.state.step, self.options.tensorboard))
            show = progress if main else False
            line = progress_line(title, self.state.step, self.total, self.options.epochs, show)
            self.progress_line: ProgressLine = stack.enter_context(line)
            yield

    def _make_steps(self) -> None:
        with closing(self.loader.batches(self.state.step, self.state.epoch, self.state.position)) as batches:
            for position, batch in batches:
                self._backward(position, batch)
                if position.ends_step:
                    self._update(position)
                    self._log_validate_save(position)
                    if self.state.out_of_patience(self.options):
                        return

    def _backward(self, position: StepPosition, batch: Any) -> None:
        """Compute the losses of a batch, and add its gradients to those of the step."""
        reseed(self.accelerator.device, self.loader.seed(position))
        sync = nullcontext() if position.ends_step else self.accelerator.no_sync(self.model)
        with sync:  # processes exchange gradients once per step
            loss = self.meter.add(self.task.loss(self.model, batch, position.step))
            scaled = loss if self.options.accumulate == 1 else loss / self.options.accumulate
            scaler = self.accelerator.scaler
            (scaled if scaler is None else scaler.scale(scaled)).backward()

    def _update(self, position: StepPosition) -> None:
        """Update the weights; in float16, a step whose gradients overflowed is skipped and the scale reduced."""
        scaler = self.accelerator.scaler
        set_learning_rate(self.optimizer, self._learning_rate(position))
        if self.options.clip_norm is not None:
            if scaler is not None:
                scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.task.model.parameters(), self.options.clip_norm)
        if scaler is None:
            self.optimizer.step()
        else:
            scaler.step(self.optimizer)
            scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        self.task.after_step(position.step + 1)

    def _learning_rate(self, position: StepPosition) -> float:
        factor = learning_rate_factor(self.options, position.step, position.epoch, self.total)
        return self.options.learning_rate * factor

    def _log_validate_save(self, position: StepPosition) -> None:
        """Log losses, validate and write a checkpoint, if each is due; the metrics are equal in all processes."""
        options, step = self.options, position.step + 1
        last = step == options.max_steps or (position.ends_epoch and position.epoch == options.epochs - 1)
        validate = last or (position.ends_epoch and (position.epoch + 1) % options.validate_every == 0)
        every = options.checkpoint_every
        save = last or position.ends_epoch or (every is not None and step % every == 0)
        if not (validate or save or step % options.log_every == 0):
            return
        epoch, steps = (position.epoch + 1, 0) if position.ends_epoch else (position.epoch, position.step_in_epoch + 1)
        self.state = replace(self.state, step=step, epoch=epoch, position=steps, seconds=self._seconds())
        self._log(position)
        if validate:
            self._validate(position)
        if save:
            self._save_checkpoint()

    def _log(self, position: StepPosition) -> None:
        reading = self.meter.read(self.accelerator, self.state.step)
        if reading.non_finite is not None:
            name, step = reading.non_finite
            raise self._failure(f"loss {name!r} of step {step} is not finite")
        self.metrics_log.train(
            self.state.step, position.epoch, self._learning_rate(position), reading.means, self._seconds()
        )
        self.progress_line.losses(self.state.step, position.epoch, reading.means)

    def _validate(self, position: StepPosition) -> None:
        metrics: list[dict[str, float]] = [{}]
        model = self.task.final_model()
        if self.accelerator.is_main_process:
            reseed(self.accelerator.device, [self.options.seed, self.state.step])
            self.task.model.eval()
            model.eval()
            with torch.no_grad():
                metrics = [{name: float(value) for name, value in self.task.validate(model).items()}]
            self.task.model.train()
        if self.accelerator.num_processes > 1:
            from accelerate.utils import broadcast_object_list

            broadcast_object_list(metrics)
        if not metrics[0] and self.options.monitor is None:
            return
        self.state = self.state.validated(metrics[0], self.options)
        self.metrics_log.validation(self.state.step, position.epoch, metrics[0], self._seconds())
        self.progress_line.metrics(metrics[0], self.options.monitor)
        if self.state.best_step == self.state.step:
            self._store_best(model)

    def _store_best(self, model: nn.Module) -> None:
        if self.checkpoints is None:
            self.best = {name: value.detach().clone() for name, value in model.state_dict().items()}
        elif self.accelerator.is_main_process:
            self.checkpoints.save_pending_best(model, self.state)

    def _save_checkpoint(self) -> None:
        """Write a checkpoint if all weights are finite."""
        finite = torch.stack([parameter.isfinite().all() for parameter in self.task.model.parameters()]).all()
        if not finite:
            raise self._failure(f"weights after step {self.state.step} are not finite")
        if self.checkpoints is None:
            return
        self.state = replace(self.state, seconds=self._seconds())
        self._save(self.checkpoints)
        self.saved_step = self.state.step

    def _save(self, checkpoints: Checkpoints) -> None:
        """Gather the state of all processes and write it in the main process."""
        others: list[dict[str, Tensor]] = []
        if self.accelerator.num_processes > 1 and self.task.per_process_state:
            from accelerate.utils import gather_object

            others = gather_object([per_process_tensors(self.task)])[1:]
        if self.accelerator.is_main_process:
            checkpoints.save(self.state, self.task, self.optimizer, self.accelerator.scaler, others)

    def _finish(self) -> None:
        """Load the best weights into the model if requested, and write the final weights."""
        self.accelerator.wait_for_everyone()  # until the main process has written the best weights
        model = self.task.final_model()
        if self.options.restore_best and self.state.best_step is not None:
            if self.checkpoints is None:
                model.load_state_dict(self.best)
            else:
                self.checkpoints.load_best(model)
        if self.accelerator.num_processes > 1:
            _broadcast(self.task.model, model)
        self.state = replace(self.state, finished=True, seconds=self._seconds())
        if self.checkpoints is not None:
            if self.accelerator.is_main_process:
                self.checkpoints.save_final(model, self.state)
            self._save(self.checkpoints)
        self.accelerator.wait_for_everyone()

    def _failure(self, reason: str) -> NonFiniteLossError:
        saved = "there is no checkpoint yet"
        if self.checkpoints is not None and self.saved_step:
            saved = f"the last good checkpoint is {self.checkpoints.path}, of step {self.saved_step}"
        rate = f"learning_rate below {self.options.learning_rate:g}"
        return NonFiniteLossError(f"{reason}; {saved}; start again with {rate}, a longer warm-up or clip_norm")

    def _seconds(self) -> float:
        return time.perf_counter() - self.started


def _broadcast(*modules: nn.Module) -> None:
    """Copy the tensors of the main process to the others, whose statistics of batch normalisation differ until then."""
    for value in (value for module in modules for value in module.state_dict().values()):
        tensor = value.contiguous()
        torch.distributed.broadcast(tensor, src=0)
        value.copy_(tensor)
