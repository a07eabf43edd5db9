"""Verovio, the default engraver: it converts a score to pages of SVG, whose marks and groups are read here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import verovio
from lxml import etree

from entourage.engrave.annotate.assign_classes import assign_classes
from entourage.engrave.annotate.mei import Event, read_events
from entourage.engrave.engines.fonts import Letter, MusicLetters, Typeface
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.marks import Group, Mark
from entourage.engrave.render.outlines import (
    NUMBER,
    Edges,
    dashes,
    ellipse,
    fill_edges,
    orient_positive,
    parse_path,
    rectangle,
    stroke_edges,
    transform_edges,
)
from entourage.engrave.render.page import Page, render_page
from entourage.engrave.scores.parsing import Score
from entourage.io.safe_formats import parse_xml

_HREF = "{http://www.w3.org/1999/xlink}href"
_CALL = re.compile(r"(\w+)\(([^)]*)\)")
_CURVE_TOLERANCE = 0.04  # maximum distance in pixels between a curve and its chords
_BOLD = {"ending", "fing", "reh", "tempo"}  # as in the style sheet of the SVG
_ITALIC = {"dir", "dynam", "mNum"}


@dataclass
class _TextCursor:
    """Position, font and letters of a line of text while its elements are read."""

    x: float
    y: float
    anchor: str
    size: float = 0.0
    font: str = ""
    run: list[tuple[float, Letter, int, float]] = field(default_factory=list)  # offset, letter, code, size


class SvgReader:
    """Reader of SVG pages that caches the outlines of glyphs and letters between pages.

    Args:
        pixels: pixels per unit of the page's view box.
        fonts: folder with the glyphs of music fonts, for music inside text, or None.
        custom: archive of a custom font, for music inside text, or None.
    """

    def __init__(self, pixels: float, fonts: Path | None = None, custom: Path | None = None) -> None:
        self.pixels = pixels
        self._music = MusicLetters(fonts, custom)
        self._glyphs: dict[str, Edges] = {}  # by path data, which differs between fonts
        self._type = Typeface()

    def read(self, svg: str) -> list[Mark]:
        """Read the marks of a page in the order of drawing.

        Args:
            svg: SVG document as written by Verovio.

        Returns:
            The marks.
        """
        root = parse_xml(svg.encode())
        marks: list[Mark] = []
        codes: dict[str, tuple[int, Edges]] = {}
        for child in root:
            tag = etree.QName(child).localname
            if tag == "defs":
                codes = {f"#{g.get('id')}": self._definition(g) for g in child}
            elif tag == "svg":
                self._walk(child, Group(), (0.0, 0.0), codes, marks)
        return marks

    def _definition(self, g: etree._Element) -> tuple[int, Edges]:
        data = g[0].get("d", "")
        if data not in self._glyphs:
            # Font units, 1000 per em with y upwards; an em is about 80 pixels.
            flip = np.array([1, -1, 1, -1]) / 1000
            self._glyphs[data] = fill_edges(parse_path(data, tolerance=_CURVE_TOLERANCE * 1000 / 80)) * flip
        return int(g.get("id", "0").split("-")[0], 16), self._glyphs[data]

    def _walk(
        self,
        element: etree._Element,
        group: Group,
        origin: tuple[float, float],
        codes: dict[str, tuple[int, Edges]],
        marks: list[Mark],
    ) -> None:
        for child in element:
            tag = child.tag
            if not isinstance(tag, str):
                continue
            tag = tag[tag.index("}") + 1 :]
            if tag == "g":
                classes = tuple(child.get("class", "").split())
                if "placeholder" in classes or child.get("visibility") == "hidden":
                    continue
                transform = child.get("transform", "")
                x, y, _ = _shift_and_scale(transform)
                inner = Group(classes, child.get("id") or _continued_id(classes), group)
                first = len(marks)
                self._walk(child, inner, (origin[0] + x, origin[1] + y), codes, marks)
                for angle, x, y in _rotations(transform):  # arpeggios are drawn horizontally and rotated
                    for mark in marks[first:]:
                        mark.rotate(angle, (origin[0] + x) * self.pixels, (origin[1] + y) * self.pixels)
            elif tag == "use":
                code, outline = codes[child.get(_HREF)]
                x, y, size = _shift_and_scale(child.get("transform", ""))
                px, py, scale = (origin[0] + x) * self.pixels, (origin[1] + y) * self.pixels, 1000 * size * self.pixels
                marks.append(Mark("glyph", transform_edges(outline, scale, px, py), group, code, scale, px, py))
            elif tag == "text":
                self._text(child, group, origin, marks)
            else:
                marks += self._shape_marks(tag, child, group, origin)

    def _shape_marks(self, tag: str, element: etree._Element, group: Group, origin: tuple[float, float]) -> list[Mark]:
        """Return the marks of an ellipse, rectangle, polygon, polyline or path; none for other elements."""

        def number(name: str) -> float:
            return float(element.get(name, "0")) * self.pixels

        shift = np.array(origin)
        left, top = origin[0] * self.pixels, origin[1] * self.pixels
        width = number("stroke-width")
        if tag == "ellipse":
            x, y = left + number("cx"), top + number("cy")
            return [Mark("area", ellipse(x, y, number("rx"), number("ry")), group, x=x, y=y)]
        if tag == "rect":
            x, y = left + number("x"), top + number("y")
            return [Mark("area", rectangle(x, y, number("width"), number("height")), group, x=x, y=y)]
        if tag in ("polygon", "polyline"):
            numbers = np.array(NUMBER.findall(element.get("points", "")), dtype=float)
            lines = [(numbers.reshape(-1, 2) + shift) * self.pixels]
        elif tag == "path":
            lines = [
                (p + shift) * self.pixels for p in parse_path(element.get("d", ""), _CURVE_TOLERANCE / self.pixels)
            ]
        else:
            return []
        if tag == "polygon" or (tag == "path" and element.get("fill") != "none" and any(len(p) > 2 for p in lines)):
            parts = [orient_positive(fill_edges([p])) for p in lines] + [
                stroke_edges(p, width, "round") for p in lines if width > 0
            ]
            return [Mark("area", np.concatenate(parts), group, x=lines[0][0, 0], y=lines[0][0, 1])]
        pattern = [float(n) * self.pixels for n in NUMBER.findall(element.get("stroke-dasharray", ""))]
        cap = element.get("stroke-linecap", "butt")
        marks = []
        for line in lines:
            pieces = [stroke_edges(piece, width, cap) for piece in dashes(line, pattern)]
            marks.append(Mark("line", np.concatenate(pieces), group, x=line[0, 0], y=line[0, 1], points=line))
        return marks

    def _text(self, element: etree._Element, group: Group, origin: tuple[float, float], marks: list[Mark]) -> None:
        kinds = {above.kind for above in group.ancestors()}
        cursor = _TextCursor(0.0, 0.0, "start")
        self._set_text(element, cursor, bool(kinds & _BOLD), bool(kinds & _ITALIC), group, origin, marks)
        self._flush(cursor, group, origin, marks)

    def _set_text(
        self,
        element: etree._Element,
        cursor: _TextCursor,
        bold: bool,
        italic: bool,
        group: Group,
        origin: tuple[float, float],
        marks: list[Mark],
    ) -> None:
        """Set the text of an element and its descendants; an element with a position starts a new run of letters."""
        if element.get("x") is not None or element.get("y") is not None:
            self._flush(cursor, group, origin, marks)
            cursor.x, cursor.y = float(element.get("x", cursor.x)), float(element.get("y", cursor.y))
        cursor.anchor = element.get("text-anchor", cursor.anchor)
        size = NUMBER.match(element.get("font-size", ""))
        cursor.size = float(size[0]) if size else cursor.size
        bold = {"bold": True, "normal": False}.get(element.get("font-weight", ""), bold)
        italic = {"italic": True, "normal": False}.get(element.get("font-style", ""), italic)
        cursor.font = element.get("font-family", cursor.font)
        self._write(element.text, cursor, bold, italic)
        outer = cursor.size, cursor.font
        for child in element:
            if isinstance(child.tag, str) and child.tag.endswith("tspan"):
                self._set_text(child, cursor, bold, italic, group, origin, marks)
                cursor.size, cursor.font = outer
            self._write(child.tail, cursor, bold, italic)

    def _write(self, text: str | None, cursor: _TextCursor, bold: bool, italic: bool) -> None:
        along = sum(letter.advance * size for _, letter, _, size in cursor.run)
        for character in (text or "").replace("\n", ""):
            music = "\ue000" <= character <= "\uf8ff"  # the range of SMuFL
            letter = self._music.letter(character, cursor.font) if music else self._type.letter(character, bold, italic)
            cursor.run.append((along, letter, ord(character), cursor.size))
            along += letter.advance * cursor.size

    def _flush(self, cursor: _TextCursor, group: Group, origin: tuple[float, float], marks: list[Mark]) -> None:
        length = sum(letter.advance * size for _, letter, _, size in cursor.run)
        left = cursor.x - length * {"middle": 0.5, "end": 1.0}.get(cursor.anchor, 0.0)
        y = (origin[1] + cursor.y) * self.pixels
        for along, letter, code, size in cursor.run:
            x = (origin[0] + left + along) * self.pixels
            if len(letter.edges):
                marks.append(
                    Mark("letter", transform_edges(letter.edges, size * self.pixels, x, y), group, code, 0.0, x, y)
                )
        cursor.run.clear()
        cursor.x = left + length


def _continued_id(classes: tuple[str, ...]) -> str:
    """Return the id of a symbol that continues from an earlier system, where the class "id-..." contains it; or ""."""
    return next((name.removeprefix("id-") for name in classes if name.startswith("id-")), "")


def _rotations(transform: str) -> list[tuple[float, float, float]]:
    """Parse an SVG transform: return angle in degrees and centre of each `rotate(angle x,y)`."""
    turns = [arguments.replace(",", " ").split() for name, arguments in _CALL.findall(transform) if name == "rotate"]
    return [(float(angle), float(x), float(y)) for angle, x, y in turns]


def _shift_and_scale(transform: str) -> tuple[float, float, float]:
    """Parse an SVG transform: return shift and scale of `translate(x, y) scale(s, s)`."""
    x = y = 0.0
    scale = 1.0
    for name, arguments in _CALL.findall(transform):
        numbers = [float(n) for n in arguments.replace(",", " ").split()]
        if name == "translate":
            x, y = numbers[0], (numbers[1] if len(numbers) > 1 else 0.0)
        elif name == "scale":
            scale = numbers[0]
    return x, y, scale


_UNITS = 10  # units of Verovio's view box per pixel, at an interline of 20
MAX_PAGES = 2000
_INPUT = {"musicxml": "xml", "mei": "mei", "abc": "abc", "humdrum": "humdrum"}


class VerovioEngraver:
    """Engraver of scores in one font and size that caches outlines between pages.

    Args:
        options: size of pages.
        font: the music font.
        seed: seed of the ids that Verovio assigns.
    """

    def __init__(self, options: PageOptions, font: MusicFont, seed: int = 1) -> None:
        self.options = options
        self.font = font
        self.seed = seed
        data = Path(verovio.__file__).parent / "data"
        self._reader = SvgReader(options.interline / 20 / _UNITS, data, font.file)
        self._toolkit = verovio.toolkit(False)  # with True, it would search for its data next to the main program
        self._toolkit.setResourcePath(str(data))
        verovio.enableLog(verovio.LOG_OFF)
        if font.file is not None:
            self._toolkit.setOptions({"fontAddCustom": [str(font.file)]})

    def engrave(self, score: Score, make_degrader: Callable[[int], Degrader | None] = lambda _: None) -> Iterator[Page]:
        """Engrave a score page by page, with annotations.

        Args:
            score: the score.
            make_degrader: function from the number of a page to its degradation, or to None.

        Yields:
            The pages with their annotations.

        Raises:
            ValueError: Verovio cannot read the score, or its number of pages is 0 or above `MAX_PAGES`.
        """
        events = self.load(score)
        for number in range(1, self._toolkit.getPageCount() + 1):
            yield self.draw(self._toolkit.renderToSVG(number), events, score, number, make_degrader(number))

    def load(self, score: Score) -> dict[str, Event]:
        """Load a score into Verovio, compute its layout, and return its musical events by id.

        Raises:
            ValueError: as in `engrave`.
        """
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
                "dynamSingleGlyphs": True,  # single letters; `combine_dynamics` combines them
                "expandNever": True,
                "svgFormatRaw": True,
                "outputFormatRaw": True,
                "smuflTextFont": "linked",
            }
        )
        if not self._toolkit.loadData(score.text):
            raise ValueError(f"{score.name}: Verovio cannot read it as {score.notation}")
        pages = self._toolkit.getPageCount()
        if not 1 <= pages <= MAX_PAGES:
            raise ValueError(f"{score.name}: Verovio lays out {pages} pages; expected 1 to {MAX_PAGES}")
        return read_events(self._toolkit.getMEI())

    def mei(self) -> str:
        """Return the score that was engraved last as MEI, with the ids to which symbols refer."""
        return re.sub(r' isodate="[^"]*"', "", self._toolkit.getMEI())  # without the time, so that runs are equal

    def draw(
        self, svg: str, events: dict[str, Event], score: Score, number: int, degrader: Degrader | None = None
    ) -> Page:
        """Render a page and its annotations.

        Args:
            svg: the page as written by Verovio.
            events: musical events of the score by id.
            score: the score.
            number: number of the page, from 1.
            degrader: degradation of the page, or None.

        Returns:
            The page.
        """
        marks = self._reader.read(svg)
        ids = score.ids or events.keys()
        annotated = assign_classes(marks, events, ids, self.options.interline)
        return render_page(marks, annotated, self.options.height, self.options.width, number, degrader)
