"""Classes and musical attributes of LilyPond's objects, from the tags that `lilypond_tags.ily` adds to them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from entourage.engrave.annotate.barlines import barline_class, is_dot, split_barlines, vertical_extent
from entourage.engrave.render.marks import Group, Mark, Symbol
from entourage.symbols import CLASSES

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
_C_CLEFS = {"0": "clefCAlto", "2": "clefCTenor"}  # by steps above the middle of the staff
_SCRIPTS = {"sforzato": "articAccent", "staccato": "articStaccato", "tenuto": "articTenuto", "marcato": "articMarcato"}
_SCRIPTS |= {"staccatissimo": "articStaccatissimo", "fermata": "fermata", "trill": "ornamentTrill"}
_SCRIPTS |= {"turn": "ornamentTurn", "reverseturn": "ornamentTurnInverted", "mordent": "ornamentMordent"}
_SCRIPTS |= {"prall": "ornamentShortTrill"}
_SCRIPTS |= {
    "upbow": "stringsUpBow",
    "downbow": "stringsDownBow",
    "segno": "segno",
    "coda": "coda",
    "caesura": "caesura",
}
_SINGLE_SYMBOLS = {
    "Slur": "slur",
    "PhrasingSlur": "slur",
    "Tie": "tie",
    "LaissezVibrerTie": "tie",
    "Arpeggio": "arpeggiato",
}
_SINGLE_SYMBOLS |= {"TupletBracket": "tupletBracket", "OttavaBracket": "ottavaBracket", "SystemStartBrace": "brace"}
_SINGLE_SYMBOLS |= {
    "SystemStartBracket": "bracket",
    "SystemStartSquare": "bracket",
    "SystemStartBar": "barlineSystemic",
}
_SYMBOL_PER_MARK = {"Dots": "augmentationDot", "LedgerLineSpanner": "legerLine", "Beam": "beam"}
_NUMBERS = {"TupletNumber": "tuplet", "Fingering": "fingering"}
BARLINE_KINDS = ("BarLine", "SpanBar")  # pieces of bar lines, on staves and between them
_IGNORED_KINDS = ("Parentheses", "VoltaBracket", *BARLINE_KINDS)  # their parts and numbers have no class
_SEVERAL_STAVES = ("barline", "repeatLeft", "repeatRight", "brace", "bracket")
_STEPS = ("C", "D", "E", "F", "G", "A", "B")
_SEMITONES = (0, 2, 4, 5, 7, 9, 11)
_ALTERED = {-1: "bb", Fraction(-1, 2): "b", 0: "", Fraction(1, 2): "#", 1: "##"}


def tagged_symbols(group: Group, tags: Mapping[str, str], indices: list[int], marks: list[Mark]) -> list[Symbol]:
    """Convert a tagged object to symbols: one for the object, or one for each of its marks.

    Args:
        group: the object; its kind is LilyPond's name of the object type.
        tags: attributes that `lilypond_tags.ily` has added.
        indices: indices of its marks.
        marks: all marks of the page.

    Returns:
        The symbols; none for objects without a class.
    """
    kind = group.kind
    if kind == "StaffSymbol":
        symbols = [Symbol("staff", "", indices, group)]
    elif kind in _SINGLE_SYMBOLS:
        symbols = [_make_symbol(_SINGLE_SYMBOLS[kind], indices, group)]
    elif kind in _SYMBOL_PER_MARK:
        symbols = [_make_symbol(_SYMBOL_PER_MARK[kind], [i], group) for i in indices]
    elif kind in ("KeySignature", "KeyCancellation"):
        sign = "Natural" if kind == "KeyCancellation" else "Flat" if tags["data-sign"].startswith("-") else "Sharp"
        symbols = [_make_symbol(f"key{sign}", [i], group) for i in indices]
    elif kind == "TimeSignature":
        symbols = _time(tags, indices, group, marks)
    elif kind == "VoltaBracket":
        lines = [i for i in indices if marks[i].shape == "area"]  # without the number
        symbols = [_make_symbol("voltaBracket", lines, group)] if lines else []
    elif kind == "DynamicText":
        symbols = _symbol_per_character("dynamic", tags["data-text"].upper(), indices, group)
    elif kind in _NUMBERS:
        symbols = _symbol_per_character(_NUMBERS[kind], tags["data-text"], indices, group)
    else:
        label = _label(kind, tags)
        symbols = [_make_symbol(label, indices, group)] if label else []
    symbols = [symbol for symbol in symbols if symbol.label in CLASSES]
    for symbol in symbols:
        _fill_attributes(symbol, tags)
    return symbols


def barline_symbols(
    pieces: Mapping[int, tuple[Group, Mapping[str, str]]], marks: list[Mark], pixels: float
) -> list[Symbol]:
    """Join the pieces of bar lines to symbols, with their repeat dots as symbols, too.

    Args:
        pieces: group and tags of each mark of a bar line, by its index.
        marks: all marks of the page.
        pixels: pixels per staff space.

    Returns:
        The symbols.
    """
    symbols = []
    for line in split_barlines(pieces, marks, pixels):
        label = barline_class(line, marks, pixels)
        dots = [i for i in line if is_dot(marks[i], pixels)] if label != "barlineDashed" else []
        for name, indices in [(label, line), *(("repeatDot", [i]) for i in dots)]:
            if name:
                group, tags = pieces[indices[0]]
                symbols.append(_make_symbol(name, indices, group))
                _fill_attributes(symbols[-1], tags)
    return symbols


def unlabelled(group: Group, tags: Mapping[str, str], indices: list[int], marks: list[Mark]) -> list[str]:
    """List the names of an object's glyphs that belong to no symbol, such as "Clef:clefs.C".

    Args:
        group: the object.
        tags: its attributes.
        indices: indices of its marks that belong to no symbol.
        marks: all marks of the page.

    Returns:
        One name per glyph.
    """
    if group.kind in _IGNORED_KINDS:
        return []
    label = tags.get("data-glyph") or "".join(tags.get("data-text", "").split())
    name = ":".join(filter(None, (group.kind or "untagged", label)))
    return [name for i in indices if _is_music(marks[i])]


def _is_music(mark: Mark) -> bool:
    if mark.shape != "letter":
        return mark.shape == "glyph"
    return 0x2669 <= mark.code <= 0x266F or (mark.group.kind in _NUMBERS and chr(mark.code).isalnum())


def _symbol_per_character(prefix: str, text: str, indices: list[int], group: Group) -> list[Symbol]:
    """Return one symbol per character; none if the numbers of characters and marks differ."""
    characters = "".join(text.split())
    if len(characters) != len(indices):
        return []
    return [_make_symbol(f"{prefix}{character}", [i], group) for character, i in zip(characters, indices, strict=True)]


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
        match = re.fullmatch(r"flags\.([ud])(\d)", tags["data-glyph"])
        name = f"flag{_FLAGS[match[2]]}{'Up' if match[1] == 'u' else 'Down'}" if match else ""
        return name + small if name + small in CLASSES else name
    if kind == "Clef":
        glyph = tags["data-glyph"].removesuffix("_change")
        return _C_CLEFS.get(tags["data-position"], "") if glyph == "clefs.C" else _CLEFS.get(glyph, "")
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


def _time(tags: Mapping[str, str], indices: list[int], group: Group, marks: list[Mark]) -> list[Symbol]:
    """Return the digits of a time signature, top row first, or the sign for common or cut time."""
    pair = re.findall(r"\d+", tags["data-fraction"])
    if len(pair) != 2:
        return []
    if len(indices) == 1:
        return [_make_symbol("timeSigCommon" if pair == ["4", "4"] else "timeSigCutCommon", indices, group)]
    if len(indices) != len("".join(pair)):  # for 3+2/8, the tag has the sum of the beats, 5/8
        return []
    rows = sorted(indices, key=lambda i: (marks[i].y > np.mean([marks[k].y for k in indices]), marks[i].x))
    return [_make_symbol(f"timeSig{digit}", [i], group) for digit, i in zip("".join(pair), rows, strict=True)]


def _make_symbol(label: str, marks: list[int], group: Group) -> Symbol:
    v1 = CLASSES[label].v1 if label in CLASSES else None
    return Symbol(label, v1 or "", marks, group)


def _fill_attributes(symbol: Symbol, tags: Mapping[str, str]) -> None:
    if tags["data-onset"]:
        symbol.onset = float(4 * Fraction(tags["data-onset"]))
    symbol.voice = voice_number(tags.get("data-voice", ""))
    if not symbol.label.startswith(("notehead", "rest")):
        return
    if tags["data-duration"]:
        grace = tags["data-grace"] not in ("", "0")
        symbol.duration = 0.0 if grace else float(4 * Fraction(tags["data-duration"]))
    if tags["data-pitch"] and symbol.label.startswith("notehead"):
        octave, step, alter = tags["data-pitch"].split()
        sign = Fraction(alter)
        symbol.pitch = f"{_STEPS[int(step)]}{_ALTERED.get(sign, '')}{int(octave) + 4}"
        symbol.midi = 12 * (int(octave) + 5) + _SEMITONES[int(step)] + int(2 * sign)
        symbol.position = int(tags["data-position"] or 0)


_DIGIT_NAMES = ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine")


def voice_number(name: str) -> int:
    """Return the number of a voice from its name in `musicxml2ly`, such as "PartPOneVoiceFive"; 0 for other names."""
    words = re.findall("[A-Z][a-z]*", name.rpartition("Voice")[2])
    if not words or not set(words) <= set(_DIGIT_NAMES):
        return 0
    return int("".join(str(_DIGIT_NAMES.index(word)) for word in words))


def number_staves(symbols: list[Symbol], marks: list[Mark], pixels: float, names: Mapping[Group, str]) -> None:
    """Assign each symbol the numbers of its staff, from 1 at the top of its system, and of its system on the page.

    It is the nearest staff of the same name, or of any name if the symbol has none. The staff of bar lines, brackets
    and braces is the highest that they reach.

    Args:
        symbols: symbols of the page, modified in place.
        marks: marks of the page.
        pixels: pixels per staff space.
        names: names of the staves of symbols, by group; "" if unknown.
    """
    staves = []
    for symbol in symbols:
        if symbol.label == "staff":
            points = np.concatenate([marks[i].edges[:, :2] for i in symbol.marks])
            staves.append((float(points[:, 1].mean()), float(points[:, 0].min()), symbol))
    staves.sort(key=lambda staff: staff[0])
    number, system, last = 0, 0, -np.inf
    for y, _, symbol in staves:
        joined = y - last < 12 * pixels  # systems are farther apart than staves
        number, system = (number + 1, system) if joined else (1, system + 1)
        symbol.staff, symbol.system, last = number, system, y
    heights = np.array([y for y, _, _ in staves])
    for symbol in symbols:
        if symbol.label != "staff" and len(heights):
            y = float(np.mean([marks[i].y for i in symbol.marks]))
            distances = np.abs(heights - y)
            if symbol.label.startswith(_SEVERAL_STAVES):
                distances = np.abs(heights - 2 * pixels - min(vertical_extent(marks[i])[0] for i in symbol.marks))
            elif name := names.get(symbol.group):
                distances[[names.get(staff.group) not in ("", None, name) for _, _, staff in staves]] = np.inf
            nearest = staves[int(distances.argmin())][2]
            symbol.staff, symbol.system = nearest.staff, nearest.system
