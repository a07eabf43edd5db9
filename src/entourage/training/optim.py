"""Optimisers, and learning rates as functions of the step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from entourage.training.options import TrainingOptions

GROUP_KEYS = {"params", "lr_scale", "weight_decay"}


def learning_rate_factor(options: TrainingOptions, step: int, epoch: int, total: int) -> float:
    """What the learning rate is multiplied with at a step.

    The rise of w steps is (step + 1) / w. After it "cosine" is (1 + cos(pi t)) / 2 and "linear" 1 - t, where t is the
    share of the remaining steps that has been made; "step" is gamma to the number of milestones reached.

    Args:
        options: the schedule and its numbers.
        step: updates made so far.
        epoch: the epoch the step lies in, from 0.
        total: updates the whole run will make.

    Returns:
        A factor in [0, 1] (above 1 only for a gamma above 1).
    """
    if step < options.warmup_steps:
        return (step + 1) / options.warmup_steps
    done = min(1.0, (step - options.warmup_steps) / max(1, total - options.warmup_steps))
    match options.schedule:
        case "cosine":
            return (1 + math.cos(math.pi * done)) / 2
        case "linear":
            return 1 - done
        case "step":
            return options.gamma ** sum(epoch >= milestone for milestone in options.milestones)
        case _:
            return 1.0


def set_learning_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group the rate times its own scale."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group["lr_scale"]


def make_optimizer(
    options: TrainingOptions, groups: Sequence[dict[str, Any]], model: nn.Module, device: torch.device
) -> torch.optim.Optimizer:
    """The optimiser the options name.

    Args:
        options: its name and numbers.
        groups: as `Task.parameter_groups` gives them.
        model: the network all parameters must belong to.
        device: where they are; on a GPU the updates of all weights are one kernel.

    Raises:
        ValueError: a group holds an unknown key or a parameter that is not the model's, or nothing is to be learnt.
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
            return torch.optim.SGD(completed, lr=rate, momentum=options.momentum, fused=fused)


def _complete(group: dict[str, Any], options: TrainingOptions) -> dict[str, Any]:
    if unknown := set(group) - GROUP_KEYS:
        expected = ", ".join(sorted(GROUP_KEYS))
        raise ValueError(f"a parameter group has {', '.join(sorted(unknown))}; expected {expected}")
    return {"lr_scale": 1.0, "weight_decay": options.weight_decay, **group, "params": list(group["params"])}


def _check(groups: Sequence[dict[str, Any]], model: nn.Module) -> None:
    known = {id(parameter) for parameter in model.parameters()}
    parameters = [parameter for group in groups for parameter in group["params"]]
    if not parameters:
        raise ValueError("the parameter groups are empty; expected at least one parameter that requires a gradient")
    if foreign := sum(id(parameter) not in known for parameter in parameters):
        raise ValueError(f"{foreign} parameters of the groups are not the model's; make them part of task.model")
