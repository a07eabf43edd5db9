"""Decoded images in memory or on the GPU, and random augmentation of batches on the training device.

All geometric changes (crop, flip, rotation, shear, scaling to the network's input) are one affine map and one pass of
bilinear sampling; all changes of colour are one affine map of RGB. Strong augmentation therefore takes a small fraction
of the time of a training step on a GPU, and needs no worker processes.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

DIGEST_ROWS = 256  # images hashed at a time
MAX_MEMORY_FRACTION = 0.25  # largest fraction of a GPU's free memory used for images; the network needs the rest
GREY = 127.0  # value of erased pixels

# Columns: contribution of luma and of two orthogonal chroma axes (YIQ) to R, G and B; and the inverse map.
_YIQ_TO_RGB = torch.tensor([[1.0, 0.956, 0.619], [1.0, -0.272, -0.647], [1.0, -1.106, 1.703]])
_RGB_TO_YIQ: Tensor = torch.linalg.inv(_YIQ_TO_RGB)


def fits_on_device(device: torch.device, size: int) -> bool:
    """Return whether `size` bytes take at most a quarter of a GPU's free memory; False for other devices."""
    return device.type == "cuda" and size <= MAX_MEMORY_FRACTION * torch.cuda.mem_get_info(device)[0]


class ImageBank:
    """Decoded images in memory, in a memory-mapped file or on a GPU.

    Args:
        values: uint8, shape (n, height, width, 3), as from `decode_pixels`.
    """

    def __init__(self, values: NDArray[np.uint8]) -> None:
        if values.ndim != 4 or values.shape[3] != 3 or values.dtype != np.uint8:
            raise ValueError(f"values: shape {values.shape}, type {values.dtype}; expected uint8 (n, h, w, 3)")
        self.values = values
        self._resident: Tensor | None = None

    def __len__(self) -> int:
        return len(self.values)

    @cached_property
    def digest(self) -> str:
        """Digest of all pixels, about a second per gigabyte at the first access."""
        digest = hashlib.blake2b(digest_size=12)
        for start in range(0, len(self), DIGEST_ROWS):  # in blocks, because a mapped file may be larger than memory
            digest.update(np.ascontiguousarray(self.values[start : start + DIGEST_ROWS]).data)
        return digest.hexdigest()

    def move(self, device: torch.device) -> None:
        """Copy the images to a GPU if they fit (see `fits_on_device`), so that batches need no transfer."""
        current = None if self._resident is None else self._resident.device
        if current is not None and current.type == device.type and device.index in (None, current.index):
            return
        self._resident = None
        if fits_on_device(device, self.values.nbytes):
            self._resident = torch.from_numpy(np.ascontiguousarray(self.values)).to(device)

    def take(self, rows: NDArray[np.integer] | Tensor) -> Tensor:
        """Return the images of some rows: uint8, shape (b, 3, height, width), channels last, on the bank's device."""
        index = rows if isinstance(rows, Tensor) else torch.from_numpy(np.ascontiguousarray(rows))
        if self._resident is not None:
            return self._resident[index.to(self._resident.device)].permute(0, 3, 1, 2)  # (b, h, w, 3) -> (b, 3, h, w)
        return torch.from_numpy(self.values[index.cpu().numpy()]).permute(0, 3, 1, 2)


