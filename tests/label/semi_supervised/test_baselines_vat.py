from types import ModuleType

import pytest
import torch
from torch import Tensor

from entourage.label.semi_supervised.baselines import VAT_RADIUS, VirtualAdversarial
from entourage.label.semi_supervised.method import MethodOptions


def lengths(values: Tensor) -> Tensor:
    return values.flatten(1).norm(dim=1)


@pytest.mark.parametrize("step", [0, 9])
def test_the_loss_is_the_divergence_with_gradients_of_the_perturbed_view_only(toys: ModuleType, step: int) -> None:
    method = VirtualAdversarial(toys.linear(), toys.numbers(), MethodOptions(min_steps=1, ramp_steps=9))
    generator = torch.Generator().manual_seed(0)
    clean, perturbed = (
        torch.randn(5, 3, generator=generator, dtype=torch.float64, requires_grad=True) for _ in range(2)
    )
    loss = method.unlabelled_loss([clean, perturbed], toys.batch(method.data, [0], [1, 2, 3, 4, 5]), step)
    fixed, q = clean.detach().softmax(dim=1), perturbed.softmax(dim=1)
    divergence = (fixed * (fixed / q).log()).sum() / 5
    grown = 1.0 if step == 9 else torch.exp(torch.tensor(-5.0, dtype=torch.float64))
    expected = 0.3 * grown * divergence
    torch.testing.assert_close(loss, expected)
    gradient, reference = (torch.autograd.grad(value, perturbed, retain_graph=True)[0] for value in (loss, expected))
    torch.testing.assert_close(gradient, reference)
    assert torch.autograd.grad(loss, clean, allow_unused=True) == (None,)


def test_the_worst_direction_for_two_classes_is_their_weight_difference(toys: ModuleType) -> None:
    """The divergence of softmax(W x) depends on (w_1 - w_0) x alone, so no other direction changes it."""
    examples, network = toys.numbers(classes=2), toys.linear(classes=2)
    method = VirtualAdversarial(network, examples)
    torch.manual_seed(0)
    clean, perturbed = method.unlabelled_views(toys.batch(examples, [0], [2, 3, 4, 5]))
    assert torch.equal(clean, examples.views.weak(torch.tensor([2, 3, 4, 5])))
    torch.testing.assert_close(lengths(perturbed - clean), VAT_RADIUS * lengths(clean))
    across = (network.head.weight[1] - network.head.weight[0]).detach()
    direction = (perturbed - clean).flatten(1) / lengths(perturbed - clean)[:, None]
    torch.testing.assert_close((direction @ across).abs() / across.norm(), torch.ones(4, dtype=torch.float64))


def test_the_direction_is_worse_than_most_random_directions(toys: ModuleType) -> None:
    examples, network = toys.numbers(classes=3), toys.linear(classes=3)
    method = VirtualAdversarial(network, examples)
    torch.manual_seed(0)
    clean, perturbed = method.unlabelled_views(toys.batch(examples, [0], list(range(8))))

    def divergence(inputs: Tensor) -> Tensor:
        p, q = (network(x).detach().softmax(dim=1) for x in (clean, inputs))
        return (p * (p / q).log()).sum(dim=1)

    worst = divergence(perturbed)
    others = torch.randn(200, *clean.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    others = (
        others / others.flatten(2).norm(dim=2)[..., None, None, None] * lengths(perturbed - clean).view(-1, 1, 1, 1)
    )
    rank = torch.stack([divergence(clean + other) < worst for other in others]).double().mean(dim=0)  # (8,)
    assert rank.mean() > 0.9


def test_finding_the_direction_does_not_change_the_networks(toys: ModuleType) -> None:
    examples, _ = toys.examples()
    network = toys.network().train()
    torch.nn.init.normal_(network.head.weight)
    method = VirtualAdversarial(network, examples)
    before = [value.clone() for value in (*network.state_dict().values(), *method.average.module.state_dict().values())]
    with torch.no_grad():  # the method enables gradients for the direction only
        _, perturbed = method.unlabelled_views(toys.batch(examples, [0], [5, 6]))
    after = [*network.state_dict().values(), *method.average.module.state_dict().values()]
    assert all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(parameter.grad is None for parameter in network.parameters())
    assert not perturbed.requires_grad


def test_constant_predictions_have_no_perturbation(toys: ModuleType) -> None:
    examples, _ = toys.examples()
    method = VirtualAdversarial(toys.network(), examples)  # the weights of its head are 0
    clean, perturbed = method.unlabelled_views(toys.batch(examples, [0], [5, 6]))
    assert torch.equal(clean, perturbed)


def test_the_radius_sets_the_length_of_the_perturbation(toys: ModuleType) -> None:
    examples = toys.numbers()
    method = VirtualAdversarial(toys.linear(), examples, radius=0.03)
    clean, perturbed = method.unlabelled_views(toys.batch(examples, [0], [5, 6]))
    torch.testing.assert_close(lengths(perturbed - clean), 0.03 * lengths(clean))
    assert method.config()["radius"] == 0.03
    with pytest.raises(ValueError, match="radius is 0; expected a number above 0"):
        VirtualAdversarial(toys.linear(), examples, radius=0)
