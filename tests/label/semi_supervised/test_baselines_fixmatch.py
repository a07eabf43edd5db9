from types import ModuleType

import pytest
import torch

from entourage.label.semi_supervised.baselines import FixMatch
from entourage.label.semi_supervised.method import DEFAULT_THRESHOLD


def test_unlabelled_views_are_a_weak_and_a_strong_view(toys: ModuleType) -> None:
    examples = toys.numbers()
    weak, strong = FixMatch(toys.linear(), examples).unlabelled_views(toys.batch(examples, [0], [6, 7]))
    assert torch.equal(weak, examples.views.weak(torch.tensor([6, 7])))
    assert torch.equal(strong, examples.views.strong(torch.tensor([6, 7])))


def test_confident_predictions_for_weak_views_label_strong_views(toys: ModuleType) -> None:
    method = FixMatch(toys.linear(), toys.numbers())
    confidence = torch.tensor([0.99, DEFAULT_THRESHOLD + 1e-4, DEFAULT_THRESHOLD - 1e-4, 0.5], dtype=torch.float64)
    weak = (
        torch.stack([(1 - confidence).log(), torch.full((4,), -1e4), confidence.log()], dim=1).double().requires_grad_()
    )
    strong = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    loss = method.unlabelled_loss([weak, strong], toys.batch(method.data, [0], [1, 2, 3, 4]), step=0)
    log_p = strong.log_softmax(dim=1)
    expected = -(log_p[0, 2] + log_p[1, 2]) / 4  # averaged over all images, confident or not
    torch.testing.assert_close(loss, expected)
    strong_gradient, weak_gradient = torch.autograd.grad(loss, [strong, weak], allow_unused=True)
    torch.testing.assert_close(strong_gradient, torch.autograd.grad(expected, strong)[0])
    assert weak_gradient is None


def test_the_threshold_can_be_lowered(toys: ModuleType) -> None:
    method = FixMatch(toys.linear(), toys.numbers(), threshold=0.6)
    confidence = torch.tensor([0.61, 0.59], dtype=torch.float64)
    weak = torch.stack([(1 - confidence).log(), confidence.log(), torch.full((2,), -1e4)], dim=1).double()
    strong = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = method.unlabelled_loss([weak, strong], toys.batch(method.data, [0], [1, 2]), step=0)
    torch.testing.assert_close(loss, -strong.log_softmax(dim=1)[0, 1] / 2)
    assert method.config()["threshold"] == 0.6
    with pytest.raises(ValueError, match=r"threshold is 1\.5; expected a number from 0 to 1"):
        FixMatch(toys.linear(), toys.numbers(), threshold=1.5)
