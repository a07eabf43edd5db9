"""Pages to measure reading on: excerpts of works that fill one page, engraved from the MusicXML that is their truth.

Songs are those of the corpus that the shipped detector was not trained on; quartets come with music21. Works to choose
by and works of the final figures are disjoint.
"""

from __future__ import annotations

import codecs
import copy
import io
import os
import shutil
import subprocess
import tempfile
import xml.etree.ElementTree as ET
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Literal

import cv2
import numpy as np
from PIL import Image

from entourage.compute import derive_seed
from entourage.data.media import UnreadableImageError
from entourage.detect.preprocessing.reading import GrayImage, pil_to_grayscale
from entourage.engrave.engines.verovio import VerovioEngraver
from entourage.engrave.options import MusicFont, PageOptions
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.scores.archives import find_scores
from entourage.engrave.scores.parsing import parse_score, read_score
from experiments.detect_pages import SEED as DETECTOR_SEED
from experiments.detect_pages import TENTHS

Split = Literal["dev", "final"]
Engine = Literal["musescore", "verovio"]

CORPUS = "openscore_lieder_mxl_half.zip"
_SEED = 11
_N_DEV_SONGS = 25
_DEV_QUARTETS = ("haydn/", "mozart/k80", "mozart/k156")
_MAX_MEASURES = 120  # no page holds more
_MUSESCORE = ("mscore3", "mscore", "musescore3", "musescore", "MuseScore3")
_DPI = 300
_TIMEOUT = 300
_VEROVIO_FONT = "Bravura"
_GRID = 16  # pixels between the points at which a deformation is inverted
_INVERSE_STEPS = 25
_PAIRS = ("slur", "wedge", "octave-shift", "pedal", "dashes", "bracket", "glissando", "slide", "tuplet", "wavy-line")


@dataclass(frozen=True)
class Excerpt:
    """Measures of a work.

    Attributes:
        name: name of its page.
        make: makes the MusicXML of the measures from the first of the page on.
    """

    name: str
    make: Callable[[], str]

    @property
    def text(self) -> str:
        """MusicXML of the measures from the first of the page on."""
        return self.make()


def songs(split: Split, data: Path | None = None) -> list[Excerpt]:
    """Return the songs that the shipped detector was not trained on, each from its beginning.

    Args:
        split: "dev" to choose by, "final" for figures.
        data: folder of the corpus; None: the environment variable ENTOURAGE_DATA.

    Raises:
        ValueError: the corpus is not there.
    """
    source = (data or Path(os.environ.get("ENTOURAGE_DATA", ""))) / CORPUS
    if not source.exists():
        raise ValueError(f"ENTOURAGE_DATA: {source} does not exist; expected the corpus of songs")
    parts = [part for part, tenths in TENTHS.items() for _ in range(tenths)]
    unseen: dict[str, Excerpt] = {}
    for file in find_scores([source]):
        score = read_score(file)
        if parts[derive_seed(DETECTOR_SEED, "part", score.work) % len(parts)] == "test":
            unseen.setdefault(score.work, Excerpt(score.name, partial(str, score.text)))
    order = sorted(unseen, key=lambda work: derive_seed(_SEED, "song", work))
    chosen = order[:_N_DEV_SONGS] if split == "dev" else order[_N_DEV_SONGS:]
    return [unseen[work] for work in chosen]


def quartets(split: Split) -> list[Excerpt]:
    """Return beginnings and later passages of the string quartets that come with music21.

    Args:
        split: "dev" to choose by, "final" for figures.
    """
    import music21

    root = Path(music21.__file__).parent / "corpus"
    files = sorted(file for name in ("beethoven", "haydn", "mozart") for file in (root / name).rglob("*.mxl"))
    found = []
    for file in files:
        name = file.relative_to(root).as_posix().removesuffix(".mxl")
        if name.startswith(_DEV_QUARTETS) is (split == "dev") and "k545" not in name:
            for passage in (0, 1):
                make = partial(_passage, file, passage)
                found.append(Excerpt(f"{name.replace('/', '-')}-{passage + 1}", make))
    return sorted(found, key=lambda excerpt: derive_seed(_SEED, "quartet", excerpt.name))


