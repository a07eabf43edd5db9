"""Draw docs/images/read.jpg: a simulated photograph of a composed page, and the engraving of what was read from it.

python -m experiments.read_picture
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.demo import composed_pages
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.scores.parsing import parse_score
from entourage.io.files import atomic_path
from entourage.read.formats.musicxml import to_musicxml
from entourage.read.reader import ScoreReader
from experiments.command import run_command

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "read.jpg"
FONT = "Bravura"  # not that of the photograph
WIDTH = 1000  # pixels of each half
GAP = 24  # white pixels between the halves
MARGIN = 30  # pixels of paper around the music


def main() -> None:
    """Draw and save the figure."""
    photo = composed_pages()[-1].image()
    score = ScoreReader.load(device="cpu").read(photo)
    size = PageOptions(width=photo.shape[1], height=2 * photo.shape[0])
    engraved = next(VerovioEngraver(size, MusicFont(FONT)).engrave(parse_score(to_musicxml(score), "read"))).image
    halves = [scaled(photo), scaled(crop(engraved))]
    height = max(half.shape[0] for half in halves)
    picture = np.full((height, 2 * WIDTH + GAP), 255, dtype=np.uint8)
    for half, left in zip(halves, (0, WIDTH + GAP), strict=True):
        picture[: half.shape[0], left : left + WIDTH] = half
    with atomic_path(IMAGE) as temporary:
        temporary.write_bytes(cv2.imencode(".jpg", picture, [cv2.IMWRITE_JPEG_QUALITY, 80])[1].tobytes())
    print(f"{len(score.notes)} notes in {len(score.measures)} measures read: {IMAGE}")


def crop(page: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a page without the empty paper below and above the music."""
    rows = np.flatnonzero((page < 128).any(axis=1))
    return page[max(0, int(rows[0]) - MARGIN) : int(rows[-1]) + MARGIN]


def scaled(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image of the width `WIDTH`."""
    scale = WIDTH / image.shape[1]
    small = cv2.resize(image, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return np.asarray(small, dtype=np.uint8)


if __name__ == "__main__":
    run_command(main)
