from __future__ import annotations

import pytest
import torch

from entourage.cluster.models.lstm import LSTMNetwork, ResidualLSTM, make_lstm
from entourage.cluster.models.options import ModelOptions, preset

SMALL = ModelOptions(network="lstm", k_max=4, units=16, layers=3, recurrent_units=6)


def test_the_thesis_network_has_its_sizes() -> None:
    network = LSTMNetwork(2, preset("thesis").model)
    assert len(network.layers) == 14
    assert network.level[0].out_features == 288
    assert network.level[1].negative_slope == 0.3
    assert network.layers[0].lstm.hidden_size == 144
    assert network.layers[0].lstm.bidirectional
    assert network.counter.hidden_size == 128
    assert network.count[0].out_features == 256
    assert network.assign.out_features == 1 + 2 + 3 + 4 + 5


def test_both_outputs_are_distributions() -> None:
    torch.manual_seed(0)
    prediction = LSTMNetwork(5, SMALL)(torch.randn(3, 7, 5))
    torch.testing.assert_close(prediction.count.exp().sum(-1), torch.ones(3))
    assert prediction.assignment.shape == (3, 7, 4, 4)
    torch.testing.assert_close(prediction.assignment.sum(-1), torch.ones(3, 7, 4))
    for k in range(1, 5):
        assert (prediction.assignment[:, :, k - 1, k:] == 0).all()
        assert (prediction.assignment[:, :, k - 1, :k] > 0).all()
    assert prediction.embedding.shape == (3, 7, 16)
    assert prediction.distance is None


def test_layers_are_residual_and_bidirectional() -> None:
    torch.manual_seed(0)
    layer = ResidualLSTM(8)
    x = torch.randn(2, 5, 8)
    output, _ = layer.lstm(x)
    torch.testing.assert_close(layer(x), x + output)
    changed = x.clone()
    changed[:, -1] += 1
    assert not torch.allclose(layer(changed)[:, 0], layer(x)[:, 0])  # the first output depends on the last item


def test_forget_gates_have_an_initial_bias_of_one() -> None:
    lstm = make_lstm(3, 4)
    total = lstm.bias_ih_l0 + lstm.bias_hh_l0
    assert (total[4:8] == 1).all()
    assert (total[:4] != 1).all()


def test_every_parameter_has_a_gradient() -> None:
    torch.manual_seed(0)
    for options in (SMALL, ModelOptions(**{**vars(SMALL), "metric": "full", "set_size": 6})):
        network = LSTMNetwork(5, options)
        prediction = network(torch.randn(2, 6, 5))
        (prediction.same().square().sum() + prediction.count[:, 0].sum()).backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in network.parameters())


def test_a_network_with_a_metric_depends_only_on_distances() -> None:
    torch.manual_seed(0)
    options = ModelOptions(**{**vars(SMALL), "metric": "diagonal", "set_size": 6})
    network = LSTMNetwork(5, options)
    with torch.no_grad():
        network.metric.a.zero_()  # type: ignore[union-attr]
    one, two = (network(torch.randn(1, 6, 5)).assignment for _ in range(2))
    torch.testing.assert_close(one, two)  # all distances are 0
    with pytest.raises(ValueError, match="the set has 7 items; expected 6"):
        network(torch.randn(1, 7, 5))


def test_the_original_regularises_its_count() -> None:
    network = LSTMNetwork(2, ModelOptions(**{**vars(SMALL), "regularise_count": True}))
    kinds = [type(m).__name__ for m in network.count]
    assert kinds == ["BatchNorm1d", "Linear", "LeakyReLU", "BatchNorm1d", "Dropout", "Linear"]


def test_project_applies_to_the_metric() -> None:
    options = ModelOptions(**{**vars(SMALL), "metric": "diagonal", "set_size": 6})
    network = LSTMNetwork(5, options)
    with torch.no_grad():
        network.metric.a.fill_(-1)  # type: ignore[union-attr]
    network.project()
    assert (network.metric.a == 0).all()  # type: ignore[union-attr]
    LSTMNetwork(5, SMALL).project()


def test_the_count_uses_the_input_of_the_last_layer() -> None:
    torch.manual_seed(0)
    network, z = LSTMNetwork(5, SMALL), torch.randn(2, 6, 5)
    before = network(z)
    with torch.no_grad():
        for parameter in network.layers[-1].parameters():
            parameter += 1
    after = network(z)
    assert torch.equal(after.count, before.count)
    assert not torch.allclose(after.assignment, before.assignment)


def test_another_k_max_raises() -> None:
    network, z = LSTMNetwork(2, SMALL), torch.zeros(1, 6, 2)
    assert network(z, 4).count.shape == (1, 4)
    with pytest.raises(ValueError, match="k_max is 6; expected 4"):
        network(z, 6)
