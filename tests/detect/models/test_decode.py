from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial import cKDTree
from torch import Tensor

from entourage.detect.detections import DETECTOR_CLASSES, energy_channels
from entourage.detect.models.decode import class_probabilities, decode, find_peaks, suppress_overlaps
from entourage.detect.models.maps import render_targets
from entourage.detect.options import DecodeOptions, MapOptions, preset

MAPS = MapOptions()
GROUPS = energy_channels(DETECTOR_CLASSES, MAPS.groups)
HIGH, WIDE = 1334, 947


def random_page(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Up to n objects of which no two of a group have their centre in the same cell."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(n, 2, generator=generator) * torch.tensor([WIDE - 1.0, HIGH - 1.0])
    sides = 1 + 10 ** (2.5 * torch.rand(n, 2, generator=generator))  # from 2 to 300 pixels
    labels = torch.randint(1, len(DETECTOR_CLASSES) + 1, (n,), generator=generator)
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], 1)
    cells = ((boxes[:, :2] + boxes[:, 2:]) / 2 / MAPS.stride).floor().long()
    seen: dict[tuple[int, ...], int] = {}
    for number, key in enumerate(zip(GROUPS[labels].tolist(), *cells.T.tolist(), strict=True)):
        seen.setdefault(key, number)
    chosen = torch.tensor(sorted(seen.values()), dtype=torch.int64)
    return boxes[chosen], labels[chosen]


def nearest_likes(boxes: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> Tensor:
    """Of each object the nearest among the others, by its centre and, for groups may share a centre, by its label."""
    far = 10.0 * (HIGH + WIDE)  # from one class to the next
    at, among = (
        torch.cat([(some[:, :2] + some[:, 2:]) / 2, names[:, None] * far], 1).double().numpy()
        for some, names in ((boxes, labels), (others, other_labels))
    )
    return torch.from_numpy(cKDTree(among).query(at)[1])


@settings(max_examples=12, deadline=None)
@given(n=st.integers(0, 5000), seed=st.integers(0, 2**31))
def test_decoding_inverts_encoding(n: int, seed: int) -> None:
    boxes, labels = random_page(n, seed)
    maps = render_targets(boxes, labels, torch.zeros(len(boxes)).long(), (1, HIGH, WIDE), MAPS, GROUPS)
    (found,) = decode(maps, DecodeOptions(overlap=None), MAPS, GROUPS)
    assert len(found["boxes"]) == len(boxes)
    if len(boxes) == 0:
        return
    own = nearest_likes(boxes, labels, found["boxes"], found["labels"])
    assert len(own.unique()) == len(boxes)  # every object has its like, and every like its object
    assert torch.equal(found["labels"][own], labels)
    # Corners are sums of single-precision numbers around 1000.
    torch.testing.assert_close(found["boxes"][own], boxes, atol=2e-3, rtol=1e-5)
    assert (found["scores"] > 0.999).all()


def test_boxes_that_were_swapped_would_be_told() -> None:
    boxes, labels = random_page(2000, 0)
    swapped = boxes.roll(1, 0)  # each has that of another
    own = nearest_likes(boxes, labels, swapped, labels)
    assert not torch.allclose(swapped[own], boxes, atol=2e-3, rtol=1e-5)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), name=st.sampled_from(["thesis", "original"]))
def test_components_give_back_what_stands_apart(seed: int, name: str) -> None:
    options = preset(name)
    generator = torch.Generator().manual_seed(seed)
    grid = torch.cartesian_prod(torch.arange(8), torch.arange(8))[torch.randperm(64, generator=generator)[:40]]
    centres = 30 + grid * 24.0 + torch.rand(40, 2, generator=generator) * 4  # hills of radius 8.5 do not meet
    sides = 4 + torch.rand(40, 2, generator=generator) * 30
    boxes = torch.cat([centres - sides / 2, centres + sides / 2], 1)
    labels = torch.randint(1, 9, (40,), generator=generator)
    groups = torch.zeros(9, dtype=torch.int64)
    maps = render_targets(boxes, labels, torch.zeros(40).long(), (1, 240, 240), options.maps, groups)
    (found,) = decode(maps, options.decode, options.maps, groups)
    assert len(found["boxes"]) == 40
    middle = (found["boxes"][:, :2] + found["boxes"][:, 2:]) / 2
    nearest = (middle[:, None] - centres[None]).norm(dim=2).min(1)
    # Gravity is within a third of a pixel of the centre, each way; cutting off loses up to one more.
    assert nearest.values.max() < (0.5 if name == "thesis" else 1.9)
    assert torch.equal(found["labels"], labels[nearest.indices])
    torch.testing.assert_close(
        found["boxes"][:, 2:] - found["boxes"][:, :2], sides[nearest.indices], atol=1e-3, rtol=1e-5
    )
    assert (found["scores"] == 1).all()


