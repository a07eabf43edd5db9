from types import ModuleType

import pytest
import torch
from torch import nn

from entourage.label.semi_supervised import network as module
from entourage.label.semi_supervised.network import compute_outputs

CPU = torch.device("cpu")


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("size", [3, 64])
def test_outputs_are_in_the_order_of_the_images(
    toys: ModuleType, flip: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.BATCH, "cpu", size)
    views = toys.NumberViews(8)
    views.flip = flip
    found = compute_outputs(nn.Flatten(), views, CPU)
    values = views.values.flatten(1).float()
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, (values + values.flip(1)) / 2 if flip else values)


def test_networks_run_in_evaluation_mode_without_gradients(toys: ModuleType) -> None:
    examples, _ = toys.examples()
    network = toys.network().train()
    found = compute_outputs(network.body, examples.views, CPU)
    assert found.shape == (30, 8)
    assert not network.body.training
    assert not found.requires_grad
    with torch.no_grad():
        rows = torch.tensor([17])
        plain, mirrored = (network.body(examples.views.unaugmented(rows, flag)) for flag in (False, True))
    torch.testing.assert_close(found[17:18], (plain + mirrored) / 2)
