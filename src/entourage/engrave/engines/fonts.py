"""Music fonts: those that come with Verovio, and any SMuFL font of the user's.

Text as outlines: lyrics, titles and fingerings are drawn by the same rasteriser as the music.

The letters are those of STIX, a Times that matplotlib carries, so that a page looks the same on every machine.

Music inside text, such as the note of a metronome mark: glyphs of music fonts, set like letters.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

import matplotlib as mpl
import numpy as np
from fontTools.misc.transform import Scale
from fontTools.pens.boundsPen import BoundsPen
from fontTools.pens.svgPathPen import SVGPathPen
from fontTools.pens.transformPen import TransformPen
from fontTools.ttLib import TTFont

from entourage.engrave.options import FONTS, MusicFont
from entourage.engrave.render.outlines import Edges, fill_edges, parse_path
from entourage.io.files import atomic_path
from entourage.io.safe_formats import parse_xml

_SMUFL = range(0xE000, 0xF400)
_EM = 1000  # Verovio's units
# Glyphs with their height in ems, of which a staff has one: a notehead is a space tall, a G clef some seven.
_GLYPH_HEIGHTS = {0xE0A4: ("notehead", 0.15, 0.45), 0xE050: ("G clef", 1.0, 2.5), 0xE240: ("flag", 0.4, 1.5)}
_Outline = tuple[str, tuple[float, float, float, float], float]  # as SVG, its box and its advance, in Verovio's units


def find_fonts(names: str, folder: Path | None = None) -> tuple[MusicFont, ...]:
    """The fonts that a list such as "Leipzig,my/Sebastian.otf" names; "all" for those that come with Verovio.

    Args:
        names: of fonts and font files, separated by commas.
        folder: where to put what font files are converted to; by default a new folder for temporary files.

    Raises:
        ValueError: a name that is none of them and no file, or a file that is no SMuFL font.
    """
    if names == "all":
        return tuple(MusicFont(name) for name in FONTS)
    bundled = {name.lower(): name for name in FONTS}
    fonts = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        if name.lower() in bundled:
            fonts.append(MusicFont(bundled[name.lower()]))
        elif Path(name).is_file():
            fonts.append(convert_font(Path(name), folder))
        else:
            raise ValueError(f"font {name!r} is unknown; expected one of {', '.join(FONTS)}, or a SMuFL font file")
    return tuple(fonts)


def convert_font(path: Path, folder: Path | None = None) -> MusicFont:
    """Turns a SMuFL font (.otf, .ttf, .woff2) into the archive of outlines that Verovio loads.

    Stem anchors come from the metadata file beside the font (NAME.json, NAME_metadata.json or metadata.json); a font
    without one gets those that its noteheads' bounds suggest. A font is called as its file; one that is called like a
    font of Verovio's, which would be engraved instead, becomes NAMECustom.

    Args:
        path: the font.
        folder: where to put the archive; by default a new folder for temporary files.

    Raises:
        ValueError: the file is no font, or its glyphs are not those of SMuFL.
    """
    outlines = _outlines(path)
    _check_glyph_heights(path, outlines)
    name = "".join(c for c in path.stem if c.isalnum())
    if not name or name.lower() in (bundled.lower() for bundled in FONTS):
        name += "Custom"
    font_anchors = _anchors(path)
    boxes, files = [], {}
    for code, (path_data, (x0, y0, x1, y1), advance) in outlines.items():
        box = f'x="{x0:g}" y="{y0:g}" w="{x1 - x0:g}" h="{y1 - y0:g}" h-a-x="{advance:g}"'
        inside = "".join(
            f'<a n={quoteattr(n)} x="{x:g}" y="{y:g}"/>'
            for n, (x, y) in font_anchors.get(code, _default_anchors(code, x1 / 250)).items()
        )
        boxes.append(f'<g c="{code:04X}" {box} n="{code:04X}">{inside}</g>')
        files[code] = f'<g id="{code:04X}"><path transform="scale(1,-1)" d="{path_data}"/></g>'
    index = f'<bounding-boxes font-family="{name}" units-per-em="{_EM}">{"".join(boxes)}</bounding-boxes>'
    target = (folder or Path(tempfile.mkdtemp(prefix="entourage-font-"))) / f"{name}.zip"  # it goes by the file's name
    with atomic_path(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        glyphs = [(f"{name}/{code:04X}.xml", text) for code, text in files.items()]
        for inside, text in ((f"{name}.xml", index), *glyphs, (f"{name}.css", "")):
            archive.writestr(zipfile.ZipInfo(inside), text, zipfile.ZIP_DEFLATED)  # always dated 1980
    return MusicFont(name, target, hashlib.sha256("".join((index, *files.values())).encode()).hexdigest())


def _outlines(path: Path) -> dict[int, _Outline]:
    """The glyphs of a font at SMuFL's code points; a font whose only character map is for symbols has none there."""
    outlines: dict[int, _Outline] = {}
    try:
        with TTFont(path) as font:
            glyphs, cmap = font.getGlyphSet(), font.getBestCmap() or {}
            scale = Scale(_EM / font["head"].unitsPerEm)
            for code in sorted(code for code in cmap if code in _SMUFL):
                glyph, pen, bounds = glyphs[cmap[code]], SVGPathPen(glyphs), BoundsPen(glyphs)
                for target in (pen, bounds):
                    glyph.draw(TransformPen(target, scale))
                outlines[code] = pen.getCommands(), bounds.bounds or (0, 0, 0, 0), glyph.width * scale[0]
    except Exception as error:  # tables are read when they are needed, and damaged ones bring about almost anything
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path} cannot be read as a font: {reason}") from error
    return outlines


