"""Augmentation of images and sounds, per item and per class.

Class-level augmentation applies one transform to all items of a cluster, which creates a new class: an object in other
colours, or a voice from a longer vocal tract: the network has to cluster unseen classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.cluster.data import N_FRAMES, N_MELS

ELASTIC_GRID = 4  # control points of an elastic distortion per axis


@dataclass(frozen=True)
class ImageAugmentation:
    """Augmentation of images: flips, elastic distortion, zoom and colour.

    Attributes:
        flip: probability of a flip, for each axis.
        elastic: maximum shift of a control point, as a fraction of the image size.
        zoom: maximum enlargement or reduction, as a fraction.
        color: maximum change of each channel's brightness and contrast, as a fraction.
    """

    flip: float = 0.5
    elastic: float = 0.08
    zoom: float = 0.15
    color: float = 0.1

    def __call__(self, items: Tensor, generator: torch.Generator) -> Tensor:
        """Convert uint8 images, shape (m, 3, h, w), to augmented floats around 0, same shape."""
        x = scale_pixels(items)
        if self.elastic or self.zoom or self.flip:
            grid = self._grid(len(x), x.shape[-2:], generator)
            x = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
        if self.color:
            shift, scale = self.color * self._signed((2, len(x), x.shape[1], 1, 1), generator)
            x = x * (1 + scale) + 2 * shift
        return x

    def _grid(self, m: int, size: torch.Size, generator: torch.Generator) -> Tensor:
        """Return the source position of each output pixel, in [-1, 1], shape (m, h, w, 2)."""
        identity = torch.eye(2, 3, device=generator.device).expand(m, 2, 3)
        grid = F.affine_grid(identity, [m, 1, *size], align_corners=False)
        mirrored = torch.rand(m, 1, 1, 2, generator=generator, device=generator.device) < self.flip
        zoom = 1 + self.zoom * self._signed((m, 1, 1, 1), generator)
        bends = 2 * self.elastic * self._signed((m, 2, ELASTIC_GRID, ELASTIC_GRID), generator)
        smooth = F.interpolate(bends, size=tuple(size), mode="bicubic", align_corners=True)  # (m, 2, h, w)
        return torch.where(mirrored, -grid, grid) * zoom + smooth.permute(0, 2, 3, 1)

    @staticmethod
    def _signed(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
        return 2 * torch.rand(shape, generator=generator, device=generator.device) - 1


@dataclass(frozen=True)
class SoundAugmentation:
    """Augmentation of spectrograms: a random crop of 1.28 s, a change of level, and masked bands and frames.

    Attributes:
        gain: maximum change of the level, in units of the spectrogram.
        tilt: maximum linear change of the level from the lowest band to the highest, as between microphones.
        masked_bands: maximum number of masked bands.
        masked_frames: maximum number of masked frames.
    """

    gain: float = 0.3
    tilt: float = 0.2
    masked_bands: int = 16
    masked_frames: int = 16

    def __call__(self, items: Tensor, generator: torch.Generator) -> Tensor:
        """Convert spectrograms of t >= 128 frames, shape (m, 128, t), to augmented crops, shape (m, 1, 128, 128)."""
        x = random_crop_frames(items.float(), generator)
        gain, tilt = (2 * torch.rand(2, len(x), 1, 1, generator=generator, device=x.device) - 1).unbind()
        slope = torch.linspace(-1, 1, x.shape[1], device=x.device).unsqueeze(-1)  # (bands, 1)
        x = x + self.gain * gain + self.tilt * tilt * slope
        bands = _random_masks(len(x), x.shape[1], self.masked_bands, generator).unsqueeze(-1)
        frames = _random_masks(len(x), x.shape[2], self.masked_frames, generator).unsqueeze(1)
        return x.masked_fill(bands | frames, 0).unsqueeze(1)


def unaugmented_image(items: Tensor, generator: torch.Generator) -> Tensor:
    """Scale images to [-1, 1], without augmentation, for validation and clustering."""
    return scale_pixels(items)


def unaugmented_sound(items: Tensor, generator: torch.Generator) -> Tensor:
    """Crop 1.28 s of each spectrogram at random, without further augmentation, for validation."""
    return random_crop_frames(items.float(), generator).unsqueeze(1)


def scale_pixels(items: Tensor) -> Tensor:
    """Convert bytes to floats in [-1, 1]."""
    return items.float() / 127.5 - 1


def random_crop_frames(items: Tensor, generator: torch.Generator) -> Tensor:
    """Crop 128 frames of each spectrogram at random, shape (m, bands, t) to (m, bands, 128)."""
    n_starts = items.shape[-1] - N_FRAMES
    if n_starts < 0:
        raise ValueError(f"items have {items.shape[-1]} frames; expected {N_FRAMES} or more")
    start = torch.randint(n_starts + 1, (len(items), 1, 1), generator=generator, device=items.device)
    at = (start + torch.arange(N_FRAMES, device=items.device)).expand(-1, N_MELS, -1)  # (m, bands, frames)
    return items.gather(2, at)


def _random_masks(m: int, size: int, max_length: int, generator: torch.Generator) -> Tensor:
    """Draw a mask with one run of up to `max_length` per row, shape (m, size)."""
    length, start = torch.rand(2, m, 1, generator=generator, device=generator.device).unbind()
    length = (length * (max_length + 1)).long()
    start = (start * (size - length + 1)).long()
    position = torch.arange(size, device=generator.device)
    return (position >= start) & (position < start + length)


@dataclass(frozen=True)
class ImageClassAugmentation:
    """Class-level augmentation of images: permuted and mixed colour channels, and rotations by multiples of 90 degrees.

    Attributes:
        probability: probability that a cluster is changed.
        mix: maximum weight of each other channel in a channel.
    """

    probability: float = 0.7
    mix: float = 0.3

    def __call__(self, items: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Transform images, shape (b, n, 3, h, w), h = w, by their clusters, shape (b, n)."""
        b = len(labels)
        shape = labels.shape  # for up to n clusters per set: reading the number of clusters would synchronise a GPU

        def rand(*more: int) -> Tensor:
            return torch.rand(*shape, *more, generator=generator, device=items.device)

        changed = rand() < self.probability  # (b, k)
        order = rand(3).argsort(-1)  # (b, k, 3)
        colors = F.one_hot(order, 3).to(items) + self.mix * (2 * rand(3, 3) - 1)  # (b, k, 3, 3)
        colors = torch.where(changed[..., None, None], colors, torch.eye(3, device=items.device))
        quarters = torch.where(changed, (4 * rand()).long().clamp(max=3), 0)  # (b, k)
        item_colors = colors[torch.arange(b, device=labels.device)[:, None], labels]  # (b, n, 3, 3)
        mixed = torch.einsum("bnij,bnjhw->bnihw", item_colors, items)
        turns = quarters.gather(1, labels)[..., None, None, None]  # (b, n, 1, 1, 1)
        turned = mixed
        for quarter in (1, 2, 3):
            turned = torch.where(turns == quarter, mixed.rot90(quarter, (-2, -1)), turned)
        return turned


