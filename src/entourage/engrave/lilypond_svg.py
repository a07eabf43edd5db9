"""Reading LilyPond's tagged SVG: marks, and the symbols that the tags say they are."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from lxml import etree

from entourage.engrave.instances import Related, Symbol
from entourage.engrave.marks import Group, Mark
from entourage.engrave.outlines import Edges, ellipse, filled, parse_path, positive, rectangle, stroked
from entourage.engrave.symbols import CLASSES
from entourage.engrave.text import Typeface

_NUMBER = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
_HEADS = {"-1": "DoubleWhole", "0": "Whole", "1": "Half", "2": "Black"}
_RESTS = {"-3": "", "-2": "", "-1": "DoubleWhole", "0": "Whole", "1": "Half", "2": "Quarter"}
_RESTS |= {str(n): f"{2**n}{'nd' if n == 5 else 'th'}" for n in range(3, 8)}
_FLAGS = {"3": "8th", "4": "16th", "5": "32nd", "6": "64th", "7": "128th"}
_SIGNS = {
    "sharp": "Sharp",
    "flat": "Flat",
    "natural": "Natural",
    "doublesharp": "DoubleSharp",
    "flatflat": "DoubleFlat",
}
_CLEFS = {"clefs.G": "clefG", "clefs.F": "clefF", "clefs.percussion": "clefUnpitchedPercussion"}
_SCRIPTS = {"sforzato": "articAccent", "staccato": "articStaccato", "tenuto": "articTenuto", "marcato": "articMarcato"}
_SCRIPTS |= {"staccatissimo": "articStaccatissimo", "fermata": "fermata", "trill": "ornamentTrill"}
_SCRIPTS |= {"turn": "ornamentTurn", "reverseturn": "ornamentTurnInverted", "mordent": "ornamentMordent"}
_SCRIPTS |= {
    "upbow": "stringsUpBow",
    "downbow": "stringsDownBow",
    "segno": "segno",
    "coda": "coda",
    "caesura": "caesura",
}
_WHOLE = {"Slur": "slur", "PhrasingSlur": "slur", "Tie": "tie", "LaissezVibrerTie": "tie", "Arpeggio": "arpeggiato"}
_WHOLE |= {"TupletBracket": "tupletBracket", "OttavaBracket": "ottavaBracket", "SystemStartBrace": "brace"}
_EACH = {"Dots": "augmentationDot", "LedgerLineSpanner": "legerLine", "Beam": "beam"}
_STEPS = ("C", "D", "E", "F", "G", "A", "B")
_HALVES = (0, 2, 4, 5, 7, 9, 11)
_ALTERED = {-1: "bb", Fraction(-1, 2): "b", 0: "", Fraction(1, 2): "#", 1: "##"}


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
            a, *rest = (float(n) for n in _NUMBER.findall(arguments))
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
        root = etree.fromstring(svg.encode(), etree.XMLParser(huge_tree=True, resolve_entities=False, no_network=True))
        marks: list[Mark] = []
        symbols: list[Symbol] = []
        for child in root:
            if not isinstance(child.tag, str):
                continue
            group = Group(tuple(child.get("class", "").split()))
            first = len(marks)
            self._walk(child, group, _Place(sx=self.pixels, sy=self.pixels), marks)
            drawn = list(range(first, len(marks)))
            if drawn and group.kind:
                symbols += _symbols(group, dict(child.attrib), drawn, marks)
        _number_staves(symbols, marks, self.pixels)
        return marks, Related(symbols)

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
            points = np.array(_NUMBER.findall(element.get("points", "")), dtype=float).reshape(-1, 2)
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


def _symbols(group: Group, tags: Mapping[str, str], drawn: list[int], marks: list[Mark]) -> list[Symbol]:
    """The symbols that a tagged object is: one, or one a mark."""
    kind = group.kind
    if kind == "StaffSymbol":
        found = [Symbol("staff", "", drawn, group)]
    elif kind in _WHOLE:
        found = [_plain(_WHOLE[kind], drawn, group)]
    elif kind in _EACH:
        found = [_plain(_EACH[kind], [i], group) for i in drawn]
    elif kind in ("KeySignature", "KeyCancellation"):
        sign = "Natural" if kind == "KeyCancellation" else "Flat" if tags["data-sign"].startswith("-") else "Sharp"
        found = [_plain(f"key{sign}", [i], group) for i in drawn]
    elif kind == "TimeSignature":
        found = _time(tags, drawn, group, marks)
    elif kind == "BarLine":
        found = [_plain("repeatDot", [i], group) for i in drawn if marks[i].shape == "glyph"]
    elif kind == "DynamicText":
        letters = [c for c in tags["data-text"] if c in "pmfszr"]
        found = [_plain(f"dynamic{c.upper()}", [i], group) for c, i in zip(letters, drawn, strict=False)]
    elif kind in ("TupletNumber", "Fingering"):
        start = "tuplet" if kind == "TupletNumber" else "fingering"
        digits = [c for c in tags["data-text"] if c.isdigit()]
        found = [_plain(f"{start}{c}", [i], group) for c, i in zip(digits, drawn, strict=False)]
    else:
        label = _label(kind, tags)
        found = [_plain(label, drawn, group)] if label else []
    found = [symbol for symbol in found if symbol.label in CLASSES]
    for symbol in found:
        _describe(symbol, tags)
    return found


def _label(kind: str, tags: Mapping[str, str]) -> str:
    small = "Small" if tags["data-grace"] not in ("", "0") else ""
    up = tags["data-direction"] != "-1"
    if kind == "NoteHead":
        on_line = int(tags["data-position"] or 0) % 2 == 0
        return f"notehead{_HEADS.get(tags['data-log'], 'Black')}{'OnLine' if on_line else 'InSpace'}{small}"
    if kind == "Accidental":
        name = f"accidental{_SIGNS.get(tags['data-glyph'].removeprefix('accidentals.'), '')}"
        return name + small if name + small in CLASSES else name
    if kind == "Flag":
        found = re.fullmatch(r"flags\.([ud])(\d)", tags["data-glyph"])
        name = f"flag{_FLAGS[found[2]]}{'Up' if found[1] == 'u' else 'Down'}" if found else ""
        return name + small if name + small in CLASSES else name
    if kind == "Clef":
        return _CLEFS.get(tags["data-glyph"].removesuffix("_change"), "")
    if kind in ("Rest", "MultiMeasureRest"):
        return f"rest{_RESTS.get(tags['data-log'] or '0', '')}"
    if kind == "Script":
        names = re.findall(r"[a-z]+", tags["data-script"])
        name = next((_SCRIPTS[n] for word in names for n in (word, word[1:]) if n in _SCRIPTS), "")
        return name + ("Above" if up else "Below") if name.startswith(("artic", "fermata")) else name
    if kind == "Hairpin":
        return "dynamicCrescendoHairpin" if tags["data-grow"] == "1" else "dynamicDiminuendoHairpin"
    if kind == "StemTremolo":
        return f"tremolo{tags['data-flags']}"
    if kind == "SustainPedal":
        return "keyboardPedalUp" if tags["data-text"] == "*" else "keyboardPedalPed"
    return {"Stem": "stem", "MultiMeasureRestNumber": "restHNr", "ClefModifier": "clef8"}.get(kind, "")


def _time(tags: Mapping[str, str], drawn: list[int], group: Group, marks: list[Mark]) -> list[Symbol]:
    """The digits of a time signature, top row first, or the one sign for common or cut time."""
    pair = re.findall(r"\d+", tags["data-fraction"])
    if len(pair) != 2:
        return []
    if len(drawn) == 1:
        return [_plain("timeSigCommon" if pair == ["4", "4"] else "timeSigCutCommon", drawn, group)]
    rows = sorted(drawn, key=lambda i: (marks[i].y > np.mean([marks[k].y for k in drawn]), marks[i].x))
    return [_plain(f"timeSig{digit}", [i], group) for digit, i in zip("".join(pair), rows, strict=False)]


def _plain(label: str, marks: list[int], group: Group) -> Symbol:
    v1 = CLASSES[label].v1 if label in CLASSES else None
    return Symbol(label, v1 or "", marks, group)


def _describe(symbol: Symbol, tags: Mapping[str, str]) -> None:
    if tags["data-onset"]:
        symbol.onset = float(4 * Fraction(tags["data-onset"]))
    if not symbol.label.startswith(("notehead", "rest")):
        return
    if tags["data-duration"]:
        grace = tags["data-grace"] not in ("", "0")
        symbol.duration = 0.0 if grace else float(4 * Fraction(tags["data-duration"]))
    if tags["data-pitch"] and symbol.label.startswith("notehead"):
        octave, step, alter = tags["data-pitch"].split()
        sign = Fraction(alter)
        symbol.pitch = f"{_STEPS[int(step)]}{_ALTERED.get(sign, '')}{int(octave) + 4}"
        symbol.midi = 12 * (int(octave) + 5) + _HALVES[int(step)] + int(2 * sign)
        symbol.position = int(tags["data-position"] or 0)


def _number_staves(symbols: list[Symbol], marks: list[Mark], pixels: float) -> None:
    """Says of each symbol which staff it stands on: the nearest, counted within its system from the top."""
    staves = []
    for symbol in symbols:
        if symbol.label == "staff":
            points = np.concatenate([marks[i].edges[:, :2] for i in symbol.marks])
            staves.append((float(points[:, 1].mean()), float(points[:, 0].min()), symbol))
    staves.sort(key=lambda staff: staff[0])
    number, last = 0, -np.inf
    for y, _, symbol in staves:
        number = number + 1 if y - last < 12 * pixels else 1  # systems stand farther apart than staves
        symbol.staff, last = number, y
    heights = np.array([y for y, _, _ in staves])
    for symbol in symbols:
        if symbol.label != "staff" and len(heights):
            y = float(np.mean([marks[i].y for i in symbol.marks]))
            symbol.staff = staves[int(np.abs(heights - y).argmin())][2].staff
