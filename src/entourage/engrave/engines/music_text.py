"""Music inside text, such as the note of a metronome mark: glyphs of music fonts, set like letters."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from entourage.engrave.engines.text import Letter
from entourage.engrave.render.outlines import filled, parse_path
from entourage.io.safe_xml import parse_xml

_FALLBACK = "Leipzig"  # where the engraver looks for what a font does not have
_BESIDE = 0.02  # ems between a glyph and the next


class MusicLetters:
    """Glyphs of music fonts as letters, read on demand and kept.

    Args:
        folder: glyphs of the engraver's fonts, FONT/CODE.xml; None if there are none.
        own: archive with those of a font of the user's (see `convert_font`); None if there is none.
    """

    def __init__(self, folder: Path | None = None, own: Path | None = None) -> None:
        self._folder = folder
        self._own = own
        self._letters: dict[tuple[str, str], Letter] = {}

    def letter(self, character: str, font: str) -> Letter:
        """A glyph; one that no font has is a blank.

        Args:
            character: with the glyph's code point.
            font: its name, or several separated by commas, of which the first counts.
        """
        key = (character, font)
        if key not in self._letters:
            text = self._find(font.split(",")[0].strip("'\" "), f"{ord(character):04X}.xml")
            self._letters[key] = _draw(text) if text else Letter(filled([]), 0.3)
        return self._letters[key]

    def _find(self, font: str, file: str) -> bytes:
        if self._own is not None:
            with zipfile.ZipFile(self._own) as archive:
                if f"{font}/{file}" in archive.namelist():
                    return archive.read(f"{font}/{file}")
        names = (font, _FALLBACK) if font.isalnum() else (_FALLBACK,)  # a name from a score is no path
        paths = [self._folder / name / file for name in names] if self._folder else []
        return next((path.read_bytes() for path in paths if path.is_file()), b"")


def _draw(text: bytes) -> Letter:
    glyph = parse_xml(text)
    data = "".join(path.get("d", "") for path in glyph.iter("{*}path"))
    edges = filled(parse_path(data, tolerance=1)) * (np.array([1, -1, 1, -1]) / 1000)  # y upwards in the font
    return Letter(edges, float(edges[:, [0, 2]].max(initial=0.0)) + _BESIDE)
