"""Decoded images that batches are taken from: on the GPU if they fit there, otherwise where they are."""

from __future__ import annotations

import hashlib
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

DIGESTED = 256  # images at a time
SHARE = 0.25  # of a GPU's free memory that images may take; the rest belongs to the network


def has_room(device: torch.device, size: int) -> bool:
    """Whether so many bytes may stay on a GPU: they take no more than a quarter of what is free there."""
    return device.type == "cuda" and size <= SHARE * torch.cuda.mem_get_info(device)[0]


class PixelBank:
    """Rows of pixels, in memory, in a mapped file or on a GPU.

    Args:
        values: uint8, shape (n, height, width, 3), as `decode_pixels` gives them.
    """

    def __init__(self, values: NDArray[np.uint8]) -> None:
        if values.ndim != 4 or values.shape[3] != 3 or values.dtype != np.uint8:
            raise ValueError(f"pixels of shape {values.shape} and type {values.dtype}; expected uint8 (n, h, w, 3)")
        self.values = values
        self._resident: Tensor | None = None

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def digest(self) -> str:
        """A short text that is another one if any pixel is. Costs about a second per gigabyte, once."""
        digest = hashlib.blake2b(digest_size=12)
        for start in range(0, len(self), DIGESTED):  # in parts: they may lie in a file larger than memory
            digest.update(np.ascontiguousarray(self.values[start : start + DIGESTED]).data)
        return digest.hexdigest()

    def move(self, device: torch.device) -> None:
        """Go to a GPU, if all rows take no more than a quarter of what is free there: batches then cost no transfer."""
        here = None if self._resident is None else self._resident.device
        if here is not None and here.type == device.type and device.index in (None, here.index):
            return
        self._resident = None
        if has_room(device, self.values.nbytes):
            self._resident = torch.from_numpy(np.ascontiguousarray(self.values)).to(device)

    def take(self, rows: NDArray[np.integer] | Tensor) -> Tensor:
        """Some rows as uint8 images, shape (b, 3, height, width), channels last; on the GPU if the bank is there."""
        index = rows if isinstance(rows, Tensor) else torch.from_numpy(np.ascontiguousarray(rows))
        if self._resident is not None:
            return self._resident[index.to(self._resident.device)].permute(0, 3, 1, 2)  # (b, h, w, 3) -> (b, 3, h, w)
        return torch.from_numpy(self.values[index.cpu().numpy()]).permute(0, 3, 1, 2)
