"""Classification of marks into symbols, and their musical attributes: onset, duration, staff, notes, score element.

The class of a mark depends on its context, never on its shape alone. A dot is a staccato or an augmentation dot
according to its group in the engraver's output, small glyphs belong to grace notes, and noteheads are on a line or in
a space according to the staff lines.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from entourage.engrave.annotate.barlines import barline_class, is_dot, split_barlines
from entourage.engrave.annotate.grouping import (
    LETTERS,
    Staves,
    attach_ledgers,
    combine_dynamics,
    combine_graces,
    combine_times,
)
from entourage.engrave.annotate.mei import Event
from entourage.engrave.render.marks import AnnotatedMarks, Group, Mark, Symbol
from entourage.engrave.render.outlines import Edges, rings, split_at
from entourage.symbols import CLASSES, FULL_IDS

CLEFS = {  # code point: (clef, class of the octave number attached to it, or "")
    **{0xE050: ("clefG", ""), 0xE051: ("clefG", "clef15"), 0xE052: ("clefG", "clef8")},
    **{0xE053: ("clefG", "clef8"), 0xE054: ("clefG", "clef15"), 0xE07A: ("clefG", "")},
    **{0xE05C: ("clefC", ""), 0xE05D: ("clefC", "clef8"), 0xE07B: ("clefC", "")},
    **{0xE062: ("clefF", ""), 0xE063: ("clefF", "clef15"), 0xE064: ("clefF", "clef8")},
    **{0xE065: ("clefF", "clef8"), 0xE066: ("clefF", "clef15"), 0xE07C: ("clefF", "")},
    **{0xE069: ("clefUnpitchedPercussion", ""), 0xE06A: ("clefUnpitchedPercussion", "")},
}
CLEF_CHANGES = {"clefG": "gClefChange", "clefF": "fClefChange"}  # classes of V1 for clefs within a system
CLEF_CHANGES |= {"clefCAlto": "cClefAltoChange", "clefCTenor": "cClefTenorChange"}
# Vertical extent of each clef in ems from its line, y downwards; outlines beyond it belong to the octave number.
_CLEF_EXTENTS = {"clefG": (-1.0, 0.53), "clefF": (-0.22, 0.49), "clefCAlto": (-0.49, 0.49), "clefCTenor": (-0.49, 0.49)}
_DIGIT_HEIGHT = 0.235  # ems


def clef_class(code: int, position: int, lines: int = 5) -> str:
    """Return the class of a clef, which depends on its position on the staff.

    Args:
        code: code point of the glyph.
        position: position of the clef's line, in steps above the middle of the staff.
        lines: number of lines of the staff.

    Returns:
        The class; "" for clefs without one (soprano, mezzo-soprano and baritone clefs).
    """
    name, _ = CLEFS.get(code, ("", ""))
    if name != "clefC":
        return name
    return {3: "clefCAlto", 4: "clefCTenor"}.get((position + lines - 1) // 2 + 1, "")


def split_clef(edges: Edges, clef: str, y: float, scale: float) -> tuple[Edges, Edges]:
    """Split the glyph of an octave clef into its two symbols: the clef and the octave number.

    The cut is just beyond the holes of an 8. A 15 has no holes and is assumed to be as high as any other digit.

    Args:
        edges: outline in pixels, shape (n, 4).
        clef: class of the clef.
        y: vertical position of the clef's line in pixels.
        scale: pixels per em.

    Returns:
        The outlines of the clef and of the number.
    """
    above, below = (y + reach * scale for reach in _CLEF_EXTENTS[clef])
    heights = [(ring[:, 1].min(), ring[:, 1].max()) for ring in rings(edges)]
    top, bottom = min(low for low, _ in heights), max(high for _, high in heights)
    digit_height = _DIGIT_HEIGHT * scale
    if bottom - below > above - top:  # the number is below the clef
        edges_beyond = [low for low, _ in heights if low > below]
        upper, lower = split_at(edges, min(edges_beyond) - digit_height / 8 if edges_beyond else bottom - digit_height)
        return upper, lower
    edges_beyond = [high for _, high in heights if high < above]
    upper, lower = split_at(edges, max(edges_beyond) + digit_height / 8 if edges_beyond else top + digit_height)
    return lower, upper


def fill_attributes(symbol: Symbol, events: Mapping[str, Event], ids: Collection[str]) -> None:
    """Fill in the missing attributes of a symbol from the events of its group and of the groups around it.

    Args:
        symbol: the symbol, modified in place; attributes that are set are retained.
        events: musical events by id.
        ids: ids of the elements of the score, one of which becomes the symbol's `element`.
    """
    for group in symbol.group.ancestors():
        if not symbol.element and group.id in ids and group.kind != "measure":
            symbol.element = group.id
        event = events.get(group.id) if group.id else None
        if event is None or group.kind in ("system", "page-margin"):
            continue
        if symbol.label == "staff":  # it belongs to many measures
            symbol.staff = event.staff
            break
        symbol.measure = symbol.measure or event.measure
        symbol.voice = symbol.voice or event.voice
        _copy_event(symbol, event, group.kind, events)
    if symbol.group.kind == "notehead" and (note := symbol.group.closest("note")):
        symbol.notes = (note.id,)
    if not symbol.element:
        measure = symbol.group.closest("measure")  # the element of symbols without notes
        nearest = [*symbol.notes, measure.id if measure else ""]
        symbol.element = next((element for element in nearest if element in ids), "")


def _copy_event(symbol: Symbol, event: Event, kind: str, events: Mapping[str, Event]) -> None:
    """Copy the attributes of a group's event to a symbol, unless an inner group has already set them."""
    # A ledger line without a note has no onset.
    ignored = ("measure", "staff") if symbol.label == "legerLine" else ("measure",)
    if symbol.onset is None and event.onset is not None and kind not in ignored:
        symbol.onset = float(event.onset)
    if not symbol.notes and kind not in ("staff", "layer", "measure"):
        symbol.notes = tuple(note for note_id in event.notes for note in _notes_of(note_id, events))
    if event.kind in ("rest", "mRest", "multiRest") and symbol.duration is None and event.duration is not None:
        symbol.duration = float(event.duration)
    symbol.staff = symbol.staff or event.staff


