from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from entourage.cluster.models.attention import REFERENCE_SIZE, AttentionLayer, AttentionNetwork
from entourage.cluster.models.options import Metric, ModelOptions

SMALL = ModelOptions(k_max=4, width=16, depth=2, heads=4, code=6, units=10, frequencies=5)


def make(metric: Metric = "none", points: bool = True, columns: int = 2) -> AttentionNetwork:
    torch.manual_seed(0)
    network = AttentionNetwork(columns, replace(SMALL, metric=metric), points=points)
    with torch.no_grad():
        network.code.weight *= 20  # distant codes, as after training, so that seeds differ
    return network.eval()


@pytest.mark.parametrize("metric", ["none", "euclidean", "diagonal", "full"])
@pytest.mark.parametrize("points", [True, False])
def test_the_network_is_equivariant_to_permutations(metric: Metric, points: bool) -> None:
    network = make(metric, points)
    x = torch.randn(3, 15, 2, generator=torch.Generator().manual_seed(1))
    order = torch.randperm(15, generator=torch.Generator().manual_seed(2))
    straight, shuffled = network(x), network(x[:, order])
    # Sums in another order differ in the last digits.
    torch.testing.assert_close(shuffled.count, straight.count, atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(shuffled.assignment, straight.assignment[:, order], atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(shuffled.same(), straight.same()[:, order][:, :, order], atol=1e-4, rtol=1e-3)


def test_sets_of_a_batch_are_independent() -> None:
    network = make()
    x = torch.randn(3, 9, 2)
    torch.testing.assert_close(network(x).count[1:2], network(x[1:2]).count, atol=1e-5, rtol=1e-4)


def test_items_of_a_set_interact() -> None:
    network = make()
    x = torch.randn(1, 9, 2)
    moved = x.clone()
    moved[0, 8] += 2
    assert not torch.allclose(network(x).embedding[0, 0], network(moved).embedding[0, 0])


def test_both_outputs_are_distributions_for_any_n() -> None:
    for n in (2, 3, 40):
        prediction = make()(torch.randn(2, n, 2))
        torch.testing.assert_close(prediction.count.exp().sum(-1), torch.ones(2))
        torch.testing.assert_close(prediction.assignment.sum(-1), torch.ones(2, n, 4))
        assert prediction.distance is not None
        assert prediction.distance.shape == (2, n, n)


def test_duplicates_share_their_cluster() -> None:
    x = torch.randn(1, 6, 2).repeat(1, 2, 1)
    prediction = make()(x)
    torch.testing.assert_close(prediction.assignment[:, :6], prediction.assignment[:, 6:], atol=1e-5, rtol=1e-4)
    assert all(part.isfinite().all() for part in (prediction.count, make()(torch.zeros(1, 5, 2)).assignment))


@pytest.mark.parametrize("metric", ["none", "full"])
def test_every_parameter_has_a_gradient(metric: Metric) -> None:
    network = make(metric)
    prediction = network(torch.randn(2, 8, 2))
    assert prediction.distance is not None
    (prediction.same().square().sum() + prediction.count[:, 0].sum() + prediction.distance.sum()).backward()
    unused = [name for name, p in network.named_parameters() if p.grad is None or p.grad.abs().sum() == 0]
    assert unused == ["metric.a"] * (metric == "euclidean")


def test_clusters_depend_only_on_codes() -> None:
    network = make()
    code = torch.randn(1, 3, 6) * 9
    labels = torch.tensor([0, 1, 0, 2, 1, 2, 0])
    prediction = network.cluster_codes(code[:, labels] + 0.01 * torch.randn(1, 7, 6), 4)
    features = prediction.clusters(torch.tensor([3]))[0]
    assert torch.equal(features[:, None] == features[None], labels[:, None] == labels[None])


def test_a_layer_is_attention_with_a_bias() -> None:
    torch.manual_seed(0)
    layer = AttentionLayer(8, 2)
    x, relations = torch.randn(1, 5, 8, requires_grad=True), torch.randn(1, 5, 5, 32, requires_grad=True)
    query, key, value = layer.ask(layer.before(x)).chunk(3, dim=-1)
    scale = math.log(5) / math.log(REFERENCE_SIZE)
    attended = []
    for head in range(2):
        part = slice(4 * head, 4 * head + 4)
        logits = query[0, :, part] @ key[0, :, part].T / 2 + layer.bias(relations)[0, :, :, head]
        attended.append((scale * logits).softmax(-1) @ value[0, :, part])
    y = x[0] + layer.out(torch.cat(attended, dim=-1))
    expected = y + layer.feed(layer.between(y))
    torch.testing.assert_close(layer(x, relations)[0], expected, atol=1e-5, rtol=1e-4)
    weight = torch.randn(5, 8)
    ours = torch.autograd.grad((layer(x, relations)[0] * weight).sum(), [x, relations])
    for mine, theirs in zip(ours, torch.autograd.grad((expected * weight).sum(), [x, relations]), strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


def test_project_applies_to_the_metric() -> None:
    network = make("full")
    with torch.no_grad():
        network.metric.a.fill_(-1)  # type: ignore[union-attr]
    network.project()
    assert torch.linalg.eigvalsh(network.metric.a).min() > -1e-5  # type: ignore[union-attr]
