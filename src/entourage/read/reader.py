"""`ScoreReader` reads pages as a score, with the box of each note in pixels of the input pages."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from entourage.data.media import UnreadableImageError
from entourage.detect import Detections, Detector
from entourage.detect.preprocessing.prepare import ImageInput
from entourage.detect.preprocessing.reading import GrayImage, page_source, read_pages, to_grayscale
from entourage.extras import missing_packages
from entourage.read.assemble import SystemReading, read_symbols
from entourage.read.formats.mei import write_mei
from entourage.read.formats.midi import write_midi
from entourage.read.formats.musicxml import to_musicxml, write_musicxml
from entourage.read.formats.score_json import write_score
from entourage.read.layout.lean import find_lean
from entourage.read.layout.page import read_layout
from entourage.read.orientation import UprightPage, find_upright, symbols_on_input, to_input_boxes
from entourage.read.parts import SystemMusic, drop_repeated_signatures, join_parts
from entourage.read.rhythm.crossing import Method
from entourage.read.score import Box, Chord, Direction, Measure, Note, PageInfo, Pitch, Score, measure_onsets
from entourage.read.text.attach import Headings, attach_text
from entourage.read.text.recognition import TextRecognizer
from entourage.read.transpose import Interval, transpose
from entourage.validation import check_choice

SYMBOL_THRESHOLD = 0.3  # minimum score of the symbols of a page that no note refers to
NO_NOTES = "staves without notes"
UNSURE = "symbols are uncertain: handwriting and poor pictures are not read reliably"
_MIN_HEAD_SCORE = 0.6  # mean score of noteheads: about 0.8 on prints and photographs of prints, 0.5 in handwriting
_PERCUSSION = "percussion staves, which are not read"
_PERCUSSION_CLEF = "clefUnpitchedPercussion"


@dataclass
class PageReading:
    """What was read on a page.

    Attributes:
        info: the page; its message says why nothing was read.
        systems: its systems from top to bottom; boxes are in pixels of the input page.
        symbols: its symbols in pixels of the input page.
        headings: title, authors and names of the parts, if text is read.
    """

    info: PageInfo
    systems: list[SystemMusic]
    symbols: Detections
    headings: Headings = field(default_factory=Headings)

    @property
    def n_notes(self) -> int:
        """Number of noteheads."""
        rows = [row for system in self.systems for row in system.parts]
        return sum(len(chord.notes) for row in rows for measure in row for chord in measure.chords)


@dataclass(frozen=True)
class PlacedNote:
    """A note with its time in the piece and its place on the page.

    Attributes:
        pitch: written pitch.
        onset: quarter notes from the beginning of the piece, without repeats.
        duration: quarter notes; 0 for grace notes.
        voice: voice of the part, from 1.
        box: notehead in pixels of the page: x0, y0, x1, y1.
        page: page, from 1.
        part: part, from 1.
        staff: staff of the part, from 1.
        measure: number of the measure, from 1.
        tied: whether a tie joins it to the note before.
        confidence: score of the notehead in [0, 1].
    """

    pitch: Pitch
    onset: Fraction
    duration: Fraction
    voice: int
    box: Box
    page: int
    part: int
    staff: int
    measure: int
    tied: bool
    confidence: float


@dataclass
class Transcription(Score):
    """A score that was read from pages.

    Attributes:
        symbols: the symbols of each page, in pixels of the page; `Note.symbol` is a position in them.
    """

    symbols: list[Detections] = field(default_factory=list)

    @property
    def notes(self) -> list[PlacedNote]:
        """All notes in order of part, measure, voice and time."""
        onsets = measure_onsets(self)
        return [
            PlacedNote(
                note.pitch,
                onsets[index] + chord.onset,
                chord.duration,
                chord.voice,
                note.box,
                measure.page,
                number,
                chord.staff,
                measure.number,
                note.tied_from,
                note.confidence,
            )
            for number, part in enumerate(self.parts, start=1)
            for index, measure in enumerate(part.measures)
            for chord in measure.chords
            for note in chord.notes
        ]

    @property
    def message(self) -> str:
        """Messages of the pages on one line, such as the reason why a page was not read."""
        return "; ".join(f"{page.source or 'page'}: {page.message}" for page in self.pages if page.message)

    def transposed(self, interval: Interval | int | str) -> Transcription:
        """Return a copy whose written pitches and keys are transposed.

        Args:
            interval: an interval such as "M2" or "-P5", or a number of semitones.

        Raises:
            ValueError: the text is not an interval, or it is larger than three octaves.
        """
        result = copy.deepcopy(self)
        transpose(result, interval)
        return result

    def to_musicxml(self, path: str | Path) -> None:
        """Write MusicXML 4.0.

        Raises:
            ValueError: nothing was read.
        """
        self._check_notes()
        write_musicxml(self, Path(path))

    def to_mei(self, path: str | Path) -> None:
        """Write MEI, converted by Verovio.

        Raises:
            ValueError: nothing was read.
        """
        self._check_notes()
        write_mei(to_musicxml(self), Path(path))

    def to_midi(self, path: str | Path, *, tempo: float = 100.0, repeats: bool = True) -> None:
        """Write a MIDI file.

        Args:
            path: file to write.
            tempo: quarter notes per minute, from 10 to 1000.
            repeats: whether repeated sections are played as often as printed.

        Raises:
            ValueError: nothing was read, or the tempo is out of range.
        """
        self._check_notes()
        write_midi(self, Path(path), tempo=tempo, repeats=repeats)

    def to_json(self, path: str | Path) -> None:
        """Write symbols, notes and measures with their boxes; also if nothing was read."""
        write_score(self, Path(path), self.symbols)

    def _check_notes(self) -> None:
        if self.n_notes == 0:
            raise ValueError(f"score: has no notes ({self.message or 'no pages'}); expected pages with notes")


class ScoreReader:
    """Reads pages of printed music.

    Args:
        detector: finds the symbols.
        method: how durations and voices are found; see `load`.
        recognizer: reads text; None: text is not read.

    Examples:
        >>> import numpy as np
        >>> from entourage import ScoreReader
        >>> page = np.full((200, 900), 255, dtype=np.uint8)
        >>> page[80:129:12, 50:850] = 0  # the five lines of a staff
        >>> score = ScoreReader.load(device="cpu").read(page)
        >>> score.notes, score.pages[0].message
        ([], 'staves without notes')
    """

    def __init__(self, detector: Detector, method: Method = "search", recognizer: TextRecognizer | None = None) -> None:
        check_choice("method", method, Method)
        self.detector = detector
        self.method: Method = method
        self.recognizer = recognizer

    @classmethod
    def load(
        cls,
        model: str | Path | None = None,
        device: str = "auto",
        method: Method = "search",
        text: bool | None = None,
    ) -> ScoreReader:
        """Return a reader with the detector of the package, or another one.

        Args:
            model: file of a detector, or the name of an included one; None: the default detector.
            device: device to compute on.
            method: how durations and voices are found: "rules" takes every duration as printed, "search" finds the
                most plausible reading that adds up, and "game" lets readings compete before the search.
            text: whether to read titles, words and lyrics; None: if the extra [text] is installed.

        Raises:
            ValueError: there is no such detector, device or method.
            MissingExtraError: `text` is true and the extra is not installed.
        """
        check_choice("method", method, Method)
        if text is None:
            text = not missing_packages("text")
        return cls(Detector.load(model, device), method, TextRecognizer() if text else None)

    def read(self, pages: ImageInput | Sequence[ImageInput]) -> Transcription:
        """Read the music of one or several pages as one score.

        Args:
            pages: an image or PDF file with all its pages, a PIL image, an array of uint8 of shape (h, w) or
                (h, w, 3), or several of these in order.

        Returns:
            The score. The message of each of its pages says why a page was not read.

        Raises:
            ValueError: a page cannot be opened.
        """
        several = isinstance(pages, Sequence) and not isinstance(pages, str)
        inputs: Iterable[ImageInput] = pages if several else [pages]  # type: ignore[assignment, list-item]
        return join_pages([self.read_page(image, source) for image, source in _images(inputs)])

    def read_page(self, image: GrayImage, source: str = "") -> PageReading:
        """Read one page.

        Args:
            image: grayscale, dark ink on light paper, shape (h, w).
            source: name of the page for messages.

        Returns:
            The music of the page.

        Raises:
            ValueError: the page would be too large at the scale of the detector.
        """
        return self.read_upright(find_upright(self.detector, image), source)

    def read_upright(self, page: UprightPage, source: str = "", method: Method | None = None) -> PageReading:
        """Read a page whose symbols are detected.

        Args:
            page: the page with its symbols, from `orientation.find_upright`.
            source: name of the page for messages.
            method: how durations and voices are found; None: that of the reader.

        Returns:
            The music of the page.
        """
        readings: list[SystemReading] = []
        headings = Headings()
        layout = None if page.prepared.image is None else read_layout(page.prepared.image, page.symbols)
        if layout is not None and (lean := find_lean(layout.systems, layout.ink.shape[0])) is not None:
            page, layout = page.without_lean(lean), None
        prepared = page.prepared
        if prepared.image is not None:
            method = method or self.method
            layout, readings = read_symbols(prepared.image, page.symbols, page.straight, method, layout)
            if self.recognizer is not None and any(reading.chords for reading in readings):
                headings = attach_text(readings, self.recognizer.read(prepared.image), layout.ink)
        reading = _on_input(page, readings)
        reading.headings = headings
        straightened = prepared.angle if prepared.rotation is not None else 0.0
        reading.info = PageInfo(source, *page.size, prepared.interline or 0.0, straightened, page.turned)
        reading.info.message = _message(page, reading)
        return reading


def _images(inputs: Iterable[ImageInput]) -> Iterator[tuple[GrayImage, str]]:
    for item in inputs:
        if not isinstance(item, str | Path):
            yield to_grayscale(item), ""
            continue
        for raw_page in read_pages(item):
            if isinstance(raw_page, UnreadableImageError):
                raise raw_page
            yield raw_page.image, page_source(item, raw_page.number)


def _message(page: UprightPage, reading: PageReading) -> str:
    """Return the messages of a page: what was corrected, and why nothing was read."""
    parts = [f"turned by {page.turned} degrees"] if page.turned else []
    if page.prepared.message:
        parts.append(page.prepared.message)
    if page.prepared.image is not None and reading.n_notes == 0:
        parts.append(_PERCUSSION if _is_percussion(page.symbols) else NO_NOTES)
    if reading.n_notes and _mean_head_score(page.symbols) < _MIN_HEAD_SCORE:
        parts.append(UNSURE)
    return "; ".join(parts)


def _mean_head_score(symbols: Detections) -> float:
    """Return the mean score of the noteheads of a page; 1 without noteheads."""
    is_head = torch.tensor([name.startswith("notehead") for name in symbols.names], dtype=torch.bool)
    scores = symbols.scores[is_head & (symbols.scores >= SYMBOL_THRESHOLD)]
    return float(scores.mean()) if len(scores) else 1.0


def _is_percussion(symbols: Detections) -> bool:
    """Return whether most clefs of a page are those of percussion."""
    sure = symbols.select(symbols.scores >= SYMBOL_THRESHOLD)
    clefs = [name for name in sure.names if "clef" in name.lower()]
    return sum(name.startswith(_PERCUSSION_CLEF) for name in clefs) * 2 > len(clefs)


def _on_input(page: UprightPage, readings: Sequence[SystemReading]) -> PageReading:
    """Return what was read with all boxes in pixels of the input page and links from notes to symbols."""
    info = PageInfo("", 0, 0, 0.0)
    systems = []
    for number, reading in enumerate(readings, start=1):
        for measure in (measure for row in reading.parts for measure in row):
            measure.system = number
        systems.append(SystemMusic([len(group) for group in reading.system.groups], reading.parts))
    result = PageReading(info, systems, Detections.empty(page.symbols.classes))
    if page.prepared.image is None:
        return result
    measures = [measure for system in systems for row in system.parts for measure in row]
    used = _link_symbols(measures, page.symbols)
    _map_boxes(measures, page)
    kept = torch.tensor([score >= SYMBOL_THRESHOLD for score in page.symbols.scores.tolist()], dtype=torch.bool)
    kept[sorted(used)] = True
    positions = (torch.cumsum(kept, 0) - 1).tolist()
    for item in _items(measures):
        if isinstance(item, Note | Chord) and item.symbol is not None:
            item.symbol = positions[item.symbol]
    result.symbols = symbols_on_input(page).select(kept)
    return result


def _items(measures: Iterable[Measure]) -> Iterator[Chord | Note | Direction]:
    """Iterate over all that has a box of its own in measures."""
    for measure in measures:
        yield from measure.directions
        for chord in measure.chords:
            yield chord
            yield from chord.notes


def _link_symbols(measures: Iterable[Measure], symbols: Detections) -> set[int]:
    """Set `symbol` of noteheads and rests to the position of the detection with their box; return the positions."""
    position = {tuple(box): index for index, box in reversed(list(enumerate(symbols.boxes.tolist())))}
    used = set()
    for item in _items(measures):
        if isinstance(item, Note) or (isinstance(item, Chord) and item.is_rest):
            item.symbol = position.get(item.box)
            if item.symbol is not None:
                used.add(item.symbol)
    return used


def _map_boxes(measures: Sequence[Measure], page: UprightPage) -> None:
    """Map all boxes of measures to the input page, in place."""
    items = list(_items(measures))
    boxes: list[Box] = [item.box for item in items]
    boxes += [box for measure in measures for box in measure.boxes]
    mapped = iter(_to_boxes(to_input_boxes(np.array(boxes, dtype=np.float64), page)))
    for item in items:
        item.box = next(mapped)
    for measure in measures:
        measure.boxes = [next(mapped) for _ in measure.boxes]


def _to_boxes(array: NDArray[np.float64]) -> list[Box]:
    return [(float(x0), float(y0), float(x1), float(y1)) for x0, y0, x1, y1 in array]


def join_pages(pages: Sequence[PageReading], title: str = "") -> Transcription:
    """Join the music of pages to one score.

    Args:
        pages: the pages in order; their measures become those of the score.
        title: title of the piece; "": that of the first page.

    Returns:
        The score. Its measures are numbered through all pages; signatures that a page repeats are left out.
    """
    systems: list[SystemMusic] = []
    for number, page in enumerate(pages, start=1):
        for index, system in enumerate(page.systems):
            for row in system.parts:
                for measure in row:
                    measure.page = number
                if index == 0 and number > 1 and row and row[0].key is None and row[0].clefs:
                    row[0].key = 0  # each page is read by itself, and begins in C
            systems.append(system)
    parts = join_parts(systems)
    for part in parts:
        drop_repeated_signatures(part.measures)
    headings = pages[0].headings if pages else Headings()
    names = next((page.headings.names for page in pages if len(page.headings.names) == len(parts)), [])
    for part, name in zip(parts, names, strict=False):
        part.name = name or part.name
    infos, symbols = [page.info for page in pages], [page.symbols for page in pages]
    return Transcription(parts, infos, title or headings.title, headings.authors, symbols)
