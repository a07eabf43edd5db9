"""The views that a network is trained on, made from pixels at every step; see `kept` for those that are made once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from entourage.backbones.preprocessing import Preprocessing
from entourage.checks import keep_counts
from entourage.training.bank import PixelBank
from entourage.training.views import STRONG, WEAK, ViewOptions, random_view

BATCH = {"cpu": 64, "cuda": 2048}


@dataclass(frozen=True)
class LookOptions:
    """Which views there are."""

    weak: ViewOptions = field(default=WEAK)
    strong: ViewOptions = field(default=STRONG)
    weak_kept: int = 4  # views of each image that a stem looks at, with the image itself and its mirror image as two
    strong_kept: int = 12
    mirror: bool = True  # whether a mirror image shows the same thing; digits and text say no

    def __post_init__(self) -> None:
        keep_counts(self, 2, "weak_kept")
        keep_counts(self, 0, "strong_kept")

    def view(self, kind: ViewOptions) -> ViewOptions:
        """`weak` or `strong`, without mirror images if there are to be none."""
        return kind if self.mirror else replace(kind, flip=0.0)


class Looks(Protocol):
    """What a network sees of n images. Positions are tensors of shape (b,), on the device of the training.

    Attributes:
        mirror: whether there are mirror images.
    """

    mirror: bool

    def __len__(self) -> int: ...

    def move(self, device: torch.device) -> None:
        """Go to the device, as far as there is room."""
        ...

    def plain(self, rows: Tensor, mirrored: bool = False) -> Tensor:
        """The images as they are, or their mirror images: inputs of the network, (b, ...)."""
        ...

    def weak(self, rows: Tensor) -> Tensor:
        """A weak view of each image."""
        ...

    def strong(self, rows: Tensor) -> Tensor:
        """A strong view of each image."""
        ...

    def digest(self) -> str:
        """A short text that is another one if the images or their views are."""
        ...


class LiveLooks:
    """Views made anew at every step, for a network that is trained as a whole.

    Args:
        pixels: uint8, shape (n, h, w, 3).
        preprocessing: size and normalisation of the network's input.
        options: which views.
    """

    def __init__(
        self, pixels: NDArray[np.uint8], preprocessing: Preprocessing, options: LookOptions | None = None
    ) -> None:
        self.bank = PixelBank(pixels)
        self.preprocessing = preprocessing
        self.options = options or LookOptions()
        self.mirror = self.options.mirror
        self.device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.bank)

    def move(self, device: torch.device) -> None:
        """Pixels that fit go to the GPU."""
        self.bank.move(device)
        self.device = device

    def plain(self, rows: Tensor, mirrored: bool = False) -> Tensor:
        """Normalised images, shape (b, 3, height, width)."""
        check_mirrored(mirrored, self.mirror)
        images = resized(self._pixels(rows), self.preprocessing.size)
        return self.preprocessing.normalise(images.flip(3) if mirrored else images)

    def weak(self, rows: Tensor) -> Tensor:
        """Normalised weak views."""
        return self._view(rows, self.options.view(self.options.weak))

    def strong(self, rows: Tensor) -> Tensor:
        """Normalised strong views."""
        return self._view(rows, self.options.view(self.options.strong))

    def digest(self) -> str:
        """Of all pixels, of the network's input and of the views; computed once, about a second per gigabyte."""
        return digest_of((), self.bank.digest, self.bank.values.shape, self.preprocessing, self.options)

    def _view(self, rows: Tensor, options: ViewOptions) -> Tensor:
        return self.preprocessing.normalise(random_view(self._pixels(rows), self.preprocessing.size, options))

    def _pixels(self, rows: Tensor) -> Tensor:
        return self.bank.take(rows).to(self.device)


def check_mirrored(wanted: bool, there: bool) -> None:
    """Refuse to show mirror images where there are none."""
    if wanted and not there:
        raise ValueError("mirror images are asked for where there are none; expected LookOptions(mirror=True)")


def digest_of(blocks: Iterable[NDArray[np.generic]], *notes: object) -> str:
    """Of arrays, which may lie in a file larger than memory and come one after another, and of notes on them."""
    digest = hashlib.blake2b(repr(notes).encode(), digest_size=8)
    for block in blocks:
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def resized(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Pixels at the network's size, 0..255: (b, 3, h, w) -> (b, 3, *size)."""
    if pixels.shape[2:] == size:
        return pixels
    # Only the antialiased kind is the bicubic filter of `Preprocessing.pixels`, also where images are enlarged.
    fitted = F.interpolate(pixels.float(), size, mode="bicubic", align_corners=False, antialias=True)
    return fitted.clamp(0.0, 255.0)
