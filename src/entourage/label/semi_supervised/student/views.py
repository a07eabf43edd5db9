"""Views of the student, all made on the device of the training in every step."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.label.semi_supervised.views import LiveViews
from entourage.training.images import augment

POSTERISE = 0.15  # probability of fewer levels of brightness
SHARPNESS = 0.3  # probability of a blurred or sharpened view
_SMOOTHING = torch.tensor([[1.0, 1.0, 1.0], [1.0, 5.0, 1.0], [1.0, 1.0, 1.0]]) / 13


class StudentViews(LiveViews):
    """Views from pixels whose strong views are also posterised, blurred and sharpened; see `LiveViews`."""

    def strong(self, rows: Tensor) -> Tensor:
        """Return normalised strong views, shape (b, 3, height, width)."""
        options = self.options.augmentation(self.options.strong)
        views = augment(self._pixels(rows), self.preprocessing.size, options)
        return self.preprocessing.normalize(change_sharpness(posterise(views, POSTERISE), SHARPNESS))


def posterise(images: Tensor, probability: float) -> Tensor:
    """Reduce some images to 8 to 64 levels per channel.

    Args:
        images: values of 0 to 255, shape (b, 3, h, w).
        probability: probability for each image.

    Returns:
        Images of the same shape; the others are unchanged.
    """
    count, device = len(images), images.device
    step = 2.0 ** torch.randint(2, 6, (count,), device=device)  # width of a level: 4, 8, 16 or 32
    step = torch.where(torch.rand(count, device=device) < probability, step, torch.zeros_like(step))
    width = step[:, None, None, None]
    return torch.where(width > 0, torch.floor(images / width.clamp_min(1.0)) * width, images)


def change_sharpness(images: Tensor, probability: float) -> Tensor:
    """Blur or sharpen some images.

    An image is moved away from or towards its smoothed version, by a random factor between 0.1 (nearly the smoothed
    version) and 1.9.

    Args:
        images: values of 0 to 255, shape (b, 3, h, w), with two or more rows and columns.
        probability: probability for each image.

    Returns:
        Images of the same shape, clamped to 0..255; the others are unchanged.
    """
    count, device = len(images), images.device
    factor = 0.1 + 1.8 * torch.rand(count, device=device)
    factor = torch.where(torch.rand(count, device=device) < probability, factor, torch.ones_like(factor))
    kernel = _SMOOTHING.to(device).expand(3, 1, 3, 3)
    smooth = F.conv2d(F.pad(images, (1, 1, 1, 1), mode="reflect"), kernel, groups=3)
    return (smooth + factor[:, None, None, None] * (images - smooth)).clamp(0.0, 255.0)
