from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from entourage.backbones.finetuning import FrozenBatchNorm2d, convert_frozen_batch_norm, freeze_batch_norm
from entourage.backbones.registry import load_backbone


def test_statistics_stay_and_are_what_is_gone_by() -> None:
    layer = nn.BatchNorm1d(2)
    module = nn.Sequential(nn.Dropout(), nn.Sequential(layer)).train()
    x = 5 + 3 * torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    freeze_batch_norm(module)
    torch.testing.assert_close(layer(x), x, atol=1e-4, rtol=1e-4)  # mean 0 and variance 1, as they were
    assert layer.running_mean is not None
    assert layer.running_mean.tolist() == [0, 0]
    assert module[0].training  # nothing else is changed
    layer.weight.sum().backward()
    assert layer.weight.grad is not None  # what it learns, it still learns
    module.train()
    module(x)
    assert layer.running_mean.abs().min() > 0.1


def toy() -> nn.Sequential:
    """Two normalisations, one of them further in, with statistics of their own, and one of another kind."""
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), nn.SyncBatchNorm(4))
    for norm in (module[0], module[1][1]):
        for value in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
            value.copy_(0.5 + torch.rand(value.shape, generator=generator))
    return module.eval()


def test_steady_norms_are_the_same_layers_under_the_same_names() -> None:
    module = toy()
    steady = convert_frozen_batch_norm(copy.deepcopy(module))
    kinds = [type(layer) for layer in steady.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    assert kinds == [FrozenBatchNorm2d, FrozenBatchNorm2d, nn.SyncBatchNorm]
    assert list(steady.state_dict()) == list(module.state_dict())
    x = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    for training in (False, True):
        found, expected = steady[:2].train(training)(x), module[:2].train(training)(x)
        assert torch.equal(found, expected)
    assert torch.equal(steady[0].running_mean, module[0].running_mean)  # both have learnt the same
    assert steady[0].num_batches_tracked == 1


def test_weights_are_shared_with_the_layer_before() -> None:
    norm = nn.BatchNorm2d(2)
    steady = FrozenBatchNorm2d.from_batch_norm(norm)
    assert steady.weight is norm.weight
    assert steady.running_mean is norm.running_mean
    assert steady.training


@pytest.mark.parametrize("frozen", [False, True])
def test_networks_that_are_trained_have_steady_norms(frozen: bool) -> None:
    module = load_backbone("efficientnet-lite0", "cpu", frozen=frozen, pretrained=False).module
    kinds = {type(layer) for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)}
    assert kinds == (set() if frozen else {FrozenBatchNorm2d})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="only a GPU computes it in another way")
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_on_a_gpu_values_and_gradients_are_torchs_own(layout: torch.memory_format) -> None:
    def found(module: nn.Module, x: Tensor) -> list[Tensor]:
        given = [x, *module.parameters()]
        y = module(x)
        return [y, *torch.autograd.grad((y * torch.linspace(0, 1, y.numel(), device="cuda").view_as(y)).sum(), given)]

    module = toy()[:2].cuda().eval()
    steady = convert_frozen_batch_norm(copy.deepcopy(module))
    x = torch.randn(64, 3, 9, 9, device="cuda").contiguous(memory_format=layout).requires_grad_()
    for one, other in zip(found(steady, x), found(module, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)  # sums of some thousand float32 in another order