def _notes_of(element_id: str, events: Mapping[str, Event]) -> tuple[str, ...]:
    """Return the ids of the notes of a chord; of a single note, its id."""
    event = events.get(element_id)
    return event.notes if event and event.kind == "chord" and event.notes else (element_id,)


_MAX_SMALL_SCALE = 0.93  # relative to the normal size of glyphs
_HEADS = {0xE0A4: "Black", 0xE0A3: "Half", 0xE0A2: "Whole", 0xE0A0: "DoubleWhole", 0xE0A1: "DoubleWhole"}
_ACCIDENTALS = {0xE260: "Flat", 0xE261: "Natural", 0xE262: "Sharp", 0xE263: "DoubleSharp", 0xE264: "DoubleFlat"}
_LINES = {"slur": "slur", "tie": "tie", "lv": "tie", "beam": "beam", "beamSpan": "beam", "fTrem": "beam"}
_TIMES = {0xE08A: "timeSigCommon", 0xE08B: "timeSigCutCommon"}
_TIMES |= {0xE080 + digit: f"timeSig{digit}" for digit in range(10)}
# Glyphs that belong to a symbol or a line but have no class.
_IGNORED_GLYPHS = {0xE26A, 0xE26B, 0xE26C, 0xE26D, 0xE51A, 0xE51B}  # parentheses and brackets
_IGNORED_GLYPHS |= {0xE59D, 0xE59E, 0xEAA4}  # the wavy line after a trill
_BY_CONTEXT: tuple[str, ...] = (
    "notehead",
    "keyF",
    "keyN",
    "keyS",
    "accidental",
    "clef",
    "timeSig",
    "fingering",
    "dynamic",
    "grace",
)
_BY_CONTEXT += ("bar", "bracket", "repeatLeft", "repeatRight")
_BY_GLYPH = {
    code: name
    for name, symbol in reversed(CLASSES.items())  # so that the normal class replaces the small one
    for code in symbol.smufl
    if name in FULL_IDS and not name.startswith(_BY_CONTEXT)
}