def _passage(file: Path, number: int) -> str:
    """Return a score of music21 from its beginning (0) or from its middle (1)."""
    text = _unpack(file.read_bytes())
    n_measures = len(ET.fromstring(text).find("part") or ())
    return cut(text, number * n_measures // 2, _MAX_MEASURES)


def _unpack(data: bytes) -> str:
    """Return the score in a compressed MusicXML file."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        name = next(n for n in archive.namelist() if n.endswith((".xml", ".musicxml")) and not n.startswith("META-INF"))
        content = archive.read(name)
        return content.decode("utf-16" if content[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "utf-8-sig")


def cut(text: str, start: int, count: int) -> str:
    """Return some measures of a score as a score of their own.

    Clefs, key, metre and divisions that are valid at the beginning are written there. Slurs, ties, hairpins, voltas and
    other lines that the cut leaves without a beginning or an end are removed, and so are breaks, sizes and positions of
    the edition.

    Args:
        text: partwise MusicXML.
        start: first measure, from 0.
        count: number of measures.
    """
    root = ET.fromstring(text)
    for tag in ("defaults", "credit"):
        for element in root.findall(tag):
            root.remove(element)
    for part in root.findall("part"):
        measures = part.findall("measure")
        valid = _Attributes()
        for measure in measures[:start]:
            valid.update(measure)
        for k, measure in enumerate(measures):
            if not start <= k < start + count:
                part.remove(measure)
        kept = part.findall("measure")
        if kept and start:
            valid.write(kept[0])
        for measure in kept:
            for element in measure.findall("print"):
                measure.remove(element)
            _remove_hidden_notes(measure)
        _remove_open_lines(kept)
        if kept:
            _end(kept[-1])
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode")


class _Attributes:
    """Attributes of a part that are valid at a measure."""

    _ORDER = ("divisions", "key", "time", "staves", "part-symbol", "instruments", "clef", "staff-details", "transpose")

    def __init__(self) -> None:
        self._valid: dict[tuple[str, str], ET.Element] = {}

    def update(self, measure: ET.Element) -> None:
        """Take over the attributes of a measure."""
        for attributes in measure.iter("attributes"):
            for element in attributes:
                if element.tag in self._ORDER:
                    self._valid[element.tag, element.get("number", "1")] = element

    def write(self, measure: ET.Element) -> None:
        """Write the attributes to the beginning of a measure; those that the measure has there itself are kept."""
        first = next((e for e in measure if e.tag in ("attributes", "note")), None)
        if first is None or first.tag != "attributes":
            first = ET.Element("attributes")
            measure.insert(0, first)
        own = {(e.tag, e.get("number", "1")): e for e in first}
        merged = {**self._valid, **{k: e for k, e in own.items() if k[0] in self._ORDER}}
        first[:] = [
            copy.deepcopy(element)
            for (_, _), element in sorted(merged.items(), key=lambda item: (self._ORDER.index(item[0][0]), item[0][1]))
        ]


def _remove_hidden_notes(measure: ET.Element) -> None:
    """Replace notes and rests that are not printed, such as written-out trills, by moves of the cursor."""
    for k, note in reversed(list(enumerate(measure))):
        if note.tag == "note" and note.get("print-object") == "no":
            measure.remove(note)
            if note.find("chord") is None and note.find("grace") is None:
                forward = ET.Element("forward")
                forward.extend([e for e in note if e.tag in ("duration", "voice", "staff")])
                measure.insert(k, forward)


def _end(measure: ET.Element) -> None:
    """Let the last measure end with a final bar line, which engravers draw at the end of every score."""
    if all(bar.get("location", "right") != "right" for bar in measure.findall("barline")):
        bar = ET.SubElement(measure, "barline", location="right")
        ET.SubElement(bar, "bar-style").text = "light-heavy"


def _remove_open_lines(measures: list[ET.Element]) -> None:
    """Remove starts without an end and ends without a start of the lines of a part."""
    waiting: dict[tuple[str, str], list[tuple[ET.Element, ET.Element]]] = {}
    single: list[tuple[ET.Element, ET.Element]] = []
    for parent, element, key in _lines(measures):
        kind = element.get("type", "")
        if kind in ("start", "crescendo", "diminuendo", "up", "down"):
            waiting.setdefault(key, []).append((parent, element))
        elif kind in ("stop", "discontinue"):
            if waiting.get(key):
                waiting[key].pop()
            else:
                single.append((parent, element))
    single.extend(item for row in waiting.values() for item in row)
    for parent, element in single:
        if element in list(parent):
            parent.remove(element)
    for measure in measures:
        for direction in measure.findall("direction"):
            for child in direction.findall("direction-type"):
                if not len(child):
                    direction.remove(child)
            if direction.find("direction-type") is None:
                measure.remove(direction)
        for note in measure.findall("note"):
            for notations in note.findall("notations"):
                if not len(notations):
                    note.remove(notations)


def _lines(measures: list[ET.Element]) -> Iterator[tuple[ET.Element, ET.Element, tuple[str, str]]]:
    """Iterate over starts and ends of lines with their parent and a key that a start shares with its end."""
    for measure in measures:
        for bar in measure.findall("barline"):
            for ending in bar.findall("ending"):
                yield bar, ending, ("ending", "")
        for direction in measure.findall("direction/direction-type"):
            for element in direction:
                if element.tag in _PAIRS:
                    yield direction, element, (element.tag, element.get("number", "1"))
        for note in measure.findall("note"):
            pitch = f"{note.findtext('pitch/step')}{note.findtext('pitch/octave')}{note.findtext('staff')}"
            for parent, tag in ((note, "tie"), (note.find("notations"), "tied")):
                if parent is not None:
                    marks = sorted(parent.findall(tag), key=lambda mark: mark.get("type") == "start")
                    yield from ((parent, mark, (tag, pitch)) for mark in marks)
            for notations in note.findall("notations"):
                for element in notations:
                    if element.tag in _PAIRS:
                        yield notations, element, (element.tag, element.get("number", "1"))


@dataclass(frozen=True)
class EngravedPage:
    """A page with its truth.

    Attributes:
        name: name of the page.
        truth: MusicXML of its measures, as the engraver has read them.
        image: the page, uint8, shape (h, w), dark ink on white.
    """

    name: str
    truth: str
    image: GrayImage


def engrave_page(excerpt: Excerpt, engine: Engine) -> EngravedPage:
    """Engrave as many measures of an excerpt as one page holds.

    Args:
        excerpt: the measures.
        engine: program that engraves.

    Raises:
        ValueError: the program is missing or engraves no page.
    """
    render = {"musescore": _musescore, "verovio": _verovio}[engine]
    whole = excerpt.text
    count, _, _ = render(cut(whole, 0, _MAX_MEASURES))
    while count > 0:
        fits, images, truth = render(cut(whole, 0, count))
        if len(images) == 1:
            return EngravedPage(excerpt.name, truth, images[0])
        count = min(fits, count - 1)
    raise ValueError(f"{excerpt.name}: no measure fits on a page; expected at least one")


def find_musescore() -> str | None:
    """Return the path of MuseScore 3, or None if it is not installed."""
    return next((path for name in _MUSESCORE if (path := shutil.which(name))), None)


def _musescore(text: str) -> tuple[int, list[GrayImage], str]:
    """Engrave with MuseScore; return the number of measures on the first page, the pages and the score.

    The score is what MuseScore has read and draws; for example, it joins notes of vocal music by beams.
    """
    program = find_musescore()
    if program is None:
        raise ValueError("mscore3: not found; expected MuseScore 3 to engrave pages")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "score.musicxml").write_text(text, encoding="utf-8")
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "XDG_RUNTIME_DIR": name}
        for output in ("layout.musicxml", "page.png"):
            command = [program, "-r", str(_DPI), "-o", output, "score.musicxml"]
            try:
                subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=_TIMEOUT, check=False)
            except subprocess.TimeoutExpired as error:
                raise ValueError(f"{program}: stopped after {_TIMEOUT} seconds; expected an engraved page") from error
        pages = sorted(folder.glob("page-*.png"), key=lambda path: int(path.stem.rpartition("-")[2]))
        layout = folder / "layout.musicxml"
        if not pages or not layout.exists():
            raise ValueError("mscore3: wrote no page; expected MuseScore 3 to engrave the score")
        return _measures_of_first_page(layout), [_read(page) for page in pages], layout.read_text(encoding="utf-8")


def _measures_of_first_page(layout: Path) -> int:
    """Return the number of measures before the first page break of a score that MuseScore exported."""
    part = ET.parse(layout).getroot().find("part")
    measures = [] if part is None else part.findall("measure")
    breaks = (k for k, m in enumerate(measures) if (p := m.find("print")) is not None and p.get("new-page") == "yes")
    return next(breaks, len(measures))


def _read(path: Path) -> GrayImage:
    with Image.open(path) as image:
        try:
            return pil_to_grayscale(path, image)
        except UnreadableImageError as error:
            raise ValueError(str(error)) from error


def _verovio(text: str) -> tuple[int, list[GrayImage], str]:
    """Engrave with Verovio; return the number of measures on the first page, up to two pages and the score."""
    score = parse_score(text, "excerpt")
    index: dict[str, int] = {}
    for part in ET.fromstring(score.text).findall("part"):
        for k, measure in enumerate(part.findall("measure")):
            index.update({element.get("id", ""): k for element in measure.iter() if element.get("id")})
    engraver = VerovioEngraver(PageOptions(), MusicFont(_VEROVIO_FONT))
    pages = list(islice(engraver.engrave(score), 2))
    last = max((index.get(symbol.element, -1) for symbol in pages[0].symbols), default=-1)
    return last + 1, [page.image for page in pages], text


def degrade(image: GrayImage, kind: Literal["scan", "photo"], seed: int) -> GrayImage:
    """Return a page as a simulated scan or photograph.

    Args:
        image: the page, dark ink on white, shape (h, w).
        kind: kind of degradation.
        seed: seed of its random choices.
    """
    height, width = image.shape
    degrader = Degrader(kind, height, width, seed)
    x, y = np.meshgrid(np.arange(0, width + _GRID, _GRID), np.arange(0, height + _GRID, _GRID))
    target = np.stack([x.ravel(), y.ravel()], axis=1).astype(np.float64)
    source = target.copy()
    for _ in range(_INVERSE_STEPS):  # fixed point of the inverse: the map is near the identity
        source += target - degrader.warp_points(source)
    maps = [
        cv2.resize(
            source[:, k].reshape(x.shape).astype(np.float32), None, fx=_GRID, fy=_GRID, interpolation=cv2.INTER_LINEAR
        )
        for k in (0, 1)
    ]
    shift = _GRID // 2  # resizing places the first sample at half a cell
    maps = [part[shift : shift + height, shift : shift + width] for part in maps]
    warped = cv2.remap(image, maps[0], maps[1], cv2.INTER_LINEAR, borderValue=255)
    return degrader.degrade_image(np.asarray(warped, dtype=np.uint8))