def _check_glyph_heights(path: Path, outlines: dict[int, _Outline]) -> None:
    """Other fonts use the same code points for something else; three glyphs are enough to tell."""
    for code, (name, minimum, maximum) in _GLYPH_HEIGHTS.items():
        if code not in outlines:
            raise ValueError(f"{path} has no {name} at U+{code:04X}; expected a SMuFL font")
        _, (_, y0, _, y1), _ = outlines[code]
        height = (y1 - y0) / _EM
        if not minimum <= height <= maximum:
            expected = f"{minimum:g} to {maximum:g} em, as the {name} of a SMuFL font"
            raise ValueError(f"{path}: U+{code:04X} is {height:.2f} em tall; expected {expected}")


_ANCHORED_GLYPHS = {0xE0A2: "noteheadWhole", 0xE0A3: "noteheadHalf", 0xE0A4: "noteheadBlack"}
_ANCHORED_GLYPHS |= {
    0xE240 + k: f"flag{n}{d}"
    for k, (n, d) in enumerate((n, d) for n in ("8th", "16th", "32nd", "64th", "128th") for d in ("Up", "Down"))
}


def _anchors(path: Path) -> dict[int, dict[str, tuple[float, float]]]:
    """Stem anchors by code point, from the font's metadata, in staff spaces."""
    names = (f"{path.stem}.json", f"{path.stem}_metadata.json", f"{path.stem.lower()}_metadata.json", "metadata.json")
    for metadata in (path.with_name(name) for name in names):
        if metadata.is_file():
            try:
                anchors = json.loads(metadata.read_text(encoding="utf-8"))["glyphsWithAnchors"]
                return {
                    code: {n: (float(p[0]), float(p[1])) for n, p in anchors[name].items()}
                    for code, name in _ANCHORED_GLYPHS.items()
                    if name in anchors
                }
            except (ValueError, LookupError, TypeError, AttributeError) as error:
                raise ValueError(f"{metadata} is no SMuFL metadata: {error}") from error
    return {}


def _default_anchors(code: int, width: float) -> dict[str, tuple[float, float]]:
    """Where stems meet a notehead of that width, in staff spaces, if nobody says."""
    if code not in (0xE0A3, 0xE0A4):
        return {}
    return {"stemUpSE": (round(width, 3), 0.168), "stemDownNW": (0.0, -0.168)}


_TEXT_FONT_FILES = {  # (bold, italic)
    (False, False): "STIXGeneral.ttf",
    (False, True): "STIXGeneralItalic.ttf",
    (True, False): "STIXGeneralBol.ttf",
    (True, True): "STIXGeneralBolIta.ttf",
}
_FALLBACK_TEXT_FONT = "DejaVuSans.ttf"  # knows far more scripts


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
            self._letters[key] = self._draw(character, _TEXT_FONT_FILES[bold, italic])
        return self._letters[key]

    def _draw(self, character: str, file: str) -> Letter:
        for name in (file, _TEXT_FONT_FILES[False, False], _FALLBACK_TEXT_FONT):
            font = self._font(name)
            glyph = font.getBestCmap().get(ord(character))
            if glyph is not None:
                break
        else:
            return Letter(fill_edges([]), 0.5)
        glyphs = font.getGlyphSet()
        pen = SVGPathPen(glyphs)
        glyphs[glyph].draw(pen)
        em = float(font["head"].unitsPerEm)
        edges = fill_edges(parse_path(pen.getCommands(), tolerance=em / 500)) / [em, -em, em, -em]
        return Letter(edges, glyphs[glyph].width / em)

    def _font(self, name: str) -> TTFont:
        if name not in self._fonts:
            self._fonts[name] = TTFont(Path(mpl.get_data_path()) / "fonts" / "ttf" / name, lazy=True)
        return self._fonts[name]


_FALLBACK_MUSIC_FONT = "Leipzig"  # where the engraver looks for what a font does not have
_LETTER_SPACING = 0.02  # ems between a glyph and the next


class MusicLetters:
    """Glyphs of music fonts as letters, read on demand and kept.

    Args:
        folder: glyphs of the engraver's fonts, FONT/CODE.xml; None if there are none.
        custom: archive with those of a font of the user's (see `convert_font`); None if there is none.
    """

    def __init__(self, folder: Path | None = None, custom: Path | None = None) -> None:
        self._folder = folder
        self._custom = custom
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
            self._letters[key] = _draw(text) if text else Letter(fill_edges([]), 0.3)
        return self._letters[key]

    def _find(self, font: str, file: str) -> bytes:
        if self._custom is not None:
            with zipfile.ZipFile(self._custom) as archive:
                if f"{font}/{file}" in archive.namelist():
                    return archive.read(f"{font}/{file}")
        names = (
            (font, _FALLBACK_MUSIC_FONT) if font.isalnum() else (_FALLBACK_MUSIC_FONT,)
        )  # a name from a score is no path
        paths = [self._folder / name / file for name in names] if self._folder else []
        return next((path.read_bytes() for path in paths if path.is_file()), b"")


def _draw(text: bytes) -> Letter:
    glyph = parse_xml(text)
    data = "".join(path.get("d", "") for path in glyph.iter("{*}path"))
    edges = fill_edges(parse_path(data, tolerance=1)) * (np.array([1, -1, 1, -1]) / 1000)  # y upwards in the font
    return Letter(edges, float(edges[:, [0, 2]].max(initial=0.0)) + _LETTER_SPACING)
