"""Optimisers and learning rate schedules."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from entourage.training.options import TrainingOptions

GROUP_KEYS = {"params", "lr_scale", "weight_decay"}


def learning_rate_factor(options: TrainingOptions, step: int, epoch: int, total: int) -> float:
    """Return the factor by which a schedule multiplies the learning rate at a step.

    During the warm-up of w steps it is (step + 1) / w. Then, for the completed fraction t of the steps after it and the
    `final_factor` f, "cosine" is f + (1 - f) (1 + cos(pi t)) / 2, "linear" is f + (1 - f) (1 - t), and "step" is gamma
    to the number of milestones reached.

    Args:
        options: the schedule and its parameters.
        step: number of updates so far.
        epoch: epoch of the step, from 0.
        total: number of updates of the run.

    Returns:
        A factor in [0, 1], or above 1 for a gamma above 1.
    """
    if step < options.warmup_steps:
        return (step + 1) / options.warmup_steps
    done = min(1.0, (step - options.warmup_steps) / max(1, total - options.warmup_steps))
    match options.schedule:
        case "cosine":
            return options.final_factor + (1 - options.final_factor) * (1 + math.cos(math.pi * done)) / 2
        case "linear":
            return options.final_factor + (1 - options.final_factor) * (1 - done)
        case "step":
            return options.gamma ** sum(epoch >= milestone for milestone in options.milestones)
        case _:
            return 1.0


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Set the learning rate of each parameter group to `rate` times the `lr_scale` of the group."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]


def make_optimizer(
    options: TrainingOptions, groups: Sequence[dict[str, Any]], model: nn.Module, device: torch.device
) -> torch.optim.Optimizer:
    """Create the optimiser of a run.

    Args:
        options: name and parameters of the optimiser.
        groups: see `Task.parameter_groups`.
        model: the network, which must contain all parameters of the groups.
        device: the device of the parameters; on a GPU the optimiser is fused, one kernel for all weights.

    Returns:
        The optimiser; each of its groups has `lr_scale`.

    Raises:
        ValueError: a group has an unknown key or a parameter outside the model, or the groups are empty.
    """
    completed = [_complete(group, options) for group in groups]
    _check(completed, model)
    rate, fused = options.learning_rate, True if device.type == "cuda" else None
    match options.optimizer:
        case "adamw":
            return torch.optim.AdamW(completed, lr=rate, fused=fused)
        case "adam":
            return torch.optim.Adam(completed, lr=rate, fused=fused)
        case "radam":
            return torch.optim.RAdam(completed, lr=rate)
        case "sgd":
            return torch.optim.SGD(
                completed, lr=rate, momentum=options.momentum, nesterov=options.nesterov, fused=fused
            )


def _complete(group: dict[str, Any], options: TrainingOptions) -> dict[str, Any]:
    if unknown := set(group) - GROUP_KEYS:
        expected = ", ".join(sorted(GROUP_KEYS))
        raise ValueError(f"parameter_groups: unknown keys {', '.join(sorted(unknown))}; expected {expected}")
    return {"lr_scale": 1.0, "weight_decay": options.weight_decay, **group, "params": list(group["params"])}


def _check(groups: Sequence[dict[str, Any]], model: nn.Module) -> None:
    known = {id(parameter) for parameter in model.parameters()}
    parameters = [parameter for group in groups for parameter in group["params"]]
    if not parameters:
        raise ValueError("parameter_groups: empty; expected at least one parameter that requires a gradient")
    if foreign := sum(id(parameter) not in known for parameter in parameters):
        raise ValueError(f"parameter_groups: {foreign} parameters outside the model; expected parts of task.model")
