import math

import pytest
import torch
from torch import nn

from entourage.training import TrainingOptions
from entourage.training.optim import learning_rate_factor, make_optimizer, set_learning_rate

CPU = torch.device("cpu")


def factors(options: TrainingOptions, steps: list[int], total: int, per_epoch: int = 10) -> list[float]:
    return [learning_rate_factor(options, step, step // per_epoch, total) for step in steps]


def test_constant_factor_is_one() -> None:
    assert factors(TrainingOptions(), [0, 50, 99], 100) == [1, 1, 1]


def test_cosine_and_linear_fall_from_one_to_zero() -> None:
    steps = [0, 25, 50, 75, 100, 120]
    half = math.sqrt(0.5) / 2
    expected = [1, 0.5 + half, 0.5, 0.5 - half, 0, 0]
    assert factors(TrainingOptions(schedule="cosine"), steps, 100) == pytest.approx(expected, abs=1e-12)
    assert factors(TrainingOptions(schedule="linear"), steps, 100) == pytest.approx([1, 0.75, 0.5, 0.25, 0, 0])


def test_cosine_and_linear_end_at_the_final_factor() -> None:
    cosine = TrainingOptions(schedule="cosine", final_factor=0.2)
    assert factors(cosine, [0, 50, 100], 100) == pytest.approx([1, 0.6, 0.2])
    linear = TrainingOptions(schedule="linear", final_factor=0.2)
    assert factors(linear, [0, 50, 100], 100) == pytest.approx([1, 0.6, 0.2])


def test_nesterov_is_passed_to_sgd() -> None:
    model = nn.Linear(2, 1)
    groups = [{"params": list(model.parameters())}]
    for nesterov in (False, True):
        options = TrainingOptions(optimizer="sgd", nesterov=nesterov)
        assert make_optimizer(options, groups, model, CPU).defaults["nesterov"] is nesterov
    with pytest.raises(ValueError, match=r"nesterov is True .*; expected a momentum above 0"):
        TrainingOptions(optimizer="sgd", nesterov=True, momentum=0.0)


def test_step_schedule_follows_milestones() -> None:
    options = TrainingOptions(schedule="step", milestones=(2, 4), gamma=0.1)
    assert factors(options, [0, 19, 20, 39, 40, 99], 100) == pytest.approx([1, 1, 0.1, 0.1, 0.01, 0.01])


@pytest.mark.parametrize("schedule", ["constant", "cosine", "linear"])
def test_warmup_ends_at_one(schedule: str) -> None:
    options = TrainingOptions(schedule=schedule, warmup_steps=4)  # type: ignore[arg-type]
    assert factors(options, [0, 1, 3, 4], 100) == [0.25, 0.5, 1, 1]


def test_schedule_covers_the_steps_after_warmup() -> None:
    assert factors(TrainingOptions(schedule="linear", warmup_steps=20), [60, 100], 100) == pytest.approx([0.5, 0])


def test_run_shorter_than_warmup() -> None:
    assert factors(TrainingOptions(schedule="cosine", warmup_steps=20), [4, 20, 30], 5) == [0.25, 1, 0]


@pytest.mark.parametrize(
    ("name", "kind"),
    [("adamw", torch.optim.AdamW), ("adam", torch.optim.Adam), ("radam", torch.optim.RAdam), ("sgd", torch.optim.SGD)],
)
def test_optimizers_by_name(name: str, kind: type[torch.optim.Optimizer]) -> None:
    model = nn.Linear(2, 1)
    options = TrainingOptions(optimizer=name, momentum=0.8, weight_decay=0.3)  # type: ignore[arg-type]
    optimizer = make_optimizer(options, [{"params": model.parameters()}], model, CPU)
    assert type(optimizer) is kind
    assert optimizer.param_groups[0]["weight_decay"] == 0.3
    assert optimizer.param_groups[0].get("momentum", 0.8) == 0.8


def test_groups_override_rate_and_decay() -> None:
    model = nn.Linear(2, 1)
    groups = [{"params": [model.weight], "lr_scale": 0.1}, {"params": [model.bias], "weight_decay": 0.0}]
    optimizer = make_optimizer(TrainingOptions(weight_decay=0.5), groups, model, CPU)
    set_learning_rate(optimizer, 2.0)
    assert [group["lr"] for group in optimizer.param_groups] == [0.2, 2.0]
    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.5, 0.0]


def test_invalid_groups_raise() -> None:
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match=r"^parameter_groups: .* lr; expected lr_scale, params, weight_decay"):
        make_optimizer(TrainingOptions(), [{"params": [model.weight], "lr": 1.0}], model, CPU)
    with pytest.raises(ValueError, match=r"^parameter_groups: 1 .*; expected parts of task.model"):
        make_optimizer(TrainingOptions(), [{"params": [nn.Parameter(torch.ones(1))]}], model, CPU)
    with pytest.raises(ValueError, match=r"^parameter_groups: empty; expected"):
        make_optimizer(TrainingOptions(), [{"params": []}], model, CPU)
