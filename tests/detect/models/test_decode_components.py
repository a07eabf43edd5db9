from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from entourage.detect.models.decode import find_components
from entourage.detect.options import BoxOf, Centre, DecodeOptions, Vote, preset

OPTIONS = DecodeOptions(method="components", cuts=(0.5,), centre="mean")


def surface() -> Tensor:
    """Return an L of three cells, a single cell and, on the second page, a low component of two cells."""
    energy = torch.zeros(2, 1, 8, 8)
    energy[0, 0, 1, 1], energy[0, 0, 2, 1], energy[0, 0, 2, 2] = 0.6, 0.9, 0.8
    energy[0, 0, 6, 6] = 0.7
    energy[1, 0, 4, 4], energy[1, 0, 5, 5] = 0.3, 0.4  # adjacent diagonally
    return energy


def test_components_are_8_connected() -> None:
    components = find_components(surface(), OPTIONS)
    assert components.peak_cells.tolist() == [[0, 0, 2, 1], [0, 0, 6, 6]]
    assert components.peak_energy.tolist() == pytest.approx([0.9, 0.7])
    assert components.component.bincount().tolist() == [3, 1]
    low = find_components(surface(), replace(OPTIONS, cuts=(0.2,)))
    assert low.peak_cells.tolist() == [[0, 0, 2, 1], [0, 0, 6, 6], [1, 0, 5, 5]]


def test_small_components_are_dropped() -> None:
    assert find_components(surface(), replace(OPTIONS, least=2)).peak_cells.tolist() == [[0, 0, 2, 1]]
    assert len(find_components(torch.zeros(1, 1, 4, 4), OPTIONS).peak_cells) == 0


def test_a_lower_threshold_adds_only_components_that_overlap_none_of_the_higher_ones() -> None:
    energy = torch.zeros(1, 1, 9, 9)
    energy[0, 0, 1, 1:6] = torch.tensor([0.9, 0.3, 0.3, 0.3, 0.9])  # two peaks on one low ridge
    energy[0, 0, 6, 2:4] = 0.3
    one = find_components(energy, replace(OPTIONS, cuts=(0.2,)))
    two = find_components(energy, replace(OPTIONS, cuts=(0.5, 0.2)))
    assert one.component.bincount().tolist() == [5, 2]
    assert two.component.bincount().tolist() == [1, 1, 2]


@pytest.mark.parametrize(("vote", "label", "probability"), [("vote", 0, 2 / 3), ("mean", 1, 0.5), ("peak", 1, 0.9)])
def test_the_class_of_a_component(vote: Vote, label: int, probability: float) -> None:
    components = find_components(surface()[:1, :, :5, :5], OPTIONS)
    assert components.cells[:, 2:].tolist() == [[1, 1], [2, 1], [2, 2]]
    probabilities = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.9, 0.0], [0.6, 0.3, 0.1]])  # the peak is the second
    value, index = components.classes(probabilities, vote)
    assert index.tolist() == [label]
    assert value.tolist() == pytest.approx([probability])


@pytest.mark.parametrize(("box", "size"), [("mean", 5.0), ("largest", 9.0), ("peak", 4.0)])
def test_the_size_of_a_component(box: BoxOf, size: float) -> None:
    map_options = preset("thesis").maps
    components = find_components(surface()[:1, :, :5, :5], OPTIONS)
    codes = torch.tensor([[2.0, 2.0], [4.0, 4.0], [9.0, 9.0]])
    (corners,) = components.boxes(codes, replace(OPTIONS, box=box), map_options)
    assert (corners[2:] - corners[:2]).tolist() == pytest.approx([size, size])


@pytest.mark.parametrize(
    ("centre", "x", "y"),
    [
        ("mean", 1.5 + 1 / 3, 1.5 + 2 / 3),
        ("energy", (1.5 * 1.5 + 2.5 * 0.8) / 2.3, (1.5 * 0.6 + 2.5 * 1.7) / 2.3),
        ("truncated", 1.0, 2.0),
        ("offset", 1.5 + 0.25, 2.5 - 0.5),
    ],
)
def test_the_centre_of_a_component(centre: Centre, x: float, y: float) -> None:
    map_options = replace(preset("thesis").maps, offset=True)
    components = find_components(surface()[:1, :, :5, :5], OPTIONS)
    codes = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.25, -0.5, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0]])
    (corners,) = components.boxes(codes, replace(OPTIONS, centre=centre), map_options)
    assert ((corners[:2] + corners[2:]) / 2).tolist() == pytest.approx([x, y], abs=1e-5)
