from types import ModuleType

import pytest
import torch

from entourage.label.semi_supervised.baselines import PseudoLabel
from entourage.label.semi_supervised.method import DEFAULT_THRESHOLD, MethodOptions


@pytest.mark.parametrize("step", [0, 7])
def test_confident_predictions_are_labels(toys: ModuleType, step: int) -> None:
    method = PseudoLabel(toys.linear(), toys.numbers(), MethodOptions(min_steps=1, ramp_steps=7))
    # Well above, just above, just below and well below the threshold; the last of three classes has probability 0.
    confidence = torch.tensor([0.99, DEFAULT_THRESHOLD + 1e-4, DEFAULT_THRESHOLD - 1e-4, 0.5], dtype=torch.float64)
    logits = (
        torch.stack([(1 - confidence).log(), confidence.log(), torch.full((4,), -1e4)], dim=1).double().requires_grad_()
    )
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [1, 2, 3, 4]), step)
    expected = (
        -(torch.log(confidence[0]) + torch.log(confidence[1]))
        / 4
        * (1.0 if step == 7 else torch.exp(torch.tensor(-5.0)))
    )
    torch.testing.assert_close(loss, expected.double())
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient[2:] == 0).all()  # below the threshold
    assert (gradient[:2, 1] < 0).all()  # towards the predicted class, which has no gradient
    torch.testing.assert_close(gradient.sum(dim=1), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_label_gets_no_gradient(toys: ModuleType) -> None:
    method = PseudoLabel(toys.linear(), toys.numbers(), MethodOptions(min_steps=1, ramp_steps=0))
    logits = torch.tensor([[4.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(method.unlabelled_loss([logits], toys.batch(method.data, [0], [1]), 0), logits)
    torch.testing.assert_close(gradient, logits.detach().softmax(dim=1) - torch.tensor([[1.0, 0.0, 0.0]]).double())


def test_unlabelled_views_are_one_weak_view(toys: ModuleType) -> None:
    examples = toys.numbers()
    (view,) = PseudoLabel(toys.linear(), examples).unlabelled_views(toys.batch(examples, [0], [6, 7]))
    assert torch.equal(view, examples.views.weak(torch.tensor([6, 7])))


def test_the_threshold_can_be_lowered(toys: ModuleType) -> None:
    options = MethodOptions(min_steps=1, ramp_steps=0)
    method = PseudoLabel(toys.linear(), toys.numbers(), options, threshold=0.6)
    confidence = torch.tensor([0.61, 0.59], dtype=torch.float64)
    logits = torch.stack([(1 - confidence).log(), confidence.log(), torch.full((2,), -1e4)], dim=1).double()
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [1, 2]), step=0)
    torch.testing.assert_close(loss, -confidence[0].log() / 2)
    assert method.config()["threshold"] == 0.6
    with pytest.raises(ValueError, match=r"threshold is -0\.1; expected a number from 0 to 1"):
        PseudoLabel(toys.linear(), toys.numbers(), threshold=-0.1)
