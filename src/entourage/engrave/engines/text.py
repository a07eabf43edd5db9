"""Text as outlines: lyrics, titles and fingerings are drawn by the same rasteriser as the music.

The letters are those of STIX, a Times that matplotlib carries, so that a page looks the same on every machine.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
from fontTools.pens.svgPathPen import SVGPathPen
from fontTools.ttLib import TTFont

from entourage.engrave.render.outlines import Edges, filled, parse_path

_FILES = {  # (bold, italic)
    (False, False): "STIXGeneral.ttf",
    (False, True): "STIXGeneralItalic.ttf",
    (True, False): "STIXGeneralBol.ttf",
    (True, True): "STIXGeneralBolIta.ttf",
}
_FALLBACK = "DejaVuSans.ttf"  # knows far more scripts


@dataclass(frozen=True)
class Letter:
    """A letter one unit high: `edges` about its origin with y downwards, shape (n, 4), and how far the next one is."""

    edges: Edges
    advance: float


class Typeface:
    """Letters of the text font, drawn on demand and kept."""

    def __init__(self) -> None:
        self._fonts: dict[str, TTFont] = {}
        self._letters: dict[tuple[str, bool, bool], Letter] = {}

    def letter(self, character: str, bold: bool = False, italic: bool = False) -> Letter:
        """The outline of a character; one that no font has is a blank."""
        key = (character, bold, italic)
        if key not in self._letters:
            self._letters[key] = self._draw(character, _FILES[bold, italic])
        return self._letters[key]

    def _draw(self, character: str, file: str) -> Letter:
        for name in (file, _FILES[False, False], _FALLBACK):
            font = self._font(name)
            glyph = font.getBestCmap().get(ord(character))
            if glyph is not None:
                break
        else:
            return Letter(filled([]), 0.5)
        glyphs = font.getGlyphSet()
        pen = SVGPathPen(glyphs)
        glyphs[glyph].draw(pen)
        em = float(font["head"].unitsPerEm)
        edges = filled(parse_path(pen.getCommands(), tolerance=em / 500)) / [em, -em, em, -em]
        return Letter(edges, glyphs[glyph].width / em)

    def _font(self, name: str) -> TTFont:
        if name not in self._fonts:
            self._fonts[name] = TTFont(Path(mpl.get_data_path()) / "fonts" / "ttf" / name, lazy=True)
        return self._fonts[name]
