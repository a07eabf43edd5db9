from types import ModuleType

import pytest
import torch

from entourage.label.semi_supervised.baselines import PiModel
from entourage.label.semi_supervised.method import MethodOptions


def test_unlabelled_views_are_two_weak_views(toys: ModuleType) -> None:
    examples, _ = toys.examples()
    one, other = PiModel(toys.network(), examples).unlabelled_views(toys.batch(examples, [0], [3, 4]))
    assert one.shape == other.shape == (2, 3, 12, 12)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("step", [0, 30, 100])
def test_the_loss_is_the_squared_difference_of_both_predictions(toys: ModuleType, step: int) -> None:
    method = PiModel(toys.linear(), toys.numbers(), MethodOptions(min_steps=1, ramp_steps=60))
    generator = torch.Generator().manual_seed(step)
    logits = [torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)]
    loss = method.unlabelled_loss(logits, toys.batch(method.data, [0], [1, 2, 3, 4, 5]), step)
    p, q = (torch.exp(z) / torch.exp(z).sum(dim=1, keepdim=True) for z in logits)
    grown = torch.exp(torch.tensor(-5 * (1 - min(1, step / 60)) ** 2, dtype=torch.float64))
    expected = 0.1 * grown * ((p - q) ** 2).sum() / 15
    torch.testing.assert_close(loss, expected)
    gradients = zip(torch.autograd.grad(loss, logits), torch.autograd.grad(expected, logits), strict=True)
    for gradient, reference in gradients:
        torch.testing.assert_close(gradient, reference)
        assert gradient.abs().max() > 0  # both predictions have gradients
