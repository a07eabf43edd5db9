from types import ModuleType

import pytest
import torch

from entourage.label.semi_supervised.baselines import PseudoLabel
from entourage.label.semi_supervised.method import DEFAULT_THRESHOLD, MethodOptions


@pytest.mark.parametrize("step", [0, 7])
def test_sure_answers_become_labels(toys: ModuleType, step: int) -> None:
    method = PseudoLabel(toys.linear(), toys.numbers(), MethodOptions(min_steps=1, ramp_steps=7))
    # Sure, all but sure on either side of the threshold, unsure; the last class of three is impossible.
    shares = torch.tensor([0.99, DEFAULT_THRESHOLD + 1e-4, DEFAULT_THRESHOLD - 1e-4, 0.5], dtype=torch.float64)
    logits = torch.stack([(1 - shares).log(), shares.log(), torch.full((4,), -1e4)], dim=1).double().requires_grad_()
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [1, 2, 3, 4]), step)
    expected = (
        -(torch.log(shares[0]) + torch.log(shares[1])) / 4 * (1.0 if step == 7 else torch.exp(torch.tensor(-5.0)))
    )
    torch.testing.assert_close(loss, expected.double())
    (gradient,) = torch.autograd.grad(loss, logits)
    assert (gradient[2:] == 0).all()  # what is not sure teaches nothing
    assert (gradient[:2, 1] < 0).all()  # towards the answer, which itself is taken as given
    torch.testing.assert_close(gradient.sum(dim=1), torch.zeros(4, dtype=torch.float64), rtol=0, atol=1e-12)


def test_the_label_gets_no_gradient(toys: ModuleType) -> None:
    method = PseudoLabel(toys.linear(), toys.numbers(), MethodOptions(min_steps=1, ramp_steps=0))
    logits = torch.tensor([[4.0, 0.0, 0.0]], dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(method.unlabelled_loss([logits], toys.batch(method.data, [0], [1]), 0), logits)
    torch.testing.assert_close(gradient, logits.detach().softmax(dim=1) - torch.tensor([[1.0, 0.0, 0.0]]).double())


def test_it_asks_for_one_weak_view(toys: ModuleType) -> None:
    examples = toys.numbers()
    (view,) = PseudoLabel(toys.linear(), examples).unlabelled_views(toys.batch(examples, [0], [6, 7]))
    assert torch.equal(view, examples.views.weak(torch.tensor([6, 7])))


def test_less_sure_answers_count_if_told_so(toys: ModuleType) -> None:
    options = MethodOptions(min_steps=1, ramp_steps=0)
    method = PseudoLabel(toys.linear(), toys.numbers(), options, threshold=0.6)
    shares = torch.tensor([0.61, 0.59], dtype=torch.float64)
    logits = torch.stack([(1 - shares).log(), shares.log(), torch.full((2,), -1e4)], dim=1).double()
    loss = method.unlabelled_loss([logits], toys.batch(method.data, [0], [1, 2]), step=0)
    torch.testing.assert_close(loss, -shares[0].log() / 2)
    assert method.config()["threshold"] == 0.6
    with pytest.raises(ValueError, match=r"threshold is -0\.1; expected a share of 0 to 1"):
        PseudoLabel(toys.linear(), toys.numbers(), threshold=-0.1)
