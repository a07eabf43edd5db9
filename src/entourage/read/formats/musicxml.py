"""MusicXML 4.0 of a score."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Mapping
from fractions import Fraction
from math import lcm
from pathlib import Path

from entourage.io.files import atomic_path
from entourage.read.score import Chord, Clef, Direction, Measure, Note, Part, Score

_DOCTYPE = (
    '<?xml version="1.0" encoding="UTF-8"?>\n'
    '<!DOCTYPE score-partwise PUBLIC "-//Recordare//DTD MusicXML 4.0 Partwise//EN" '
    '"http://www.musicxml.org/dtds/partwise.dtd">\n'
)
_ORNAMENTS = {"trill-mark", "turn", "inverted-turn", "mordent", "inverted-mordent"}
_TECHNICAL = {"up-bow", "down-bow"}
_PEDAL = {"start": "start", "stop": "stop"}


def to_musicxml(score: Score, ids: Mapping[int, str] | None = None) -> str:
    """Return a score as MusicXML 4.0.

    Args:
        score: the music.
        ids: id of the element of each note and rest, by `id` of the `Note` or of the `Chord` of a rest; None: none.

    Returns:
        A partwise document.
    """
    root = ET.Element("score-partwise", version="4.0")
    if score.title:
        ET.SubElement(ET.SubElement(root, "work"), "work-title").text = score.title
    identification = ET.SubElement(root, "identification")
    for kind, name in score.authors:
        ET.SubElement(identification, "creator", type=kind).text = name
    encoding = ET.SubElement(identification, "encoding")
    ET.SubElement(encoding, "software").text = "Entourage"
    parts = ET.SubElement(root, "part-list")
    for k, part in enumerate(score.parts, start=1):
        entry = ET.SubElement(parts, "score-part", id=f"P{k}")
        ET.SubElement(entry, "part-name").text = part.name
        instrument = ET.SubElement(entry, "score-instrument", id=f"P{k}-I1")  # MuseScore expects one
        ET.SubElement(instrument, "instrument-name").text = part.name
    for k, part in enumerate(score.parts, start=1):
        _write_part(ET.SubElement(root, "part", id=f"P{k}"), part, ids or {})
    ET.indent(root)
    return _DOCTYPE + ET.tostring(root, encoding="unicode") + "\n"


def write_musicxml(score: Score, path: Path) -> None:
    """Write a score to a MusicXML file; the file is complete or absent.

    Args:
        score: the music.
        path: file to write.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(to_musicxml(score), encoding="utf-8")


def _write_part(element: ET.Element, part: Part, ids: Mapping[int, str]) -> None:
    divisions = _divisions(part)
    for k, measure in enumerate(part.measures):
        node = ET.SubElement(element, "measure", number=str(measure.number))
        if measure.new_system and k:
            previous = part.measures[k - 1]
            ET.SubElement(node, "print", {"new-page" if previous.page != measure.page else "new-system": "yes"})
        if measure.repeat_start:
            _barline(node, "left", "heavy-light", repeat="forward")
        _attributes(node, part, measure, divisions if k == 0 else None)
        _MeasureWriter(node, measure, part.n_staves, divisions, ids).write()
        if measure.repeat_end:
            _barline(node, "right", "light-heavy", repeat="backward")
        elif measure.right != "regular":
            _barline(node, "right", measure.right)


def _divisions(part: Part) -> int:
    """Return the smallest number of divisions of a quarter note that represents all times of a part."""
    times: list[Fraction] = [Fraction(1)]
    for measure in part.measures:
        times.append(measure.length)
        times.extend(time for chord in measure.chords for time in (chord.onset, chord.duration))
        times.extend(direction.onset for direction in measure.directions)
        times.extend(time for _, time, _ in measure.clefs)
    return lcm(*(time.denominator for time in times))


def _barline(node: ET.Element, location: str, style: str, repeat: str = "") -> None:
    bar = ET.SubElement(node, "barline", location=location)
    ET.SubElement(bar, "bar-style").text = style
    if repeat:
        ET.SubElement(bar, "repeat", direction=repeat)


