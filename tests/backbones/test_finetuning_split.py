from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone
from entourage.backbones.finetuning import Stem, Tail, split_backbone
from entourage.backbones.registry import load_backbone

STAGES = {1: 320, 2: 192, 3: 112, 4: 80, 5: 40, 6: 24}  # the width with which the late part begins


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
def test_both_parts_together_are_the_whole_network(lite: Backbone, images: Tensor, stages: int) -> None:
    stem, tail = split_backbone(lite, stages)
    with torch.no_grad():
        torch.testing.assert_close(tail(stem(images)), lite.module(images), rtol=1e-3, atol=1e-3)  # the stem is folded
    assert tail.blocks[0]._block_args.output_filters == STAGES[stages]


def test_by_default_activations_are_a_sixteenth_of_the_images_side(halves: tuple[Stem, Tail], images: Tensor) -> None:
    activations = halves[0](images)
    assert activations.shape == (2, 80, 4, 4)
    assert not activations.requires_grad


def test_the_tail_shares_the_backbones_weights_and_the_stem_does_not(lite: Backbone, halves: tuple[Stem, Tail]) -> None:
    stem, tail = halves
    own = {id(parameter) for parameter in lite.module.parameters()}
    assert all(id(parameter) in own for parameter in tail.parameters())
    assert not any(id(parameter) in own for parameter in stem.parameters())
    assert not any(id(buffer) in {id(b) for b in lite.module.buffers()} for buffer in stem.buffers())
    with torch.no_grad():
        kept = lite.module.network._conv_head.weight.clone()  # type: ignore[union-attr]
        tail.conv.weight.add_(1.0)
        torch.testing.assert_close(lite.module.network._conv_head.weight, kept + 1)  # type: ignore[union-attr]
        tail.conv.weight.copy_(kept)


def test_all_of_the_late_part_is_trained_and_none_of_the_early_part(images: Tensor) -> None:
    backbone = load_backbone("efficientnet-lite0", "cpu", frozen=False)
    stem, tail = split_backbone(backbone)
    whole = nn.Sequential(stem, tail).train()
    assert tail.training
    assert tail.norm.training  # type: ignore[union-attr]
    assert not any(part.training for part in stem.modules())
    before = {name: value.clone() for name, value in stem.state_dict().items()}
    whole(images).square().sum().backward()
    assert all(parameter.grad is None for parameter in stem.parameters())
    assert all(parameter.grad is not None for parameter in tail.parameters())
    assert all(torch.equal(value, before[name]) for name, value in stem.state_dict().items())
    assert stem.train() is stem


def test_blocks_are_dropped_as_often_as_in_the_whole_network(
    lite: Backbone, halves: tuple[Stem, Tail], monkeypatch: pytest.MonkeyPatch
) -> None:
    network, (stem, tail) = lite.module.network, halves
    seen: list[float] = []
    for block in network._blocks:  # type: ignore[union-attr]
        forward = block.forward
        monkeypatch.setattr(
            block, "forward", lambda x, drop_connect_rate, f=forward: (seen.append(drop_connect_rate), f(x))[1]
        )
    with torch.no_grad():
        lite.module(torch.zeros(1, 3, 32, 32))
        whole, seen[:] = list(seen), []
        tail(stem(torch.zeros(1, 3, 32, 32)))
    assert len(seen) == len(tail.blocks) == 8
    assert seen == pytest.approx(whole[-8:])
    assert seen[0] > 0.05


@pytest.mark.parametrize("stages", [0, 7, -1])
def test_impossible_cuts_are_refused(lite: Backbone, stages: int) -> None:
    with pytest.raises(ValueError, match=f"{stages} stages to train; expected 1 to 6"):
        split_backbone(lite, stages)


def test_other_networks_are_refused(lite: Backbone) -> None:
    with pytest.raises(ValueError, match="backbone 'mine' cannot be split; expected an EfficientNet-Lite"):
        split_backbone(replace(lite, name="mine", module=nn.Identity()))
    with pytest.raises(ValueError, match="'efficientnet-lite0' was loaded frozen; expected one with frozen=False"):
        split_backbone(load_backbone("efficientnet-lite0", "cpu"))
