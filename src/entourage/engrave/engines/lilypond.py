"""LilyPond, the second engraver, which the thesis used: much slower than Verovio, with another layout and font.

LilyPond writes one SVG group per object with the tags of `lilypond_tags.ily`. It does not retain the ids of notes, so
that they are restored by comparing onset and pitch with the notes of the MusicXML.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from importlib.resources import files
from pathlib import Path

import numpy as np
from lxml import etree

from entourage.engrave.engines.fonts import Typeface
from entourage.engrave.engines.lilypond_tags import (
    BARLINE_KINDS,
    barline_symbols,
    number_staves,
    tagged_symbols,
    unlabelled,
)
from entourage.engrave.options import PageOptions
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.marks import AnnotatedMarks, Group, Mark, Symbol
from entourage.engrave.render.outlines import (
    NUMBER,
    Edges,
    dashes,
    ellipse,
    fill_edges,
    orient_positive,
    parse_path,
    rectangle,
    stroke_edges,
)
from entourage.engrave.render.page import Page, render_page
from entourage.engrave.scores.parsing import Score
from entourage.extras import extra_imports
from entourage.io.safe_formats import parse_xml


@dataclass(frozen=True)
class _Transform:
    """Shift and scale of the coordinates inside a group of the SVG."""

    x: float = 0.0
    y: float = 0.0
    sx: float = 1.0
    sy: float = 1.0

    def compose(self, transform: str | None) -> _Transform:
        placement = self
        for name, arguments in re.findall(r"(\w+)\(([^)]*)\)", transform or ""):
            a, *rest = (float(n) for n in NUMBER.findall(arguments))
            b = rest[0] if rest else a
            if name == "translate":
                placement = _Transform(
                    placement.x + placement.sx * a, placement.y + placement.sy * b, placement.sx, placement.sy
                )
            elif name == "scale":
                placement = _Transform(placement.x, placement.y, placement.sx * a, placement.sy * b)
        return placement

    def apply(self, edges: Edges) -> Edges:
        scale, shift = np.array([self.sx, self.sy] * 2), np.array([self.x, self.y] * 2)
        return np.asarray(edges * scale + shift)


class LilypondReader:
    """Reader of SVG pages that caches letters between pages.

    Args:
        pixels: pixels per staff space, the unit of LilyPond.
    """

    def __init__(self, pixels: float) -> None:
        self.pixels = pixels
        self._type = Typeface()

    def read(self, svg: str) -> tuple[list[Mark], AnnotatedMarks]:
        """Read the marks and symbols of a page.

        Args:
            svg: SVG document as written by LilyPond with the tags of `lilypond_tags.ily`.

        Returns:
            The marks, and the symbols that consist of them.
        """
        root = parse_xml(svg.encode())
        marks: list[Mark] = []
        symbols: list[Symbol] = []
        unlabelled_glyphs: list[str] = []
        barlines: dict[int, tuple[Group, dict[str, str]]] = {}
        staff_names: dict[Group, str] = {}
        for child in root:
            if not isinstance(child.tag, str):
                continue
            group = Group(tuple(child.get("class", "").split()))
            first = len(marks)
            self._walk(child, group, _Transform(sx=self.pixels, sy=self.pixels), marks)
            indices, tags = list(range(first, len(marks))), dict(child.attrib)
            object_symbols = tagged_symbols(group, tags, indices, marks) if indices and group.kind else []
            assigned = {i for symbol in object_symbols for i in symbol.marks}
            unlabelled_glyphs += unlabelled(group, tags, [i for i in indices if i not in assigned], marks)
            symbols += object_symbols
            staff_names[group] = tags.get("data-staff", "")
            if group.kind in BARLINE_KINDS:
                barlines |= dict.fromkeys(indices, (group, tags))
        symbols += barline_symbols(barlines, marks, self.pixels)
        number_staves(symbols, marks, self.pixels, staff_names)
        return marks, AnnotatedMarks(symbols, unlabelled_glyphs)

    def _walk(self, element: etree._Element, group: Group, placement: _Transform, marks: list[Mark]) -> None:
        tag = etree.QName(element).localname
        placement = placement.compose(element.get("transform"))
        if tag in ("g", "a"):
            for child in element:
                if isinstance(child.tag, str):
                    self._walk(child, group, placement, marks)
            return
        if tag == "text":
            self._text(element, group, placement, marks)
            return
        edges = self._outline(tag, element, placement)
        if len(edges):
            points = edges[:, :2]
            shape = "glyph" if tag == "path" and not element.get("stroke-width") else "area"
            middle = (points.min(axis=0) + points.max(axis=0)) / 2
            marks.append(Mark(shape, edges, group, 0, 0.0, middle[0], middle[1]))

    def _outline(self, tag: str, element: etree._Element, placement: _Transform) -> Edges:
        def number(name: str) -> float:
            return float(element.get(name, "0"))

        width = number("stroke-width")
        if tag == "line":
            ends = np.array([[number("x1"), number("y1")], [number("x2"), number("y2")]])
            pattern = [float(n) for n in NUMBER.findall(element.get("stroke-dasharray", ""))]
            pieces = [stroke_edges(piece, width, "butt" if pattern else "square") for piece in dashes(ends, pattern)]
            return placement.apply(np.concatenate(pieces))
        if tag == "rect":
            return placement.apply(rectangle(number("x"), number("y"), number("width"), number("height")))
        if tag == "circle":
            return placement.apply(ellipse(number("cx"), number("cy"), number("r"), number("r")))
        if tag == "polygon":
            points = np.array(NUMBER.findall(element.get("points", "")), dtype=float).reshape(-1, 2)
            return placement.apply(orient_positive(fill_edges([points])))
        if tag == "path":
            tolerance = 0.04 / abs(placement.sx)
            lines = parse_path(element.get("d", ""), tolerance)
            is_filled = element.get("fill") != "none"
            parts = [fill_edges(lines)] if is_filled else []
            if width > 0:
                parts = [orient_positive(part) for part in parts] + [
                    stroke_edges(line, width, "round") for line in lines
                ]
            return placement.apply(np.concatenate(parts)) if parts else fill_edges([])
        return fill_edges([])

    def _text(self, element: etree._Element, group: Group, placement: _Transform, marks: list[Mark]) -> None:
        size = float(element.get("font-size", "1"))
        bold, italic = element.get("font-weight") == "bold", element.get("font-style") == "italic"
        x = 0.0
        for character in "".join(element.itertext()).strip("\n"):
            letter = self._type.letter(character, bold, italic)
            if len(letter.edges):
                edges = placement.apply(letter.edges * size + np.array([x, 0, x, 0]))
                marks.append(Mark("letter", edges, group, ord(character), 0.0, edges[:, 0].min(), placement.y))
            x += letter.advance * size


_STAFF_SPACE = 1.757299  # millimetres between staff lines at LilyPond's default size
_TIMEOUTS = {"musicxml2ly": 60.0, "lilypond": 420.0}  # seconds; the sum leaves a worker time to render the pages
_ESCAPES = str.maketrans({"#": "♯", "$": "S", "\\": "/", '"': "”", "{": "(", "}": ")", "%": " "})


class LilypondEngraver:
    """Engraver of MusicXML by `musicxml2ly` and LilyPond.

    Args:
        options: size of pages.

    Raises:
        MissingExtraError: LilyPond is not installed.
    """

    def __init__(self, options: PageOptions) -> None:
        with extra_imports():
            import lilypond
        self.options = options
        self._folder = Path(lilypond.executable("lilypond")).parent
        self._reader = LilypondReader(options.interline)

    def engrave(self, score: Score, make_degrader: Callable[[int], Degrader | None] = lambda _: None) -> Iterator[Page]:
        """Engrave a score page by page, with annotations.

        Args:
            score: the score, in MusicXML.
            make_degrader: function from the number of a page to its degradation, or to None.

        Yields:
            The pages with their annotations.

        Raises:
            ValueError: the score is not MusicXML, or LilyPond cannot engrave it.
        """
        if score.notation != "musicxml":
            raise ValueError(f"{score.name}: is {score.notation}; expected MusicXML, which LilyPond requires")
        with tempfile.TemporaryDirectory() as folder:
            for number, path in enumerate(self._typeset(score, Path(folder)), start=1):
                marks, annotated = self._reader.read(path.read_text(encoding="utf-8"))
                assign_score_positions(annotated.symbols, score)
                height, width = self.options.height, self.options.width
                yield render_page(marks, annotated, height, width, number, make_degrader(number))

    def _typeset(self, score: Score, folder: Path) -> list[Path]:
        """Run musicxml2ly and LilyPond, and return the SVG of each page in order."""
        (folder / "score.xml").write_text(escape_text(score.text), encoding="utf-8")
        self._run("musicxml2ly", ["--no-page-layout", "-o", "score.ly", "score.xml"], folder, score)
        text = (folder / "score.ly").read_text(encoding="utf-8")
        tags = (files("entourage.engrave.engines") / "lilypond_tags.ily").read_text(encoding="utf-8")
        version, rest = re.match(r'(\\version "[^"]*")?(.*)', text, re.DOTALL).groups()  # type: ignore[union-attr]
        (folder / "score.ly").write_text(f"{version or ''}\n{self._paper()}\n{tags}\n{rest}", encoding="utf-8")
        self._run("lilypond", ["-s", "-dbackend=svg", "-o", "page", "score.ly"], folder, score)
        pages = sorted(folder.glob("page*.svg"), key=lambda p: int(re.sub(r"\D", "", p.stem) or 1))
        if not pages:
            raise ValueError(f"{score.name}: LilyPond writes no pages; expected at least one")
        return pages

    def _paper(self) -> str:
        """Return the page size and margins in LilyPond's language; LilyPond's staff space is the interline."""
        width, height = (n / self.options.interline * _STAFF_SPACE for n in (self.options.width, self.options.height))
        margin = self.options.margin / 20 * _STAFF_SPACE
        size = f'#(set! paper-alist (cons \'("ours" . (cons (* {width:.4f} mm) (* {height:.4f} mm))) paper-alist))'
        sides = " ".join(f"{side}-margin = {margin:.3f}\\mm" for side in ("left", "right", "top", "bottom"))
        return f'{size}\n\\paper {{ #(set-paper-size "ours") {sides} indent = 22\\mm tagline = ##f }}'

    def _run(self, program: str, arguments: list[str], folder: Path, score: Score) -> None:
        path = f"{self._folder}{os.pathsep}{os.environ.get('PATH', '')}"  # musicxml2ly calls another program there
        try:
            code, errors = _run_in_group([str(self._folder / program), *arguments], folder, path, _TIMEOUTS[program])
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"{score.name}: {program} took longer than {_TIMEOUTS[program]:g} s") from error
        if code:
            raise ValueError(f"{score.name}: {program} failed: {(errors.strip().splitlines() or ['no message'])[-1]}")


def _run_in_group(command: list[str], folder: Path, path: str, timeout: float) -> tuple[int, str]:
    """Run a program in a separate process group, which is killed on errors; return exit code and standard error."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            errors = process.communicate(timeout=timeout)[1]
        except BaseException:  # including SystemExit when the worker is terminated
            _kill_group(process)
            raise
    return process.returncode, errors.decode(errors="replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":  # Windows has no process groups
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def escape_text(text: str) -> str:
    """Replace the characters of MusicXML that are commands in LilyPond's language.

    `musicxml2ly` copies texts of the score into LilyPond's language without escaping, and this language can run
    programs (after # or $) and read files (after a backslash). Attributes with such characters, such as colours, are
    removed.
    """
    root = parse_xml(text.encode())
    etree.strip_tags(root, etree.ProcessingInstruction)
    for element in root.iter(etree.Element):
        element.text = element.text and element.text.translate(_ESCAPES)
        element.tail = element.tail and element.tail.translate(_ESCAPES)
        for name, value in element.attrib.items():
            if value != value.translate(_ESCAPES):
                del element.attrib[name]
    return str(etree.tostring(root, encoding="unicode"))


def assign_score_positions(symbols: list[Symbol], score: Score) -> None:
    """Assign measures by onset, and the ids of notes to noteheads of the same onset and pitch, in the score's order.

    A bar line belongs to the measure that it ends, unless it only begins a repeat.
    """
    starts = [float(start) for start in measure_starts(score.text)]
    begins_repeat = {symbol.group for symbol in symbols if symbol.label == "repeatLeft"}
    unassigned = ids_by_onset_and_pitch(score.text)
    for symbol in symbols:
        if symbol.onset is not None and symbol.label != "staff":
            ends = symbol.group.kind in BARLINE_KINDS and symbol.group not in begins_repeat
            number = bisect_left(starts, symbol.onset - 1e-6) if ends else bisect_right(starts, symbol.onset + 1e-6)
            symbol.measure = min(max(number, 1), len(starts) - 1)
        if symbol.label.startswith("notehead") and symbol.onset is not None:
            ids = unassigned.get((round(symbol.onset, 4), symbol.midi))
            if ids:
                symbol.element = ids.pop(0)
                symbol.notes = (symbol.element,)


_STEPS = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}


