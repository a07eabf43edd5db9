from __future__ import annotations

import torch
from torch import nn

from entourage.backbones import keep_statistics


def test_statistics_stay_and_are_what_is_gone_by() -> None:
    layer = nn.BatchNorm1d(2)
    module = nn.Sequential(nn.Dropout(), nn.Sequential(layer)).train()
    x = 5 + 3 * torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    keep_statistics(module)
    torch.testing.assert_close(layer(x), x, atol=1e-4, rtol=1e-4)  # mean 0 and variance 1, as they were
    assert layer.running_mean is not None
    assert layer.running_mean.tolist() == [0, 0]
    assert module[0].training  # nothing else is changed
    layer.weight.sum().backward()
    assert layer.weight.grad is not None  # what it learns, it still learns
    module.train()
    module(x)
    assert layer.running_mean.abs().min() > 0.1