@dataclass(frozen=True)
class AugmentationOptions:
    """Ranges of the random augmentation; all parameters are drawn independently for each image.

    Attributes:
        area: smallest and largest area of the crop, as a fraction of the image.
        aspect: largest change of the aspect ratio of the crop: 4/3 allows 3/4 to 4/3 of the image's aspect ratio.
        flip: probability of a horizontal flip.
        rotate: largest angle of rotation in degrees, in both directions.
        shear: largest shear, as a fraction of the width.
        brightness, contrast, saturation: largest relative change: 0.4 draws a factor from 0.6 to 1.4.
        hue: largest rotation of the hue, in turns.
        grey: probability of conversion to grey.
        solarise: probability of inverting the values above a random level.
        erase: largest side of the erased rectangle, as a fraction of the view's side; 0: no rectangle.
    """

    area: tuple[float, float] = (1.0, 1.0)
    aspect: float = 1.0
    flip: float = 0.5
    rotate: float = 0.0
    shear: float = 0.0
    brightness: float = 0.0
    contrast: float = 0.0
    saturation: float = 0.0
    hue: float = 0.0
    grey: float = 0.0
    solarise: float = 0.0
    erase: float = 0.0

    def __post_init__(self) -> None:
        low, high = self.area
        if not 0 < low <= high <= 1:
            raise ValueError(f"area is {self.area}; expected two fractions above 0 and up to 1, the smaller first")
        if not self.aspect >= 1:
            raise ValueError(f"aspect is {self.aspect}; expected 1 or more")
        for name in ("flip", "brightness", "contrast", "saturation", "grey", "solarise", "erase"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected a number from 0 to 1")
        for name in ("rotate", "shear", "hue"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")


NO_AUGMENTATION = AugmentationOptions(flip=0.0)  # no change of the image except its scale
WEAK = AugmentationOptions(area=(0.7, 1.0), aspect=8 / 7)
STRONG = AugmentationOptions(
    area=(0.3, 1.0),
    aspect=4 / 3,
    rotate=20.0,
    shear=0.15,
    brightness=0.5,
    contrast=0.5,
    saturation=0.5,
    hue=0.08,
    grey=0.1,
    solarise=0.1,
    erase=0.5,
)


def augment(pixels: Tensor, size: tuple[int, int], options: AugmentationOptions = WEAK) -> Tensor:
    """Return a random view of each image, drawn by torch's generator of the pixels' device.

    Args:
        pixels: uint8 or float in 0..255, shape (b, 3, h, w).
        size: height and width of the views.
        options: ranges of the augmentation.

    Returns:
        float32 in 0..255, shape (b, 3, *size), channels last, the input of `Preprocessing.normalize`.
    """
    if pixels.ndim != 4 or pixels.shape[1] != 3:
        raise ValueError(f"pixels have shape {tuple(pixels.shape)}; expected (b, 3, h, w)")
    count, _, height, width = pixels.shape
    maps = _affine_maps(count, options, height / width, pixels.device)
    views = _sample(pixels, maps, size)  # (b, 3, *size)
    if options.brightness or options.contrast or options.saturation or options.hue or options.grey:
        views = _jitter_colours(views, options)
    if options.solarise:
        views = _solarise(views, options.solarise)
    if options.erase:
        views = _erase(views, options.erase)
    return views.contiguous(memory_format=torch.channels_last)


def _affine_maps(count: int, options: AugmentationOptions, aspect: float, device: torch.device) -> Tensor:
    """Draw the affine map from each view's coordinates to the image's, both in [-1, 1]; shape (count, 2, 3).

    `aspect` is the height of the images over their width, so that rotations act on pixels, not on coordinates.
    """
    area = _uniform(count, *options.area, device=device)
    stretch = torch.exp(_uniform(count, -0.5, 0.5, device=device) * math.log(options.aspect))
    wide = (area.sqrt() * stretch).clamp(max=1.0)  # half the width of the crop; 1 is the entire image
    high = (area.sqrt() / stretch).clamp(max=1.0)
    angle = _uniform(count, -options.rotate, options.rotate, device=device) * math.pi / 180
    shear = _uniform(count, -options.shear, options.shear, device=device)
    flip = 1.0 - 2.0 * (torch.rand(count, device=device) < options.flip).float()
    cos, up, down = angle.cos(), angle.sin() * aspect, angle.sin() / aspect
    right, low = (_uniform(count, -1.0, 1.0, device=device) for _ in range(2))  # -1 and 1: edges of the image
    # [[cos, -up], [down, cos]] @ [[1, shear], [0, 1]] @ diag(flip * wide, high)
    x_row = torch.stack([cos * wide * flip, (cos * shear - up) * high, (1 - wide) * right], dim=1)
    y_row = torch.stack([down * wide * flip, (down * shear + cos) * high, (1 - high) * low], dim=1)
    return torch.stack([x_row, y_row], dim=1)  # (count, 2, 3)


def _sample(pixels: Tensor, maps: Tensor, size: tuple[int, int]) -> Tensor:
    """Sample views by affine maps; images are continued by reflection beyond their edges."""
    grid = F.affine_grid(maps, [len(pixels), 3, *size], align_corners=False)  # (b, height, width, 2)
    return F.grid_sample(pixels.float(), grid, mode="bilinear", padding_mode="reflection", align_corners=False)


def _jitter_colours(images: Tensor, options: AugmentationOptions) -> Tensor:
    """Change hue and saturation, then contrast, then brightness, by one affine map of RGB per image."""
    count, device = len(images), images.device
    saturation = _factor(count, options.saturation, device)
    saturation = torch.where(torch.rand(count, device=device) < options.grey, torch.zeros_like(saturation), saturation)
    angle = _uniform(count, -options.hue, options.hue, device=device) * 2 * math.pi
    contrast, brightness = _factor(count, options.contrast, device), _factor(count, options.brightness, device)
    chroma = _chroma_maps(angle, saturation)  # (b, 3, 3)
    mean = images.mean(dim=(1, 2, 3))  # (b,)
    matrix = chroma * (contrast * brightness)[:, None, None]
    offset = (mean * (1 - contrast) * brightness)[:, None, None]
    flat = torch.baddbmm(offset, matrix, images.flatten(2))  # (b, 3, h * w)
    return flat.view_as(images).clamp(0.0, 255.0)


def _chroma_maps(angle: Tensor, saturation: Tensor) -> Tensor:
    """Return linear maps of RGB that keep luma, rotate chroma by an angle and scale it; shape (b, 3, 3)."""
    to_rgb, to_yiq = _YIQ_TO_RGB.to(angle.device), _RGB_TO_YIQ.to(angle.device)
    cos, sin = angle.cos() * saturation, angle.sin() * saturation
    one, zero = torch.ones_like(cos), torch.zeros_like(cos)
    turn = torch.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], dim=1).view(-1, 3, 3)  # (b, 3, 3)
    return to_rgb @ turn @ to_yiq