def ids_by_onset_and_pitch(text: str) -> dict[tuple[float, int | None], list[str]]:
    """Return the ids of the notes of a MusicXML score by onset, in quarters rounded to four digits, and MIDI number."""
    root = parse_xml(text.encode())
    parts = [_read_part(part) for part in root.iterchildren("part")]
    starts = _starts(parts)
    ids: dict[tuple[float, int | None], list[str]] = defaultdict(list)
    for _, notes in parts:
        for measure, onset, midi, note_id in notes:
            if measure < len(starts):
                ids[round(float(starts[measure] + onset), 4), midi].append(note_id)
    return dict(ids)


_Part = tuple[list[Fraction], list[tuple[int, Fraction, int | None, str]]]  # lengths of measures; notes


def measure_starts(text: str) -> list[Fraction]:
    """Return the onsets of the measures of a MusicXML score in quarters, and the end of the last one."""
    return _starts([_read_part(part) for part in parse_xml(text.encode()).iterchildren("part")])


def _starts(parts: Sequence[_Part]) -> list[Fraction]:
    starts = [Fraction(0)]
    for lengths in zip(*(measures for measures, _ in parts), strict=False):
        starts.append(starts[-1] + max(lengths))  # the length of a measure is that in its longest part
    return starts


def _read_part(part: etree._Element) -> _Part:
    """Return the lengths of the measures of a part; and measure, onset within it, MIDI number and id of its notes."""
    divisions = 1
    lengths, notes = [], []
    for number, measure in enumerate(part.iterchildren("measure")):
        time = chord_onset = length_so_far = Fraction(0)
        for element in measure:
            if element.tag == "attributes" and element.findtext("divisions"):
                divisions = int(element.findtext("divisions"))
            length = Fraction(int(float(element.findtext("duration") or 0)), divisions)
            if element.tag == "note":
                onset = chord_onset if element.find("chord") is not None else time
                notes.append((number, onset, _midi(element), element.get("id", "")))
                if element.find("chord") is None:
                    chord_onset, time = time, time + (length if element.find("grace") is None else 0)
            elif element.tag in ("forward", "backup"):
                time += length if element.tag == "forward" else -length
            length_so_far = max(length_so_far, time)
        lengths.append(length_so_far)
    return lengths, notes


def _midi(note: etree._Element) -> int | None:
    pitch = note.find("pitch")
    if pitch is None:
        return None
    alter = int(float(pitch.findtext("alter") or 0))
    return 12 * (int(pitch.findtext("octave")) + 1) + _STEPS[pitch.findtext("step")] + alter
