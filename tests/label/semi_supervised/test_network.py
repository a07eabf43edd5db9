from types import ModuleType

import torch
from torch import nn

from entourage.label.semi_supervised.network import ImageNetwork


def test_a_new_head_predicts_uniform_distributions(toys: ModuleType) -> None:
    logits = toys.network(classes=5)(torch.randn(4, 3, 12, 12))
    assert torch.equal(logits, torch.zeros(4, 5))


def test_logits_are_linear_in_the_bodys_features() -> None:
    network = ImageNetwork(nn.Flatten(), 2, 3)
    with torch.no_grad():
        network.head.weight.copy_(torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, -1.0]]))
        network.head.bias.copy_(torch.tensor([0.5, 0.0, 0.0]))
    expected = torch.tensor([[3.5, 4.0, 2.0]])
    torch.testing.assert_close(network(torch.tensor([3.0, 4.0]).view(1, 2, 1, 1)), expected)


def test_head_and_body_receive_gradients(toys: ModuleType) -> None:
    network = toys.network()
    optimizer = torch.optim.SGD(network.parameters(), 0.1)
    images = torch.randn(6, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    for _ in range(2):  # the weights of the head are 0 in the first step
        optimizer.zero_grad()
        nn.functional.cross_entropy(network(images), torch.tensor([0, 1, 2, 0, 1, 2])).backward()
        optimizer.step()
    assert network.body.layers[0].weight.grad.abs().max() > 0
    assert network.body.layers[0].weight.is_contiguous(memory_format=torch.channels_last)


def test_batch_statistics_adapt_within_few_steps() -> None:
    body = nn.Sequential(nn.BatchNorm2d(3, momentum=0.01), nn.Flatten())
    network = ImageNetwork(body, 3, 2)
    for _ in range(30):
        network(torch.full((4, 3, 1, 1), 8.0))
    # With momentum 0.1 the mean is 1 - 0.9^30 of 8; with the body's momentum 0.01 it would be 1 - 0.99^30, a quarter.
    torch.testing.assert_close(body[0].running_mean, torch.full((3,), 8 * (1 - 0.9**30)))


def test_frozen_statistics_do_not_change_in_training_mode() -> None:
    body = nn.Sequential(nn.BatchNorm2d(3), nn.Flatten())
    network = ImageNetwork(body, 3, 2)
    network.freeze_norm = True
    assert network.train() is network
    assert network.training
    network(torch.full((4, 3, 1, 1), 8.0))
    assert body[0].running_mean.tolist() == [0, 0, 0]
