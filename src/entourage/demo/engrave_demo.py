"""The demo's section: two composed pages, engraved in two fonts, with their ground truth drawn."""

from __future__ import annotations

import cv2
import numpy as np
from numpy.typing import NDArray

from entourage.engrave.dataset.show import draw_truth
from entourage.engrave.dataset.table import page_table
from entourage.engrave.engines.verovio_engine import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.page import Page
from entourage.engrave.scores.compose import compose
from entourage.engrave.scores.parsing import parse_score
from entourage.report.figures import raster_figure
from entourage.report.page import Block, Section

_FONTS = ("Leipzig", "Petaluma")
_SIZE = PageOptions(width=1894, height=1000)


def demo_section() -> Section:
    """Composes two scores and engraves a page of each in a font of its own."""
    blocks, rows = [], [("page", "font", "symbols", "classes", "noteheads with onset, pitch and duration")]
    for index, font in enumerate(_FONTS, start=1):
        page = demo_page(index, font)
        blocks.append(Block(f"Page {index}, {font}", figure=picture(page)))
        heads = [s for s in page.symbols if s.label.startswith("notehead")]
        known = sum(s.onset is not None and bool(s.pitch) and s.duration is not None for s in heads)
        classes = len({s.label for s in page.symbols if s.label})
        rows.append((str(index), font, str(len(page.symbols)), str(classes), f"{known} of {len(heads)}"))
    lead = (
        "Two scores were composed at random and engraved in two fonts. Colours are the masks of symbols, frames their "
        "boxes; above noteheads stand onset, position on the staff and duration."
    )
    return Section("engrave: pages that know what is on them", lead, wide=[*blocks, Block(table=rows)])


def demo_page(index: int, font: str) -> Page:
    """The first page of a composed score."""
    return next(VerovioEngraver(_SIZE, MusicFont(font)).engrave(parse_score(compose(5, index), f"composed {index}")))


def picture(page: Page) -> str:
    """The page with its ground truth, as an `<svg>` element that holds an image."""
    rows = page_table(page, score="s", source="s.mxl", work="w", name="n", font="f").to_pylist()
    image: NDArray[np.uint8] = np.asarray(cv2.cvtColor(page.image, cv2.COLOR_GRAY2BGR), dtype=np.uint8)
    drawn = draw_truth(image, rows, ("boxes", "masks", "onsets"))
    height, width = drawn.shape[:2]
    packed = cv2.imencode(".png", drawn, [cv2.IMWRITE_PNG_COMPRESSION, 9])[1]
    return raster_figure(packed.tobytes(), "png", width, height)
