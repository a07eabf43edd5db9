"""Draw docs/images/engrave.png: composed music without and with its annotations.

python -m experiments.engrave_picture
"""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np

from entourage.engrave.dataset.formats import page_table
from entourage.engrave.dataset.inspection import draw_annotations
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.encoding import encode_png
from entourage.engrave.scores.composer import compose
from entourage.engrave.scores.parsing import parse_score
from entourage.io.files import atomic_path
from experiments.command import run_command

IMAGE = Path(__file__).parent.parent / "docs" / "images" / "engrave.png"
SIZE = PageOptions(width=1400, height=700)
SEED, INDEX, FONT = 5, 1, "Leipzig"
MARGIN = 25  # pixels of paper above and below the music


def main() -> None:
    """Draw and save the figure."""
    score = parse_score(compose(SEED, INDEX), "composed")
    page = next(VerovioEngraver(SIZE, MusicFont(FONT)).engrave(score))
    rows = page_table(page, score="s", source="s.mxl", work="w", name="n", font=FONT).to_pylist()
    plain = np.asarray(cv2.cvtColor(page.image, cv2.COLOR_GRAY2BGR), dtype=np.uint8)
    music = slice(max(0, int(page.boxes[:, 1].min()) - MARGIN), int(page.boxes[:, 3].max()) + MARGIN)  # not the title
    truth = draw_annotations(plain, rows, ("boxes", "masks", "onsets"))
    with atomic_path(IMAGE) as temporary:
        temporary.write_bytes(encode_png(np.vstack([plain[music], truth[music]]), dpi=400, level=9))
    print(f"{len(rows)} symbols drawn: {IMAGE}")


if __name__ == "__main__":
    run_command(main)
