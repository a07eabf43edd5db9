"""Targets: the energy, class and box maps of pages, painted from boxes for a whole batch at once.

Every object raises a hill of energy around its centre. A cell belongs to the object on whose hill it is highest; class
and box are taught where that is within the marker. One scatter with a minimum finds the owner of every cell, so the
outcome does not depend on the order in which a GPU goes about it.

What a user trains with, a dict for each image as torchvision has it, checked and put into one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from entourage.detect.options import INTERLINE, MapOptions

_NO_OBJECT = torch.iinfo(torch.int64).max
_FINE = 2**20  # steps of a distance of one radius


@dataclass(frozen=True)
class Maps:
    """The maps of b pages of h x w cells in g groups.

    Attributes:
        energy: (b, g, h, w) in [0, 1].
        object_index: (b, g, h, w) int64, the object whose class a cell has; -1 where there is no energy.
        nearest: (b, g, h, w) int64, the object whose box it has; another than the owner only where the last painted
            owns a cell, as in the original.
        foreground: (b, g, h, w) bool, the cells near enough to a centre for losses to look at their class and box.
        valid: (b, h, w) bool, cells that losses look at.
        boxes: (n, 4) of all objects, in pixels.
        labels: (n,) of all objects, from 1.
        options: how they were painted.
        classes: how many classes there are.
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
        """The energy, as `decode` asks for it; in levels, if these are what was painted."""
        if self.options.energy == "sigmoid":
            return self.energy
        return self.levels() / (self.options.levels - 1)

    def levels(self) -> Tensor:
        """The energy quantised to whole levels from 0 to levels - 1: (b, g, h, w) int64."""
        return (self.energy * (self.options.levels - 1)).round().long()

    def foreground_cells(self) -> Tensor:
        """Where class and box are taught and looked at: (m, 4) page, group, row, column."""
        return torch.nonzero(self.foreground & self.valid[:, None])

    def targets(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Labels (m,) and box numbers (m, box_dim) of cells (m, 4) that have an owner."""
        place = tuple(index.unbind(1))
        return self.labels[self.object_index[place]], encode_boxes(self.boxes[self.nearest[place]], index, self.options)

    def read(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """As a network that knows: class logits (m, classes) and box numbers (m, box_dim) of cells (m, 4)."""
        object_index = self.object_index[tuple(index.unbind(1))]
        held = object_index >= 0
        logits = self.energy.new_zeros(len(index), self.classes)
        codes = self.energy.new_zeros(len(index), self.options.box_dim)
        labels, codes[held] = self.targets(index[held])
        logits[held] = F.one_hot(labels - 1, self.classes).to(logits) * 100.0  # whose softmax is 1 to the last digit
        return logits, codes


def cell_centres(index: Tensor, stride: int) -> Tensor:
    """The middle of cells (m, 4), as x, y in pixels: (m, 2) float32."""
    return (index[:, [3, 2]] + 0.5) * stride


def encode_boxes(boxes: Tensor, index: Tensor, options: MapOptions) -> Tensor:
    """What the box map holds of boxes (m, 4) in cells (m, 4): (m, box_dim)."""
    sizes = (boxes[:, 2:] - boxes[:, :2]).clamp(min=0.05)  # nothing is thinner than ink
    if options.size == "log":
        sizes = (sizes / INTERLINE).log()
    if not options.offset:
        return sizes
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    return torch.cat([centres - cell_centres(index, options.stride), sizes], 1)


def decode_sizes(codes: Tensor, options: MapOptions) -> Tensor:
    """Width and height in pixels, (m, 2), of box numbers (m, box_dim)."""
    sizes = codes[:, -2:]
    return sizes.clamp(max=7.0).exp() * INTERLINE if options.size == "log" else sizes.clamp(min=0.0)


def decode_boxes(codes: Tensor, index: Tensor, options: MapOptions) -> Tensor:
    """The boxes (m, 4) whose numbers, offsets among them, cells (m, 4) hold."""
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
    """Paint the maps of a batch, on the device of the boxes.

    Args:
        boxes: (n, 4) of all pages; what has its centre outside its page is left out.
        labels: (n,) from 1.
        image_index: (n,) number of the page that each is on.
        shape: pages, height and width in pixels; maps have a cell for every stride begun.
        options: how.
        groups: (1 + classes,) energy channel of every label, as `energy_channels` gives it.
        ignore: (b, height, width) bool, pixels that losses shall not look at.

    Raises:
        ValueError: the tensors do not fit together.
    """
    _check(boxes, labels, image_index, shape, groups)
    pages, high, wide = shape
    rows, columns = -(-high // options.stride), -(-wide // options.stride)
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    on_page = (centres >= 0).all(1) & (centres[:, 0] < wide) & (centres[:, 1] < high)
    place = (image_index * options.channels + groups[labels]).where(on_page, -1)  # which of the b x g surfaces
    size = (pages * options.channels, rows, columns)
    cells, distance = _cells(centres, boxes, place, size, options)  # (n, window) each
    number = torch.arange(len(boxes), device=boxes.device)[:, None].expand_as(cells)
    near, nearest = _assign_cells(cells, (distance * _FINE).round().long(), number, size)
    object_index = nearest
    if options.overlap == "last":  # within the marker, whoever came last, however far
        inside = torch.where(distance <= options.marker, cells, -1)
        last = _assign_cells(inside, len(boxes) - 1 - number, number, size)[1]
        object_index = last.where(last >= 0, object_index)
    reached = near / _FINE
    energy = _energy_at(reached, options).where(near <= _FINE, 0.0)
    foreground = reached <= options.marker
    full = (pages, options.channels, rows, columns)
    valid = torch.ones((pages, rows, columns), dtype=torch.bool, device=boxes.device)
    if ignore is not None:
        valid = F.max_pool2d(ignore[:, None].float(), options.stride, ceil_mode=True)[:, 0] == 0
    energy, object_index, nearest, foreground = (
        plane.view(full) for plane in (energy, object_index, nearest, foreground)
    )
    return Maps(energy, object_index, nearest, foreground, valid, boxes, labels, options, len(groups) - 1)


def _check(boxes: Tensor, labels: Tensor, image_index: Tensor, shape: tuple[int, int, int], groups: Tensor) -> None:
    n = len(boxes)
    if boxes.shape != (n, 4) or labels.shape != (n,) or image_index.shape != (n,):
        shapes = ", ".join(str(tuple(part.shape)) for part in (boxes, labels, image_index))
        raise ValueError(f"boxes, labels and image_index have shapes {shapes}; expected (n, 4), (n,), (n,)")
    if min(shape) < 1:
        raise ValueError(f"shape is {shape}; expected pages, height and width of 1 or more")
    if not boxes.is_cuda and n:  # elsewhere the question would hold up the GPU
        if not 1 <= int(labels.min()) <= int(labels.max()) < len(groups):
            raise ValueError(
                f"labels are {int(labels.min())} to {int(labels.max())}; expected 1 to {len(groups) - 1}, the classes"
            )
        if not 0 <= int(image_index.min()) <= int(image_index.max()) < shape[0]:
            raise ValueError(f"image_index reaches {int(image_index.max())}; expected 0 to {shape[0] - 1}")


def _cells(
    centres: Tensor, boxes: Tensor, place: Tensor, size: tuple[int, int, int], options: MapOptions
) -> tuple[Tensor, Tensor]:
    """The cells around each centre, as flat positions or -1, and how far they are, in radii."""
    stride, (_, rows, columns) = options.stride, size
    sizes = boxes[:, 2:] - boxes[:, :2]
    radii = (sizes * options.reach).clamp(options.radius, options.widest)  # (n, 2) x, y
    home = (centres / stride).floor()  # (n, 2) the cell that holds the centre
    origin = home + 0.5 if options.centred else centres / stride  # in cells
    most = options.widest if options.reach else options.radius
    half = int(most / stride) + 1
    steps = torch.arange(-half, half + 1, device=boxes.device)
    y, x = (axis.reshape(-1) for axis in torch.meshgrid(steps, steps, indexing="ij"))  # (window,)
    column, row = home[:, :1].long() + x, home[:, 1:].long() + y  # (n, window)
    dx = (column + 0.5 - origin[:, :1]) * stride / radii[:, :1]
    dy = (row + 0.5 - origin[:, 1:]) * stride / radii[:, 1:]
    distance = (dx.square() + dy.square()).sqrt()
    inside = (row >= 0) & (row < rows) & (column >= 0) & (column < columns) & (distance <= 1) & (place >= 0)[:, None]
    flat = (place[:, None] * rows + row) * columns + column
    return flat.where(inside, -1), distance


def _assign_cells(cells: Tensor, rank: Tensor, number: Tensor, size: tuple[int, int, int]) -> tuple[Tensor, Tensor]:
    """For every cell the least rank that claims it and the object that does, the first among equals."""
    total = size[0] * size[1] * size[2]
    best = torch.full((total + 1,), _NO_OBJECT, device=cells.device)  # the last is for claims to no cell
    key = (rank << 32) | number
    best.scatter_reduce_(0, cells.where(cells >= 0, total).reshape(-1), key.reshape(-1), "amin")
    best = best[:total]
    unassigned = best == _NO_OBJECT
    return (best >> 32).masked_fill(unassigned, 2 * _FINE), (best & 0xFFFFFFFF).masked_fill(unassigned, -1)


def _energy_at(reached: Tensor, options: MapOptions) -> Tensor:
    """Energy by distance in radii."""
    if options.surface == "cone":
        return (1 - reached).clamp(min=0)
    return (-4.5 * reached.square()).exp()  # the radius is three standard deviations


def join_targets(targets: Sequence[Mapping[str, Tensor]], classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The objects of all images, as `render_targets` takes them.

    Args:
        targets: for each image "boxes" (n, 4), x0, y0, x1, y1 in pixels, and "labels" (n,), whole numbers from 1.
        classes: how many there are.

    Returns:
        Boxes (n, 4) float32, labels (n,) int64 and the number of the image of each, (n,), on the device of the boxes.

    Raises:
        ValueError: a target is something else; it says which.
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
    """Refuses what has not the form of a target; looks at no value, so it costs no time on a GPU."""
    parts = target if isinstance(target, Mapping) else {}
    for key in ("boxes", "labels"):
        if not isinstance(parts.get(key), Tensor):
            raise ValueError(f'target of image {number} has no tensor "{key}"; expected a dict of "boxes" and "labels"')
    boxes, labels = parts["boxes"], parts["labels"]
    if boxes.shape != (len(boxes), 4) and boxes.numel():
        raise ValueError(f"boxes of image {number} have shape {tuple(boxes.shape)}; expected (n, 4)")
    if labels.ndim != 1 or len(labels) != boxes.numel() // 4:
        message = f"labels of image {number} have shape {tuple(labels.shape)} for {boxes.numel() // 4} boxes"
        raise ValueError(f"{message}; expected one each, ({boxes.numel() // 4},)")
    if len(labels) and (labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex()):
        raise ValueError(f"labels of image {number} are {labels.dtype}; expected whole numbers, such as torch.int64")


def _check_values(boxes: Tensor, labels: Tensor, image: Tensor, classes: int) -> None:
    """Refuses boxes and labels that mean nothing, all at once; which it is, is asked only if there is one."""
    ordered = (boxes[:, 2:] >= boxes[:, :2]).all(1) & boxes.isfinite().all(1)  # what is no number is not in order
    wrong = ~ordered | (labels < 1) | (labels > classes)
    if not bool(wrong.any()):
        return
    first = int(wrong.nonzero()[0])
    if not ordered[first]:
        message = f"image {int(image[first])} has the box {boxes[first].tolist()}"
        raise ValueError(f"{message}; expected finite x0, y0, x1, y1 with x0 <= x1 and y0 <= y1")
    message = f"image {int(image[first])} has the label {int(labels[first])}"
    raise ValueError(f"{message}; expected 1 to {classes}, the classes")
