"""Images whose class is their colour, for experiments that look for a data set."""

from __future__ import annotations

import numpy as np

from entourage.data.image_set import ImageSet, RawImages


def coloured(classes: int, each: int, tested: int = 0) -> ImageSet:
    """So many colours and images of each, of 32 pixels; the last `tested` of all images are for testing."""
    rng = np.random.default_rng(0)
    n = classes * each
    labels = np.tile(np.arange(classes), each)
    colours = rng.integers(0, 255, (classes, 3, 1, 1))
    pixels = (colours[labels] + rng.normal(0, 10, (n, 3, 32, 32))).clip(0, 255).astype(np.uint8)
    split = (np.arange(n) >= n - tested).astype(np.uint8)
    names = [str(label) for label in range(classes)]
    return ImageSet("toys", RawImages(pixels, np.arange(n)), labels, names, split, [f"{item}" for item in range(n)])
