from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from entourage.io.weights import read_weights, write_weights
from entourage.training import TrainingOptions
from entourage.training import checkpoint as module
from entourage.training.checkpoint import (
    Checkpoints,
    RunState,
    load_optimizer_state,
    optimizer_state,
    per_process_tensors,
)
from entourage.training.optim import make_optimizer

CPU = torch.device("cpu")


def make_model_and_optimizer(name: str = "adamw") -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).to(memory_format=torch.channels_last)
    options = TrainingOptions(optimizer=name, weight_decay=0.1)  # type: ignore[arg-type]
    return model, make_optimizer(options, [{"params": model.parameters()}], model, CPU)


def step(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    x = torch.linspace(-1, 1, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
    optimizer.zero_grad()
    model(x).pow(4).sum().backward()
    optimizer.step()


@pytest.mark.parametrize("name", ["adamw", "adam", "radam", "sgd"])
def test_optimizer_state_round_trip(name: str) -> None:
    model, optimizer = make_model_and_optimizer(name)
    for _ in range(7):
        step(model, optimizer)
    other, fresh = make_model_and_optimizer(name)
    other.load_state_dict(model.state_dict())
    tensors, scalars = optimizer_state(optimizer, model)
    plain = {key: value.contiguous().clone() for key, value in tensors.items()}
    load_optimizer_state(fresh, other, plain, scalars, Path("a"))
    for parameter, memory in fresh.state.items():
        for value in memory.values():
            assert value.ndim == 0 or value.stride() == parameter.stride()
    for _ in range(3):
        step(model, optimizer)
        step(other, fresh)
    for mine, theirs in zip(model.state_dict().values(), other.state_dict().values(), strict=True):
        assert torch.equal(mine, theirs)


def test_optimizer_state_of_other_parameters_raises() -> None:
    model, optimizer = make_model_and_optimizer()
    step(model, optimizer)
    tensors, scalars = optimizer_state(optimizer, model)
    only = torch.optim.AdamW([{"params": [model[0].weight]}])
    with pytest.raises(ValueError, match=r"^a: optimiser state of '0.bias'; expected"):
        load_optimizer_state(only, model, tensors, scalars, Path("a"))
    with pytest.raises(ValueError, match=r"^a: '0.bias.exp_avg' has shape \(5,\); expected \(4,\)"):
        load_optimizer_state(optimizer, model, {"0.bias.exp_avg": torch.ones(5)}, scalars, Path("a"))


def saved(worker: ModuleType, folder: Path, state: RunState) -> tuple[Checkpoints, Any, torch.optim.Optimizer]:
    task = worker.Noisy()
    optimizer = make_optimizer(TrainingOptions(), task.parameter_groups(), task.model, CPU)
    checkpoints = Checkpoints(folder, {"seed": 0})
    checkpoints.clean_up(None)
    checkpoints.save(state, task, optimizer, None)
    return checkpoints, task, optimizer


def test_load_restores_model_extra_state_and_run_state(worker: ModuleType, tmp_path: Path) -> None:
    state = RunState(3, 1, 2, {"error": float("inf")}, 0.5, 2, 1, 9.0)
    checkpoints, task, _ = saved(worker, tmp_path, state)
    other = worker.Noisy()
    for tensor in [*other.model.state_dict().values(), *other.extra_state().values()]:
        tensor.zero_()
    assert checkpoints.load(other, optimizer_of(other), None) == state
    for mine, theirs in (
        (task.model.state_dict(), other.model.state_dict()),
        (task.extra_state(), other.extra_state()),
    ):
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_load_restores_per_process_state(worker: ModuleType, tmp_path: Path) -> None:
    ranks = [worker.StoresLastBatch() for _ in range(3)]
    for rank, task in enumerate(ranks):
        task.last = torch.full((3,), float(rank))
    assert per_process_tensors(ranks[1]).keys() == {"last.mean"}
    checkpoints = Checkpoints(tmp_path, {})
    checkpoints.save(
        RunState(3), ranks[0], optimizer_of(ranks[0]), None, [per_process_tensors(task) for task in ranks[1:]]
    )
    for rank, task in enumerate(ranks):
        other = worker.StoresLastBatch()
        assert checkpoints.load(other, optimizer_of(other), None, rank) == RunState(3)
        assert torch.equal(other.last, task.last)
        shared = ranks[0].average.state()
        assert all(torch.equal(value, shared[name]) for name, value in other.average.state().items())


def optimizer_of(task: Any) -> torch.optim.Optimizer:
    return make_optimizer(TrainingOptions(), task.parameter_groups(), task.model, CPU)


def test_load_without_checkpoint_returns_none(worker: ModuleType, tmp_path: Path) -> None:
    task = worker.Noisy()
    assert Checkpoints(tmp_path / "new", {}).load(task, optimizer_of(task), None) is None


def test_finished_reads_the_state_of_the_checkpoint(worker: ModuleType, tmp_path: Path) -> None:
    task, checkpoints = worker.Noisy(), Checkpoints(tmp_path, {})
    optimizer = make_optimizer(TrainingOptions(), task.parameter_groups(), task.model, CPU)
    assert not checkpoints.finished()
    for finished in (False, True):
        checkpoints.save(RunState(step=3, finished=finished), task, optimizer, None)
        assert checkpoints.finished() is finished
    write_weights(checkpoints.path, {}, {"state": None})  # `load` reports the error
    assert not checkpoints.finished()


def test_damaged_or_foreign_checkpoint_raises(worker: ModuleType, tmp_path: Path) -> None:
    checkpoints, task, optimizer = saved(worker, tmp_path, RunState(3))
    with pytest.raises(ValueError, match="holds a run with seed 0, now 1"):
        Checkpoints(tmp_path, {"seed": 1}).load(task, optimizer, None)
    checkpoints.path.write_bytes(checkpoints.path.read_bytes()[:-9])
    with pytest.raises(
        ValueError,
        match=r"^cannot read .*checkpoint\.safetensors.*; expected weights written by a training run; delete",
    ):
        checkpoints.load(task, optimizer, None)
    write_weights(checkpoints.path, {}, {"identity": {"seed": 0}, "state": {"unknown": 3}})
    with pytest.raises(ValueError, match=r"checkpoint\.safetensors: not a checkpoint of this version"):
        checkpoints.load(task, optimizer, None)


@pytest.mark.parametrize("root_name", [None, "above"])
def test_errors_name_the_folder_to_delete(worker: ModuleType, tmp_path: Path, root_name: str | None) -> None:
    root_dir = None if root_name is None else tmp_path / root_name
    hint = f"; delete the folder {root_dir or tmp_path} to start from scratch$"
    checkpoints, task, optimizer = saved(worker, tmp_path, RunState(3))
    with pytest.raises(ValueError, match=hint.replace(";", ", or")):
        Checkpoints(tmp_path, {"seed": 1}, root_dir).load(task, optimizer, None)
    for path in (checkpoints.path, tmp_path / "best.safetensors"):
        path.write_bytes(b"half")
    known = Checkpoints(tmp_path, {"seed": 0}, root_dir)
    for read in (known.finished, lambda: known.load(task, optimizer, None), lambda: known.load_best(task.model)):
        with pytest.raises(ValueError, match=rf"^cannot read .*\.safetensors: .*{hint}"):
            read()


def test_clean_up_deletes_only_temporary_files_of_the_run(tmp_path: Path) -> None:
    random = "0a1b2c3d4e5f6071"
    ours = [f".model.{random}.safetensors", f".metrics.{random}.jsonl", ".tmpvEyOCM"]
    others = [".tmpdir-of-mine", "notes.txt", ".hidden", ".model.mine.safetensors", f".other.{random}.safetensors"]
    for name in (*ours, *others):
        (tmp_path / name).touch()
    Checkpoints(tmp_path, {}).clean_up(None)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(others)


def test_best_weights_are_renamed_by_the_next_checkpoint(worker: ModuleType, tmp_path: Path) -> None:
    checkpoints, task, optimizer = saved(worker, tmp_path, RunState(2))
    state = RunState(4, best=0.5, best_step=4)
    checkpoints.save_pending_best(task.model, state)
    assert not (tmp_path / "best.safetensors").exists()
    checkpoints.clean_up(RunState(2, best=0.9, best_step=1))  # killed, and resumed from an earlier state
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint.safetensors"]
    checkpoints.save_pending_best(task.model, state)
    checkpoints.save(state, task, optimizer, None)
    assert read_weights(tmp_path / "best.safetensors")[1] == {"step": 4, "best": 0.5}
    with torch.no_grad():
        expected = task.model[0].weight.clone()
        task.model[0].weight.zero_()
    checkpoints.load_best(task.model)
    assert torch.equal(task.model[0].weight, expected)


def test_pending_best_weights_are_matched_by_metadata_only(
    worker: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints, task, _ = saved(worker, tmp_path, RunState(2))
    state = RunState(4, best=0.5, best_step=4)
    checkpoints.save_pending_best(task.model, state)
    monkeypatch.setattr(module, "read_weights", None)  # would read all weights for a single number
    checkpoints.clean_up(state)
    assert (tmp_path / "best.safetensors").exists()


def test_clean_up_keeps_other_files(tmp_path: Path) -> None:
    for stem, ending in (("checkpoint", "safetensors"), ("best", "safetensors"), ("metrics", "jsonl")):
        (tmp_path / f".{stem}.0a1b2c3d4e5f6071.{ending}").touch()
    for name in (".gitignore", "notes.txt", "other.safetensors"):
        (tmp_path / name).touch()
    Checkpoints(tmp_path, {}).clean_up(None)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".gitignore", "notes.txt", "other.safetensors"]
