"""The music of a page or piece: parts, measures, chords and rests with their places on the page.

Times are fractions of a quarter note from the beginning of the measure. Boxes are in pixels of the input page.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal

Box = tuple[float, float, float, float]  # x0, y0, x1, y1; x1 and y1 lie beyond the last pixel
Placement = Literal["above", "below"]
Beam = Literal["begin", "continue", "end", "forward hook", "backward hook"]
Repeat = Literal["", "forward", "backward"]

STEPS = "CDEFGAB"
_SEMITONES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}
_ACCIDENTALS = {-2: "bb", -1: "b", 0: "", 1: "#", 2: "##"}

# Name of each note value and its length in quarter notes, longest first.
NOTE_VALUES: dict[str, Fraction] = {
    "breve": Fraction(8),
    "whole": Fraction(4),
    "half": Fraction(2),
    "quarter": Fraction(1),
    "eighth": Fraction(1, 2),
    "16th": Fraction(1, 4),
    "32nd": Fraction(1, 8),
    "64th": Fraction(1, 16),
    "128th": Fraction(1, 32),
}


@dataclass(frozen=True, order=True)
class Pitch:
    """A written pitch.

    Attributes:
        octave: octave in scientific notation; middle C begins octave 4.
        step: letter from C to B.
        alter: semitones by which it is raised.
    """

    octave: int
    step: str
    alter: int = 0

    @property
    def midi(self) -> int:
        """MIDI number; middle C is 60."""
        return 12 * (self.octave + 1) + _SEMITONES[self.step] + self.alter

    def __str__(self) -> str:
        return f"{self.step}{_ACCIDENTALS.get(self.alter, f'({self.alter:+d})')}{self.octave}"


@dataclass(frozen=True)
class Clef:
    """A clef.

    Attributes:
        sign: "G", "F" or "C".
        line: staff line of the sign, from 1 at the bottom.
        octave: octaves by which it transposes: -1 with an 8 below.
    """

    sign: str = "G"
    line: int = 2
    octave: int = 0

    def diatonic(self, position: int) -> int:
        """Return the diatonic number (7 octave + step) of a note `position` steps above the middle line."""
        reference = {"G": 4 * 7 + 4, "F": 3 * 7 + 3, "C": 4 * 7}[self.sign]  # G4, F3, C4 on the line of the clef
        return reference + position - 2 * (self.line - 3) + 7 * self.octave


@dataclass
class Note:
    """A notehead.

    Attributes:
        pitch: written pitch.
        position: steps above the middle line of its staff.
        box: notehead on the page.
        accidental: printed accidental: "sharp", "flat", "natural", "double-sharp" or "flat-flat", or "".
        tied_from, tied_to: whether a tie ends or starts at the note.
        confidence: score of the notehead in [0, 1].
        fingering: printed fingering, or "".
        symbol: position of the notehead in the symbols of its page, or None.
    """

    pitch: Pitch
    position: int
    box: Box
    accidental: str = ""
    tied_from: bool = False
    tied_to: bool = False
    confidence: float = 1.0
    fingering: str = ""
    symbol: int | None = None


@dataclass
class Lyric:
    """A syllable.

    Attributes:
        text: the syllable without hyphens.
        syllabic: its place in the word.
        verse: number of the verse, from 1.
    """

    text: str
    syllabic: Literal["single", "begin", "middle", "end"] = "single"
    verse: int = 1


@dataclass
class Chord:
    """Notes with one stem, or a rest.

    Attributes:
        onset: time from the beginning of the measure.
        duration: sounding length; 0 for grace notes.
        value: note value, a key of `NOTE_VALUES`, without dots.
        dots: number of augmentation dots.
        notes: from low to high; empty for a rest.
        staff: staff of the part, from 1; that of the first note if a chord crosses staves.
        voice: voice of the part, from 1.
        box: heads and stem on the page, or the rest.
        stem: direction of the stem, or "" without one.
        beams: state of each beam, from the outermost.
        tuplet: number of notes played in the time of another number, such as (3, 2), or None.
        tuplet_start, tuplet_stop: whether a tuplet with a printed number or bracket starts or ends here.
        grace: "" for normal notes; "grace" or "slashed" otherwise.
        full_measure: whether it is a rest of a whole measure.
        articulations, ornaments: names of MusicXML, such as "staccato" and "trill-mark".
        fermata: "", "upright" or "inverted".
        arpeggio: whether the chord is broken.
        tremolo: number of strokes through the stem.
        slurs: starts and ends of slurs: number, "start" or "stop", and placement.
        symbol: position of a rest in the symbols of its page, or None.
        lyrics: syllables below it, in order of their verses.
    """

    onset: Fraction
    duration: Fraction
    value: str
    dots: int
    notes: list[Note]
    staff: int
    voice: int
    box: Box
    stem: Literal["", "up", "down"] = ""
    beams: list[Beam] = field(default_factory=list)
    tuplet: tuple[int, int] | None = None
    tuplet_start: bool = False
    tuplet_stop: bool = False
    grace: Literal["", "grace", "slashed"] = ""
    full_measure: bool = False
    articulations: list[str] = field(default_factory=list)
    ornaments: list[str] = field(default_factory=list)
    fermata: str = ""
    arpeggio: bool = False
    tremolo: int = 0
    slurs: list[tuple[int, Literal["start", "stop"], Placement]] = field(default_factory=list)
    symbol: int | None = None
    lyrics: list[Lyric] = field(default_factory=list)

    @property
    def is_rest(self) -> bool:
        """Whether it is a rest."""
        return not self.notes

    @property
    def end(self) -> Fraction:
        """Time at which it ends."""
        return self.onset + self.duration


@dataclass
class Direction:
    """A sign that belongs to a time and not to a note.

    Attributes:
        kind: "dynamics", "wedge", "pedal", "octave-shift", "words", "segno" or "coda".
        value: dynamics such as "mf"; "crescendo", "diminuendo" or "stop" of a wedge; "start" or "stop" of a pedal;
            "up", "down" or "stop" of an octave shift; the text of words.
        onset: time from the beginning of the measure.
        staff: staff of the part, from 1.
        placement: above or below the staff.
        box: the sign on the page.
        number: distinguishes wedges and octave shifts that are open at the same time.
    """

    kind: Literal["dynamics", "wedge", "pedal", "octave-shift", "words", "segno", "coda"]
    value: str
    onset: Fraction
    staff: int
    placement: Placement
    box: Box
    number: int = 1


@dataclass
class Measure:
    """A measure of a part.

    Attributes:
        number: from 1 through the piece.
        length: length in quarter notes.
        chords: chords and rests in order of voice and onset.
        directions: dynamics, wedges and the like, in order of onset.
        clefs: clefs printed in this measure: staff, time and clef; those at time 0 are valid from its beginning.
        key: number of sharps (positive) or flats (negative) of a printed key signature, or None.
        meter: number of beats, their value, and "" or "common" or "cut", of a printed metre, or None.
        boxes: measure on the page, one box for each staff.
        page, system: position in the piece, both from 1; the system is numbered on its page.
        new_system: whether it is the first of its system.
        left, right: style of its bar lines in MusicXML's names ("regular", "light-light", "light-heavy", "dashed").
        repeat_start, repeat_end: whether a repeated section starts or ends here.
        ending: numbers of a volta bracket, such as "1", or "".
        ending_start, ending_stop: whether that bracket starts or ends here.
        problem: reason why the durations do not add up, or "".
        confidence: estimated probability that the measure is read correctly.
    """

    number: int
    length: Fraction
    chords: list[Chord] = field(default_factory=list)
    directions: list[Direction] = field(default_factory=list)
    clefs: list[tuple[int, Fraction, Clef]] = field(default_factory=list)
    key: int | None = None
    meter: tuple[int, int, str] | None = None
    boxes: list[Box] = field(default_factory=list)
    page: int = 1
    system: int = 1
    new_system: bool = False
    left: str = "regular"
    right: str = "regular"
    repeat_start: bool = False
    repeat_end: bool = False
    ending: str = ""
    ending_start: bool = False
    ending_stop: bool = False
    problem: str = ""
    confidence: float = 1.0


@dataclass
class Part:
    """An instrument or voice.

    Attributes:
        name: its name.
        n_staves: number of staves.
        measures: through the piece.
    """

    name: str
    n_staves: int
    measures: list[Measure] = field(default_factory=list)


@dataclass
class PageInfo:
    """A page that was read.

    Attributes:
        source: file and page, such as "scan.pdf#2", or "".
        width, height: size in pixels.
        interline: pixels between staff lines.
        angle: skew in degrees that was corrected.
        turned: degrees counter-clockwise by which the page was turned before it was read: 0, 90, 180 or 270.
        message: warnings for the user, or "".
    """

    source: str
    width: int
    height: int
    interline: float
    angle: float = 0.0
    turned: int = 0
    message: str = ""


@dataclass
class Score:
    """The music that was read.

    Attributes:
        parts: from top to bottom.
        pages: the pages it was read from.
        title: title of the piece, or "".
        authors: "composer" or "lyricist", and the name, as printed.
    """

    parts: list[Part]
    pages: list[PageInfo] = field(default_factory=list)
    title: str = ""
    authors: list[tuple[str, str]] = field(default_factory=list)

    @property
    def measures(self) -> list[Measure]:
        """The measures of all parts, part by part."""
        return [measure for part in self.parts for measure in part.measures]

    def chords(self) -> Iterator[tuple[Part, Measure, Chord]]:
        """Iterate over the chords and rests with their part and measure."""
        for part in self.parts:
            for measure in part.measures:
                for chord in measure.chords:
                    yield part, measure, chord

    @property
    def n_notes(self) -> int:
        """Number of noteheads."""
        return sum(len(chord.notes) for _, _, chord in self.chords())


def measure_onsets(score: Score) -> list[Fraction]:
    """Return the time at which each measure begins, in quarter notes from the beginning of the piece.

    A measure lasts as long as the longest part, also if the durations of a part do not add up.

    Args:
        score: the music; all parts have the same number of measures.

    Returns:
        One time for each measure, and the end of the piece.
    """
    onsets = [Fraction(0)]
    for column in zip(*(part.measures for part in score.parts), strict=True):
        ends = [max([measure.length, *(chord.end for chord in measure.chords)]) for measure in column]
        onsets.append(onsets[-1] + max(ends))
    return onsets
