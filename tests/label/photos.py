"""A folder of images of two classes, with one label per class."""

from pathlib import Path

import numpy as np
from PIL import Image


def red_and_blue(parent: Path, side: int) -> Path:
    """Write images/red0.png to blue7.png and labels.csv with one label per colour; return the folder of images."""
    folder = parent / "images"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name, colour in (("red", (220, 30, 30)), ("blue", (30, 30, 220))):
        for n in range(8):
            pixels = generator.integers(-25, 25, (side, side, 3)) + np.array(colour)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{name}{n}.png")
    (parent / "labels.csv").write_text("item,label\nred0.png,red\nblue0.png,blue\n")
    return folder
