"""Augmentation of training windows: degradation as by printing and scanning, and crops of rare symbols.

The degradation changes ink, paper, light, blur and noise, but not the geometry: boxes stay valid. Each image of a batch
has its own random parameters; all operations run on the entire batch on its device, without synchronisation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from entourage.detect.training.windows import PagePack, WindowOptions, Windows, WindowSampler, cut_windows

_BLUR_RADIUS = 4  # radius of the blur kernel in pixels


@dataclass(frozen=True)
class DegradationOptions:
    """Probability and strength of each effect of `degrade`."""

    p_clean: float = 0.25  # probability that an image is unchanged
    p_thickness: float = 0.4  # probability that ink is thickened or thinned
    thickness: float = 0.35  # maximum change on each side of a stroke, in pixels
    p_blur: float = 0.6
    blur_sigma: tuple[float, float] = (0.25, 1.3)  # range of the standard deviation in pixels
    p_binary: float = 0.12  # probability that the page is almost black and white
    gamma_sigma: float = 0.35  # standard deviation of the logarithm of gamma
    p_fading: float = 0.5  # probability that ink fades in patches
    fading: float = 0.5  # maximum fraction of the ink that fades
    contrast: tuple[float, float] = (0.55, 1.0)  # range of the darkness of the ink
    paper_darkness: float = 0.3  # maximum darkness of the paper
    light_falloff: float = 0.45  # maximum loss of light at the darkest side of a page
    shadow: float = 0.35  # maximum darkness of the soft shadow
    noise_sigma: float = 0.05  # maximum standard deviation of the noise
    speck_fraction: float = 8e-4  # maximum fraction of pixels that are specks
    p_bleed_through: float = 0.12  # probability that the back of the sheet shows through
    bleed_through: float = 0.2  # maximum darkness of the back of the sheet


_DEFAULTS = DegradationOptions()


def degrade(ink: Tensor, options: DegradationOptions = _DEFAULTS) -> Tensor:
    """Degrade pages as printing, scanning and photography do; boxes stay valid.

    Args:
        ink: shape (b, 1, h, w), from 0 to 1.
        options: probability and strength of the effects.

    Returns:
        The degraded pages, of the same shape and range. Random numbers come from torch's generator of the device.
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
    """Sample a uniformly distributed number for each image, shape (b, 1, 1, 1)."""
    return torch.rand(len(like), 1, 1, 1, device=like.device) * (high - low) + low


def _bernoulli(like: Tensor, p: float) -> Tensor:
    return _uniform(like) < p


def _smooth_noise(like: Tensor, n_cells: int) -> Tensor:
    """Sample smooth noise between 0 and 1 from a grid with `n_cells` columns, shape (b, 1, h, w)."""
    rows = max(2, round(n_cells * like.shape[2] / like.shape[3]))
    coarse = torch.rand(len(like), 1, rows, n_cells, device=like.device)
    return F.interpolate(coarse, like.shape[2:], mode="bicubic", align_corners=True).clamp(0, 1)


