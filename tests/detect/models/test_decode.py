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
HEIGHT, WIDTH = 1334, 947


def random_page(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return boxes and labels of up to n objects; no two of a group have their centres in the same cell."""
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(n, 2, generator=generator) * torch.tensor([WIDTH - 1.0, HEIGHT - 1.0])
    sizes = 1 + 10 ** (2.5 * torch.rand(n, 2, generator=generator))  # from 2 to 300 pixels
    labels = torch.randint(1, len(DETECTOR_CLASSES) + 1, (n,), generator=generator)
    boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], 1)
    cells = ((boxes[:, :2] + boxes[:, 2:]) / 2 / MAPS.stride).floor().long()
    first_in_cell: dict[tuple[int, ...], int] = {}
    for number, key in enumerate(zip(GROUPS[labels].tolist(), *cells.T.tolist(), strict=True)):
        first_in_cell.setdefault(key, number)
    chosen = torch.tensor(sorted(first_in_cell.values()), dtype=torch.int64)
    return boxes[chosen], labels[chosen]


def nearest_objects(boxes: Tensor, labels: Tensor, others: Tensor, other_labels: Tensor) -> Tensor:
    """Return the index of the nearest other object of the same label for each object, by their centres."""
    far = 10.0 * (HEIGHT + WIDTH)  # distance between labels
    positions, candidates = (
        torch.cat([(page_boxes[:, :2] + page_boxes[:, 2:]) / 2, page_labels[:, None] * far], 1).double().numpy()
        for page_boxes, page_labels in ((boxes, labels), (others, other_labels))
    )
    return torch.from_numpy(cKDTree(candidates).query(positions)[1])


@settings(max_examples=12, deadline=None)
@given(n=st.integers(0, 5000), seed=st.integers(0, 2**31))
def test_decoding_inverts_encoding(n: int, seed: int) -> None:
    boxes, labels = random_page(n, seed)
    maps = render_targets(boxes, labels, torch.zeros(len(boxes)).long(), (1, HEIGHT, WIDTH), MAPS, GROUPS)
    (found,) = decode(maps, DecodeOptions(overlap=None), MAPS, GROUPS)
    assert len(found["boxes"]) == len(boxes)
    if len(boxes) == 0:
        return
    nearest = nearest_objects(boxes, labels, found["boxes"], found["labels"])
    assert len(nearest.unique()) == len(boxes)  # one to one
    assert torch.equal(found["labels"][nearest], labels)
    # Corners are sums of single-precision numbers around 1000.
    torch.testing.assert_close(found["boxes"][nearest], boxes, atol=2e-3, rtol=1e-5)
    assert (found["scores"] > 0.999).all()


def test_swapped_boxes_are_detected_by_the_comparison() -> None:
    boxes, labels = random_page(2000, 0)
    swapped = boxes.roll(1, 0)  # each object has the box of another
    nearest = nearest_objects(boxes, labels, swapped, labels)
    assert not torch.allclose(swapped[nearest], boxes, atol=2e-3, rtol=1e-5)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 2**31), name=st.sampled_from(["thesis", "original"]))
def test_components_recover_separate_objects(seed: int, name: str) -> None:
    options = preset(name)
    generator = torch.Generator().manual_seed(seed)
    grid = torch.cartesian_prod(torch.arange(8), torch.arange(8))[torch.randperm(64, generator=generator)[:40]]
    centres = 30 + grid * 24.0 + torch.rand(40, 2, generator=generator) * 4  # peaks of radius 8.5 do not meet
    sizes = 4 + torch.rand(40, 2, generator=generator) * 30
    boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], 1)
    labels = torch.randint(1, 9, (40,), generator=generator)
    groups = torch.zeros(9, dtype=torch.int64)
    maps = render_targets(boxes, labels, torch.zeros(40).long(), (1, 240, 240), options.maps, groups)
    (found,) = decode(maps, options.decode, options.maps, groups)
    assert len(found["boxes"]) == 40
    middle = (found["boxes"][:, :2] + found["boxes"][:, 2:]) / 2
    nearest = (middle[:, None] - centres[None]).norm(dim=2).min(1)
    # The mean is within a third of a pixel of the centre per axis; truncation adds up to one pixel.
    assert nearest.values.max() < (0.5 if name == "thesis" else 1.9)
    assert torch.equal(found["labels"], labels[nearest.indices])
    torch.testing.assert_close(
        found["boxes"][:, 2:] - found["boxes"][:, :2], sizes[nearest.indices], atol=1e-3, rtol=1e-5
    )
    assert (found["scores"] == 1).all()


def test_objects_of_two_groups_may_share_a_centre_and_of_one_group_not() -> None:
    stem, head = DETECTOR_CLASSES.index("stem") + 1, DETECTOR_CLASSES.index("noteheadBlackOnLine") + 1
    boxes = torch.tensor([[49.4, 30.0, 50.6, 70.0], [44.0, 45.0, 56.0, 55.0], [40.0, 40.0, 60.0, 60.0]])
    labels = torch.tensor([stem, head, head])
    maps = render_targets(boxes, labels, torch.zeros(3).long(), (1, 100, 100), MAPS, GROUPS)
    (found,) = decode(maps, DecodeOptions(), MAPS, GROUPS)
    assert sorted(found["labels"].tolist()) == sorted([stem, head])


def test_peaks_are_local_maxima() -> None:
    surface = torch.zeros(1, 1, 5, 6)
    surface[0, 0, 1, 1], surface[0, 0, 1, 2], surface[0, 0, 3, 4] = 0.9, 0.8, 0.3
    index, energy = find_peaks(surface, 0.2)
    assert index.tolist() == [[0, 0, 1, 1], [0, 0, 3, 4]]
    assert energy.tolist() == pytest.approx([0.9, 0.3])
    assert len(find_peaks(surface, 0.95)[0]) == 0
    assert len(find_peaks(torch.zeros(1, 2, 4, 4), 0.0)[0]) == 0  # a flat surface has no peak


def test_probabilities_sum_to_one_within_a_group() -> None:
    groups = torch.tensor([0, 0, 0, 1])
    probabilities = class_probabilities(torch.tensor([[1.0, 2.0, 9.0], [1.0, 2.0, -9.0]]), torch.tensor([0, 1]), groups)
    expected = torch.tensor([1.0, 2.0]).softmax(0).tolist()
    assert probabilities[0].tolist() == pytest.approx([*expected, 0.0])
    assert probabilities[1].tolist() == [0, 0, 1]


def test_the_lower_of_two_overlapping_boxes_of_a_group_is_suppressed() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [1, 0, 11, 10], [5, 0, 15, 10], [0, 0, 10, 10]])
    group = torch.tensor([0, 0, 0, 1])
    assert suppress_overlaps(boxes, group, 0.8).tolist() == [True, False, True, True]  # 9 / 11 and 5 / 15 of the union
    assert suppress_overlaps(boxes, group, 0.9).all()


def test_thin_objects_are_enlarged_for_comparison() -> None:
    stems = torch.tensor([[10.0, 0, 11.3, 40], [10.4, 0, 11.7, 40], [13.0, 0, 14.3, 40]])
    assert suppress_overlaps(stems, torch.zeros(3), 0.8).tolist() == [True, False, True]


def test_suppression_does_not_depend_on_the_block_size() -> None:
    generator = torch.Generator().manual_seed(0)
    corner = torch.rand(200, 2, generator=generator) * 40
    boxes = torch.cat([corner, corner + 10], 1)
    group = torch.randint(0, 2, (200,), generator=generator)
    expected = suppress_overlaps(boxes, group, 0.5)
    assert torch.equal(suppress_overlaps(boxes, group, 0.5, block_size=7), expected)
    assert 0 < expected.sum() < 200


class TwoPeaks:
    """Maps with two peaks on the first page, none on the second."""

    def surface(self) -> Tensor:
        surface = torch.zeros(2, 1, 20, 20)
        surface[0, 0, 4, 4], surface[0, 0, 12, 12] = 0.5, 0.8
        return surface

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        logits = torch.tensor([[0.0, 3.0]]).expand(len(index), 2)
        return logits, torch.zeros(len(index), 4)


def test_scores_order_maximum_threshold_and_rounding() -> None:
    map_options, groups = replace(MAPS, groups=()), torch.tensor([0, 0, 0])
    first, second = decode(TwoPeaks(), DecodeOptions(), map_options, groups)
    probability = float(torch.tensor([0.0, 3.0]).softmax(0)[1])
    assert first["scores"].tolist() == pytest.approx([0.8 * probability, 0.5 * probability])
    assert first["labels"].tolist() == [2, 2]
    assert first["boxes"][0].tolist() == [20, 20, 30, 30]
    assert len(second["boxes"]) == 0
    assert len(decode(TwoPeaks(), DecodeOptions(most=1), map_options, groups)[0]["boxes"]) == 1
    assert len(decode(TwoPeaks(), DecodeOptions(threshold=0.6), map_options, groups)[0]["boxes"]) == 1
    assert decode(TwoPeaks(), DecodeOptions(score=False), map_options, groups)[0]["scores"].tolist() == [1, 1]
    assert decode(TwoPeaks(), DecodeOptions(snap=4.0), map_options, groups)[0]["boxes"][0].tolist() == [20, 20, 32, 32]