@dataclass(frozen=True)
class SoundClassAugmentation:
    """Class-level augmentation of spectrograms: stretched frequencies, as from another vocal tract, and a level tilt.

    Attributes:
        probability: probability that a cluster is changed.
        warp: maximum stretch or compression of the frequencies, as a fraction.
        tilt: maximum linear change of the level from the lowest band to the highest, in units of the spectrogram.
    """

    probability: float = 0.7
    warp: float = 0.15
    tilt: float = 0.2

    def __call__(self, items: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Transform spectrograms, shape (b, n, 1, bands, frames), by their clusters, shape (b, n)."""
        b, n, _, bands, frames = items.shape
        random = torch.rand(3, *labels.shape, generator=generator, device=items.device)
        changed = (random[0] < self.probability).to(items)  # (b, k)
        stretch = (1 + self.warp * (2 * random[1] - 1) * changed).gather(1, labels).flatten()  # (b * n,)
        tilt = (self.tilt * (2 * random[2] - 1) * changed).gather(1, labels).flatten()
        rows = torch.linspace(0, 1, bands, device=items.device)  # the lowest band is fixed
        source = 2 * rows * stretch.unsqueeze(-1) - 1  # (b * n, bands)
        columns = torch.linspace(-1, 1, frames, device=items.device)
        grid = torch.stack(
            [columns.expand(b * n, bands, frames), source.unsqueeze(-1).expand(-1, -1, frames)], dim=-1
        )  # (b * n, bands, frames, 2)
        warped = F.grid_sample(items.flatten(0, 1), grid, padding_mode="border", align_corners=True)
        tilted = warped + (tilt[:, None] * (2 * rows - 1))[:, None, :, None]
        return tilted.reshape(items.shape)
