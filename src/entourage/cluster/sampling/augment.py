"""What the network sees of images and sounds while it learns: each time a little different."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.cluster.spectrogram import BANDS, FRAMES

WAVES = 4  # control points of an elastic distortion, a side


@dataclass(frozen=True)
class ImageView:
    """From bytes to floats: flips, elastic distortion, colour, crops.

    Attributes:
        flip: chance of a mirror image, for each axis.
        elastic: largest shift of a control point, as a share of the side.
        zoom: largest enlargement or reduction, as a share.
        colour: largest change of each channel's brightness and contrast, as a share.
    """

    flip: float = 0.5
    elastic: float = 0.08
    zoom: float = 0.15
    colour: float = 0.1

    def __call__(self, items: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 images, shape (m, 3, h, w), to floats of mean about 0, same shape."""
        x = scaled(items)
        if self.elastic or self.zoom or self.flip:
            grid = self._grid(len(x), x.shape[-2:], generator)
            x = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
        if self.colour:
            shift, scale = self.colour * self._signed((2, len(x), x.shape[1], 1, 1), generator)
            x = x * (1 + scale) + 2 * shift
        return x

    def _grid(self, m: int, size: torch.Size, generator: torch.Generator) -> Tensor:
        """Where each pixel of a view comes from, in [-1, 1], shape (m, h, w, 2)."""
        identity = torch.eye(2, 3, device=generator.device).expand(m, 2, 3)
        grid = F.affine_grid(identity, [m, 1, *size], align_corners=False)
        mirrored = torch.rand(m, 1, 1, 2, generator=generator, device=generator.device) < self.flip
        zoom = 1 + self.zoom * self._signed((m, 1, 1, 1), generator)
        bends = 2 * self.elastic * self._signed((m, 2, WAVES, WAVES), generator)
        smooth = F.interpolate(bends, size=tuple(size), mode="bicubic", align_corners=True)  # (m, 2, h, w)
        return torch.where(mirrored, -grid, grid) * zoom + smooth.permute(0, 2, 3, 1)

    @staticmethod
    def _signed(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return 2 * torch.rand(shape, generator=generator, device=generator.device) - 1


@dataclass(frozen=True)
class SoundView:
    """From a longer spectrogram to 1.28 s of it: a random stretch, louder or softer, with parts masked.

    Attributes:
        gain: largest change of the level, in units of the spectrogram.
        tilt: largest change of it from the lowest band to the highest, as another microphone would make.
        masked_bands: most bands that are masked.
        masked_frames: most frames that are masked.
    """

    gain: float = 0.3
    tilt: float = 0.2
    masked_bands: int = 16
    masked_frames: int = 16

    def __call__(self, items: Tensor, generator: torch.Generator) -> Tensor:
        """Spectrograms of t >= 128 frames, shape (m, 128, t), to pictures, shape (m, 1, 128, 128)."""
        x = random_stretch(items.float(), generator)
        gain, tilt = (2 * torch.rand(2, len(x), 1, 1, generator=generator, device=x.device) - 1).unbind()
        slope = torch.linspace(-1, 1, x.shape[1], device=x.device).unsqueeze(-1)  # (bands, 1)
        x = x + self.gain * gain + self.tilt * tilt * slope
        bands = _masks(len(x), x.shape[1], self.masked_bands, generator).unsqueeze(-1)
        frames = _masks(len(x), x.shape[2], self.masked_frames, generator).unsqueeze(1)
        return x.masked_fill(bands | frames, 0).unsqueeze(1)


def plain_image(items: Tensor, generator: torch.Generator) -> Tensor:
    """Images as they are, of mean about 0: what is validated and clustered."""
    return scaled(items)


def plain_sound(items: Tensor, generator: torch.Generator) -> Tensor:
    """A random stretch of 1.28 s of each spectrogram and nothing else."""
    return random_stretch(items.float(), generator).unsqueeze(1)


def scaled(items: Tensor) -> Tensor:
    """Bytes to floats in [-1, 1]."""
    return items.float() / 127.5 - 1


def random_stretch(items: Tensor, generator: torch.Generator) -> Tensor:
    """128 frames of each spectrogram, from a random moment, shape (m, bands, t) to (m, bands, 128)."""
    room = items.shape[-1] - FRAMES
    if room < 0:
        raise ValueError(f"spectrograms have {items.shape[-1]} frames; expected {FRAMES} or more")
    start = torch.randint(room + 1, (len(items), 1, 1), generator=generator, device=items.device)
    at = (start + torch.arange(FRAMES, device=items.device)).expand(-1, BANDS, -1)  # (m, bands, frames)
    return items.gather(2, at)


def _masks(m: int, size: int, most: int, generator: torch.Generator) -> Tensor:
    """Which of `size` places are masked: one run of up to `most` a row, shape (m, size)."""
    length, start = torch.rand(2, m, 1, generator=generator, device=generator.device).unbind()
    length = (length * (most + 1)).long()
    start = (start * (size - length + 1)).long()
    place = torch.arange(size, device=generator.device)
    return (place >= start) & (place < start + length)