def _attributes(node: ET.Element, part: Part, measure: Measure, divisions: int | None) -> None:
    clefs = [(staff, clef) for staff, time, clef in measure.clefs if time == 0]
    if divisions is None and measure.key is None and measure.meter is None and not clefs:
        return
    element = ET.SubElement(node, "attributes")
    if divisions is not None:
        ET.SubElement(element, "divisions").text = str(divisions)
    if measure.key is not None or divisions is not None:
        ET.SubElement(ET.SubElement(element, "key"), "fifths").text = str(measure.key or 0)
    if measure.meter is not None:
        beats, unit, sign = measure.meter
        time = ET.SubElement(element, "time")
        if sign in ("common", "cut"):
            time.set("symbol", sign)
        elif sign == "hidden":
            time.set("print-object", "no")
        ET.SubElement(time, "beats").text = str(beats)
        ET.SubElement(time, "beat-type").text = str(unit)
    if divisions is not None and part.n_staves > 1:
        ET.SubElement(element, "staves").text = str(part.n_staves)
    for staff, clef in sorted(clefs, key=lambda item: item[0]):
        _clef(element, staff, clef, part.n_staves)


def _clef(element: ET.Element, staff: int, clef: Clef, n_staves: int) -> None:
    node = ET.SubElement(element, "clef")
    if n_staves > 1:
        node.set("number", str(staff))
    ET.SubElement(node, "sign").text = clef.sign
    ET.SubElement(node, "line").text = str(clef.line)
    if clef.octave:
        ET.SubElement(node, "clef-octave-change").text = str(clef.octave)


