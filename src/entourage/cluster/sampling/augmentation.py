"""What the network sees of images and sounds while it learns: each time a little different.

New classes from old: every cluster of a set is changed as a whole, so that its class is one nobody has seen.

What a network learns of clustering depends on how many classes it sees. A duck with its colours exchanged is another
toy; a voice from a longer throat is another person's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.cluster.data import N_FRAMES, N_MELS

ELASTIC_GRID = 4  # control points of an elastic distortion, a side


@dataclass(frozen=True)
class ImageAugmentation:
    """From bytes to floats: flips, elastic distortion, colour, crops.

    Attributes:
        flip: chance of a mirror image, for each axis.
        elastic: largest shift of a control point, as a share of the side.
        zoom: largest enlargement or reduction, as a share.
        color: largest change of each channel's brightness and contrast, as a share.
    """

    flip: float = 0.5
    elastic: float = 0.08
    zoom: float = 0.15
    color: float = 0.1

    def __call__(self, items: Tensor, generator: torch.Generator) -> Tensor:
        """uint8 images, shape (m, 3, h, w), to floats of mean about 0, same shape."""
        x = scale_pixels(items)
        if self.elastic or self.zoom or self.flip:
            grid = self._grid(len(x), x.shape[-2:], generator)
            x = F.grid_sample(x, grid, mode="bilinear", padding_mode="border", align_corners=False)
        if self.color:
            shift, scale = self.color * self._signed((2, len(x), x.shape[1], 1, 1), generator)
            x = x * (1 + scale) + 2 * shift
        return x

    def _grid(self, m: int, size: torch.Size, generator: torch.Generator) -> Tensor:
        """Where each pixel of a view comes from, in [-1, 1], shape (m, h, w, 2)."""
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
        x = random_crop_frames(items.float(), generator)
        gain, tilt = (2 * torch.rand(2, len(x), 1, 1, generator=generator, device=x.device) - 1).unbind()
        slope = torch.linspace(-1, 1, x.shape[1], device=x.device).unsqueeze(-1)  # (bands, 1)
        x = x + self.gain * gain + self.tilt * tilt * slope
        bands = _random_masks(len(x), x.shape[1], self.masked_bands, generator).unsqueeze(-1)
        frames = _random_masks(len(x), x.shape[2], self.masked_frames, generator).unsqueeze(1)
        return x.masked_fill(bands | frames, 0).unsqueeze(1)


def unaugmented_image(items: Tensor, generator: torch.Generator) -> Tensor:
    """Images as they are, of mean about 0: what is validated and clustered."""
    return scale_pixels(items)


def unaugmented_sound(items: Tensor, generator: torch.Generator) -> Tensor:
    """A random stretch of 1.28 s of each spectrogram and nothing else."""
    return random_crop_frames(items.float(), generator).unsqueeze(1)


def scale_pixels(items: Tensor) -> Tensor:
    """Bytes to floats in [-1, 1]."""
    return items.float() / 127.5 - 1


def random_crop_frames(items: Tensor, generator: torch.Generator) -> Tensor:
    """128 frames of each spectrogram, from a random moment, shape (m, bands, t) to (m, bands, 128)."""
    n_starts = items.shape[-1] - N_FRAMES
    if n_starts < 0:
        raise ValueError(f"spectrograms have {items.shape[-1]} frames; expected {N_FRAMES} or more")
    start = torch.randint(n_starts + 1, (len(items), 1, 1), generator=generator, device=items.device)
    at = (start + torch.arange(N_FRAMES, device=items.device)).expand(-1, N_MELS, -1)  # (m, bands, frames)
    return items.gather(2, at)


def _random_masks(m: int, size: int, max_length: int, generator: torch.Generator) -> Tensor:
    """Which of `size` places are masked: one run of up to `max_length` a row, shape (m, size)."""
    length, start = torch.rand(2, m, 1, generator=generator, device=generator.device).unbind()
    length = (length * (max_length + 1)).long()
    start = (start * (size - length + 1)).long()
    position = torch.arange(size, device=generator.device)
    return (position >= start) & (position < start + length)


@dataclass(frozen=True)
class ImageClassAugmentation:
    """Exchanges and mixes colours, and turns images by quarters, cluster by cluster.

    Attributes:
        probability: that a cluster is changed.
        mix: largest share that a channel takes from each of the others.
    """

    probability: float = 0.7
    mix: float = 0.3

    def __call__(self, items: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Images (b, n, 3, h, w), h = w, of clusters (b, n)."""
        b = len(labels)
        shape = labels.shape  # room for as many clusters as items: to ask how many there are would make a GPU wait

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
    """Stretches the frequencies of spectrograms, as a longer or shorter vocal tract does, and tilts them.

    Attributes:
        probability: that a cluster is changed.
        warp: largest stretch or squeeze of the bands, as a share.
        tilt: largest change of the level from the lowest band to the highest, in units of the spectrogram.
    """

    probability: float = 0.7
    warp: float = 0.15
    tilt: float = 0.2

    def __call__(self, items: Tensor, labels: Tensor, generator: torch.Generator) -> Tensor:
        """Spectrograms (b, n, 1, bands, frames) of clusters (b, n)."""
        b, n, _, bands, frames = items.shape
        random = torch.rand(3, *labels.shape, generator=generator, device=items.device)
        changed = (random[0] < self.probability).to(items)  # (b, k)
        stretch = (1 + self.warp * (2 * random[1] - 1) * changed).gather(1, labels).flatten()  # (b * n,)
        tilt = (self.tilt * (2 * random[2] - 1) * changed).gather(1, labels).flatten()
        rows = torch.linspace(0, 1, bands, device=items.device)  # the lowest band stays where it is
        source = 2 * rows * stretch.unsqueeze(-1) - 1  # (b * n, bands)
        columns = torch.linspace(-1, 1, frames, device=items.device)
        grid = torch.stack(
            [columns.expand(b * n, bands, frames), source.unsqueeze(-1).expand(-1, -1, frames)], dim=-1
        )  # (b * n, bands, frames, 2)
        warped = F.grid_sample(items.flatten(0, 1), grid, padding_mode="border", align_corners=True)
        tilted = warped + (tilt[:, None] * (2 * rows - 1))[:, None, :, None]
        return tilted.reshape(items.shape)
