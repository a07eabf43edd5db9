from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from entourage.backbones.finetuning import FrozenBatchNorm2d, convert_frozen_batch_norm, freeze_batch_norm
from entourage.backbones.registry import load_backbone


def test_frozen_layers_use_and_keep_their_statistics() -> None:
    layer = nn.BatchNorm1d(2)
    module = nn.Sequential(nn.Dropout(), nn.Sequential(layer)).train()
    x = 5 + 3 * torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    freeze_batch_norm(module)
    torch.testing.assert_close(layer(x), x, atol=1e-4, rtol=1e-4)  # initial mean 0 and variance 1
    assert layer.running_mean is not None
    assert layer.running_mean.tolist() == [0, 0]
    assert module[0].training  # nothing else is changed
    layer.weight.sum().backward()
    assert layer.weight.grad is not None  # weights are still trained
    module.train()
    module(x)
    assert layer.running_mean.abs().min() > 0.1


def toy() -> nn.Sequential:
    """Return a network with two `BatchNorm2d` with random statistics, one of them nested, and a `SyncBatchNorm`."""
    generator = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.BatchNorm2d(3), nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)), nn.SyncBatchNorm(4))
    for norm in (module[0], module[1][1]):
        for value in (norm.weight.data, norm.bias.data, norm.running_mean, norm.running_var):
            value.copy_(0.5 + torch.rand(value.shape, generator=generator))
    return module.eval()


def test_frozen_batch_norms_compute_the_same_under_the_same_names() -> None:
    module = toy()
    converted = convert_frozen_batch_norm(copy.deepcopy(module))
    kinds = [type(layer) for layer in converted.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    assert kinds == [FrozenBatchNorm2d, FrozenBatchNorm2d, nn.SyncBatchNorm]
    assert list(converted.state_dict()) == list(module.state_dict())
    x = torch.randn(5, 3, 4, 4, generator=torch.Generator().manual_seed(1))
    for training in (False, True):
        output, expected = converted[:2].train(training)(x), module[:2].train(training)(x)
        assert torch.equal(output, expected)
    assert torch.equal(converted[0].running_mean, module[0].running_mean)  # both were updated by the training step
    assert converted[0].num_batches_tracked == 1


def test_from_batch_norm_shares_weights() -> None:
    norm = nn.BatchNorm2d(2)
    frozen = FrozenBatchNorm2d.from_batch_norm(norm)
    assert frozen.weight is norm.weight
    assert frozen.running_mean is norm.running_mean
    assert frozen.training


@pytest.mark.parametrize("frozen", [False, True])
def test_trainable_networks_have_frozen_batch_norms(frozen: bool) -> None:
    module = load_backbone("efficientnet-lite0", "cpu", frozen=frozen, pretrained=False).module
    kinds = {type(layer) for layer in module.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)}
    assert kinds == (set() if frozen else {FrozenBatchNorm2d})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="the implementations differ on a GPU only")
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
def test_values_and_gradients_on_a_gpu_equal_those_of_torch(layout: torch.memory_format) -> None:
    def output_and_gradients(module: nn.Module, x: Tensor) -> list[Tensor]:
        inputs = [x, *module.parameters()]
        y = module(x)
        return [y, *torch.autograd.grad((y * torch.linspace(0, 1, y.numel(), device="cuda").view_as(y)).sum(), inputs)]

    module = toy()[:2].cuda().eval()
    frozen = convert_frozen_batch_norm(copy.deepcopy(module))
    x = torch.randn(64, 3, 9, 9, device="cuda").contiguous(memory_format=layout).requires_grad_()
    for one, other in zip(output_and_gradients(frozen, x), output_and_gradients(module, x), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-3)  # sums of thousands of float32 in another order
