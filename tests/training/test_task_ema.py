import pytest
import torch
from torch import nn

from entourage.training.task import EMA


def filled(value: float) -> nn.Module:
    model = nn.BatchNorm1d(2)
    for tensor in [*model.parameters(), model.running_mean, model.running_var]:
        nn.init.constant_(tensor, value)
    model.num_batches_tracked.fill_(int(value))
    return model


def test_average_matches_the_closed_form() -> None:
    average = EMA(filled(0.0), decay=0.2)
    expected = 0.0
    for update, value in enumerate([1.0, 5.0, -3.0, 2.0]):
        average.update(filled(value))
        decay = min(0.2, (1 + update) / (10 + update))  # 1/10, 2/11, then 0.2
        expected = decay * expected + (1 - decay) * value
        for name in ("weight", "bias", "running_mean", "running_var"):
            torch.testing.assert_close(getattr(average.module, name), torch.full((2,), expected))
        assert average.module.num_batches_tracked == int(value)
    assert average.updates == 4


def test_model_is_copied_and_unchanged() -> None:
    model = filled(1.0)
    average = EMA(model)
    average.update(filled(3.0))
    assert not average.module.training
    assert not any(parameter.requires_grad for parameter in average.module.parameters())
    assert model.training
    torch.testing.assert_close(model.weight.detach(), torch.ones(2))


def test_replaced_tensors_are_found() -> None:
    model = filled(1.0)
    average = EMA(model, decay=0.0)  # the average is the last value
    average.update(model)
    model.weight.data = torch.full((2,), 8.0)
    model.running_mean = torch.full((2,), 9.0)
    average.update(model)
    torch.testing.assert_close(average.module.weight.detach(), torch.full((2,), 8.0))
    torch.testing.assert_close(average.module.running_mean, torch.full((2,), 9.0))
    average.module.double().float()  # new tensors, as after a move to another device
    average.update(filled(5.0))
    torch.testing.assert_close(average.module.running_mean, torch.full((2,), 5.0))
    torch.testing.assert_close(average.module.weight.detach(), torch.full((2,), 5.0))


def test_tied_weights_are_averaged_once() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    nn.init.zeros_(model[0].weight)
    average = EMA(model, decay=0.5)
    nn.init.ones_(model[0].weight)
    average.update(model)
    torch.testing.assert_close(average.module[1].weight, torch.full((2, 2), 0.9))


def test_state_round_trip() -> None:
    average, other = EMA(filled(0.0), 0.9), EMA(filled(7.0), 0.9)
    average.update(filled(2.0))
    other.load_state(average.state())
    for each in (average, other):
        each.update(filled(4.0))
    assert other.updates == 2
    for mine, theirs in zip(average.state().values(), other.state().values(), strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("decay", [-0.1, 1.0])
def test_invalid_decay_raises(decay: float) -> None:
    with pytest.raises(ValueError, match=f"decay is {decay}; expected a number in"):
        EMA(filled(0.0), decay)
