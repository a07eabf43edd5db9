"""A folder of photographs of two kinds, and labels for one of each."""

from pathlib import Path

import numpy as np
from PIL import Image


def red_and_blue(place: Path, side: int) -> Path:
    """Writes images/red0.png to blue7.png and labels.csv, which knows one of each colour; the folder of images."""
    folder = place / "images"
    folder.mkdir()
    generator = np.random.default_rng(0)
    for name, colour in (("red", (220, 30, 30)), ("blue", (30, 30, 220))):
        for n in range(8):
            pixels = generator.integers(-25, 25, (side, side, 3)) + np.array(colour)
            Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{name}{n}.png")
    (place / "labels.csv").write_text("item,label\nred0.png,red\nblue0.png,blue\n")
    return folder