def test_two_groups_share_a_centre_and_one_does_not() -> None:
    stem, head = DETECTOR_CLASSES.index("stem") + 1, DETECTOR_CLASSES.index("noteheadBlackOnLine") + 1
    boxes = torch.tensor([[49.4, 30.0, 50.6, 70.0], [44.0, 45.0, 56.0, 55.0], [40.0, 40.0, 60.0, 60.0]])
    labels = torch.tensor([stem, head, head])
    maps = render_targets(boxes, labels, torch.zeros(3).long(), (1, 100, 100), MAPS, GROUPS)
    (found,) = decode(maps, DecodeOptions(), MAPS, GROUPS)
    assert sorted(found["labels"].tolist()) == sorted([stem, head])


def test_peaks_are_cells_that_no_neighbour_tops() -> None:
    surface = torch.zeros(1, 1, 5, 6)
    surface[0, 0, 1, 1], surface[0, 0, 1, 2], surface[0, 0, 3, 4] = 0.9, 0.8, 0.3
    index, energy = find_peaks(surface, 0.2)
    assert index.tolist() == [[0, 0, 1, 1], [0, 0, 3, 4]]
    assert energy.tolist() == pytest.approx([0.9, 0.3])
    assert len(find_peaks(surface, 0.95)[0]) == 0
    assert len(find_peaks(torch.zeros(1, 2, 4, 4), 0.0)[0]) == 0  # a flat surface has no peak


def test_chances_are_shared_within_a_group() -> None:
    groups = torch.tensor([0, 0, 0, 1])
    chances = class_probabilities(torch.tensor([[1.0, 2.0, 9.0], [1.0, 2.0, -9.0]]), torch.tensor([0, 1]), groups)
    expected = torch.tensor([1.0, 2.0]).softmax(0).tolist()
    assert chances[0].tolist() == pytest.approx([*expected, 0.0])
    assert chances[1].tolist() == [0, 0, 1]


def test_the_lesser_of_two_that_overlap_goes_but_not_across_groups() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [5, 0, 15, 10], [0, 0, 10, 10]])
    group = torch.tensor([0, 0, 0, 1])
    assert suppress_overlaps(boxes, group, 0.8).tolist() == [True, False, True, True]  # 9 / 11 and 5 / 15 of the union
    assert suppress_overlaps(boxes, group, 0.9).all()


def test_thin_objects_are_compared_as_if_they_were_wider() -> None:
    stems = torch.tensor([[10.0, 0, 11.3, 40], [10.4, 0, 11.7, 40], [13.0, 0, 14.3, 40]])
    assert suppress_overlaps(stems, torch.zeros(3), 0.8).tolist() == [True, False, True]


def test_suppression_in_blocks_equals_that_at_once() -> None:
    generator = torch.Generator().manual_seed(0)
    corner = torch.rand(200, 2, generator=generator) * 40
    boxes = torch.cat([corner, corner + 10], 1)
    group = torch.randint(0, 2, (200,), generator=generator)
    whole = suppress_overlaps(boxes, group, 0.5)
    assert torch.equal(suppress_overlaps(boxes, group, 0.5, block=7), whole)
    assert 0 < whole.sum() < 200


class Two:
    """Two peaks on the first page, none on the second."""

    def surface(self) -> Tensor:
        surface = torch.zeros(2, 1, 20, 20)
        surface[0, 0, 4, 4], surface[0, 0, 12, 12] = 0.5, 0.8
        return surface

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        logits = torch.tensor([[0.0, 3.0]]).expand(len(index), 2)
        return logits, torch.zeros(len(index), 4)


def test_score_order_bound_threshold_and_rounding() -> None:
    map_options, groups = replace(MAPS, groups=()), torch.tensor([0, 0, 0])
    first, second = decode(Two(), DecodeOptions(), map_options, groups)
    chance = float(torch.tensor([0.0, 3.0]).softmax(0)[1])
    assert first["scores"].tolist() == pytest.approx([0.8 * chance, 0.5 * chance])
    assert first["labels"].tolist() == [2, 2]
    assert first["boxes"][0].tolist() == [20, 20, 30, 30]
    assert len(second["boxes"]) == 0
    assert len(decode(Two(), DecodeOptions(most=1), map_options, groups)[0]["boxes"]) == 1
    assert len(decode(Two(), DecodeOptions(threshold=0.6), map_options, groups)[0]["boxes"]) == 1
    assert decode(Two(), DecodeOptions(score=False), map_options, groups)[0]["scores"].tolist() == [1, 1]
    assert decode(Two(), DecodeOptions(snap=4.0), map_options, groups)[0]["boxes"][0].tolist() == [20, 20, 32, 32]
