"""Musical events of an MEI document by id: onset, duration, pitch and staff.

Times are in quarter notes from the beginning of the score as written; repeats are not expanded.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction

from lxml import etree

from entourage.io.safe_formats import parse_xml

_ID = "{http://www.w3.org/XML/1998/namespace}id"
_STEPS = {"c": 0, "d": 2, "e": 4, "f": 5, "g": 7, "a": 9, "b": 11}
_ALTERS = {"s": 1, "f": -1, "n": 0, "ss": 2, "x": 2, "ff": -2, "xs": 3, "sx": 3, "ts": 3, "tf": -3, "nf": -1, "ns": 1}
_ACCIDENTAL_NAMES = {-3: "bbb", -2: "bb", -1: "b", 0: "", 1: "#", 2: "##", 3: "###"}
_LONG = {"breve": 8, "long": 16, "longa": 16, "maxima": 32, "brevis": 8}
_TIMED = {"note", "chord", "rest", "space", "mRest", "mSpace", "multiRest", "mRpt", "halfmRpt", "beatRpt"}
_CONTAINERS = {
    "beam",
    "tuplet",
    "graceGrp",
    "bTrem",
    "fTrem",
    "app",
    "lem",
    "rdg",
    "choice",
    "orig",
    "supplied",
    "ossia",
}


@dataclass(frozen=True)
class Event:
    """An element of an MEI document that has a time.

    Attributes:
        kind: name of the element.
        onset: onset in quarter notes, or None.
        duration: duration in quarter notes; 0 for grace notes, None for elements without a duration.
        staff: number of the staff, from 1; 0 if the document states none.
        measure: number of the measure in the score, from 1; 0 if it belongs to none.
        voice: number of its layer on the staff; 0 if it belongs to none.
        pitch: pitch of a note, such as "F#4", else "".
        midi: MIDI number of the pitch, 60 for C4, or None.
        grace: kind of a grace note, such as "acc" or "unacc", else "".
        slashed: whether the stem of a grace note has a stroke.
        notes: ids of the notes to which the element belongs.
        form: variant of the element, such as "cres", "dim", "up" or "down", or "".
    """

    kind: str
    onset: Fraction | None = None
    duration: Fraction | None = None
    staff: int = 0
    pitch: str = ""
    midi: int | None = None
    grace: str = ""
    slashed: bool = False
    notes: tuple[str, ...] = ()
    form: str = ""
    measure: int = 0
    voice: int = 0


@dataclass
class _State:
    """State of the reader that persists from one measure to the next."""

    time: Fraction = Fraction(0)
    meter: tuple[int, int] = (4, 4)
    measure: int = 0  # number of the current measure
    ppq: dict[int, int] = field(default_factory=dict)  # pulses per quarter note by staff; 0: all staves
    events: dict[str, Event] = field(default_factory=dict)

    @property
    def bar(self) -> Fraction:
        return Fraction(4 * self.meter[0], self.meter[1])


def read_events(mei: str) -> dict[str, Event]:
    """Read the musical events of a score from MEI.

    Args:
        mei: MEI document as written by Verovio.

    Returns:
        The elements that have an id and a time, by id.
    """
    root = parse_xml(mei.encode(), ids=False)  # indexing thousands of ids takes time
    state = _State()
    for element in root.iter("{*}score"):
        _section(element, state)
    return state.events


def _section(element: etree._Element, state: _State) -> None:
    for child in element:
        match _tag(child):
            case "measure":
                _measure(child, state)
            case "scoreDef" | "staffDef":
                _definition(child, state)
            case "ending":
                start = Event("ending", state.time, measure=state.measure + 1)
                state.events[child.get(_ID, "")] = start
                _section(child, state)
            case "section" | "score" | "app" | "lem":
                _section(child, state)


def _definition(element: etree._Element, state: _State) -> None:
    for part in element.iter():
        tag = _tag(part)
        if tag in ("scoreDef", "staffDef") and part.get("ppq"):
            state.ppq[int(part.get("n", "0")) if tag == "staffDef" else 0] = int(part.get("ppq"))
            if tag == "scoreDef":
                state.ppq = {0: int(part.get("ppq"))}
        count, unit = part.get("meter.count"), part.get("meter.unit")
        if tag == "meterSig":
            count, unit = part.get("count"), part.get("unit")
            if part.get("sym"):
                count, unit = {"common": ("4", "4"), "cut": ("2", "2")}.get(part.get("sym"), (count, unit))
        if count and unit:
            beats = sum(int(n) for n in str(count).split("+") if n.strip().isdigit())
            state.meter = (beats or 4, int(unit))


def _measure(measure: etree._Element, state: _State) -> None:
    lengths: list[Fraction] = []
    full_measure: list[tuple[str, Event]] = []  # rests that last as long as the measure
    number = measure.get(_ID, "")
    state.measure += 1
    state.events[number] = Event("measure", state.time, measure=state.measure)
    for staff in measure.iter("{*}staff"):
        n = int(staff.get("n", "1"))
        state.events[staff.get(_ID, "")] = Event("staff", state.time, staff=n, measure=state.measure)
        for layer in staff.iter("{*}layer"):
            end = _Layer(state, n, _layer_number(layer), full_measure).read(layer)
            if end is not None:
                lengths.append(end)
    length = max(lengths, default=Fraction(0)) or state.bar
    for element_id, event in full_measure:
        state.events[element_id] = replace(event, duration=event.duration or length)
    if any(event.kind == "multiRest" for _, event in full_measure):
        length = max(event.duration or length for _, event in full_measure)
    for child in measure:
        if _tag(child) != "staff" and child.get(_ID):
            state.events[child.get(_ID)] = _control_event(child, state)
    state.time += length


def _layer_number(layer: etree._Element) -> int:
    number = layer.get("n", "1")
    return int(number) if number.isdigit() else 1


def _control_event(element: etree._Element, state: _State) -> Event:
    """Return the event of a slur, dynamic, hairpin and so on: its onset is that of its first note or of a beat."""
    ids = [element.get(name, "")[1:] for name in ("startid", "endid")]
    ids += [word[1:] for word in element.get("plist", "").split()]
    notes = tuple(i for i in ids if i)
    onset = None
    if notes and notes[0] in state.events:
        onset = state.events[notes[0]].onset
    elif element.get("tstamp"):
        onset = state.time + (Fraction(element.get("tstamp")).limit_denominator(960) - 1) * Fraction(4, state.meter[1])
        onset = max(onset, state.time)
    staff = element.get("staff", "0").split()
    if staff == ["0"] and notes and notes[0] in state.events:
        staff = [str(state.events[notes[0]].staff)]
    form = element.get("form") or element.get("func") or element.get("dir") or element.get("dis.place") or ""
    first = state.events.get(notes[0]) if notes else None
    voice = first.voice if first else 0
    return Event(_tag(element), onset, staff=int(staff[0]), notes=notes, form=form, measure=state.measure, voice=voice)


class _Layer:
    """Reader of one layer of one staff in one measure."""

    def __init__(self, state: _State, staff: int, voice: int, full_measure: list[tuple[str, Event]]) -> None:
        self.state = state
        self.staff = staff
        self.voice = voice
        self.full_measure = full_measure
        self.offset = Fraction(0)
        self.ratio = Fraction(1)
        self.grace = ""
        self.timed = False

    def read(self, element: etree._Element) -> Fraction | None:
        """Read the layer and return its length; None if it contains full-measure rests only."""
        self._read_children(element)
        return self.offset if self.timed else None

    def _read_children(self, element: etree._Element) -> None:
        for child in element:
            tag = _tag(child)
            if tag in _TIMED:
                self._event(child, tag)
            elif tag in _CONTAINERS:
                outer_ratio, grace = self.ratio, self.grace
                if tag == "tuplet":
                    self.ratio *= Fraction(int(child.get("numbase", "2")), int(child.get("num", "3")))
                if tag == "fTrem" and not any(e.get("dur.ppq") for e in child.iter()):
                    self.ratio /= 2
                self.grace = child.get("grace", "unknown") if tag == "graceGrp" else grace
                self._add_container(child, tag)
                self._read_children(child)
                self.ratio, self.grace = outer_ratio, grace
            elif child.get(_ID) if tag else False:
                self._add_container(child, tag)

    def _add_container(self, element: etree._Element, tag: str) -> None:
        note_ids = tuple(n.get(_ID) for n in element.iter("{*}note") if n.get(_ID))
        event = Event(
            tag,
            self.state.time + self.offset,
            staff=self.staff,
            notes=note_ids,
            measure=self.state.measure,
            voice=self.voice,
        )
        self.state.events[element.get(_ID, "")] = event

    def _event(self, element: etree._Element, tag: str) -> None:
        staff = int(element.get("staff", self.staff))
        onset = self.state.time + self.offset
        if tag in ("mRest", "mSpace", "mRpt", "halfmRpt", "multiRest"):
            bars = int(element.get("num", "1")) if tag == "multiRest" else 1
            total = self.state.bar * bars if bars > 1 else None
            self.full_measure.append(
                (element.get(_ID, ""), Event(tag, onset, total, staff, measure=self.state.measure, voice=self.voice))
            )
            return
        grace = element.get("grace", self.grace)
        duration = Fraction(0) if grace else self._duration(element)
        notes = [element] if tag == "note" else list(element.iter("{*}note"))
        ids = tuple(n.get(_ID, "") for n in notes)
        slashed = "slash" in element.get("stem.mod", "") and bool(grace)
        base = Event(
            tag, onset, duration, staff, "", None, grace, slashed, ids, measure=self.state.measure, voice=self.voice
        )
        self.state.events[element.get(_ID, "")] = base
        for note in notes:
            pitch, midi = _pitch(note)
            note_staff = int(note.get("staff", staff))
            self.state.events[note.get(_ID, "")] = replace(base, kind="note", staff=note_staff, pitch=pitch, midi=midi)
        for part in element.iter("{*}accid", "{*}artic", "{*}dots", "{*}stem", "{*}flag", "{*}verse"):
            parent = part.getparent()
            note_ids = (parent.get(_ID, ""),) if _tag(parent) == "note" else ids
            event = Event(_tag(part), onset, staff=staff, notes=note_ids, measure=self.state.measure, voice=self.voice)
            self.state.events[part.get(_ID, "")] = event
        self.offset += duration
        self.timed = True

    def _duration(self, element: etree._Element) -> Fraction:
        if element.get("dur.ppq"):
            ppq = self.state.ppq.get(self.staff) or self.state.ppq.get(0)
            if ppq:
                return Fraction(int(element.get("dur.ppq")), ppq)
        name = element.get("dur") or next((n.get("dur") for n in element.iter("{*}note") if n.get("dur")), None)
        if name is None:
            return Fraction(0)
        dots = int(element.get("dots", "0")) or sum(1 for _ in element.iterchildren("{*}dot"))
        base = Fraction(_LONG[name]) if name in _LONG else Fraction(4, int(name)) if name.isdigit() else Fraction(0)
        return base * (2 - Fraction(1, 2**dots)) * self.ratio


def _pitch(note: etree._Element) -> tuple[str, int | None]:
    """Return name and MIDI number of the pitch, with octave signs but without the transposition of the instrument."""
    step, octave = note.get("pname"), note.get("oct.ges") or note.get("oct")
    if step is None or octave is None:
        return "", None
    accids = [note, *note.iterchildren("{*}accid")]
    signs = [e.get(name) for e in accids for name in ("accid.ges", "accid") if e.get(name)]
    alter = _ALTERS.get(signs[0], 0) if signs else 0
    return f"{step.upper()}{_ACCIDENTAL_NAMES[alter]}{octave}", 12 * (int(octave) + 1) + _STEPS[step] + alter


def _tag(element: etree._Element) -> str:
    tag = element.tag
    return tag[tag.index("}") + 1 :] if isinstance(tag, str) and "}" in tag else tag if isinstance(tag, str) else ""