class _MeasureWriter:
    """Writes the voices of a measure one after the other, moving the cursor with backup and forward."""

    def __init__(
        self, node: ET.Element, measure: Measure, n_staves: int, divisions: int, ids: Mapping[int, str]
    ) -> None:
        self._node = node
        self._ids = ids
        self._measure = measure
        self._n_staves = n_staves
        self._divisions = divisions
        self._time = Fraction(0)
        self._directions = sorted(measure.directions, key=lambda direction: direction.onset)
        self._clefs = [(staff, time, clef) for staff, time, clef in measure.clefs if time > 0]

    def write(self) -> None:
        """Write all voices, then the signs that stand where no chord begins."""
        voices: dict[int, list[Chord]] = {}
        for chord in self._measure.chords:
            voices.setdefault(chord.voice, []).append(chord)
        if not voices:
            self._rest()
        for voice in sorted(voices):
            row = sorted(voices[voice], key=lambda chord: (chord.onset, not chord.grace))
            for chord in row:
                self._move(chord.onset)
                self._signs_at(chord.onset, chord.staff)
                self._chord(chord)
        for direction in list(self._directions):
            self._move(direction.onset)
            self._direction(direction)
        for staff, time, clef in self._clefs:
            self._move(time)
            _clef(ET.SubElement(self._node, "attributes"), staff, clef, self._n_staves)
        self._move(max([self._measure.length, *(chord.end for chord in self._measure.chords)]))

    def _rest(self) -> None:
        note = ET.SubElement(self._node, "note")
        ET.SubElement(note, "rest", measure="yes")
        self._duration(note, self._measure.length)
        ET.SubElement(note, "voice").text = "1"
        self._time = self._measure.length

    def _move(self, time: Fraction) -> None:
        if time != self._time:
            node = ET.SubElement(self._node, "backup" if time < self._time else "forward")
            self._duration(node, abs(time - self._time))
            self._time = time

    def _signs_at(self, time: Fraction, staff: int) -> None:
        """Write the directions and clefs of a staff at the cursor."""
        for direction in [d for d in self._directions if d.onset == time and d.staff == staff]:
            self._direction(direction)
            self._directions.remove(direction)
        for entry in [entry for entry in self._clefs if entry[0] == staff and entry[1] == time]:
            _clef(ET.SubElement(self._node, "attributes"), staff, entry[2], self._n_staves)
            self._clefs.remove(entry)

    def _duration(self, node: ET.Element, time: Fraction) -> None:
        ET.SubElement(node, "duration").text = str(int(time * self._divisions))

    def _chord(self, chord: Chord) -> None:
        for k, note in enumerate(chord.notes or [None]):
            self._note(chord, note, k)
        self._time += chord.duration

    def _note(self, chord: Chord, note: Note | None, k: int) -> None:
        name = self._ids.get(id(chord if note is None else note))
        node = ET.SubElement(self._node, "note", {} if name is None else {"id": name})
        if chord.grace:
            ET.SubElement(node, "grace", {"slash": "yes"} if chord.grace == "slashed" else {})
        if k:
            ET.SubElement(node, "chord")
        if note is None:
            ET.SubElement(node, "rest", {"measure": "yes"} if chord.full_measure else {})
        else:
            pitch = ET.SubElement(node, "pitch")
            ET.SubElement(pitch, "step").text = note.pitch.step
            if note.pitch.alter:
                ET.SubElement(pitch, "alter").text = str(note.pitch.alter)
            ET.SubElement(pitch, "octave").text = str(note.pitch.octave)
        if not chord.grace:
            self._duration(node, chord.duration)
        if note is not None:
            for tied, kind in ((note.tied_from, "stop"), (note.tied_to, "start")):
                if tied:
                    ET.SubElement(node, "tie", type=kind)
        ET.SubElement(node, "voice").text = str(chord.voice)
        if not chord.full_measure:
            ET.SubElement(node, "type").text = chord.value
            for _ in range(chord.dots):
                ET.SubElement(node, "dot")
        if note is not None and note.accidental:
            ET.SubElement(node, "accidental").text = note.accidental
        if chord.tuplet is not None:
            ratio = ET.SubElement(node, "time-modification")
            ET.SubElement(ratio, "actual-notes").text = str(chord.tuplet[0])
            ET.SubElement(ratio, "normal-notes").text = str(chord.tuplet[1])
        if chord.stem and note is not None:
            ET.SubElement(node, "stem").text = chord.stem
        if self._n_staves > 1:
            ET.SubElement(node, "staff").text = str(chord.staff)
        if k == 0:
            for level, beam in enumerate(chord.beams, start=1):
                ET.SubElement(node, "beam", number=str(level)).text = beam
        self._notations(node, chord, note, k)
        for lyric in chord.lyrics if k == 0 else ():
            element = ET.SubElement(node, "lyric", number=str(lyric.verse))
            ET.SubElement(element, "syllabic").text = lyric.syllabic
            ET.SubElement(element, "text").text = lyric.text

    def _notations(self, node: ET.Element, chord: Chord, note: Note | None, k: int) -> None:
        notations = ET.Element("notations")
        if note is not None:
            for tied, kind in ((note.tied_from, "stop"), (note.tied_to, "start")):
                if tied:
                    ET.SubElement(notations, "tied", type=kind)
        if k == 0:
            for number, kind, placement in chord.slurs:
                attributes = {"type": kind, "number": str(number)}
                ET.SubElement(notations, "slur", attributes | ({"placement": placement} if kind == "start" else {}))
            for flag, kind in ((chord.tuplet_start, "start"), (chord.tuplet_stop, "stop")):
                if flag:
                    ET.SubElement(notations, "tuplet", type=kind)
            self._marks(notations, chord)
        if chord.arpeggio and note is not None:
            ET.SubElement(notations, "arpeggiate")
        if len(notations):
            node.append(notations)

    def _marks(self, notations: ET.Element, chord: Chord) -> None:
        ornaments = [name for name in chord.ornaments if name in _ORNAMENTS]
        if ornaments or chord.tremolo:
            group = ET.SubElement(notations, "ornaments")
            for name in ornaments:
                ET.SubElement(group, name)
            if chord.tremolo:
                ET.SubElement(group, "tremolo", type="single").text = str(chord.tremolo)
        technical = [name for name in chord.articulations if name in _TECHNICAL]
        if technical:
            group = ET.SubElement(notations, "technical")
            for name in technical:
                ET.SubElement(group, name)
        articulations = [name for name in chord.articulations if name not in _TECHNICAL]
        if articulations:
            group = ET.SubElement(notations, "articulations")
            for name in articulations:
                ET.SubElement(group, name)
        if chord.fermata:
            ET.SubElement(notations, "fermata", type=chord.fermata)

    def _direction(self, direction: Direction) -> None:
        node = ET.SubElement(self._node, "direction", placement=direction.placement)
        kind = ET.SubElement(node, "direction-type")
        number = str(direction.number)
        match direction.kind:
            case "dynamics":
                ET.SubElement(ET.SubElement(kind, "dynamics"), direction.value)
            case "wedge":
                ET.SubElement(kind, "wedge", type=direction.value, number=number)
            case "pedal":
                ET.SubElement(kind, "pedal", type=_PEDAL[direction.value], line="no")
            case "octave-shift":
                ET.SubElement(kind, "octave-shift", type=direction.value, size="8", number=number)
            case "words":
                ET.SubElement(kind, "words").text = direction.value
            case _:
                ET.SubElement(kind, direction.kind)
        if self._n_staves > 1:
            ET.SubElement(node, "staff").text = str(direction.staff)
