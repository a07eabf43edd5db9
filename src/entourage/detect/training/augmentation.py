"""Pages as printers, scanners and cameras would have made them: ink, paper, light, blur and noise, on the device.

Nothing moves here: boxes stay as they are. Every picture of a batch is drawn its own way, and all of it is arithmetic
on the whole batch, so that the program never waits for the device.

Crops of rare symbols in the top margin of a window, with their targets (chapter 6).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from entourage.detect.training.windows import PagePack, WindowOptions, Windows, WindowSampler, cut_windows

_REACH = 4  # pixels to each side of the blur


@dataclass(frozen=True)
class DegradationOptions:
    """How much pages are changed: each effect's share of the pictures and its strength."""

    p_clean: float = 0.25  # share of the pictures that stay as they are
    p_thickness: float = 0.4  # share whose ink is thickened or thinned ...
    thickness: float = 0.35  # ... by up to this share of a pixel to each side
    p_blur: float = 0.6
    blur_sigma: tuple[float, float] = (0.25, 1.3)  # standard deviation in pixels
    p_binary: float = 0.12  # share that is cut to black and white, nearly
    gamma_sigma: float = 0.35  # standard deviation of the logarithm of the exponent of the ink
    p_fading: float = 0.5  # share whose ink is faint in patches ...
    fading: float = 0.5  # ... by up to this much
    contrast: tuple[float, float] = (0.55, 1.0)  # darkness of the ink
    paper_darkness: float = 0.3  # the darkest paper
    light_falloff: float = 0.45  # how much darker the darkest side of a page may be
    shadow: float = 0.35  # how dark a soft shadow may be
    noise_sigma: float = 0.05  # the largest standard deviation of grain
    speck_fraction: float = 8e-4  # the largest share of pixels that are specks or holes
    p_bleed_through: float = 0.12  # share in which the back of the sheet shines through
    bleed_through: float = 0.2


_DEFAULTS = DegradationOptions()


def degrade(ink: Tensor, options: DegradationOptions = _DEFAULTS) -> Tensor:
    """The same pages, seen as if printed and photographed.

    Args:
        ink: shape (b, 1, h, w), from 0 to 1.
        options: how much.

    Returns:
        The same shape and range. All chance comes from torch's generator of the device.
    """
    changed = _bleed_through(ink, options)
    changed = _change_thickness(changed, options)
    changed = _fade_and_speckle(changed, options)
    changed = _blur(changed, options)
    changed = _binarize(changed, options)
    changed = _illuminate(changed, options)
    changed = _add_noise(changed, options)
    clean = _bernoulli(ink, options.p_clean)
    return torch.where(clean, ink, changed.clamp(0, 1))


