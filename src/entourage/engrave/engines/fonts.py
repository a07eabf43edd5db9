"""Fonts: Verovio's music fonts, custom SMuFL fonts, and outlines of text.

Lyrics, titles and fingerings are outlines, which are rendered by the same rasteriser as the music. The text font is
STIX, a typeface similar to Times that matplotlib contains, so that pages are equal on all machines. Music glyphs inside
text, such as the note of a metronome mark, come from the music fonts.
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
_EM = 1000  # units per em in Verovio's font files
# Minimum and maximum height in ems: a staff is 1 em (four spaces) tall, a notehead one space, a G clef seven spaces.
_GLYPH_HEIGHTS = {0xE0A4: ("notehead", 0.15, 0.45), 0xE050: ("G clef", 1.0, 2.5), 0xE240: ("flag", 0.4, 1.5)}
_Outline = tuple[str, tuple[float, float, float, float], float]  # SVG path, box and advance width, in Verovio's units


def find_fonts(names: str, folder: Path | None = None) -> tuple[MusicFont, ...]:
    """Return music fonts by name or file.

    Args:
        names: names of Verovio's fonts and paths of SMuFL fonts, separated by commas, such as
            "Leipzig,my/Sebastian.otf"; "all" for all of Verovio's fonts.
        folder: folder for converted font files; None: a new temporary folder.

    Returns:
        The fonts.

    Raises:
        ValueError: a name is neither a font nor a file, or a file is not a SMuFL font.
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
    """Convert a SMuFL font (.otf, .ttf, .woff2) to the archive of outlines that Verovio loads.

    Stem anchors are read from the metadata file in the same folder (NAME.json, NAME_metadata.json or metadata.json);
    without one, they are derived from the boxes of the noteheads. The font is named after its file, or NAMECustom if
    one of Verovio's fonts, which would have priority, has this name.

    Args:
        path: the font.
        folder: folder for the archive; None: a new temporary folder.

    Returns:
        The font.

    Raises:
        ValueError: the file is not a font, or its glyphs are not those of SMuFL.
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
    # Verovio takes the name of the font from that of the file.
    target = (folder or Path(tempfile.mkdtemp(prefix="entourage-font-"))) / f"{name}.zip"
    with atomic_path(target) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED) as archive:
        glyphs = [(f"{name}/{code:04X}.xml", text) for code, text in files.items()]
        for inside, text in ((f"{name}.xml", index), *glyphs, (f"{name}.css", "")):
            archive.writestr(zipfile.ZipInfo(inside), text, zipfile.ZIP_DEFLATED)  # with a fixed date, 1980
    return MusicFont(name, target, hashlib.sha256("".join((index, *files.values())).encode()).hexdigest())


def _outlines(path: Path) -> dict[int, _Outline]:
    """Return the glyphs of a font at SMuFL's code points; none if its only character map is a symbol encoding."""
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
    except Exception as error:  # tables are read lazily, and damaged ones raise errors of almost any type
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise ValueError(f"{path}: cannot be read: {reason}; expected an OpenType or TrueType font") from error
    return outlines


def _check_glyph_heights(path: Path, outlines: dict[int, _Outline]) -> None:
    """Check the heights of three glyphs: other fonts than SMuFL's have other glyphs at these code points."""
    for code, (name, minimum, maximum) in _GLYPH_HEIGHTS.items():
        if code not in outlines:
            raise ValueError(f"{path}: has no {name} at U+{code:04X}; expected a SMuFL font")
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
    """Return the stem anchors from the font's metadata by code point, in staff spaces."""
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
                raise ValueError(
                    f"{metadata}: cannot be read: {error}; expected the metadata of a SMuFL font"
                ) from error
    return {}


def _default_anchors(code: int, width: float) -> dict[str, tuple[float, float]]:
    """Return the default stem anchors of a notehead of width `width`, in staff spaces."""
    if code not in (0xE0A3, 0xE0A4):
        return {}
    return {"stemUpSE": (round(width, 3), 0.168), "stemDownNW": (0.0, -0.168)}


_TEXT_FONT_FILES = {  # (bold, italic)
    (False, False): "STIXGeneral.ttf",
    (False, True): "STIXGeneralItalic.ttf",
    (True, False): "STIXGeneralBol.ttf",
    (True, True): "STIXGeneralBolIta.ttf",
}
_FALLBACK_TEXT_FONT = "DejaVuSans.ttf"  # supports far more scripts


@dataclass(frozen=True)
class Letter:
    """Outline and advance width of a glyph at a font size of 1.

    Attributes:
        edges: outline relative to the origin, y downwards, shape (n, 4).
        advance: distance to the origin of the next glyph.
    """

    edges: Edges
    advance: float


class Typeface:
    """Letters of the text font, converted on first use and cached."""

    def __init__(self) -> None:
        self._fonts: dict[str, TTFont] = {}
        self._letters: dict[tuple[str, bool, bool], Letter] = {}

    def letter(self, character: str, bold: bool = False, italic: bool = False) -> Letter:
        """Return the outline of a character; characters that no font contains are blank."""
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


_FALLBACK_MUSIC_FONT = "Leipzig"  # contains the glyphs that other fonts lack; Verovio uses it, too
_LETTER_SPACING = 0.02  # ems between glyphs


class MusicLetters:
    """Glyphs of music fonts as letters, read on first use and cached.

    Args:
        folder: glyphs of the engraver's fonts, FONT/CODE.xml, or None.
        custom: archive of a custom font (see `convert_font`), or None.
    """

    def __init__(self, folder: Path | None = None, custom: Path | None = None) -> None:
        self._folder = folder
        self._custom = custom
        self._letters: dict[tuple[str, str], Letter] = {}

    def letter(self, character: str, font: str) -> Letter:
        """Return the outline of a music glyph; glyphs that no font contains are blank.

        Args:
            character: character with the code point of the glyph.
            font: name of the font, or several separated by commas, of which the first is used.
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
        # The name comes from a score and must not be a path.
        names = (font, _FALLBACK_MUSIC_FONT) if font.isalnum() else (_FALLBACK_MUSIC_FONT,)
        paths = [self._folder / name / file for name in names] if self._folder else []
        return next((path.read_bytes() for path in paths if path.is_file()), b"")


def _draw(text: bytes) -> Letter:
    glyph = parse_xml(text)
    data = "".join(path.get("d", "") for path in glyph.iter("{*}path"))
    edges = fill_edges(parse_path(data, tolerance=1)) * (np.array([1, -1, 1, -1]) / 1000)  # y upwards in the font
    return Letter(edges, float(edges[:, [0, 2]].max(initial=0.0)) + _LETTER_SPACING)
