"""From marks to symbols: what each mark is, given the group it stands in and what the music says there.

Context decides, never the shape alone. The engraver's groups tell a staccato from an augmentation dot; the size tells
grace notes from others; the staff lines tell a notehead on a line from one in a space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from entourage.engrave.combine import LETTERS, combine_dynamics, combine_graces, combine_times
from entourage.engrave.instances import Related, Symbol
from entourage.engrave.marks import Group, Mark
from entourage.engrave.music import Event
from entourage.engrave.outlines import rings, split_at
from entourage.engrave.symbols import CLASSES, EXTENDED_IDS

_SMALL = 0.93  # of the normal size of glyphs
_HEADS = {0xE0A4: "Black", 0xE0A3: "Half", 0xE0A2: "Whole", 0xE0A0: "DoubleWhole", 0xE0A1: "DoubleWhole"}
_ACCIDENTALS = {0xE260: "Flat", 0xE261: "Natural", 0xE262: "Sharp", 0xE263: "DoubleSharp", 0xE264: "DoubleFlat"}
_CLEFS = {  # code point: (clef, number on it)
    **{0xE050: ("clefG", ""), 0xE051: ("clefG", "clef15"), 0xE052: ("clefG", "clef8")},
    **{0xE053: ("clefG", "clef8"), 0xE054: ("clefG", "clef15"), 0xE07A: ("clefG", "")},
    **{0xE05C: ("clefC", ""), 0xE05D: ("clefC", "clef8"), 0xE07B: ("clefC", "")},
    **{0xE062: ("clefF", ""), 0xE063: ("clefF", "clef15"), 0xE064: ("clefF", "clef8")},
    **{0xE065: ("clefF", "clef8"), 0xE066: ("clefF", "clef15"), 0xE07C: ("clefF", "")},
    **{0xE069: ("clefUnpitchedPercussion", ""), 0xE06A: ("clefUnpitchedPercussion", "")},
}
_CHANGES = {"clefG": "gClefChange", "clefF": "fClefChange"}
_CHANGES |= {"clefCAlto": "cClefAltoChange", "clefCTenor": "cClefTenorChange"}
# Where an outline above, or below, is not the clef's own any more, in ems from its line.
_REACH = {"clefG": (-1.0, 0.53), "clefF": (-0.22, 0.49), "clefCAlto": (-0.49, 0.49), "clefCTenor": (-0.49, 0.49)}
_DIGITS = {0xE080 + n: n for n in range(10)}
_LINES = ("slur", "tie", "lv", "hairpin", "beam", "beamSpan", "fTrem")
# Glyphs that belong to a symbol without being one: parentheses, brackets, wavy lines, the breath mark, and the like.
_HARMLESS = {0xE26A, 0xE26B, 0xE26C, 0xE26D, 0xEA91, 0xEAA4, 0xE4CE, 0xE51A, 0xE51B, 0xE09A, 0xE096, 0xE097}
_HARMLESS |= {0xE59D, 0xE59E}  # the wavy line after a trill
_BY_CONTEXT = ("notehead", "keyF", "keyN", "keyS", "accidental", "clef", "timeSig", "fingering", "dynamic", "grace")
_BY_GLYPH = {
    code: name
    for name, symbol in reversed(CLASSES.items())  # so that the plain class comes after, and replaces, the small one
    for code in symbol.smufl
    if name in EXTENDED_IDS and not name.startswith(_BY_CONTEXT)
}


def relate(marks: list[Mark], events: Mapping[str, Event], ids: Iterable[str], interline: float) -> Related:
    """The symbols on a page.

    Args:
        marks: what is drawn; a mark that is two symbols is split here, and its second half appended.
        events: what the music says, by id.
        ids: the ids of the score's elements, to which symbols lead back.
        interline: pixels between staff lines.
    """
    return _Relater(marks, events, frozenset(ids), interline).run()


class _Relater:
    def __init__(self, marks: list[Mark], events: Mapping[str, Event], ids: frozenset[str], interline: float) -> None:
        self.marks = marks
        self.events = events
        self.ids = ids
        self.interline = interline
        self.found: list[Symbol] = []
        self.whole: dict[tuple[str, object], Symbol] = {}  # symbols of many marks, by their group
        self.graces: dict[Group, list[int]] = {}
        self.unlabelled: list[int] = []
        self.lines: dict[tuple[Group | None, int], list[float]] = {}
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
            "grpSym": self._brace,
            "stem": self._stem,
            "flag": self._flag,
            "hairpin": self._hairpin,
            "fing": self._fingering,
        }

    def run(self) -> Related:
        for mark in self.marks:
            if mark.shape == "line" and mark.group.kind == "staff":
                self.lines.setdefault(self._place(mark.group), []).append(mark.y)
        for i, mark in enumerate(list(self.marks)):  # a clef with a number is split, which adds marks
            rule = self.rules.get(mark.group.kind)
            if rule is not None:
                rule(i, mark)
            elif mark.shape == "glyph":
                self._glyph(i, mark)
            elif mark.shape == "area":
                self._area(i, mark)
        self.found += combine_dynamics(self.found, self.marks)
        self.found += combine_times(self.found, self.marks)
        self.found += combine_graces(self.graces, self.marks)
        for symbol in self.found:
            self._describe(symbol)
        return Related(self.found, self.unlabelled)

    def _add(self, i: int, mark: Mark, label: str, v1: str | None = None) -> Symbol:
        plain = CLASSES[label].v1 if label else None
        symbol = Symbol(label, (plain or "") if v1 is None else v1, [i], mark.group)
        self.found.append(symbol)
        return symbol

    def _join(self, i: int, mark: Mark, label: str, key: object = None) -> None:
        """All marks of a group, or of a key, are one symbol."""
        whole = (label, mark.group if key is None else key)
        if whole in self.whole:
            self.whole[whole].marks.append(i)
        else:
            self.whole[whole] = self._add(i, mark, label)

    def _small(self, mark: Mark) -> bool:
        return mark.scale < _SMALL * 4 * self.interline  # an em is four interlines

    def _staff(self, i: int, mark: Mark) -> None:
        if mark.shape == "line":
            self._join(i, mark, "staff", (mark.group.within("system"), self._place(mark.group)[1]))

    def _brace(self, i: int, mark: Mark) -> None:
        curved = len(mark.points) == 0  # a bracket is made of straight lines and its own glyphs
        if mark.code == 0xE000 or (mark.shape == "area" and curved and len(mark.edges) > 8):
            self._join(i, mark, "brace")

    def _notehead(self, i: int, mark: Mark) -> None:
        head = _HEADS.get(mark.code)
        if head is None:
            if mark.code not in _HARMLESS:
                self.unlabelled.append(mark.code)
            return
        note = mark.group.within("note")
        event = self.events.get(note.id) if note else None
        staff = mark.group.within("staff")
        number = event.staff if event and event.staff else self._place(staff)[1] if staff else 0
        position, lines = self._position(mark, number)
        where = "OnLine" if (position + lines - 1) % 2 == 0 else "InSpace"
        symbol = self._add(i, mark, f"notehead{head}{where}{'Small' if self._small(mark) else ''}")
        symbol.position, symbol.staff = position, number
        if event is not None:
            symbol.duration = None if event.duration is None else float(event.duration)
            symbol.pitch, symbol.midi = event.pitch, event.midi
        self._grace(i, mark)

    def _position(self, mark: Mark, staff: int) -> tuple[int, int]:
        """Steps above the middle of the staff, and how many lines the staff has."""
        lines = self.lines.get((mark.group.within("measure"), staff))
        if not lines:
            around = mark.group.within("staff")
            lines = self.lines.get(self._place(around)) if around else None
        if not lines:
            return 0, 5
        middle = (min(lines) + max(lines)) / 2
        half = (max(lines) - min(lines)) / (len(lines) - 1) / 2 if len(lines) > 1 else self.interline / 2
        return round((middle - mark.y) / (half or self.interline / 2)), len(lines)

    def _clef(self, i: int, mark: Mark) -> None:
        if mark.code not in _CLEFS:
            if mark.code not in _HARMLESS:
                self.unlabelled.append(mark.code)
            return
        name, number = _CLEFS[mark.code]
        staff = mark.group.within("staff")
        position, lines = self._position(mark, self._place(staff)[1]) if staff else (0, 5)
        if name == "clefC":
            line = (position + lines - 1) // 2 + 1
            if line not in (3, 4):  # soprano, mezzo-soprano and baritone clefs have no class
                self.unlabelled.append(mark.code)
                return
            name = "clefCAlto" if line == 3 else "clefCTenor"
        change = mark.group.within("layer") is not None
        symbol = self._add(i, mark, name, _CHANGES.get(name) if change else None)
        symbol.position = position
        if number:
            self._split_clef(mark, name, number)

    def _split_clef(self, mark: Mark, clef: str, number: str) -> None:
        """An octave clef is one glyph but two symbols: it is cut where the number begins.

        That is just beyond the holes of an 8; a 15 has none, but all digits are about as tall.
        """
        above, below = (mark.y + reach * mark.scale for reach in _REACH[clef])
        heights = [(ring[:, 1].min(), ring[:, 1].max()) for ring in rings(mark.edges)]
        top, bottom = min(low for low, _ in heights), max(high for _, high in heights)
        under = bottom - below > above - top
        beyond = [(low, high) for low, high in heights if (low > below if under else high < above)]
        tall = 0.235 * mark.scale
        if under:
            cut = min(low for low, _ in beyond) - tall / 8 if beyond else bottom - tall
            clef_part, digit = split_at(mark.edges, cut)
        else:
            cut = max(high for _, high in beyond) + tall / 8 if beyond else top + tall
            digit, clef_part = split_at(mark.edges, cut)
        mark.edges = clef_part
        self.marks.append(Mark("glyph", digit, mark.group, 0, mark.scale, mark.x, mark.y))
        self._add(len(self.marks) - 1, mark, number)

    def _key(self, i: int, mark: Mark) -> None:
        name = _ACCIDENTALS.get(mark.code, "")
        if f"key{name}" in CLASSES:
            self._add(i, mark, f"key{name}")
        else:
            self.unlabelled.append(mark.code)

    def _accidental(self, i: int, mark: Mark) -> None:
        name = _ACCIDENTALS.get(mark.code)
        if name is None:
            if mark.code not in _HARMLESS:
                self.unlabelled.append(mark.code)
            return
        small = f"accidental{name}Small"
        self._add(i, mark, small if self._small(mark) and small in CLASSES else f"accidental{name}")

    def _time(self, i: int, mark: Mark) -> None:
        names = {0xE08A: "timeSigCommon", 0xE08B: "timeSigCutCommon"}
        names |= {code: f"timeSig{digit}" for code, digit in _DIGITS.items()}
        if mark.code in names:
            self._add(i, mark, names[mark.code])

    def _dynamic(self, i: int, mark: Mark) -> None:
        if mark.code in LETTERS:
            self._add(i, mark, f"dynamic{LETTERS[mark.code].upper()}", "")

    def _stem(self, i: int, mark: Mark) -> None:
        if mark.shape == "line":
            (x0, _), (x1, _) = mark.points[0], mark.points[-1]
            if abs(x1 - x0) < self.interline / 4:
                self._add(i, mark, "stem")
            self._grace(i, mark)  # what slants is the stroke through a grace note
        elif mark.shape == "glyph":
            self._glyph(i, mark)

    def _flag(self, i: int, mark: Mark) -> None:
        name = _BY_GLYPH.get(mark.code, "")
        if not name.startswith("flag"):
            self.unlabelled.append(mark.code)
            return
        small = f"{name}Small"
        self._add(i, mark, small if self._small(mark) and small in CLASSES else name)
        self._grace(i, mark)

    def _grace(self, i: int, mark: Mark) -> None:
        owner = mark.group.within("chord") or mark.group.within("note")
        event = self.events.get(owner.id) if owner else None
        if owner and event and event.grace:
            self.graces.setdefault(owner, []).append(i)

    def _hairpin(self, i: int, mark: Mark) -> None:
        event = self.events.get(mark.group.id)
        opens = event.form == "cres" if event else True
        self._join(i, mark, "dynamicCrescendoHairpin" if opens else "dynamicDiminuendoHairpin")

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
        elif mark.code in _ACCIDENTALS:  # above or below an ornament
            self._accidental(i, mark)
        elif mark.code not in _HARMLESS:
            self.unlabelled.append(mark.code)

    def _area(self, i: int, mark: Mark) -> None:
        kind = mark.group.kind
        if kind in _LINES:
            self._add(
                i, mark, "tie" if kind == "lv" else "slur" if kind == "slur" else "tie" if kind == "tie" else "beam"
            )
        elif kind == "multiRest":
            self._join(i, mark, "restHBar")
        elif kind == "barLine" and len(mark.edges) > 8:  # dots of a repeat sign, where they are not glyphs
            self._add(i, mark, "repeatDot")

    def _place(self, staff: Group | None) -> tuple[Group | None, int]:
        """The measure and the number of a staff."""
        if staff is None:
            return None, 0
        event = self.events.get(staff.id)
        return staff.within("measure"), event.staff if event else 0

    def _notes_of(self, identity: str) -> tuple[str, ...]:
        """The notes of a chord, or a note itself."""
        event = self.events.get(identity)
        return event.notes if event and event.kind == "chord" and event.notes else (identity,)

    def _describe(self, symbol: Symbol) -> None:
        """What the music says of a symbol: its own event, or that of the nearest group that has one."""
        for group in symbol.group.up():
            if not symbol.element and group.id in self.ids and group.kind != "measure":
                symbol.element = group.id
            event = self.events.get(group.id) if group.id else None
            if event is None or group.kind in ("system", "page-margin"):
                continue
            if symbol.label == "staff":
                symbol.staff = event.staff
                break
            if symbol.onset is None and event.onset is not None and group.kind != "measure":
                symbol.onset = float(event.onset)
            if not symbol.notes and group.kind not in ("staff", "layer", "measure"):
                symbol.notes = tuple(note for one in event.notes for note in self._notes_of(one))
            if event.kind in ("rest", "mRest", "multiRest") and symbol.duration is None and event.duration is not None:
                symbol.duration = float(event.duration)
            symbol.staff = symbol.staff or event.staff
        if symbol.group.kind == "notehead" and (note := symbol.group.within("note")):
            symbol.notes = (note.id,)
        if not symbol.element:
            measure = symbol.group.within("measure")  # the first part's; nothing better for what has no note
            nearest = [*symbol.notes, measure.id if measure else ""]
            symbol.element = next((element for element in nearest if element in self.ids), "")
