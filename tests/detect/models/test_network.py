from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from entourage.detect.models.network import PointHead, WatershedNetwork, sample_cells
from entourage.detect.options import DetectorOptions, NetworkOptions, preset


def all_cells(pages: int, height: int, width: int, group: int = 0) -> torch.Tensor:
    ranges = torch.arange(pages), torch.tensor([group]), torch.arange(height), torch.arange(width)
    return torch.cartesian_prod(*ranges)


@pytest.mark.parametrize("shape", [(6, 8), (12, 16), (24, 32), (7, 9)])
def test_sampling_cells_equals_enlarging_the_map(shape: tuple[int, int]) -> None:
    level = torch.rand(2, 5, 6, 8, generator=torch.Generator().manual_seed(0))
    resized = F.interpolate(level, size=shape, mode="bilinear", align_corners=False)
    points = sample_cells(level, all_cells(2, *shape), shape)
    torch.testing.assert_close(points.view(2, *shape, 5).permute(0, 3, 1, 2), resized)


def test_a_head_without_hidden_layer_is_a_1x1_convolution() -> None:
    head = PointHead((5,), classes=3, groups=2, box_dim=4, hidden=0)
    level = torch.rand(1, 5, 4, 6)
    logits, codes = head([level], all_cells(1, 8, 12, group=1), (8, 12))
    resized = F.interpolate(level, size=(8, 12), mode="bilinear", align_corners=False)
    by_class = F.conv2d(resized, head.classes.weight[:, :, None, None], head.classes.bias)
    by_box = F.conv2d(resized, head.boxes.weight[:, :, None, None], head.boxes.bias)
    torch.testing.assert_close(logits.view(8, 12, 3).permute(2, 0, 1), by_class[0])
    torch.testing.assert_close(codes.view(8, 12, 4).permute(2, 0, 1), by_box[0, 4:])  # those of the second group


def test_pages_of_any_size_have_maps_of_their_size_divided_by_the_stride_rounded_up(tiny: DetectorOptions) -> None:
    network = WatershedNetwork(4, tiny).eval()
    assert network.multiple == 8
    with torch.inference_mode():
        predictions = network(torch.rand(2, 1, 37, 50))
    assert predictions.energy.shape == (2, 6, 19, 25)
    assert predictions.shape == (20, 28)
    assert predictions.surface().min() > 0
    assert predictions.surface().max() < 1
    logits, codes = predictions.read(torch.tensor([[0, 0, 0, 0], [1, 5, 18, 24]]))
    assert (logits.shape, codes.shape) == ((2, 4), (2, 4))


def test_padding_the_page_does_not_change_the_energy(tiny: DetectorOptions) -> None:
    network = WatershedNetwork(4, tiny).eval()
    page = torch.rand(1, 1, 37, 50)
    with torch.inference_mode():
        padded_inside, padded_before = network(page), network(F.pad(page, (0, 6, 0, 3)))
    torch.testing.assert_close(padded_inside.energy, padded_before.energy[..., :19, :25])


def test_an_untrained_network_predicts_background(tiny: DetectorOptions) -> None:
    torch.manual_seed(0)
    network = WatershedNetwork(4, tiny)
    assert network(torch.rand(2, 1, 64, 64)).surface().mean() < 0.05


@pytest.mark.parametrize("name", ["thesis", "original"])
def test_levels_have_the_resolution_of_the_page(name: str) -> None:
    options = preset(name)
    small = replace(options, network=replace(options.network, encoder="resnet18", filters=8))
    network = WatershedNetwork(3, small).eval()
    with torch.inference_mode():
        predictions = network(torch.rand(1, 1, 40, 33))
    assert predictions.energy.shape == (1, 20, 40, 33)
    assert predictions.surface().shape == (1, 1, 40, 33)
    expected = predictions.energy.argmax(1, keepdim=True) / 19
    assert torch.equal(predictions.surface(), expected)
    logits, codes = predictions.read(torch.tensor([[0, 0, 39, 32]]))
    assert (logits.shape, codes.shape) == ((1, 3), (1, 2))


def test_a_resnet_works_with_the_top_down_decoder(tiny: DetectorOptions) -> None:
    network = replace(tiny.network, encoder="resnet18", widths=(8,) * 4, blocks=(1,) * 4, upwards=(8,) * 4)
    with torch.inference_mode():
        predictions = WatershedNetwork(3, replace(tiny, network=network)).eval()(torch.rand(1, 1, 64, 64))
    assert predictions.energy.shape == (1, 6, 32, 32)


def test_the_default_network_has_less_than_12_million_parameters() -> None:
    with torch.device("meta"):
        network = WatershedNetwork(142, DetectorOptions(network=NetworkOptions()))
    assert sum(parameter.numel() for parameter in network.parameters()) < 12_000_000
