from types import ModuleType

import torch

from entourage.label.semi_supervised.baselines import MeanTeacher
from entourage.label.semi_supervised.method import MethodOptions


def test_the_loss_is_the_squared_difference_to_the_teacher(toys: ModuleType) -> None:
    examples, network = toys.numbers(), toys.linear()
    method = MeanTeacher(network, examples, MethodOptions(min_steps=1, ramp_steps=0))
    batch = toys.batch(examples, [0], [3, 4, 5])
    teacher = toys.linear(scale=0.5)
    method.average.module.load_state_dict(teacher.state_dict())
    (view,) = method.unlabelled_views(batch)
    assert torch.equal(view, examples.views.weak(batch.unlabelled))
    logits = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True)
    loss = method.unlabelled_loss([logits], batch, step=0)
    with torch.no_grad():
        prediction = teacher(examples.views.weak(batch.unlabelled)).softmax(dim=1)
    expected = 10 * ((logits.softmax(dim=1) - prediction) ** 2).mean()
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=1e-6)  # the teacher predicts in float32
    gradient, reference = (torch.autograd.grad(value, logits)[0] for value in (loss, expected))
    torch.testing.assert_close(gradient, reference, rtol=1e-5, atol=1e-7)


def test_the_teacher_gets_no_gradient_and_keeps_its_statistics(toys: ModuleType) -> None:
    examples, _ = toys.examples()
    network = toys.network()
    method = MeanTeacher(network, examples, MethodOptions(min_steps=1, ramp_steps=0))
    torch.nn.init.normal_(network.head.weight)
    before = {name: value.clone() for name, value in method.average.module.state_dict().items()}
    losses = method.loss(network.train(), toys.batch(examples, [0, 1, 2], list(range(3, 12))), step=0)
    assert losses["unlabelled"] > 0
    losses["loss"].backward()
    assert all(parameter.grad is None for parameter in method.average.module.parameters())
    assert all(parameter.grad is not None for parameter in network.parameters())
    assert all(torch.equal(value, before[name]) for name, value in method.average.module.state_dict().items())
