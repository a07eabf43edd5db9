"""Tiled detection on pages that are too large for one pass.

A tile consists of a core and an overlap around it; only objects whose centre lies in the core are kept. Tiles start at
multiples of the network's coarsest stride, so that with an overlap as wide as the receptive field the result equals
that of one pass over the page.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_SEAM = 2.0  # pixels around a seam in which both tiles contribute objects, before duplicates are removed
ModelOutput = dict[str, Tensor]


@dataclass(frozen=True)
class Tile:
    """Rows and columns of a tile and of its core, as half-open ranges."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    core_rows: tuple[int, int]
    core_columns: tuple[int, int]


def plan_tiles(height: int, width: int, tile_size: int, tile_overlap: int, multiple: int = 1) -> list[Tile]:
    """Divide a page into tiles whose cores cover every pixel once.

    Args:
        height, width: size of the page in pixels.
        tile_size: height and width of a core, rounded up to `multiple`.
        tile_overlap: pixels around a core, rounded up to `multiple`.
        multiple: tiles start at multiples of this.

    Returns:
        The tiles, row by row.

    Raises:
        ValueError: `tile_size` is not positive, or `tile_overlap` is negative.
    """
    if tile_size < 1 or tile_overlap < 0:
        sizes = f"tile_size is {tile_size} and tile_overlap {tile_overlap}"
        raise ValueError(f"{sizes}; expected 1 or more, and 0 or more pixels")
    rows, columns = (_tile_ranges(length, tile_size, tile_overlap, multiple) for length in (height, width))
    return [Tile(r, c, core_r, core_c) for r, core_r in rows for c, core_c in columns]


def detect_tiles(
    find: Callable[[NDArray[np.uint8]], ModelOutput], page: NDArray[np.uint8], tiles: Sequence[Tile]
) -> ModelOutput:
    """Detect the objects of a page tile by tile.

    Args:
        find: function from an image to its "boxes", "labels" and "scores".
        page: grayscale, shape (h, w).
        tiles: the tiles, as `plan_tiles` returns them.

    Returns:
        The objects of the page in the same form, highest scores first; duplicates on seams are removed.
    """
    height, width = page.shape
    parts: list[ModelOutput] = []
    seam_tiles: list[Tensor] = []
    for number, tile in enumerate(tiles, start=1):
        output = find(page[tile.rows[0] : tile.rows[1], tile.columns[0] : tile.columns[1]])
        boxes = output["boxes"] + output["boxes"].new_tensor([tile.columns[0], tile.rows[0]] * 2)
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside, on_seam = _in_core(centres, tile, height, width)
        seam_tiles.append(on_seam[inside] * number)
        parts.append({"boxes": boxes[inside], "labels": output["labels"][inside], "scores": output["scores"][inside]})
    merged = {key: torch.cat([part[key] for part in parts]) for key in ("boxes", "labels", "scores")}
    kept = _drop_seam_duplicates(merged, torch.cat(seam_tiles))
    order = merged["scores"][kept].argsort(descending=True, stable=True)
    return {key: value[kept][order] for key, value in merged.items()}


def _tile_ranges(
    length: int, tile_size: int, tile_overlap: int, multiple: int
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """Return the ranges of the tiles and of their cores along one axis."""
    tile_size, tile_overlap = -(-tile_size // multiple) * multiple, -(-tile_overlap // multiple) * multiple
    cores = [(start, min(start + tile_size, length)) for start in range(0, max(length, 1), tile_size)]
    return [((max(first - tile_overlap, 0), min(last + tile_overlap, length)), (first, last)) for first, last in cores]


def _in_core(centres: Tensor, tile: Tile, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Return a mask of the centres in the core or up to `_SEAM` beyond its seams, and a mask of those near a seam."""
    inside = torch.ones(len(centres), dtype=torch.bool, device=centres.device)
    seam = torch.zeros_like(inside)
    axes = ((0, tile.core_columns, width), (1, tile.core_rows, height))
    for axis, (first, last), length in axes:
        position = centres[:, axis]
        if first > 0:  # the edges of the page are not seams
            inside &= position >= first - _SEAM
            seam |= (position - first).abs() <= _SEAM
        if last < length:
            inside &= position < last + _SEAM
            seam |= (position - last).abs() <= _SEAM
    return inside, seam


def _drop_seam_duplicates(objects: ModelOutput, seam_tiles: Tensor) -> Tensor:
    """Return a mask without the duplicates: objects of one class within `_SEAM` of each other, from different tiles.

    In descending order of score, each object removes the nearest such object of every other tile. Only the nearest is a
    duplicate; a second one is a different object, which that tile alone may have detected.

    Args:
        objects: objects of all tiles.
        seam_tiles: number of the tile, from 1, of objects near a seam; 0 for all others, which are kept.
    """
    mask = torch.ones(len(seam_tiles), dtype=torch.bool, device=seam_tiles.device)
    near = seam_tiles.nonzero().squeeze(1)
    near = near[objects["scores"][near].argsort(descending=True, stable=True)]
    boxes, labels, tiles = objects["boxes"][near], objects["labels"][near], seam_tiles[near].cpu().numpy()
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    apart = (centres[:, None] - centres[None]).abs().amax(dim=2)  # (s, s)
    distance = torch.where(labels[:, None] == labels[None], apart, torch.inf).cpu().numpy()
    kept = np.ones(len(near), dtype=bool)
    for row in range(len(near)):
        if kept[row]:
            close = np.flatnonzero(kept[row + 1 :] & (distance[row, row + 1 :] <= _SEAM)) + row + 1
            for tile in set(tiles[close]) - {tiles[row]}:
                duplicates = close[tiles[close] == tile]
                kept[duplicates[distance[row, duplicates].argmin()]] = False
    mask[near] = torch.from_numpy(kept).to(mask.device)
    return mask
