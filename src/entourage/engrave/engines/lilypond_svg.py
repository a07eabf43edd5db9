"""Reading LilyPond's tagged SVG: what is drawn, object by object."""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from lxml import etree

from entourage.engrave.engines.lilypond_tags import number_staves, tagged_symbols, unlabelled
from entourage.engrave.engines.text import Typeface
from entourage.engrave.render.instances import Related, Symbol
from entourage.engrave.render.marks import Group, Mark
from entourage.engrave.render.outlines import NUMBER, Edges, ellipse, filled, parse_path, positive, rectangle, stroked
from entourage.io.safe_xml import parse_xml


@dataclass(frozen=True)
class _Place:
    """Shift and scale of what is inside a group."""

    x: float = 0.0
    y: float = 0.0
    sx: float = 1.0
    sy: float = 1.0

    def inside(self, transform: str | None) -> _Place:
        place = self
        for name, arguments in re.findall(r"(\w+)\(([^)]*)\)", transform or ""):
            a, *rest = (float(n) for n in NUMBER.findall(arguments))
            b = rest[0] if rest else a
            if name == "translate":
                place = _Place(place.x + place.sx * a, place.y + place.sy * b, place.sx, place.sy)
            elif name == "scale":
                place = _Place(place.x, place.y, place.sx * a, place.sy * b)
        return place

    def edges(self, edges: Edges) -> Edges:
        scale, shift = np.array([self.sx, self.sy] * 2), np.array([self.x, self.y] * 2)
        return np.asarray(edges * scale + shift)


class LilypondReader:
    """Reads pages; letters are kept from page to page.

    Args:
        pixels: pixels a staff space, LilyPond's unit.
    """

    def __init__(self, pixels: float) -> None:
        self.pixels = pixels
        self._type = Typeface()

    def read(self, svg: str) -> tuple[list[Mark], Related]:
        """The marks of a page and the symbols among them."""
        root = parse_xml(svg.encode())
        marks: list[Mark] = []
        symbols: list[Symbol] = []
        missing: list[str] = []
        for child in root:
            if not isinstance(child.tag, str):
                continue
            group = Group(tuple(child.get("class", "").split()))
            first = len(marks)
            self._walk(child, group, _Place(sx=self.pixels, sy=self.pixels), marks)
            drawn, tags = list(range(first, len(marks))), dict(child.attrib)
            found = tagged_symbols(group, tags, drawn, marks) if drawn and group.kind else []
            taken = {i for symbol in found for i in symbol.marks}
            missing += unlabelled(group, tags, [i for i in drawn if i not in taken], marks)
            symbols += found
        number_staves(symbols, marks, self.pixels)
        return marks, Related(symbols, missing)

    def _walk(self, element: etree._Element, group: Group, place: _Place, marks: list[Mark]) -> None:
        tag = etree.QName(element).localname
        place = place.inside(element.get("transform"))
        if tag in ("g", "a"):
            for child in element:
                if isinstance(child.tag, str):
                    self._walk(child, group, place, marks)
            return
        if tag == "text":
            self._text(element, group, place, marks)
            return
        edges = self._outline(tag, element, place)
        if len(edges):
            points = edges[:, :2]
            shape = "glyph" if tag == "path" and not element.get("stroke-width") else "area"
            middle = (points.min(axis=0) + points.max(axis=0)) / 2
            marks.append(Mark(shape, edges, group, 0, 0.0, middle[0], middle[1]))

    def _outline(self, tag: str, element: etree._Element, place: _Place) -> Edges:
        def number(name: str) -> float:
            return float(element.get(name, "0"))

        width = number("stroke-width")
        if tag == "line":
            ends = np.array([[number("x1"), number("y1")], [number("x2"), number("y2")]])
            return place.edges(stroked(ends, width, "square"))
        if tag == "rect":
            return place.edges(rectangle(number("x"), number("y"), number("width"), number("height")))
        if tag == "circle":
            return place.edges(ellipse(number("cx"), number("cy"), number("r"), number("r")))
        if tag == "polygon":
            points = np.array(NUMBER.findall(element.get("points", "")), dtype=float).reshape(-1, 2)
            return place.edges(positive(filled([points])))
        if tag == "path":
            fine = 0.04 / abs(place.sx)
            lines = parse_path(element.get("d", ""), fine)
            solid = element.get("fill") != "none"
            parts = [filled(lines)] if solid else []
            if width > 0:
                parts = [positive(part) for part in parts] + [stroked(line, width, "round") for line in lines]
            return place.edges(np.concatenate(parts)) if parts else filled([])
        return filled([])

    def _text(self, element: etree._Element, group: Group, place: _Place, marks: list[Mark]) -> None:
        size = float(element.get("font-size", "1"))
        bold, italic = element.get("font-weight") == "bold", element.get("font-style") == "italic"
        x = 0.0
        for character in "".join(element.itertext()).strip("\n"):
            letter = self._type.letter(character, bold, italic)
            if len(letter.edges):
                edges = place.edges(letter.edges * size + np.array([x, 0, x, 0]))
                marks.append(Mark("letter", edges, group, ord(character), 0.0, edges[:, 0].min(), place.y))
            x += letter.advance * size
