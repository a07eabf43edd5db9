"""Connected components of the energy, as in the thesis: cut, label, and ask all cells of a component."""

from __future__ import annotations

from dataclasses import dataclass

import cv2
import numpy as np
import torch
from torch import Tensor

from entourage.detect.decode_options import DecodeOptions, Vote
from entourage.detect.map_options import MapOptions
from entourage.detect.models.maps import cell_centres, number_boxes, number_sides


@dataclass(frozen=True)
class Components:
    """n components of m cells in all.

    Attributes:
        cells: (m, 4) page, group, row, column.
        member: (m,) the component of each cell.
        height: (m,) energy of each cell.
        index: (n, 4) the cell of highest energy of each component, the first of equals.
        energy: (n,) its energy.
    """

    cells: Tensor
    member: Tensor
    height: Tensor
    index: Tensor
    energy: Tensor

    def mean(self, values: Tensor, weights: Tensor | None = None) -> Tensor:
        """The mean of values (m, k) over the cells of each component, (n, k)."""
        weights = torch.ones_like(self.height) if weights is None else weights
        total = values.new_zeros(len(self.index)).index_add_(0, self.member, weights.to(values))
        summed = values.new_zeros(len(self.index), values.shape[1])
        return summed.index_add_(0, self.member, values * weights.to(values)[:, None]) / total[:, None]

    def peaks(self) -> Tensor:
        """The position among the cells of each component's highest, (n,)."""
        return _first_highest(self.member, self.height, len(self.index))

    def classes(self, chances: Tensor, vote: Vote) -> tuple[Tensor, Tensor]:
        """Probability (n,) and class (n,), from 0, given those of the cells, (m, classes)."""
        if vote == "vote":  # the probability is the share of the votes
            choice = torch.nn.functional.one_hot(chances.argmax(1), chances.shape[1])
            best = self.mean(choice.to(chances)).max(1)
        else:
            best = (self.mean(chances) if vote == "mean" else chances[self.peaks()]).max(1)
        return best.values, best.indices

    def boxes(self, numbers: Tensor, options: DecodeOptions, how: MapOptions) -> Tensor:
        """The box of each component, (n, 4), given the box numbers of the cells, (m, sides)."""
        sides = number_sides(numbers, how)
        if options.box == "mean":
            sides = self.mean(sides)
        elif options.box == "largest":
            largest = sides.new_zeros(len(self.index), 2)
            sides = largest.scatter_reduce_(0, self.member[:, None].expand(-1, 2), sides, "amax")
        else:
            sides = sides[self.peaks()]
        middle = cell_centres(self.cells, how.stride)
        if options.centre == "offset":
            boxes = number_boxes(numbers[self.peaks()], self.index, how)
            centres = (boxes[:, :2] + boxes[:, 2:]) / 2
        elif options.centre == "truncated":  # whole pixels, the rest cut off
            centres = self.mean(middle.to(sides)).floor()
        else:
            centres = self.mean(middle.to(sides), self.height if options.centre == "energy" else None)
        return torch.cat([centres - sides / 2, centres + sides / 2], 1)


def find_components(surface: Tensor, options: DecodeOptions) -> Components:
    """The 8-connected components of the energy (b, g, h, w) above the cuts."""
    energy = surface.float().cpu().numpy()
    cells, members, count = [], [], 0
    for page, group in np.ndindex(*energy.shape[:2]):
        numbers = _label(energy[page, group], options)
        rows, columns = np.nonzero(numbers)
        cells.append(np.stack([np.full_like(rows, page), np.full_like(rows, group), rows, columns], 1))
        found, places = np.unique(numbers[rows, columns], return_inverse=True)
        members.append(places + count)
        count += len(found)
    index = torch.from_numpy(np.concatenate(cells)).to(surface.device)
    member = torch.from_numpy(np.concatenate(members)).to(surface.device)
    height = surface[tuple(index.unbind(1))].float()
    peaks = _first_highest(member, height, count)
    return Components(index, member, height, index[peaks], height[peaks])


def _label(energy: np.ndarray, options: DecodeOptions) -> np.ndarray:
    """Number of the component of every cell, 0 for none; lower cuts add what touches nothing found before."""
    result = np.zeros(energy.shape, dtype=np.int64)
    for cut in options.cuts:
        _, numbers, stats, _ = cv2.connectedComponentsWithStats((energy > cut).astype(np.uint8), connectivity=8)
        new = stats[:, cv2.CC_STAT_AREA] >= options.least
        new[np.unique(numbers[result > 0])] = False
        new[0] = False
        result += np.where(new[numbers], numbers + result.max(), 0)
    return result


def _first_highest(member: Tensor, height: Tensor, count: int) -> Tensor:
    """For each of `count` components the position of its highest cell, the first of equals."""
    best = height.new_zeros(count).scatter_reduce_(0, member, height, "amax")
    position = torch.arange(len(member), device=member.device)
    candidate = position.where(height == best[member], len(member))
    first = torch.full((count,), len(member), device=member.device)
    return first.scatter_reduce_(0, member, candidate, "amin")
