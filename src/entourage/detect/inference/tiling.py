"""Pages that do not fit into memory at once, in tiles that overlap.

A tile is seen with a border around it, the halo, and only what has its centre in the tile itself is kept. Tiles begin
where the coarsest cells of the network begin, so that with a halo as wide as the network can see they say exactly what
the full page would.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

_SEAM = 2.0  # pixels beyond a seam up to which centres are taken from both sides, before twins are put together
ModelOutput = dict[str, Tensor]


@dataclass(frozen=True)
class Tile:
    """A part of a page: rows and columns that are seen, and those whose objects are kept, each from, to (beyond)."""

    rows: tuple[int, int]
    columns: tuple[int, int]
    core_rows: tuple[int, int]
    core_columns: tuple[int, int]


def plan_tiles(height: int, width: int, tile_size: int, tile_overlap: int, multiple: int = 1) -> list[Tile]:
    """Tiles whose cores cover a page, each row once.

    Args:
        height, width: of the page.
        core: side of a core, rounded up to a multiple.
        halo: pixels seen around a core, rounded up to a multiple.
        multiple: where tiles may begin.

    Raises:
        ValueError: `tile_size` is not positive, or `tile_overlap` is negative.
    """
    if tile_size < 1 or tile_overlap < 0:
        raise ValueError(
            f"tile_size is {tile_size} and tile_overlap {tile_overlap}; expected 1 or more, and 0 or more pixels"
        )
    rows, columns = (_tile_ranges(length, tile_size, tile_overlap, multiple) for length in (height, width))
    return [Tile(seen, wide, kept, across) for seen, kept in rows for wide, across in columns]


def detect_tiles(
    find: Callable[[NDArray[np.uint8]], ModelOutput], page: NDArray[np.uint8], tiles: Sequence[Tile]
) -> ModelOutput:
    """What is on a page, tile by tile.

    Args:
        find: gives "boxes", "labels" and "scores" of an image.
        page: grey, shape (h, w).
        tiles: of `plan_tiles`.

    Returns:
        The same for the whole page, best first. An object on a seam that both sides found is there once.
    """
    height, width = page.shape
    parts: list[ModelOutput] = []
    near: list[Tensor] = []
    for number, tile in enumerate(tiles, start=1):
        found = find(page[tile.rows[0] : tile.rows[1], tile.columns[0] : tile.columns[1]])
        shift = found["boxes"].new_tensor([tile.columns[0], tile.rows[0]] * 2)
        boxes = found["boxes"] + shift
        centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        inside, on_seam = _in_core(centres, tile, height, width)
        near.append(on_seam[inside] * number)
        parts.append({"boxes": boxes[inside], "labels": found["labels"][inside], "scores": found["scores"][inside]})
    merged = {key: torch.cat([part[key] for part in parts]) for key in ("boxes", "labels", "scores")}
    kept = _drop_seam_duplicates(merged, torch.cat(near))
    order = merged["scores"][kept].argsort(descending=True, stable=True)
    return {key: value[kept][order] for key, value in merged.items()}


def _tile_ranges(
    length: int, tile_size: int, tile_overlap: int, multiple: int
) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    tile_size, tile_overlap = -(-tile_size // multiple) * multiple, -(-tile_overlap // multiple) * multiple
    starts = range(0, max(length, 1), tile_size)
    kept = [(start, min(start + tile_size, length)) for start in starts]
    return [((max(first - tile_overlap, 0), min(last + tile_overlap, length)), (first, last)) for first, last in kept]


def _in_core(centres: Tensor, tile: Tile, height: int, width: int) -> tuple[Tensor, Tensor]:
    """Whether centres lie in the core or just beyond a seam, and whether they lie near a seam at all."""
    inside = torch.ones(len(centres), dtype=torch.bool, device=centres.device)
    seam = torch.zeros_like(inside)
    axes = ((0, tile.core_columns, width), (1, tile.core_rows, height))
    for axis, (first, last), length in axes:
        place = centres[:, axis]
        if first > 0:  # the edge of the page is no seam
            inside &= place >= first - _SEAM
            seam |= (place - first).abs() <= _SEAM
        if last < length:
            inside &= place < last + _SEAM
            seam |= (place - last).abs() <= _SEAM
    return inside, seam


def _drop_seam_duplicates(found: ModelOutput, near: Tensor) -> Tensor:
    """Which to keep: what two tiles have found at a seam's width from each other, of one class, is one object.

    From the surest on, each stands for its nearest twin in every other tile, and for no second one: what lies beside it
    is another object, which its own tile may be alone to have found.

    Args:
        found: of all tiles.
        near: the number of the tile that found it, of those near a seam; 0 of all others.
    """
    kept = torch.ones(len(near), dtype=torch.bool, device=near.device)
    places = near.nonzero().squeeze(1)
    places = places[found["scores"][places].argsort(descending=True, stable=True)]
    boxes, labels, tiles = found["boxes"][places], found["labels"][places], near[places].cpu().numpy()
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2
    far = (centres[:, None] - centres[None]).abs().amax(dim=2)  # (s, s)
    apart = torch.where(labels[:, None] == labels[None], far, torch.inf).cpu().numpy()
    alive = np.ones(len(places), dtype=bool)
    for row in range(len(places)):
        if alive[row]:
            close = np.flatnonzero(alive[row + 1 :] & (apart[row, row + 1 :] <= _SEAM)) + row + 1
            for tile in set(tiles[close]) - {tiles[row]}:
                twins = close[tiles[close] == tile]
                alive[twins[apart[row, twins].argmin()]] = False
    kept[places] = torch.from_numpy(alive).to(kept.device)
    return kept
