from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from entourage.detect.models.decode import find_components
from entourage.detect.options import BoxOf, Centre, DecodeOptions, Vote, preset

CUT = DecodeOptions(method="components", cuts=(0.5,), centre="mean")


def surface() -> Tensor:
    """An L of three cells, a lone cell, and a low hill of two cells on the second page."""
    energy = torch.zeros(2, 1, 8, 8)
    energy[0, 0, 1, 1], energy[0, 0, 2, 1], energy[0, 0, 2, 2] = 0.6, 0.9, 0.8
    energy[0, 0, 6, 6] = 0.7
    energy[1, 0, 4, 4], energy[1, 0, 5, 5] = 0.3, 0.4  # corner to corner
    return energy


def test_components_hang_together_corner_to_corner() -> None:
    found = find_components(surface(), CUT)
    assert found.index.tolist() == [[0, 0, 2, 1], [0, 0, 6, 6]]
    assert found.energy.tolist() == pytest.approx([0.9, 0.7])
    assert found.member.bincount().tolist() == [3, 1]
    low = find_components(surface(), replace(CUT, cuts=(0.2,)))
    assert low.index.tolist() == [[0, 0, 2, 1], [0, 0, 6, 6], [1, 0, 5, 5]]


def test_small_components_are_left_out() -> None:
    assert find_components(surface(), replace(CUT, least=2)).index.tolist() == [[0, 0, 2, 1]]
    assert len(find_components(torch.zeros(1, 1, 4, 4), CUT).index) == 0


def test_a_lower_cut_adds_only_what_touches_nothing() -> None:
    energy = torch.zeros(1, 1, 9, 9)
    energy[0, 0, 1, 1:6] = torch.tensor([0.9, 0.3, 0.3, 0.3, 0.9])  # two peaks on one low ridge
    energy[0, 0, 6, 2:4] = 0.3
    one = find_components(energy, replace(CUT, cuts=(0.2,)))
    two = find_components(energy, replace(CUT, cuts=(0.5, 0.2)))
    assert one.member.bincount().tolist() == [5, 2]
    assert two.member.bincount().tolist() == [1, 1, 2]


@pytest.mark.parametrize(("vote", "label", "chance"), [("vote", 0, 2 / 3), ("mean", 1, 0.5), ("peak", 1, 0.9)])
def test_the_class_of_a_component(vote: Vote, label: int, chance: float) -> None:
    found = find_components(surface()[:1, :, :5, :5], CUT)
    assert found.cells[:, 2:].tolist() == [[1, 1], [2, 1], [2, 2]]
    chances = torch.tensor([[0.6, 0.3, 0.1], [0.1, 0.9, 0.0], [0.6, 0.3, 0.1]])  # the peak is the second
    value, index = found.classes(chances, vote)
    assert index.tolist() == [label]
    assert value.tolist() == pytest.approx([chance])


@pytest.mark.parametrize(("box", "side"), [("mean", 5.0), ("largest", 9.0), ("peak", 4.0)])
def test_the_sides_of_a_component(box: BoxOf, side: float) -> None:
    map_options = preset("thesis").maps
    found = find_components(surface()[:1, :, :5, :5], CUT)
    numbers = torch.tensor([[2.0, 2.0], [4.0, 4.0], [9.0, 9.0]])
    (corners,) = found.boxes(numbers, replace(CUT, box=box), map_options)
    assert (corners[2:] - corners[:2]).tolist() == pytest.approx([side, side])


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
    found = find_components(surface()[:1, :, :5, :5], CUT)
    numbers = torch.tensor([[0.0, 0.0, 2.0, 2.0], [0.25, -0.5, 2.0, 2.0], [0.0, 0.0, 2.0, 2.0]])
    (corners,) = found.boxes(numbers, replace(CUT, centre=centre), map_options)
    assert ((corners[:2] + corners[2:]) / 2).tolist() == pytest.approx([x, y], abs=1e-5)
