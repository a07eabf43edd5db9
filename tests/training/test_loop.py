import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from entourage.training import NonFiniteLossError, TrainingOptions, train
from entourage.training.checkpoint import Checkpoints

WORKER = Path(__file__).with_name("worker.py")
SGD = TrainingOptions(epochs=2, optimizer="sgd", momentum=0.0, learning_rate=0.1)


TWO = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run_worker(what: str, folder: Path, *launcher: str) -> tuple[int, str]:
    command = [sys.executable, *launcher, str(WORKER), what, str(folder)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as program:
        try:
            said = program.communicate(timeout=300)[1]
        except subprocess.TimeoutExpired:
            program.terminate()  # the launcher ends its processes, which a kill of it would leave behind
            raise
    return program.returncode, said


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


def test_steps_are_the_closed_form(worker: ModuleType) -> None:
    class Line(worker.Rows):  # type: ignore[misc, name-defined]
        def plan(self, epoch: int) -> Sequence[Any]:
            return [np.arange(24)]

    task = Line(model=nn.Linear(3, 1, bias=False).double())
    options = replace(SGD, epochs=2, momentum=0.5, weight_decay=0.2, schedule="linear")
    w, x, y = task.model.weight.detach().clone(), task.x, task.y
    buffer = torch.zeros_like(w)
    for rate in (0.1, 0.05):
        gradient = 2 / 24 * (x @ w.T - y).T @ x + 0.2 * w
        buffer = gradient if not buffer.any() else 0.5 * buffer + gradient
        w = w - rate * buffer
    result = train(task, options, device="cpu")
    torch.testing.assert_close(task.model.weight.detach(), w)
    assert (result.steps, result.epochs, result.stopped) == (2, 2, "done")


def test_accumulated_batches_are_one_large_batch(worker: ModuleType) -> None:
    small, large = worker.Rows(batch=2), worker.Rows(batch=8)
    train(small, replace(SGD, accumulate=4), device="cpu")
    result = train(large, SGD, device="cpu")
    assert result.steps == 6
    torch.testing.assert_close(weights_of(small.model), weights_of(large.model))  # float64: 1e-7 of rounding


def test_a_clipped_gradient_has_that_length(worker: ModuleType) -> None:
    task = worker.Rows()
    before = weights_of(task.model)
    train(task, replace(SGD, max_steps=1, clip_norm=0.01), device="cpu")
    torch.testing.assert_close((weights_of(task.model) - before).norm(), torch.tensor(0.001, dtype=torch.float64))


def test_groups_learn_at_their_own_rate(worker: ModuleType) -> None:
    task = worker.Rows()
    task.parameter_groups = lambda: [
        {"params": [task.model.weight]},
        {"params": [task.model.bias], "lr_scale": 0.0},
    ]
    before = task.model.weight.detach().clone(), task.model.bias.detach().clone()
    train(task, SGD, device="cpu")
    assert not torch.equal(task.model.weight, before[0])
    assert torch.equal(task.model.bias, before[1])


def test_a_killed_run_ends_as_one_left_alone(tmp_path: Path) -> None:
    status, said = run_worker("kills", tmp_path)
    assert status == 0, said
    assert_same_run(tmp_path / "left-alone", tmp_path / "killed")
    assert_same_run(tmp_path / "left-alone", tmp_path / "killed-at-random")


def test_two_processes_share_the_work(worker: ModuleType, tmp_path: Path) -> None:
    # One test, because starting the processes takes longer than all they do.
    status, said = run_worker("processes", tmp_path, *TWO)
    assert status == 1, said
    assert "exitcode  : -9" in said, said  # the death that was meant, and no error before
    status, said = run_worker("continued", tmp_path, *TWO)
    assert status == 0, said
    assert_same_run(tmp_path / "left-alone", tmp_path / "killed")
    assert_two_are_one_with_double_batches(worker, tmp_path / "rows")
    assert_two_draw_what_one_draws_that_accumulates(worker, tmp_path / "noisy", tmp_path / "alone")
    assert_a_broken_loss_in_one_stopped_both(tmp_path)
    for rank in range(2):
        threads = json.loads((tmp_path / f"threads-{rank}.json").read_text())
        assert not [name for name in threads if "gloo" in name]  # they can abort a program that is ending


def assert_two_are_one_with_double_batches(worker: ModuleType, both: Path) -> None:
    task = worker.Rows(batch=4)
    train(task, TrainingOptions(epochs=3, learning_rate=0.05, optimizer="sgd"), device="cpu")
    weights = load_file(both / "model.safetensors")
    torch.testing.assert_close(task.model.weight.detach(), weights["weight"])
    torch.testing.assert_close(task.model.bias.detach(), weights["bias"])


def assert_two_draw_what_one_draws_that_accumulates(worker: ModuleType, both: Path, alone: Path) -> None:
    train(worker.Noisy(batch_norm=False), replace(worker.NOISY, accumulate=2), alone, device="cpu")
    mine, theirs = (load_file(folder / "model.safetensors") for folder in (alone, both))
    for name, value in mine.items():
        torch.testing.assert_close(value, theirs[name], atol=1e-4, rtol=1e-4)  # Adam enlarges roundings of small slopes
    for one, two in zip(lines(alone), lines(both), strict=True):
        assert one["step"] == two["step"]
        if "losses" in one:
            assert one["losses"]["loss"] == pytest.approx(two["losses"]["loss"], rel=1e-3)


def assert_a_broken_loss_in_one_stopped_both(folder: Path) -> None:
    said = [(folder / f"broken-{rank}.txt").read_text() for rank in range(2)]
    kept = f"the last good checkpoint is {folder / 'broken' / 'checkpoint.safetensors'}, of step 2;"
    assert said[0] == said[1]
    assert said[0].startswith(f"the loss 'part' of step 4 is not finite; {kept}")


def test_a_run_is_recorded(worker: ModuleType, tmp_path: Path) -> None:
    options = replace(worker.NOISY, epochs=2, checkpoint_every=None, log_every=4)
    task = worker.Noisy()
    result = train(task, options, tmp_path, device="cpu")
    read = lines(tmp_path)
    assert [(line["step"], line["epoch"], "metrics" in line) for line in read] == [
        (4, 0, False), (6, 0, False), (6, 0, True), (8, 1, False), (12, 1, False), (12, 1, True),
    ]  # fmt: skip
    assert read[0]["lr"] == pytest.approx(0.01 * (1 + np.cos(np.pi * 0 / 9)) / 2)  # the fourth step: the rise is over
    assert read[-1]["metrics"] == result.metrics
    assert result.best == min(line["metrics"]["error"] for line in read if "metrics" in line)
    kept = load_file(tmp_path / "model.safetensors")
    assert all(torch.equal(kept[name], value) for name, value in task.outcome().state_dict().items())


def test_logged_losses_are_means_since_the_line_before(worker: ModuleType, tmp_path: Path) -> None:
    class Counting(worker.Rows):  # type: ignore[misc, name-defined]
        def loss(self, model: nn.Module, batch: Any, step: int) -> dict[str, Tensor]:
            return {"part": torch.tensor(float(step)), **super().loss(model, batch, step)}

    train(Counting(), replace(SGD, log_every=4), tmp_path, device="cpu")
    assert [line["losses"]["part"] for line in lines(tmp_path)] == [1.5, 4.5, 6.5, 9.5]  # 0..3, 4..5, 6..7, 8..11


def test_a_finished_run_returns_at_once_with_its_weights(worker: ModuleType, tmp_path: Path) -> None:
    first, second = worker.Noisy(), worker.Noisy()
    result = train(first, worker.NOISY, tmp_path, device="cpu")

    def fail(*_: Any) -> None:
        raise AssertionError

    second.plan = second.load = second.loss = second.validate = fail
    before = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    assert train(second, worker.NOISY, tmp_path, device="cpu") == result
    assert {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()} == before
    assert torch.equal(weights_of(first.outcome()), weights_of(second.outcome()))
    assert torch.equal(weights_of(first.model), weights_of(second.model))
    assert not second.outcome().training


def test_another_run_is_refused(worker: ModuleType, tmp_path: Path) -> None:
    train(worker.Rows(), SGD, tmp_path, device="cpu")
    with pytest.raises(ValueError, match=f"^{tmp_path} holds a run with learning_rate 0.1, now 0.2; "):
        train(worker.Rows(), replace(SGD, learning_rate=0.2), tmp_path, device="cpu")
    with pytest.raises(ValueError, match="holds a run with task 'Rows', now 'Noisy'"):
        train(worker.Noisy(), SGD, tmp_path, device="cpu")
    train(worker.Rows(), replace(SGD, workers=0), tmp_path, device="cpu")


def test_threads_and_folders_change_no_weight(worker: ModuleType, tmp_path: Path) -> None:
    tasks = [worker.Noisy() for _ in range(3)]
    train(tasks[0], worker.NOISY, tmp_path, device="cpu")
    for task, workers in zip(tasks[1:], (0, 4), strict=True):
        train(task, replace(worker.NOISY, workers=workers), device="cpu")
        assert torch.equal(weights_of(task.outcome()), weights_of(tasks[0].outcome()))
    other = worker.Noisy()
    train(other, replace(worker.NOISY, seed=1), device="cpu")
    assert not torch.equal(weights_of(other.outcome()), weights_of(tasks[0].outcome()))


def scored(worker: ModuleType, scores: list[float]) -> Any:
    """A task whose validations give these scores, one after the other."""
    task = worker.Rows()
    task.seen = []

    def validate(model: nn.Module) -> dict[str, float]:
        assert not model.training
        assert not torch.is_grad_enabled()
        task.seen.append(weights_of(model))
        return {"score": scores[len(task.seen) - 1]}

    task.validate = validate
    return task


@pytest.mark.parametrize("in_folder", [True, False])
def test_patience_ends_a_run_and_the_best_comes_back(worker: ModuleType, tmp_path: Path, in_folder: bool) -> None:
    task = scored(worker, [1.0, 3.0, 2.0, 3.0, 9.0])
    options = replace(SGD, epochs=9, monitor="score", patience=2, restore_best=True)
    result = train(task, options, tmp_path if in_folder else None, device="cpu")
    assert (result.stopped, result.epochs, result.steps) == ("early", 4, 24)
    assert (result.best, result.best_step, result.metrics) == (3.0, 12, {"score": 3.0})
    assert torch.equal(weights_of(task.model), task.seen[1])
    if in_folder:
        again = scored(worker, [])
        assert train(again, options, tmp_path, device="cpu") == result
        assert torch.equal(weights_of(again.model), task.seen[1])


def test_a_run_out_of_patience_takes_no_step_more_when_continued(
    worker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = replace(SGD, epochs=9, monitor="score", patience=1)
    task = scored(worker, [2.0, 1.0])
    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save_outcome", stop_at(0))
        with pytest.raises(KeyboardInterrupt):
            train(task, options, tmp_path, device="cpu")
    continued = scored(worker, [])
    result = train(continued, options, tmp_path, device="cpu")
    assert (result.stopped, result.steps, result.best_step) == ("early", 12, 6)
    assert torch.equal(weights_of(continued.model), task.seen[1])


def test_without_restore_best_the_last_weights_stay_and_the_best_are_kept(worker: ModuleType, tmp_path: Path) -> None:
    task = scored(worker, [3.0, 1.0])
    train(task, replace(SGD, monitor="score", mode="max"), tmp_path, device="cpu")
    assert torch.equal(weights_of(task.model), task.seen[1])
    assert torch.equal(load_file(tmp_path / "best.safetensors")["weight"].flatten(), task.seen[0][:3])
    assert torch.equal(load_file(tmp_path / "model.safetensors")["weight"].flatten(), task.seen[1][:3])


@pytest.mark.parametrize(("changes", "validations"), [({"epochs": 5}, 3), ({"epochs": 5, "max_steps": 15}, 2)])
def test_validation_is_every_so_often_and_at_the_end(
    worker: ModuleType, changes: dict[str, int], validations: int
) -> None:
    task = scored(worker, [0.0] * 9)
    result = train(task, replace(SGD, validate_every=2, **changes), device="cpu")  # type: ignore[arg-type]
    assert len(task.seen) == validations
    assert torch.equal(task.seen[-1], weights_of(task.model))
    assert result.best is None


def test_a_missing_metric_is_named(worker: ModuleType) -> None:
    with pytest.raises(ValueError, match="monitor is 'recall', but the task's validation returns no metrics"):
        train(worker.Rows(), replace(SGD, monitor="recall"), device="cpu")


def breaking(worker: ModuleType, at: int, how: Callable[[Tensor], Tensor]) -> Any:
    class Breaking(worker.Rows):  # type: ignore[misc, name-defined]
        def loss(self, model: nn.Module, batch: Any, step: int) -> dict[str, Tensor]:
            loss = super().loss(model, batch, step)["loss"]
            return {"loss": how(loss) if step == at else loss}

    return Breaking()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_broken_loss_keeps_the_last_good_checkpoint(worker: ModuleType, tmp_path: Path, value: float) -> None:
    for _ in range(2):  # another try breaks at the same place, and leaves the same behind
        task = breaking(worker, 8, lambda loss: loss * value)
        with pytest.raises(NonFiniteLossError, match=r"^the loss 'loss' of step 9 is not finite; ") as caught:
            train(task, replace(SGD, checkpoint_every=3), tmp_path, device="cpu")
        assert f"; the last good checkpoint is {tmp_path / 'checkpoint.safetensors'}, of step 6; " in str(caught.value)
        assert "learning_rate below 0.1" in str(caught.value)
    good = worker.Rows()
    train(good, replace(SGD, max_steps=6), device="cpu")
    kept = load_file(tmp_path / "checkpoint.safetensors")
    assert torch.equal(kept["model.weight"], good.model.weight)
    assert not (tmp_path / "model.safetensors").exists()
    assert [line["step"] for line in lines(tmp_path)] == [3, 6]


def test_weights_spoilt_by_a_gradient_are_not_kept(worker: ModuleType, tmp_path: Path) -> None:
    # The root of zero is finite and its slope is not: the loss of this step gives nothing away.
    task = breaking(worker, 5, lambda loss: loss + (loss - loss).sqrt())
    with pytest.raises(NonFiniteLossError, match=r"the weights after step 6 are not finite; .* of step 3"):
        train(task, replace(SGD, checkpoint_every=3), tmp_path, device="cpu")
    assert load_file(tmp_path / "checkpoint.safetensors")["model.weight"].isfinite().all()


def test_without_a_checkpoint_a_broken_loss_says_so(worker: ModuleType) -> None:
    with pytest.raises(NonFiniteLossError, match="of step 1 is not finite; there is no checkpoint yet; start anew"):
        train(breaking(worker, 0, lambda loss: loss * float("nan")), SGD, device="cpu")


def test_mixed_precision_learns_in_float32_weights(worker: ModuleType) -> None:
    task = worker.Noisy()
    result = train(task, replace(worker.NOISY, precision="bfloat16"), device="cpu")
    other = worker.Noisy()
    expected = train(other, worker.NOISY, device="cpu")
    assert {value.dtype for value in task.model.parameters()} == {torch.float32}
    assert result.best == pytest.approx(expected.best, rel=0.1)  # bfloat16 has 8 bits
    assert result.best != expected.best


@pytest.mark.parametrize(("precision", "expected"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_teacher_may_have_the_same_precision(worker: ModuleType, precision: Any, expected: torch.dtype) -> None:
    seen = set()

    class Taught(worker.Noisy):  # type: ignore[misc, name-defined]
        def loss(self, model: nn.Module, batch: Any, step: int) -> dict[str, Tensor]:
            with self.autocast():
                seen.add(self.average.module(batch[0]).dtype)
            return dict(super().loss(model, batch, step))

    train(Taught(), replace(worker.NOISY, precision=precision), device="cpu")
    assert seen == {expected}


def test_tied_weights_and_other_orders_of_storage_continue(worker: ModuleType, tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.one = nn.Conv2d(3, 3, 1, dtype=torch.float64).to(memory_format=torch.channels_last)
            self.two = nn.Conv2d(3, 3, 1, dtype=torch.float64)
            self.two.weight = self.one.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.one(x[:, :, None, None]).relu()).sum(dim=1).flatten(1)

    options = replace(SGD, optimizer="adam", checkpoint_every=5)
    left_alone = worker.Rows(model=Tied())
    train(left_alone, options, device="cpu")
    stopped = worker.Rows(model=Tied())
    stopped.after_step = stop_at(8)
    with pytest.raises(KeyboardInterrupt):
        train(stopped, options, tmp_path, device="cpu")
    continued = worker.Rows(model=Tied())
    train(continued, options, tmp_path, device="cpu")
    assert continued.model.one.weight is continued.model.two.weight
    assert torch.equal(weights_of(continued.model), weights_of(left_alone.model))


def stop_at(last: int) -> Callable[..., None]:
    """A function that interrupts the program when it is told this step, or at once if it is 0."""

    def interrupt(step: object, *_: object) -> None:
        if last in (0, step):
            raise KeyboardInterrupt

    return interrupt


def test_tensorboard_is_written_on_request(worker: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    with pytest.raises(ValueError, match="tensorboard needs a run folder"):
        train(worker.Rows(), replace(SGD, tensorboard=True), device="cpu")
    train(worker.Rows(), replace(SGD, tensorboard=True), tmp_path, device="cpu")
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"train/loss" in events.read_bytes()


def test_the_task_is_told_where_it_is_and_how_far(worker: ModuleType) -> None:
    told: list[Any] = []

    class Listening(worker.Rows):  # type: ignore[misc, name-defined]
        def prepare(self, device: torch.device) -> None:
            told.append(device)

        def loss(self, model: nn.Module, batch: Any, step: int) -> dict[str, Tensor]:
            told.append(step)
            assert model.training  # also after a validation
            return {"loss": F.mse_loss(model(batch[0]), batch[1])}

        def after_step(self, step: int) -> None:
            told.append(f"after {step}")

    train(Listening(batch=12), replace(SGD, accumulate=2), device="cpu")
    assert told == [torch.device("cpu"), 0, 0, "after 1", 1, 1, "after 2"]


def test_the_line_is_shown_when_asked_for(worker: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    train(worker.Rows(), SGD, device="cpu")
    assert capsys.readouterr().err == ""
    train(worker.Rows(), SGD, device="cpu", progress=True, title="Learning")
    shown = capsys.readouterr().err
    assert "Learning epoch 2/2 loss" in shown
    assert "12/12" in shown
