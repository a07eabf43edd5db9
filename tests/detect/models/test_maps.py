from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from entourage.detect.models.maps import Maps, cell_centres, decode_boxes, decode_sizes, encode_boxes, render_targets
from entourage.detect.options import INTERLINE, MapOptions, preset

GROUPS = torch.tensor([0, 0, 0, 1, 2])  # four classes; the last two have a channel each
THREE = replace(MapOptions(), groups=(("c",), ("d",)))


def objects(n: int, height: int, width: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.rand(n, 2, generator=generator) * torch.tensor([width, height])
    sizes = 1 + torch.rand(n, 2, generator=generator) * 60
    boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], 1)
    return boxes, torch.randint(1, 5, (n,), generator=generator), torch.randint(0, 2, (n,), generator=generator)


def class_map(maps: Maps) -> np.ndarray:
    """The label of every cell, 0 for background."""
    return torch.cat([maps.labels.new_zeros(1), maps.labels])[maps.object_index + 1].numpy()


def render_by_loop(
    boxes: Tensor, labels: Tensor, pages: Tensor, shape: tuple[int, int, int], options: MapOptions, groups: Tensor
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return energy, label and foreground, computed cell by cell and object by object."""
    rows, columns = math.ceil(shape[1] / options.stride), math.ceil(shape[2] / options.stride)
    energy = np.zeros((shape[0], options.channels, rows, columns))
    label = np.zeros(energy.shape, dtype=int)
    last = np.zeros(energy.shape, dtype=int)
    nearest = np.full(energy.shape, np.inf)
    for (x0, y0, x1, y1), name, page in zip(boxes.tolist(), labels.tolist(), pages.tolist(), strict=True):
        group = int(groups[name])
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        rx, ry = (min(max(options.radius, options.reach * side), options.widest) for side in (x1 - x0, y1 - y0))
        if options.centred:
            x, y = (math.floor(v / options.stride) * options.stride + options.stride / 2 for v in (x, y))
        for row in range(rows):
            for column in range(columns):
                dx, dy = (column + 0.5) * options.stride - x, (row + 0.5) * options.stride - y
                distance = math.hypot(dx / rx, dy / ry)
                if distance > 1:
                    continue
                cell = page, group, row, column
                height = 1 - distance if options.surface == "cone" else math.exp(-4.5 * distance**2)
                energy[cell] = max(energy[cell], height)
                if distance < nearest[cell]:
                    nearest[cell] = distance
                    label[cell] = name
                if distance <= options.marker:
                    last[cell] = name
    foreground = nearest <= options.marker
    return energy, np.where(foreground & (options.overlap == "last"), last, label), foreground


@pytest.mark.parametrize(
    "options",
    [
        THREE,
        replace(THREE, stride=4, radius=5.0, centred=False),
        replace(THREE, surface="cone", reach=0.0, overlap="last"),
        replace(preset("thesis").maps, energy="sigmoid", groups=THREE.groups),
    ],
)
def test_rendering_equals_a_loop_over_objects_and_cells(options: MapOptions) -> None:
    shape = (2, 61, 83)
    boxes, labels, pages = objects(40, 61, 83)
    maps = render_targets(boxes, labels, pages, shape, options, GROUPS)
    energy, label, foreground = render_by_loop(boxes, labels, pages, shape, options, GROUPS)
    # Distances are rounded to steps of 2^-20 radii.
    np.testing.assert_allclose(maps.energy.numpy(), energy, atol=1e-5)
    assert (class_map(maps) == label).mean() > 0.999  # apart from ties and edges, which rounding may change
    assert (maps.foreground.numpy() == foreground).mean() > 0.999
    assert len(maps.foreground_cells()) == int(maps.foreground.sum())


def test_the_energy_is_1_in_the_cell_of_the_centre() -> None:
    boxes, labels, pages = objects(60, 100, 100, seed=1)
    maps = render_targets(boxes, labels, pages, (2, 100, 100), THREE, GROUPS)
    cell = ((boxes[:, :2] + boxes[:, 2:]) / 2 / THREE.stride).floor().long()
    assert (maps.energy[pages, GROUPS[labels], cell[:, 1], cell[:, 0]] == 1).all()
    expected = len({*zip(pages.tolist(), GROUPS[labels].tolist(), *cell.T.tolist(), strict=True)})
    assert int((maps.energy == 1).sum()) == expected


def test_the_order_of_objects_does_not_matter() -> None:
    boxes, labels, pages = objects(300, 200, 200, seed=2)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(3))
    first = render_targets(boxes, labels, pages, (2, 200, 200), THREE, GROUPS)
    permuted = render_targets(boxes[order], labels[order], pages[order], (2, 200, 200), THREE, GROUPS)
    assert torch.equal(first.energy, permuted.energy)
    assert torch.equal(first.foreground, permuted.foreground)


def test_the_last_object_has_the_cells_of_its_marker_in_the_original() -> None:
    boxes = torch.tensor([[10.0, 10.0, 20.0, 20.0], [13.0, 10.0, 23.0, 20.0]])
    pages, options = torch.tensor([0, 0]), preset("original").maps
    groups = torch.tensor([0, 0, 0])
    forward = class_map(render_targets(boxes, torch.tensor([1, 2]), pages, (1, 32, 32), options, groups))[0, 0]
    reversed_order = class_map(
        render_targets(boxes.flip(0), torch.tensor([2, 1]), pages, (1, 32, 32), options, groups)
    )[0, 0]
    assert (forward[15, 14], reversed_order[15, 14]) == (2, 1)  # next to the centre of the first
    width = boxes + torch.tensor([[0.0, 0, 0, 0], [-4, 0, 4, 0]])  # the second is 18 wide, with the same centre
    last = render_targets(width, torch.tensor([1, 2]), pages, (1, 32, 32), options, groups)
    label, sizes = last.targets(torch.tensor([[0, 0, 15, 14]]))
    assert (label.tolist(), sizes.tolist()) == ([2], [[10, 10]])  # class of the last object, box of the nearest one
    nearest = render_targets(
        boxes, torch.tensor([1, 2]), pages, (1, 32, 32), replace(options, overlap="nearest"), groups
    )
    assert class_map(nearest)[0, 0, 15, 14] == 1


def test_levels_are_rounded_cones() -> None:
    options = preset("thesis").maps
    boxes = torch.tensor([[15.5, 15.5, 25.5, 25.5]])  # the centre is the decoded of cell (20, 20)
    maps = render_targets(boxes, torch.tensor([1]), torch.tensor([0]), (1, 40, 40), options, torch.tensor([0, 0]))
    row = maps.levels()[0, 0, 20]
    expected = [max(0, round(19 * (1 - abs(column - 20) / 8.5))) for column in range(40)]
    assert row.tolist() == expected
    torch.testing.assert_close(maps.surface()[0, 0, 20], row / 19)


def test_objects_outside_are_left_out_and_ignored_cells_are_not_valid() -> None:
    boxes = torch.tensor([[-20.0, 5.0, -10.0, 15.0], [10.0, 10.0, 14.0, 14.0], [30.0, 10.0, 34.0, 14.0]])
    ignore = torch.zeros(1, 40, 40, dtype=torch.bool)
    ignore[:, :, 26:] = True
    maps = render_targets(boxes, torch.tensor([1, 1, 1]), torch.zeros(3).long(), (1, 40, 40), THREE, GROUPS, ignore)
    assert int((maps.energy == 1).sum()) == 2
    assert set(maps.object_index.unique().tolist()) == {-1, 1, 2}
    assert maps.valid.shape == (1, 20, 20)
    assert maps.valid[0, :, :13].all()
    assert not maps.valid[0, :, 13:].any()
    assert set(maps.object_index[tuple(maps.foreground_cells().unbind(1))].tolist()) == {1}


@pytest.mark.parametrize("options", [THREE, preset("thesis").maps, replace(THREE, size="linear")])
def test_decoding_inverts_encoding(options: MapOptions) -> None:
    boxes, _, _ = objects(50, 100, 100, seed=4)
    cell = ((boxes[:, :2] + boxes[:, 2:]) / 2 / options.stride).floor().long()
    index = torch.cat([torch.zeros(50, 2).long(), cell[:, [1, 0]]], 1)
    codes = encode_boxes(boxes, index, options)
    assert codes.shape == (50, options.box_dim)
    torch.testing.assert_close(decode_sizes(codes, options), boxes[:, 2:] - boxes[:, :2], atol=1e-4, rtol=1e-5)
    if options.offset:
        torch.testing.assert_close(decode_boxes(codes, index, options), boxes, atol=1e-4, rtol=1e-5)
    else:
        decoded = decode_boxes(codes, index, options)
        torch.testing.assert_close((decoded[:, :2] + decoded[:, 2:]) / 2, cell_centres(index, options.stride))


def test_box_codes_and_cell_centres() -> None:
    index = torch.tensor([[0, 0, 3, 5]])
    assert cell_centres(index, 2).tolist() == [[11.0, 7.0]]
    box = torch.tensor([[11.0, 7.0, 11.0 + INTERLINE, 7.0 + INTERLINE]])
    assert encode_boxes(box, index, THREE)[0].tolist() == pytest.approx([5.0, 5.0, 0.0, 0.0], abs=1e-6)


def test_reading_target_maps_returns_the_targets() -> None:
    boxes, labels, pages = objects(20, 80, 80, seed=5)
    maps = render_targets(boxes, labels, pages, (2, 80, 80), THREE, GROUPS)
    index = maps.foreground_cells()
    logits, codes = maps.read(index)
    expected_labels, expected_codes = maps.targets(index)
    assert torch.equal(logits.argmax(1) + 1, expected_labels)
    assert torch.equal(codes, expected_codes)
    empty = torch.nonzero(maps.object_index < 0)[:1]
    assert maps.read(empty)[1].abs().sum() == 0


def test_a_page_without_objects_has_empty_maps() -> None:
    empty = torch.zeros(0, 4), torch.zeros(0).long(), torch.zeros(0).long()
    maps = render_targets(*empty, (1, 9, 7), THREE, GROUPS)
    assert maps.energy.shape == (1, 3, 5, 4)
    assert maps.energy.sum() == 0
    assert len(maps.foreground_cells()) == 0


def test_invalid_arguments_raise() -> None:
    boxes, labels, pages = objects(3, 20, 20)
    with pytest.raises(ValueError, match=r"shapes \(3, 4\), \(2,\), \(3,\); expected \(n, 4\), \(n,\), \(n,\)"):
        render_targets(boxes, labels[:2], pages, (2, 20, 20), THREE, GROUPS)
    with pytest.raises(ValueError, match="labels are 9 to 9; expected 1 to 4"):
        render_targets(boxes, torch.full((3,), 9), pages, (2, 20, 20), THREE, GROUPS)
    with pytest.raises(ValueError, match="image_index has values up to 5; expected 0 to 1"):
        render_targets(boxes, labels, torch.full((3,), 5), (2, 20, 20), THREE, GROUPS)
    with pytest.raises(ValueError, match=r"shape is .*; expected pages, height and width of 1 or more"):
        render_targets(boxes, labels, pages, (2, 0, 20), THREE, GROUPS)
