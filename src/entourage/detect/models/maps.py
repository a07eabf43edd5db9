"""Target maps of energy, class and box, rendered from the boxes of a batch of pages.

The energy has a peak at the centre of each object. A cell of the maps belongs to the object with the highest energy
there; class and box are supervised in the cells within the marker radius. The highest energy is that of the smallest
relative distance, so one scatter with a minimum over distances assigns all cells, and the result does not depend on
the order in which a GPU processes them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from entourage.detect.options import INTERLINE, MapOptions

_NO_OBJECT = torch.iinfo(torch.int64).max
_DISTANCE_STEPS = 2**20  # resolution of distances: steps per radius


@dataclass(frozen=True)
class Maps:
    """Rendered target maps of b pages, with g energy channels of h x w cells each.

    Attributes:
        energy: shape (b, g, h, w), in [0, 1].
        object_index: shape (b, g, h, w), int64: index of the object that determines the class of a cell; -1 where the
            energy is 0.
        nearest: shape (b, g, h, w), int64: index of the object that determines the box of a cell. It differs from
            `object_index` only with `MapOptions(overlap="last")`, the behaviour of the original code.
        foreground: shape (b, g, h, w), bool: cells near enough to a centre for class and box to be supervised.
        valid: shape (b, h, w), bool: cells that contribute to the losses.
        boxes: boxes of all objects in pixels, shape (n, 4).
        labels: labels of all objects, from 1, shape (n,).
        options: options that the maps were rendered with.
        classes: number of classes.
    """

    energy: Tensor
    object_index: Tensor
    nearest: Tensor
    foreground: Tensor
    valid: Tensor
    boxes: Tensor
    labels: Tensor
    options: MapOptions
    classes: int

    def surface(self) -> Tensor:
        """Return the energy in [0, 1], shape (b, g, h, w), quantised if the options ask for levels."""
        if self.options.energy == "sigmoid":
            return self.energy
        return self.levels() / (self.options.levels - 1)

    def levels(self) -> Tensor:
        """Return the energy quantised to integers from 0 to levels - 1, shape (b, g, h, w), int64."""
        return (self.energy * (self.options.levels - 1)).round().long()

    def foreground_cells(self) -> Tensor:
        """Return the cells whose class and box contribute to the losses, shape (m, 4): page, group, row, column."""
        return torch.nonzero(self.foreground & self.valid[:, None])

    def targets(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return labels (m,) and box codes (m, box_dim) of cells (m, 4) that belong to an object."""
        cells = tuple(index.unbind(1))
        return self.labels[self.object_index[cells]], encode_boxes(self.boxes[self.nearest[cells]], index, self.options)

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return class logits (m, classes) and box codes (m, box_dim) of cells (m, 4), as a perfect network would."""
        object_index = self.object_index[tuple(index.unbind(1))]
        assigned = object_index >= 0
        logits = self.energy.new_zeros(len(index), self.classes)
        codes = self.energy.new_zeros(len(index), self.options.box_dim)
        labels, codes[assigned] = self.targets(index[assigned])
        logits[assigned] = F.one_hot(labels - 1, self.classes).to(logits) * 100.0  # its softmax is exactly 1 in float32
        return logits, codes


def cell_centres(index: Tensor, stride: int) -> Tensor:
    """Return the centres of cells (m, 4) as x, y in pixels, shape (m, 2), float32."""
    return (index[:, [3, 2]] + 0.5) * stride


def encode_boxes(boxes: Tensor, index: Tensor, options: MapOptions) -> Tensor:
    """Encode boxes as values of the box map.

    Args:
        boxes: shape (m, 4), in pixels.
        index: cell of each box, shape (m, 4): page, group, row, column.
        options: options of the maps.

    Returns:
        Box codes, shape (m, box_dim): the offset of the centre from that of the cell, if the options ask for it, and
        width and height.
    """
    sizes = (boxes[:, 2:] - boxes[:, :2]).clamp(min=0.05)  # avoids log(0); thinner than any line of ink
    if options.size == "log":
        sizes = (sizes / INTERLINE).log()
    if not options.offset:
        return sizes
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return torch.cat([centres - cell_centres(index, options.stride), sizes], 1)


def decode_sizes(codes: Tensor, options: MapOptions) -> Tensor:
    """Return width and height in pixels, shape (m, 2), of box codes (m, box_dim)."""
    sizes = codes[:, -2:]
    return sizes.clamp(max=7.0).exp() * INTERLINE if options.size == "log" else sizes.clamp(min=0.0)


def decode_boxes(codes: Tensor, index: Tensor, options: MapOptions) -> Tensor:
    """Decode box codes (m, box_dim) of cells (m, 4) to boxes, shape (m, 4); the inverse of `encode_boxes`."""
    centres = cell_centres(index, options.stride) + (codes[:, :2] if options.offset else 0.0)
    half = decode_sizes(codes, options) / 2
    return torch.cat([centres - half, centres + half], 1)


def render_targets(
    boxes: Tensor,
    labels: Tensor,
    image_index: Tensor,
    shape: tuple[int, int, int],
    options: MapOptions,
    groups: Tensor,
    ignore: Tensor | None = None,
) -> Maps:
    """Render the target maps of a batch of pages, on the device of the boxes.

    Args:
        boxes: boxes of all pages, shape (n, 4); objects whose centre lies outside their page are left out.
        labels: shape (n,), from 1.
        image_index: index of the page of each object, shape (n,).
        shape: number of pages, height and width in pixels; the maps have ceil(height / stride) rows.
        options: options of the maps.
        groups: energy channel of every label, shape (1 + classes,), as returned by `energy_channels`.
        ignore: pixels that do not contribute to the losses, shape (b, height, width), bool.

    Returns:
        The maps. Costs O(n (r / stride)^2), where r is the maximum radius of the options.

    Raises:
        ValueError: the shapes of the tensors differ, or a label or index is out of range.
    """
    _check_tensors(boxes, labels, image_index, shape, groups)
    pages, height, width = shape
    rows, columns = -(-height // options.stride), -(-width // options.stride)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    on_page = (centres >= 0).all(1) & (centres[:, 0] < width) & (centres[:, 1] < height)
    channel = (image_index * options.channels + groups[labels]).where(on_page, -1)  # flat index over the b x g surfaces
    size = (pages * options.channels, rows, columns)
    cells, distance = _cells(centres, boxes, channel, size, options)  # (n, window) each
    object_number = torch.arange(len(boxes), device=boxes.device)[:, None].expand_as(cells)
    min_distance, nearest = _assign_cells(cells, (distance * _DISTANCE_STEPS).round().long(), object_number, size)
    object_index = nearest
    if options.overlap == "last":  # within the marker, the last object wins at any distance
        inside = torch.where(distance <= options.marker, cells, -1)
        last = _assign_cells(inside, len(boxes) - 1 - object_number, object_number, size)[1]
        object_index = last.where(last >= 0, object_index)
    nearest_distance = min_distance / _DISTANCE_STEPS
    energy = _energy_at(nearest_distance, options).where(min_distance <= _DISTANCE_STEPS, 0.0)
    foreground = nearest_distance <= options.marker
    map_shape = (pages, options.channels, rows, columns)
    valid = torch.ones((pages, rows, columns), dtype=torch.bool, device=boxes.device)
    if ignore is not None:
        valid = F.max_pool2d(ignore[:, None].float(), options.stride, ceil_mode=True)[:, 0] == 0
    energy, object_index, nearest, foreground = (
        flat.view(map_shape) for flat in (energy, object_index, nearest, foreground)
    )
    return Maps(energy, object_index, nearest, foreground, valid, boxes, labels, options, len(groups) - 1)


def _check_tensors(
    boxes: Tensor, labels: Tensor, image_index: Tensor, shape: tuple[int, int, int], groups: Tensor
) -> None:
    n = len(boxes)
    if boxes.shape != (n, 4) or labels.shape != (n,) or image_index.shape != (n,):
        shapes = ", ".join(str(tuple(part.shape)) for part in (boxes, labels, image_index))
        raise ValueError(f"boxes, labels and image_index have shapes {shapes}; expected (n, 4), (n,), (n,)")
    if min(shape) < 1:
        raise ValueError(f"shape is {shape}; expected pages, height and width of 1 or more")
    if not boxes.is_cuda and n:  # on a GPU, reading the values would synchronise
        if not 1 <= int(labels.min()) <= int(labels.max()) < len(groups):
            raise ValueError(f"labels are {int(labels.min())} to {int(labels.max())}; expected 1 to {len(groups) - 1}")
        if not 0 <= int(image_index.min()) <= int(image_index.max()) < shape[0]:
            raise ValueError(f"image_index has values up to {int(image_index.max())}; expected 0 to {shape[0] - 1}")


def _cells(
    centres: Tensor, boxes: Tensor, channel: Tensor, size: tuple[int, int, int], options: MapOptions
) -> tuple[Tensor, Tensor]:
    """Return the cells in a window around each centre, as flat indices or -1 outside, and their relative distances.

    Distances are multiples of the radius. Both results have shape (n, window). `channel` is the flat index over pages
    and energy channels, or -1.
    """
    stride, (_, rows, columns) = options.stride, size
    sizes = boxes[:, 2:] - boxes[:, :2]
    radii = (sizes * options.reach).clamp(options.radius, options.widest)  # (n, 2) x, y
    centre_cell = (centres / stride).floor()  # (n, 2) the cell that contains the centre
    origin = centre_cell + 0.5 if options.centred else centres / stride  # in cells
    max_radius = options.widest if options.reach else options.radius
    half = int(max_radius / stride) + 1
    steps = torch.arange(-half, half + 1, device=boxes.device)
    y, x = (axis.reshape(-1) for axis in torch.meshgrid(steps, steps, indexing="ij"))  # (window,)
    column, row = centre_cell[:, :1].long() + x, centre_cell[:, 1:].long() + y  # (n, window)
    dx = (column + 0.5 - origin[:, :1]) * stride / radii[:, :1]
    dy = (row + 0.5 - origin[:, 1:]) * stride / radii[:, 1:]
    distance = (dx.square() + dy.square()).sqrt()
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns) & (distance <= 1) & (channel >= 0)[:, None]
    flat = (channel[:, None] * rows + row) * columns + column
    return flat.where(inside, -1), distance


def _assign_cells(cells: Tensor, rank: Tensor, number: Tensor, size: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """Return the lowest rank in each cell and the object of that rank; of equal ranks, that of the lowest number."""
    total = size[0] * size[1] * size[2]
    best = torch.full((total + 1,), _NO_OBJECT, device=cells.device)  # the last entry takes the cells outside
    key = (rank << 32) | number
    best.scatter_reduce_(0, cells.where(cells >= 0, total).reshape(-1), key.reshape(-1), "amin")
    best = best[:total]
    unassigned = best == _NO_OBJECT
    return (best >> 32).masked_fill(unassigned, 2 * _DISTANCE_STEPS), (best & 0xFFFFFFFF).masked_fill(unassigned, -1)


def _energy_at(distance: Tensor, options: MapOptions) -> Tensor:
    """Return the energy at distances from the centre that are given as multiples of the radius."""
    if options.surface == "cone":
        return (1 - distance).clamp(min=0)
    return (-4.5 * distance.square()).exp()  # the radius is three standard deviations


def join_targets(targets: Sequence[Mapping[str, Tensor]], classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """Check the targets of all images and join them into flat tensors.

    Args:
        targets: for each image, "boxes" (n, 4), x0, y0, x1, y1 in pixels, and "labels" (n,), integers from 1.
        classes: number of classes.

    Returns:
        Boxes (n, 4) float32, labels (n,) int64 and the index of the image of each, (n,), on the device of the boxes.

    Raises:
        ValueError: a target has wrong types, shapes or values; the message names the image.
    """
    for number, target in enumerate(targets):
        _check_form(number, target)
    boxes = torch.cat([target["boxes"].reshape(-1, 4) for target in targets]).float()
    labels = torch.cat([target["labels"] for target in targets]).to(boxes.device, torch.int64)
    counts = torch.tensor([len(target["labels"]) for target in targets])
    image = torch.arange(len(targets)).repeat_interleave(counts).to(boxes.device)
    _check_values(boxes, labels, image, classes)
    return boxes, labels, image


def _check_form(number: int, target: object) -> None:
    """Check types and shapes of a target, but no values, because reading them would synchronise with a GPU."""
    parts = target if isinstance(target, Mapping) else {}
    for key in ("boxes", "labels"):
        if not isinstance(parts.get(key), Tensor):
            raise ValueError(f'targets[{number}] has no tensor "{key}"; expected a dict of "boxes" and "labels"')
    boxes, labels = parts["boxes"], parts["labels"]
    if boxes.shape != (len(boxes), 4) and boxes.numel():
        raise ValueError(f"boxes of targets[{number}] have shape {tuple(boxes.shape)}; expected (n, 4)")
    if labels.ndim != 1 or len(labels) != boxes.numel() // 4:
        problem = f"labels of targets[{number}] have shape {tuple(labels.shape)}"
        raise ValueError(f"{problem}; expected ({boxes.numel() // 4},), one for each box")
    if len(labels) and (labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex()):
        raise ValueError(f"labels of targets[{number}] are {labels.dtype}; expected integers, such as torch.int64")


def _check_values(boxes: Tensor, labels: Tensor, image: Tensor, classes: int) -> None:
    """Check all boxes and labels in one operation; if that fails, search for the first invalid one."""
    ordered = (boxes[:, 2:] >= boxes[:, :2]).all(1) & boxes.isfinite().all(1)  # false for NaN
    wrong = ~ordered | (labels < 1) | (labels > classes)
    if not bool(wrong.any()):
        return
    first = int(wrong.nonzero()[0])
    if not ordered[first]:
        problem = f"targets[{int(image[first])}] has the box {boxes[first].tolist()}"
        raise ValueError(f"{problem}; expected finite x0, y0, x1, y1 with x0 <= x1 and y0 <= y1")
    raise ValueError(f"targets[{int(image[first])}] has the label {int(labels[first])}; expected 1 to {classes}")