def _solarise(images: Tensor, probability: float) -> Tensor:
    count, device = len(images), images.device
    level = _uniform(count, 64.0, 255.0, device=device)
    level = torch.where(torch.rand(count, device=device) < probability, level, torch.full_like(level, 256.0))
    return torch.where(images >= level[:, None, None, None], 255.0 - images, images)


def _erase(images: Tensor, largest: float) -> Tensor:
    """Fill a random rectangle of each image with grey; its sides are up to `largest`, its centre lies anywhere."""
    count, _, height, width = images.shape
    device = images.device
    row = (torch.arange(height, device=device) + 0.5) / height  # (height,)
    column = (torch.arange(width, device=device) + 0.5) / width
    y, x = torch.rand(count, 1, device=device), torch.rand(count, 1, device=device)
    tall, wide = (torch.rand(count, 1, device=device) * largest / 2 for _ in range(2))
    inside = ((row - y).abs() < tall)[:, None, :, None] & ((column - x).abs() < wide)[:, None, None, :]  # (b, 1, h, w)
    return images.masked_fill(inside, GREY)


def _uniform(count: int, low: float, high: float, device: torch.device) -> Tensor:
    return low + (high - low) * torch.rand(count, device=device)


def _factor(count: int, spread: float, device: torch.device) -> Tensor:
    return _uniform(count, 1.0 - spread, 1.0 + spread, device=device)
