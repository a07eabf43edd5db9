from types import ModuleType

import pytest
import torch


def test_default_group_contains_trainable_parameters(worker: ModuleType) -> None:
    task = worker.Rows()
    task.model.bias.requires_grad_(False)
    (group,) = task.parameter_groups()
    assert [id(parameter) for parameter in group["params"]] == [id(task.model.weight)]


def test_default_final_model_and_extra_state(worker: ModuleType) -> None:
    task = worker.Rows()
    assert task.final_model() is task.model
    assert task.extra_state() == task.config() == task.validate(task.model) == {}
    task.load_extra_state({})
    with pytest.raises(ValueError, match=r"^checkpoint: extra state a; expected none for Rows"):
        task.load_extra_state({"a": torch.ones(1)})