def _uniform(like: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    """A number for each picture, shape (b, 1, 1, 1)."""
    return torch.rand(len(like), 1, 1, 1, device=like.device) * (high - low) + low


def _bernoulli(like: Tensor, share: float) -> Tensor:
    return _uniform(like) < share


def _smooth_noise(like: Tensor, cells: int) -> Tensor:
    """Smooth noise between 0 and 1 with about so many bumps across, shape (b, 1, h, w)."""
    rows = max(2, round(cells * like.shape[2] / like.shape[3]))
    coarse = torch.rand(len(like), 1, rows, cells, device=like.device)
    return F.interpolate(coarse, like.shape[2:], mode="bicubic", align_corners=True).clamp(0, 1)


def _bleed_through(ink: Tensor, options: DegradationOptions) -> Tensor:
    """The mirrored neighbour, faintly."""
    back = F.avg_pool2d(ink.flip(3).roll(1, 0), 3, 1, 1)
    amount = torch.where(_bernoulli(ink, options.p_bleed_through), _uniform(ink, 0, options.bleed_through), 0.0)
    return torch.maximum(ink, amount * back)


def _change_thickness(ink: Tensor, options: DegradationOptions) -> Tensor:
    """More or less ink at every edge: a share of what a pixel more or less to each side would give."""
    amount = torch.where(
        _bernoulli(ink, options.p_thickness), _uniform(ink, -options.thickness, options.thickness), 0.0
    )
    more = F.max_pool2d(ink, 3, 1, 1)
    less = -F.max_pool2d(-ink, 3, 1, 1)
    return ink + amount.clamp(min=0) * (more - ink) + (-amount).clamp(min=0) * (less - ink)


def _fade_and_speckle(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Another gradation, faint patches, pin holes and specks."""
    exponent = torch.exp(options.gamma_sigma * torch.randn(len(ink), 1, 1, 1, device=ink.device))
    ink = ink.clamp(1e-4, 1) ** exponent
    faint = torch.where(_bernoulli(ink, options.p_fading), _uniform(ink, 0, options.fading), 0.0)
    ink = ink * (1 - faint * _smooth_noise(ink, 24))
    chance, share = torch.rand_like(ink), _uniform(ink, 0, options.speck_fraction)
    ink = torch.where(chance < share, 1.0, ink)
    return torch.where(chance > 1 - 4 * share, 0.4 * ink, ink)


def _blur(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Each picture with a Gaussian of its own; a kernel of next to no width leaves it as it is."""
    batch, _, height, width = ink.shape
    sigma = torch.where(_bernoulli(ink, options.p_blur), _uniform(ink, *options.blur_sigma), 0.05).view(batch, 1)
    at = torch.arange(-_REACH, _REACH + 1, device=ink.device)
    kernel = torch.exp(-0.5 * (at / sigma) ** 2)
    kernel = (kernel / kernel.sum(1, keepdim=True)).to(ink.dtype)
    flat = ink.view(1, batch, height, width)  # one channel a picture
    flat = F.conv2d(flat, kernel.view(batch, 1, 1, -1), padding=(0, _REACH), groups=batch)
    flat = F.conv2d(flat, kernel.view(batch, 1, -1, 1), padding=(_REACH, 0), groups=batch)
    return flat.view(batch, 1, height, width)


def _binarize(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Black and white, as from a copier, with edges that are still a little soft."""
    cut = torch.sigmoid((ink - _uniform(ink, 0.3, 0.6)) * 16)
    return torch.where(_bernoulli(ink, options.p_binary), cut, ink)


def _illuminate(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Paper that is not white, ink that is not black, light that falls off, and a soft shadow."""
    height, width = ink.shape[2:]
    paper = 1 - _uniform(ink, 0, 1) ** 2 * options.paper_darkness
    page = paper * (1 - ink * _uniform(ink, *options.contrast))
    angle = _uniform(ink, 0, 2 * torch.pi)
    x = torch.linspace(-0.5, 0.5, width, device=ink.device).view(1, 1, 1, -1)
    y = torch.linspace(-0.5, 0.5, height, device=ink.device).view(1, 1, -1, 1)
    across = x * angle.cos() + y * angle.sin()
    light = 1 - _uniform(ink) ** 2 * options.light_falloff * (across + 0.7) / 1.4
    dark = torch.where(_bernoulli(ink, 0.4), _uniform(ink, 0, options.shadow), 0.0)
    light = light * (1 - dark * (3 * (_smooth_noise(ink, 4) - 0.5)).clamp(0, 1))
    return 1 - page * light


def _add_noise(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Noise, partly of single pixels and partly of grains of two."""
    fine = torch.randn_like(ink)
    shape = (ink.shape[2] // 2, ink.shape[3] // 2)
    coarse = F.interpolate(torch.randn(len(ink), 1, *shape, device=ink.device), ink.shape[2:], mode="bilinear")
    share = _uniform(ink)
    amount = _uniform(ink) ** 2 * options.noise_sigma
    return ink + amount * (share * fine + (1 - share) * coarse)


CROP_WIDTH, CROP_HEIGHT = 65, 40  # pixels at the working interline: the 130 x 80 of the thesis at twice that
RARE = 0.01  # classes with a smaller share of all symbols are rare


@dataclass(frozen=True)
class Margins:
    """The crops that go on top of the windows of a batch, `crops` a window, window by window.

    Attributes:
        cuts: where they come from.
        crops: how many a window has.
    """

    cuts: Windows
    crops: int


class MarginSampler:
    """Draws crops of rare symbols and puts their symbols in the place of what they cover.

    Args:
        pack: where the crops come from.
        window: the windows they are pasted into.
        crops: how many, side by side; the thesis has 12.

    Raises:
        ValueError: so many do not fit side by side, or no symbol is rare and small enough.
    """

    def __init__(self, pack: PagePack, window: WindowOptions, crops: int = 12) -> None:
        if crops < 1 or crops * CROP_WIDTH > window.width or window.height <= CROP_HEIGHT:
            raise ValueError(
                f"{crops} crops of {CROP_WIDTH} x {CROP_HEIGHT} do not fit into the margin of a window of"
                f" {window.width} x {window.height}"
            )
        self.pack = pack
        self.window = window
        self.crops = crops
        self._sampler = WindowSampler(pack, replace(window, width=CROP_WIDTH, height=CROP_HEIGHT, min_visible=1.0))
        size = pack.boxes[:, 2:] - pack.boxes[:, :2]
        fits = (size[:, 0] <= CROP_WIDTH - 2) & (size[:, 1] <= CROP_HEIGHT - 2)
        rare = pack.counts() < RARE * len(pack.labels)
        rows = np.flatnonzero(fits & rare[pack.labels - 1])
        if len(rows) == 0:
            raise ValueError(f"no class with less than {RARE:.0%} of the symbols fits into a crop; expected some")
        order = rows[np.argsort(pack.labels[rows], kind="stable")]
        self._rows = order
        self._classes, self._first, self._counts = np.unique(pack.labels[order], return_index=True, return_counts=True)

    def sample(self, windows: Windows, rng: np.random.Generator) -> tuple[Windows, Margins]:
        """Crops for a batch, and the batch with their symbols in it."""
        batch = len(windows.start)
        rows = self._sample_symbols(batch * self.crops, rng)
        pages = self.pack.page_of(rows)
        centre = (self.pack.boxes[rows, :2] + self.pack.boxes[rows, 2:]) / 2
        corner = np.round(centre - np.array([CROP_WIDTH, CROP_HEIGHT]) / 2).astype(np.float64)
        cuts = self._sampler.cut(pages, corner, np.ones_like(corner))
        return self._covered(windows, cuts), Margins(cuts, self.crops)

    def _sample_symbols(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Symbols of rare classes, every class as often."""
        drawn = rng.integers(len(self._classes), size=count)
        which = (rng.random(count) * self._counts[drawn]).astype(np.int64)
        return np.asarray(self._rows[self._first[drawn] + which])

    def _covered(self, windows: Windows, cuts: Windows) -> Windows:
        """The symbols of the windows that can still be seen, and those of the crops."""
        step = self.window.width // self.crops

        def moved(boxes: Tensor, crop: Tensor) -> tuple[Tensor, Tensor]:
            left = (crop % self.crops * step).float()
            return boxes + torch.stack([left, torch.zeros_like(left)] * 2, dim=1), crop // self.crops

        added, added_image = moved(cuts.boxes, cuts.image)
        doubtful, doubtful_image = moved(cuts.hidden, cuts.hidden_image)
        height = windows.boxes[:, 3] - windows.boxes[:, 1]
        seen = windows.boxes[:, 3] - windows.boxes[:, 1].clamp(min=CROP_HEIGHT)
        clear = seen >= self.window.min_visible * height
        partly = ~clear & (windows.boxes[:, 3] > CROP_HEIGHT)
        return replace(
            windows,
            boxes=torch.cat([windows.boxes[clear], added]),
            labels=torch.cat([windows.labels[clear], cuts.labels]),
            image=torch.cat([windows.image[clear], added_image]),
            hidden=torch.cat([windows.hidden, windows.boxes[partly], doubtful]),
            hidden_image=torch.cat([windows.hidden_image, windows.image[partly], doubtful_image]),
        )


def paste_margins(ink: Tensor, pixels: Tensor, margins: Margins) -> Tensor:
    """The windows with the crops on top; the rest of the margin is paper.

    Args:
        ink: shape (b, 1, h, w).
        pixels: `PagePack.pixels`, on the same device.
        margins: as drawn, on the same device.
    """
    batch, _, _, width = ink.shape
    step = width // margins.crops
    crops = cut_windows(pixels, margins.cuts, CROP_HEIGHT, CROP_WIDTH)
    row = crops.view(batch, margins.crops, CROP_HEIGHT, CROP_WIDTH)
    row = torch.nn.functional.pad(row, (0, step - CROP_WIDTH)).transpose(1, 2)  # (b, 40, crops, step)
    strip = row.reshape(batch, 1, CROP_HEIGHT, margins.crops * step)
    strip = torch.nn.functional.pad(strip, (0, width - margins.crops * step))
    return torch.cat([strip, ink[:, :, CROP_HEIGHT:]], dim=2)