def assign_classes(
    marks: list[Mark], events: Mapping[str, Event], ids: Iterable[str], interline: float
) -> AnnotatedMarks:
    """Assign classes and musical attributes to the marks of a page.

    Args:
        marks: marks of the page; the list is modified. A mark that consists of two symbols keeps the first, and a mark
            for the second is appended.
        events: musical events by id.
        ids: ids of the elements of the score, one of which becomes the `element` of each symbol.
        interline: pixels between staff lines.

    Returns:
        The symbols, and the code points of glyphs without a class.
    """
    return _ClassAssigner(marks, events, frozenset(ids), interline).run()


class _ClassAssigner:
    def __init__(self, marks: list[Mark], events: Mapping[str, Event], ids: frozenset[str], interline: float) -> None:
        self.marks = marks
        self.events = events
        self.ids = ids
        self.interline = interline
        self.symbols: list[Symbol] = []
        self.joined: dict[tuple[str, object], Symbol] = {}  # symbols of several marks, by label and group
        self.graces: dict[Group, list[int]] = {}
        self.barlines: dict[Group, list[int]] = {}
        self.staves = Staves(marks, events, interline)
        self.rules: dict[str, Callable[[int, Mark], object]] = {
            "notehead": self._notehead,
            "clef": self._clef,
            "keyAccid": self._key,
            "accid": self._accidental,
            "meterSig": self._time,
            "dynam": self._dynamic,
            "multiRestNum": lambda i, m: self._join(i, m, "restHNr"),
            "arpeg": lambda i, m: self._join(i, m, "arpeggiato"),
            "octave": lambda i, m: self._join(i, m, "ottavaBracket"),
            "tupletBracket": lambda i, m: self._join(i, m, "tupletBracket"),
            "ledgerLines": lambda i, m: self._add(i, m, "legerLine"),
            "dots": lambda i, m: self._add(i, m, "augmentationDot"),
            "staff": self._staff,
            "grpSym": self._group_symbol,
            "barLine": lambda i, m: self.barlines.setdefault(m.group, []).append(i),
            "system": self._systemic_barline,
            "voltaBracket": self._volta,
            "stem": self._stem,
            "flag": self._flag,
            "hairpin": self._hairpin,
            "fing": self._fingering,
        }

    def run(self) -> AnnotatedMarks:
        for i, mark in enumerate(list(self.marks)):  # a clef with a number is split, which adds marks
            rule = self.rules.get(mark.group.kind)
            if rule is not None:
                rule(i, mark)
            elif mark.shape == "glyph":
                self._glyph(i, mark)
            elif mark.shape == "area":
                self._area(i, mark)
        for group, indices in self.barlines.items():
            self._barlines(group, indices)
        self.symbols += combine_dynamics(self.symbols, self.marks)
        self.symbols += combine_times(self.symbols, self.marks)
        self.symbols += combine_graces(self.graces, self.marks)
        attach_ledgers(self.symbols, self.marks, self.staves, self.events, self.ids)
        systems = {m.group.closest("system"): 0 for m in self.marks if m.group.closest("system")}
        systems = {group: number for number, group in enumerate(systems, start=1)}
        for symbol in self.symbols:
            fill_attributes(symbol, self.events, self.ids)
            symbol.system = systems.get(symbol.group.closest("system"), 0)
        return AnnotatedMarks(self.symbols, self._unlabelled())

    def _unlabelled(self) -> list[str]:
        """Return the code points of music glyphs that belong to no symbol; a page with such glyphs is incomplete."""
        assigned = {i for symbol in self.symbols for i in symbol.marks}
        return [hex(mark.code) for i, mark in enumerate(self.marks) if i not in assigned and _is_music(mark)]

    def _add(self, i: int, mark: Mark, label: str, v1: str | None = None) -> Symbol:
        default_v1 = CLASSES[label].v1 if label else None
        symbol = Symbol(label, (default_v1 or "") if v1 is None else v1, [i], mark.group)
        self.symbols.append(symbol)
        return symbol

    def _join(self, i: int, mark: Mark, label: str, key: object = None) -> Symbol:
        """Add a mark to the symbol of its group, or of `key` if that is passed; the first mark creates the symbol."""
        joined_key = (label, mark.group if key is None else key)
        if joined_key in self.joined:
            self.joined[joined_key].marks.append(i)
        else:
            self.joined[joined_key] = self._add(i, mark, label)
        return self.joined[joined_key]

    def _is_small(self, mark: Mark) -> bool:
        return mark.scale < _MAX_SMALL_SCALE * 4 * self.interline  # an em is four interlines

    def _staff(self, i: int, mark: Mark) -> None:
        if mark.shape == "line":
            self._join(i, mark, "staff", (mark.group.closest("system"), self.staves.number(mark)))

    def _group_symbol(self, i: int, mark: Mark) -> None:
        curved = mark.shape == "area" and len(mark.edges) > 8  # unlike a bracket, which consists of straight lines
        symbol = self._join(i, mark, "brace" if curved or mark.code == 0xE000 else "bracket")
        symbol.staff = self.staves.highest(symbol, self.marks)

    def _systemic_barline(self, i: int, mark: Mark) -> None:
        if mark.shape == "line":
            symbol = self._add(i, mark, "barlineSystemic")
            symbol.staff = self.staves.highest(symbol, self.marks)

    def _volta(self, i: int, mark: Mark) -> None:
        if mark.shape == "line":
            symbol = self._join(i, mark, "voltaBracket")
            symbol.staff = self.staves.highest(symbol, self.marks)

    def _barlines(self, group: Group, indices: list[int]) -> None:
        for line in split_barlines(indices, self.marks, self.interline):
            label = barline_class(line, self.marks, self.interline)
            if label:
                symbol = Symbol(label, "", line, group)
                symbol.staff = self.staves.highest(symbol, self.marks)
                self.symbols.append(symbol)
            if label != "barlineDashed":
                for i in line:
                    if is_dot(self.marks[i], self.interline):
                        dot = self._add(i, self.marks[i], "repeatDot")
                        dot.staff = self.staves.highest(dot, self.marks)

    def _notehead(self, i: int, mark: Mark) -> None:
        head = _HEADS.get(mark.code)
        if head is None:
            return
        note = mark.group.closest("note")
        event = self.events.get(note.id) if note else None
        number = event.staff if event and event.staff else self.staves.number(mark)
        position, lines = self.staves.position(mark, number)
        place = "OnLine" if (position + lines - 1) % 2 == 0 else "InSpace"
        symbol = self._add(i, mark, f"notehead{head}{place}{'Small' if self._is_small(mark) else ''}")
        symbol.position, symbol.staff = position, number
        if event is not None:
            symbol.duration = None if event.duration is None else float(event.duration)
            symbol.pitch, symbol.midi = event.pitch, event.midi
        self._grace(i, mark)

    def _clef(self, i: int, mark: Mark) -> None:
        position, lines = self.staves.position(mark, self.staves.number(mark))
        name = clef_class(mark.code, position, lines)
        if not name:
            return
        change = mark.group.closest("layer") is not None
        symbol = self._add(i, mark, name, CLEF_CHANGES.get(name) if change else None)
        symbol.position = position
        _, number = CLEFS[mark.code]
        if number:
            mark.edges, digit = split_clef(mark.edges, name, mark.y, mark.scale)
            self.marks.append(Mark("glyph", digit, mark.group, 0, mark.scale, mark.x, mark.y))
            self._add(len(self.marks) - 1, mark, number)

    def _key(self, i: int, mark: Mark) -> None:
        name = _ACCIDENTALS.get(mark.code, "")
        if f"key{name}" in CLASSES:
            self._add(i, mark, f"key{name}")

    def _accidental(self, i: int, mark: Mark) -> None:
        name = _ACCIDENTALS.get(mark.code)
        if name is None:
            return
        small = f"accidental{name}Small"
        self._add(i, mark, small if self._is_small(mark) and small in CLASSES else f"accidental{name}")

    def _time(self, i: int, mark: Mark) -> None:
        if mark.code in _TIMES:
            self._add(i, mark, _TIMES[mark.code])

    def _dynamic(self, i: int, mark: Mark) -> None:
        if mark.code in LETTERS:
            self._add(i, mark, f"dynamic{LETTERS[mark.code].upper()}", "")

    def _stem(self, i: int, mark: Mark) -> None:
        if mark.shape == "line":
            (x0, _), (x1, _) = mark.points[0], mark.points[-1]
            if abs(x1 - x0) < self.interline / 4:
                self._add(i, mark, "stem")
            self._grace(i, mark)  # slanted lines are strokes through grace notes
        elif mark.shape == "glyph":
            self._glyph(i, mark)

    def _flag(self, i: int, mark: Mark) -> None:
        name = _BY_GLYPH.get(mark.code, "")
        if not name.startswith("flag"):
            return
        small = f"{name}Small"
        self._add(i, mark, small if self._is_small(mark) and small in CLASSES else name)
        self._grace(i, mark)

    def _grace(self, i: int, mark: Mark) -> None:
        group = mark.group.closest("chord") or mark.group.closest("note")
        event = self.events.get(group.id) if group else None
        if group and event and event.grace:
            self.graces.setdefault(group, []).append(i)

    def _hairpin(self, i: int, mark: Mark) -> None:
        event = self.events.get(mark.group.id)
        if event is not None:
            self._join(i, mark, f"dynamic{'Crescendo' if event.form == 'cres' else 'Diminuendo'}Hairpin")

    def _fingering(self, i: int, mark: Mark) -> None:
        if 0x30 <= mark.code <= 0x35:
            self._add(i, mark, f"fingering{mark.code - 0x30}")

    def _glyph(self, i: int, mark: Mark) -> None:
        name = _BY_GLYPH.get(mark.code)
        if name is not None:
            self._add(i, mark, name)
        elif mark.code in (0xE4E0, 0xE9F0):
            self._add(i, mark, "", "restMaxima")
        elif mark.code == 0xE4E1:
            self._add(i, mark, "", "restLonga")
        elif mark.code in _ACCIDENTALS:  # of an ornament
            self._accidental(i, mark)

    def _area(self, i: int, mark: Mark) -> None:
        kind = mark.group.kind
        if kind in _LINES:
            self._add(i, mark, _LINES[kind])
        elif kind == "multiRest":
            self._join(i, mark, "restHBar")


def _is_music(mark: Mark) -> bool:
    """Return whether a mark is a music glyph, which may be inside text, or a letter of a fingering."""
    if mark.shape == "glyph":
        return mark.code not in _IGNORED_GLYPHS
    if mark.shape != "letter":
        return False
    signs = 0xE000 <= mark.code <= 0xF8FF or 0x2669 <= mark.code <= 0x266F  # of SMuFL; of Unicode
    return (signs and mark.code not in _IGNORED_GLYPHS) or (mark.group.kind == "fing" and chr(mark.code).isalnum())
