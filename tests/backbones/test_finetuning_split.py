from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone
from entourage.backbones.finetuning import Stem, Tail, split_backbone
from entourage.backbones.registry import load_backbone

STAGES = {1: 320, 2: 192, 3: 112, 4: 80, 5: 40, 6: 24}  # width of the first block of the tail


@pytest.fixture(scope="module")
def lite() -> Backbone:
    return load_backbone("efficientnet-lite0", "cpu", frozen=False)


@pytest.fixture(scope="module")
def halves(lite: Backbone) -> tuple[Stem, Tail]:
    return split_backbone(lite)


@pytest.fixture(scope="module")
def images() -> Tensor:
    return torch.randn(2, 3, 64, 64, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("stages", list(STAGES))
def test_stem_and_tail_compose_the_network(lite: Backbone, images: Tensor, stages: int) -> None:
    stem, tail = split_backbone(lite, stages)
    with torch.no_grad():
        torch.testing.assert_close(tail(stem(images)), lite.module(images), rtol=1e-3, atol=1e-3)  # the stem is fused
    assert tail.blocks[0]._block_args.output_filters == STAGES[stages]


def test_default_resolution_of_activations_is_a_sixteenth(halves: tuple[Stem, Tail], images: Tensor) -> None:
    activations = halves[0](images)
    assert activations.shape == (2, 80, 4, 4)
    assert not activations.requires_grad


def test_tail_shares_weights_and_stem_does_not(lite: Backbone, halves: tuple[Stem, Tail]) -> None:
    stem, tail = halves
    backbone_ids = {id(parameter) for parameter in lite.module.parameters()}
    assert all(id(parameter) in backbone_ids for parameter in tail.parameters())
    assert not any(id(parameter) in backbone_ids for parameter in stem.parameters())
    assert not any(id(buffer) in {id(b) for b in lite.module.buffers()} for buffer in stem.buffers())
    with torch.no_grad():
        before = lite.module.network._conv_head.weight.clone()  # type: ignore[union-attr]
        tail.conv.weight.add_(1.0)
        torch.testing.assert_close(lite.module.network._conv_head.weight, before + 1)  # type: ignore[union-attr]
        tail.conv.weight.copy_(before)


def test_only_the_tail_is_trained(images: Tensor) -> None:
    backbone = load_backbone("efficientnet-lite0", "cpu", frozen=False)
    stem, tail = split_backbone(backbone)
    network = nn.Sequential(stem, tail).train()
    assert tail.training
    assert tail.norm.training  # type: ignore[union-attr]
    assert not any(part.training for part in stem.modules())
    before = {name: value.clone() for name, value in stem.state_dict().items()}
    network(images).square().sum().backward()
    assert all(parameter.grad is None for parameter in stem.parameters())
    assert all(parameter.grad is not None for parameter in tail.parameters())
    assert all(torch.equal(value, before[name]) for name, value in stem.state_dict().items())
    assert stem.train() is stem


def test_stochastic_depth_rates_equal_those_of_the_network(
    lite: Backbone, halves: tuple[Stem, Tail], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, (stem, tail) = lite.module.network, halves
    rates: list[float] = []
    for block in network._blocks:  # type: ignore[union-attr]
        forward = block.forward
        monkeypatch.setattr(
            block, "forward", lambda x, drop_connect_rate, f=forward: (rates.append(drop_connect_rate), f(x))[1]
        )
    with torch.no_grad():
        lite.module(torch.zeros(1, 3, 32, 32))
        expected, rates[:] = list(rates), []
        tail(stem(torch.zeros(1, 3, 32, 32)))
    assert len(rates) == len(tail.blocks) == 8
    assert rates == pytest.approx(expected[-8:])
    assert rates[0] > 0.05


@pytest.mark.parametrize("stages", [0, 7, -1])
def test_number_of_stages_out_of_range_raises(lite: Backbone, stages: int) -> None:
    with pytest.raises(ValueError, match=f"stages is {stages}; expected 1 to 6"):
        split_backbone(lite, stages)


def test_other_networks_raise(lite: Backbone) -> None:
    with pytest.raises(ValueError, match="backbone 'mine': cannot be split; expected an EfficientNet-Lite"):
        split_backbone(replace(lite, name="mine", module=nn.Identity()))
    with pytest.raises(ValueError, match="'efficientnet-lite0': was loaded frozen; expected one with frozen=False"):
        split_backbone(load_backbone("efficientnet-lite0", "cpu"))
