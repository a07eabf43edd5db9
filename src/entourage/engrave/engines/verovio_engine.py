"""Verovio, the default engraver: a score in, pages of SVG and the music's meaning out."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import verovio

from entourage.engrave.annotate.mei import Event, read_music
from entourage.engrave.annotate.relate import relate
from entourage.engrave.engines.svg import SvgReader
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.page import Page, draw_page
from entourage.engrave.scores.parsing import Score

_UNITS = 10  # of Verovio's view box to a pixel, at an interline of 20
MOST_PAGES = 2000
_INPUT = {"musicxml": "xml", "mei": "mei", "abc": "abc", "humdrum": "humdrum"}


class VerovioEngraver:
    """Engraves scores in one font and one size; outlines are kept from page to page.

    Args:
        options: the size of things.
        font: the music font.
        seed: of the ids that the engraver gives; the same seed gives the same ids.
    """

    def __init__(self, options: PageOptions, font: MusicFont, seed: int = 1) -> None:
        self.options = options
        self.font = font
        self.seed = seed
        data = Path(verovio.__file__).parent / "data"
        self._reader = SvgReader(options.interline / 20 / _UNITS, data, font.file)
        self._toolkit = verovio.toolkit(False)  # True would look for its data beside the main program, and fail
        self._toolkit.setResourcePath(str(data))
        verovio.enableLog(verovio.LOG_OFF)
        if font.file is not None:
            self._toolkit.setOptions({"fontAddCustom": [str(font.file)]})

    def engrave(self, score: Score, degrade: Callable[[int], Degrader | None] = lambda _: None) -> Iterator[Page]:
        """The pages of a score, one after the other.

        Args:
            score: what to engrave.
            degrade: what makes the page of a given number look used, or None.

        Raises:
            ValueError: the engraver cannot read the score, or nothing comes out.
        """
        events = self.load(score)
        for number in range(1, self._toolkit.getPageCount() + 1):
            yield self.draw(self._toolkit.renderToSVG(number), events, score, number, degrade(number))

    def load(self, score: Score) -> dict[str, Event]:
        """Lays the score out and returns what its music says, by id."""
        scale = 20 / self.options.interline
        self._toolkit.resetXmlIdSeed(self.seed)
        self._toolkit.setOptions(
            {
                "inputFrom": _INPUT[score.notation],
                "font": self.font.name,
                "unit": _UNITS,
                "scale": 100,
                "pageWidth": round(self.options.width * scale),
                "pageHeight": round(self.options.height * scale),
                **{f"pageMargin{side}": self.options.margin for side in ("Top", "Bottom", "Left", "Right")},
                "footer": "none",
                "xmlIdSeed": self.seed,
                "dynamSingleGlyphs": True,  # letters, from which V1's combined dynamics follow
                "expandNever": True,
                "svgFormatRaw": True,
                "outputFormatRaw": True,
                "smuflTextFont": "linked",
            }
        )
        if not self._toolkit.loadData(score.text):
            raise ValueError(f"{score.name}: the engraver cannot read it as {score.notation}")
        pages = self._toolkit.getPageCount()
        if not 1 <= pages <= MOST_PAGES:
            raise ValueError(f"{score.name}: the engraver makes {pages} pages of it; expected 1 to {MOST_PAGES}")
        return read_music(self._toolkit.getMEI())

    def mei(self) -> str:
        """The score that was engraved last as MEI, with the ids that its symbols carry."""
        return re.sub(r' isodate="[^"]*"', "", self._toolkit.getMEI())  # the time of day would differ from run to run

    def draw(
        self, svg: str, events: dict[str, Event], score: Score, number: int, degrader: Degrader | None = None
    ) -> Page:
        """A page with its ground truth from the engraver's drawing of it."""
        marks = self._reader.read(svg)
        ids = score.ids or events.keys()
        related = relate(marks, events, ids, self.options.interline)
        return draw_page(marks, related, self.options.height, self.options.width, number, degrader)
