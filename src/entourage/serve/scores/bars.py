"""The music of a reading as values that the user corrects one by one: measures with their corrections, and symbols."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from entourage.read.formats.score_json import from_json, to_json
from entourage.read.score import Chord, Measure, PageInfo, Part, Score


@dataclass(frozen=True)
class Printed:
    """The note value of a chord or rest as it was first read, before any correction.

    Attributes:
        value: name of the note value.
        dots: number of dots.
        tuplet: number of notes of a tuplet, or 0.
    """

    value: str
    dots: int
    tuplet: int


@dataclass
class Mark:
    """Corrections of a chord or rest, and its first reading.

    Attributes:
        fixed: what the user corrected: "duration", "voice".
        printed: note value as it was first read; None: the present one.
    """

    fixed: list[str] = field(default_factory=list)
    printed: Printed | None = None


@dataclass
class Entry:
    """A chord or rest with its mark."""

    chord: Chord
    mark: Mark = field(default_factory=Mark)

    @property
    def printed(self) -> Printed:
        """Its note value as it was read first."""
        chord = self.chord
        number = 0 if chord.tuplet is None else chord.tuplet[0]
        return self.mark.printed or Printed(chord.value, chord.dots, number)

    def is_fixed(self, name: str) -> bool:
        """Return whether the user corrected its "duration" or "voice"."""
        return name in self.mark.fixed

    def fix(self, name: str) -> None:
        """Mark its "duration" or "voice" as corrected by the user."""
        self.mark.printed = self.printed
        if name not in self.mark.fixed:
            self.mark.fixed.append(name)


@dataclass
class Bar:
    """A measure of a part that can be corrected.

    Attributes:
        measure: the measure; its chords are those of `entries`.
        entries: chords and rests with their marks.
        dropped: chords and rests that the present reading leaves out.
    """

    measure: Measure
    entries: list[Entry]
    dropped: list[Entry] = field(default_factory=list)

    def sort(self) -> None:
        """Order chords and rests by voice and time, and put them into the measure."""
        self.entries.sort(key=lambda e: (e.chord.voice, e.chord.onset, not e.chord.grace, e.chord.box[0]))
        self.measure.chords = [entry.chord for entry in self.entries]


@dataclass
class Symbol:
    """A symbol of a page.

    Attributes:
        name: its class.
        score: score of the detection; 1 if the user made it.
        box: x0, y0, x1, y1 in pixels of the page.
    """

    name: str
    score: float
    box: tuple[float, float, float, float]


def bar_to_json(bar: Bar) -> dict[str, Any]:
    """Return a bar as JSON values; `bar_from_json` reads them."""
    bar.sort()
    value: dict[str, Any] = {"measure": to_json(bar.measure)}
    marks = {str(k): to_json(entry.mark) for k, entry in enumerate(bar.entries) if entry.mark != Mark()}
    if marks:
        value["marks"] = marks
    if bar.dropped:
        value["dropped"] = [[to_json(entry.chord), to_json(entry.mark)] for entry in bar.dropped]
    return value


def bar_from_json(value: Mapping[str, Any]) -> Bar:
    """Return the bar that `bar_to_json` wrote."""
    measure = from_json(Measure, value["measure"])
    marks = value.get("marks", {})
    entries = [Entry(chord, from_json(Mark, marks.get(str(k), {}))) for k, chord in enumerate(measure.chords)]
    dropped = [Entry(from_json(Chord, chord), from_json(Mark, mark)) for chord, mark in value.get("dropped", [])]
    return Bar(measure, entries, dropped)


def copy_bar(bar: Bar) -> Bar:
    """Return a copy whose measure, chords, notes and marks can be changed."""
    entries = [_copy_entry(entry) for entry in bar.entries]
    measure = replace(bar.measure, chords=[entry.chord for entry in entries], clefs=list(bar.measure.clefs))
    return Bar(measure, entries, [_copy_entry(entry) for entry in bar.dropped])


def _copy_entry(entry: Entry) -> Entry:
    notes = [replace(note) for note in entry.chord.notes]
    mark = replace(entry.mark, fixed=list(entry.mark.fixed))
    return Entry(replace(entry.chord, notes=notes, beams=list(entry.chord.beams)), mark)


class Music:
    """The corrected music of a reading.

    Args:
        title: title of the piece.
        pages: the pages it was read from.
        parts: names and numbers of staves of the parts.

    Attributes:
        bars: the measures of each part.
        symbols: the symbols of each page; None where one was removed.
    """

    def __init__(self, title: str, pages: Sequence[PageInfo], parts: Sequence[tuple[str, int]]) -> None:
        self.title, self.pages, self.parts = title, list(pages), list(parts)
        self.bars: list[list[Bar]] = [[] for _ in self.parts]
        self.symbols: list[list[Symbol | None]] = [[] for _ in self.pages]

    @property
    def score(self) -> Score:
        """The music as a score; it shares its measures with the bars."""
        parts = [
            Part(name, staves, [bar.measure for bar in row])
            for (name, staves), row in zip(self.parts, self.bars, strict=True)
        ]
        return Score(parts, self.pages, self.title)

    def bar(self, part: int, index: int) -> Bar:
        """Return a bar by its part and position.

        Raises:
            ValueError: there is no such bar.
        """
        if not (0 <= part < len(self.bars) and 0 <= index < len(self.bars[part])):
            raise ValueError(f"measure: part {part}, measure {index} does not exist; expected one of the score")
        return self.bars[part][index]

    def interline(self, page: int) -> float:
        """Return the pixels between staff lines of a page, from 1."""
        known = self.pages[page - 1].interline if 0 < page <= len(self.pages) else 0.0
        return known or 10.0

    def apply(self, key: str, value: Any) -> None:
        """Set the bar or symbol of a key to a value of `to_values`, or remove it."""
        kind, first, second = key.split("/")
        row, index = int(first), int(second)
        if kind == "bar":
            self.bars[row][index : index + 1] = (
                [] if value is None else [bar_from_json(value)]
            )  # only the last is removed
            return
        symbols = self.symbols[row]
        symbols.extend([None] * (index + 1 - len(symbols)))
        symbols[index] = None if value is None else from_json(Symbol, value)


def bar_key(part: int, index: int) -> str:
    """Return the key of a bar among the values of a score."""
    return f"bar/{part}/{index}"


def symbol_key(page: int, index: int) -> str:
    """Return the key of a symbol of a page, from 0, among the values of a score."""
    return f"symbol/{page}/{index}"


def to_values(score: Score, symbols: Sequence[Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Return the values of a score that corrections change.

    Args:
        score: the music.
        symbols: the symbols of each page as in the JSON of a score: "class", "score" and "box".

    Returns:
        Bars and symbols as JSON values, by key.
    """
    values: dict[str, Any] = {}
    for p, part in enumerate(score.parts):
        for m, measure in enumerate(part.measures):
            values[bar_key(p, m)] = bar_to_json(Bar(measure, [Entry(chord) for chord in measure.chords]))
    for page, row in enumerate(symbols):
        for k, symbol in enumerate(row):
            values[symbol_key(page, k)] = {"name": symbol["class"], "score": symbol["score"], "box": symbol["box"]}
    return values


def music_from_values(score: Score, values: Mapping[str, Any]) -> Music:
    """Return the music of values.

    Args:
        score: the score that was read; its title, pages and parts are used.
        values: result of `to_values`, corrected or not.
    """
    music = Music(score.title, score.pages, [(part.name, part.n_staves) for part in score.parts])
    for p in range(len(score.parts)):
        while (value := values.get(bar_key(p, len(music.bars[p])))) is not None:
            music.bars[p].append(bar_from_json(value))
    for key, value in values.items():
        if key.startswith("symbol/"):
            music.apply(key, value)
    return music