def _bleed_through(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Add the mirrored, faint ink of another image of the batch, as if it was printed on the back of the sheet."""
    back = F.avg_pool2d(ink.flip(3).roll(1, 0), 3, 1, 1)
    amount = torch.where(_bernoulli(ink, options.p_bleed_through), _uniform(ink, 0, options.bleed_through), 0.0)
    return torch.maximum(ink, amount * back)


def _change_thickness(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Move edges of the ink by a fraction of a pixel, between the ink and its dilation or erosion."""
    amount = torch.where(
        _bernoulli(ink, options.p_thickness), _uniform(ink, -options.thickness, options.thickness), 0.0
    )
    more = F.max_pool2d(ink, 3, 1, 1)
    less = -F.max_pool2d(-ink, 3, 1, 1)
    return ink + amount.clamp(min=0) * (more - ink) + (-amount).clamp(min=0) * (less - ink)


def _fade_and_speckle(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Change the gamma of the ink, fade it in patches, and add specks and holes."""
    exponent = torch.exp(options.gamma_sigma * torch.randn(len(ink), 1, 1, 1, device=ink.device))
    ink = ink.clamp(1e-4, 1) ** exponent
    amount = torch.where(_bernoulli(ink, options.p_fading), _uniform(ink, 0, options.fading), 0.0)
    ink = ink * (1 - amount * _smooth_noise(ink, 24))
    random, fraction = torch.rand_like(ink), _uniform(ink, 0, options.speck_fraction)
    ink = torch.where(random < fraction, 1.0, ink)
    return torch.where(random > 1 - 4 * fraction, 0.4 * ink, ink)


def _blur(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Blur each image with a Gaussian of random width; a width of 0.05 pixels leaves it unchanged."""
    batch, _, height, width = ink.shape
    sigma = torch.where(_bernoulli(ink, options.p_blur), _uniform(ink, *options.blur_sigma), 0.05).view(batch, 1)
    offsets = torch.arange(-_BLUR_RADIUS, _BLUR_RADIUS + 1, device=ink.device)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    kernel = (kernel / kernel.sum(1, keepdim=True)).to(ink.dtype)
    flat = ink.view(1, batch, height, width)  # one channel per image
    flat = F.conv2d(flat, kernel.view(batch, 1, 1, -1), padding=(0, _BLUR_RADIUS), groups=batch)
    flat = F.conv2d(flat, kernel.view(batch, 1, -1, 1), padding=(_BLUR_RADIUS, 0), groups=batch)
    return flat.view(batch, 1, height, width)


def _binarize(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Binarise some of the images as a photocopier does, with slightly soft edges."""
    binary = torch.sigmoid((ink - _uniform(ink, 0.3, 0.6)) * 16)
    return torch.where(_bernoulli(ink, options.p_binary), binary, ink)


def _illuminate(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Apply grey paper, faint ink, light that falls off to one side, and a soft shadow."""
    height, width = ink.shape[2:]
    paper = 1 - _uniform(ink, 0, 1) ** 2 * options.paper_darkness
    page = paper * (1 - ink * _uniform(ink, *options.contrast))
    angle = _uniform(ink, 0, 2 * torch.pi)
    x = torch.linspace(-0.5, 0.5, width, device=ink.device).view(1, 1, 1, -1)
    y = torch.linspace(-0.5, 0.5, height, device=ink.device).view(1, 1, -1, 1)
    position = x * angle.cos() + y * angle.sin()
    light = 1 - _uniform(ink) ** 2 * options.light_falloff * (position + 0.7) / 1.4
    shadow = torch.where(_bernoulli(ink, 0.4), _uniform(ink, 0, options.shadow), 0.0)
    light = light * (1 - shadow * (3 * (_smooth_noise(ink, 4) - 0.5)).clamp(0, 1))
    return 1 - page * light


def _add_noise(ink: Tensor, options: DegradationOptions) -> Tensor:
    """Add noise of single pixels, mixed with noise of grains of two pixels."""
    fine = torch.randn_like(ink)
    shape = (ink.shape[2] // 2, ink.shape[3] // 2)
    coarse = F.interpolate(torch.randn(len(ink), 1, *shape, device=ink.device), ink.shape[2:], mode="bilinear")
    fine_fraction = _uniform(ink)
    amount = _uniform(ink) ** 2 * options.noise_sigma
    return ink + amount * (fine_fraction * fine + (1 - fine_fraction) * coarse)


CROP_WIDTH, CROP_HEIGHT = 65, 40  # pixels at the working interline; in the thesis, 130 x 80 at twice that
RARE = 0.01  # classes with a smaller fraction of all symbols are rare


@dataclass(frozen=True)
class Margins:
    """Crops to paste at the top of the windows of a batch, `crops` per window, in the order of the windows.

    Attributes:
        cuts: positions of the crops on their pages, and their symbols.
        crops: number of crops per window.
    """

    cuts: Windows
    crops: int


class MarginSampler:
    """Sample crops of rare symbols and replace the symbols that they cover (thesis, chapter 6).

    Args:
        pack: pages to take the crops from.
        window: options of the windows that the crops are pasted into.
        crops: number of crops per window, side by side; the thesis has 12.

    Raises:
        ValueError: the crops do not fit side by side, or no rare symbol is small enough for a crop.
    """

    def __init__(self, pack: PagePack, window: WindowOptions, crops: int = 12) -> None:
        if crops < 1 or crops * CROP_WIDTH > window.width or window.height <= CROP_HEIGHT:
            raise ValueError(
                f"crops is {crops}; expected crops of {CROP_WIDTH} x {CROP_HEIGHT} pixels that fit side by side into"
                f" windows of {window.width} x {window.height}"
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
            raise ValueError(
                f"pages: no class with less than {RARE:.0%} of the symbols fits into a crop; expected at least one"
            )
        by_class = rows[np.argsort(pack.labels[rows], kind="stable")]
        self._rows = by_class
        self._classes, self._first, self._counts = np.unique(
            pack.labels[by_class], return_index=True, return_counts=True
        )

    def sample(self, windows: Windows, rng: np.random.Generator) -> tuple[Windows, Margins]:
        """Sample the margin crops for a batch of windows.

        Args:
            windows: the batch.
            rng: source of random numbers.

        Returns:
            The batch with the symbols of the crops instead of the covered ones, and the crops.
        """
        batch = len(windows.start)
        rows = self._sample_symbols(batch * self.crops, rng)
        pages = self.pack.page_of(rows)
        centre = (self.pack.boxes[rows, :2] + self.pack.boxes[rows, 2:]) / 2
        corner = np.round(centre - np.array([CROP_WIDTH, CROP_HEIGHT]) / 2).astype(np.float64)
        cuts = self._sampler.cut(pages, corner, np.ones_like(corner))
        return self._replace_covered(windows, cuts), Margins(cuts, self.crops)

    def _sample_symbols(self, count: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Sample `count` symbols of rare classes; all rare classes have the same probability."""
        classes = rng.integers(len(self._classes), size=count)
        positions = (rng.random(count) * self._counts[classes]).astype(np.int64)
        return np.asarray(self._rows[self._first[classes] + positions])

    def _replace_covered(self, windows: Windows, cuts: Windows) -> Windows:
        """Return the windows with the symbols of the crops instead of their own symbols that the crops cover."""
        step = self.window.width // self.crops

        def shift(boxes: Tensor, crop: Tensor) -> tuple[Tensor, Tensor]:
            left = (crop % self.crops * step).float()
            return boxes + torch.stack([left, torch.zeros_like(left)] * 2, dim=1), crop // self.crops

        added, added_image = shift(cuts.boxes, cuts.image)
        cropped, cropped_image = shift(cuts.hidden, cuts.hidden_image)
        height = windows.boxes[:, 3] - windows.boxes[:, 1]
        visible_height = windows.boxes[:, 3] - windows.boxes[:, 1].clamp(min=CROP_HEIGHT)
        visible = visible_height >= self.window.min_visible * height
        partly_visible = ~visible & (windows.boxes[:, 3] > CROP_HEIGHT)
        return replace(
            windows,
            boxes=torch.cat([windows.boxes[visible], added]),
            labels=torch.cat([windows.labels[visible], cuts.labels]),
            image=torch.cat([windows.image[visible], added_image]),
            hidden=torch.cat([windows.hidden, windows.boxes[partly_visible], cropped]),
            hidden_image=torch.cat([windows.hidden_image, windows.image[partly_visible], cropped_image]),
        )


def paste_margins(ink: Tensor, pixels: Tensor, margins: Margins) -> Tensor:
    """Paste the crops at the top of the windows; the rest of the margin becomes paper.

    Args:
        ink: the windows, shape (b, 1, h, w).
        pixels: `PagePack.pixels`, on the same device.
        margins: the crops, on the same device.

    Returns:
        The windows with their margins, shape (b, 1, h, w).
    """
    batch, _, _, width = ink.shape
    step = width // margins.crops
    crops = cut_windows(pixels, margins.cuts, CROP_HEIGHT, CROP_WIDTH)
    row = crops.view(batch, margins.crops, CROP_HEIGHT, CROP_WIDTH)
    row = F.pad(row, (0, step - CROP_WIDTH)).transpose(1, 2)  # (b, 40, crops, step)
    strip = row.reshape(batch, 1, CROP_HEIGHT, margins.crops * step)
    strip = F.pad(strip, (0, width - margins.crops * step))
    return torch.cat([strip, ink[:, :, CROP_HEIGHT:]], dim=2)
