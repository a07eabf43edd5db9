from types import ModuleType

import pytest
import torch


def test_by_default_all_that_learns_is_one_group(worker: ModuleType) -> None:
    task = worker.Rows()
    task.model.bias.requires_grad_(False)
    (group,) = task.parameter_groups()
    assert [id(parameter) for parameter in group["params"]] == [id(task.model.weight)]


def test_by_default_the_model_is_the_outcome_and_nothing_else_is_kept(worker: ModuleType) -> None:
    task = worker.Rows()
    assert task.final_model() is task.model
    assert task.extra_state() == task.config() == task.validate(task.model) == {}
    task.load_extra_state({})
    with pytest.raises(ValueError, match="Rows has no extra state; the checkpoint holds a"):
        task.load_extra_state({"a": torch.ones(1)})
