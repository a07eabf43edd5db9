from __future__ import annotations

from types import ModuleType

import pytest
import torch

from entourage.label.semi_supervised.baselines import FixMatch, MeanTeacher, PiModel, PseudoLabel
from entourage.label.semi_supervised.method import (
    DEFAULT_THRESHOLD,
    ConfidenceThresholdMethod,
    MethodOptions,
    WeightedMethod,
)


@pytest.mark.parametrize(("method", "weight"), [(PiModel, 0.1), (MeanTeacher, 10.0)])
def test_weighted_methods_have_a_default_weight(toys: ModuleType, method: type[WeightedMethod], weight: float) -> None:
    assert method(toys.linear(), toys.numbers()).weight == weight


@pytest.mark.parametrize("method", [FixMatch, PseudoLabel])
def test_threshold_methods_have_a_default_threshold(method: type) -> None:
    assert issubclass(method, ConfidenceThresholdMethod)
    assert method.__init__.__kwdefaults__ == {"threshold": DEFAULT_THRESHOLD}


@pytest.mark.parametrize(("method", "n_views"), [(MeanTeacher, 1), (PiModel, 2)])
def test_the_weight_scales_the_loss(toys: ModuleType, method: type[WeightedMethod], n_views: int) -> None:
    options, examples = MethodOptions(min_steps=1, ramp_steps=0), toys.numbers()
    light, heavy = (method(toys.linear(), examples, options, weight=weight) for weight in (10.0, 25.0))
    logits = list(torch.randn(n_views, 3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64))
    batch = toys.batch(examples, [0], [3, 4, 5])
    expected = 2.5 * light.unlabelled_loss(logits, batch, step=0)
    torch.testing.assert_close(heavy.unlabelled_loss(logits, batch, step=0), expected)
    assert heavy.config()["weight"] == 25
    with pytest.raises(ValueError, match="weight is -1; expected 0 or more"):
        method(toys.linear(), examples, weight=-1)


def test_non_numbers_raise(toys: ModuleType) -> None:
    with pytest.raises(ValueError, match="weight is 'much'; expected 0 or more"):
        MeanTeacher(toys.linear(), toys.numbers(), weight="much")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threshold is 'high'; expected a number from 0 to 1"):
        FixMatch(toys.linear(), toys.numbers(), threshold="high")  # type: ignore[arg-type]
