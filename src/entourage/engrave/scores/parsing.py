"""Parsing of scores: decoding, validation, and ids on all elements that annotations refer to."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from lxml import etree

from entourage.engrave.scores.archives import ArchiveReader, ScoreFile, read_bytes
from entourage.engrave.scores.notations import mei_heading, musicxml_heading, nth_tune, text_heading
from entourage.io.files import error_reason
from entourage.io.safe_formats import parse_xml

Notation = Literal["musicxml", "mei", "abc", "humdrum"]
_BY_SUFFIX: dict[str, Notation] = {".abc": "abc", ".krn": "humdrum", ".mei": "mei"}
_DECLARED = re.compile(r"^\s*<\?xml[^>]*\?>")
_ENCODING = re.compile(rb"""^\s*<\?xml[^>]*encoding=["']([\w.:-]+)["']""")
_ID_TAGS = ("slur", "tied", "wedge", "fermata", "accidental", "dynamics", "pedal", "octave-shift", "tuplet", "harmony")
_MAX_DEPTH = 200  # levels of nested elements; Verovio's parser is recursive


@dataclass(frozen=True)
class Score:
    """A parsed score with its title, composer and ids.

    Attributes:
        name: name of the score in the output.
        text: the score as text. MusicXML is partwise and has an `id` on each note, measure and so on.
        notation: format of the text, such as "musicxml".
        title: title in the score's header, or "".
        composer: composer in the score's header, or "".
        ids: all ids in the text.
    """

    name: str
    text: str
    notation: Notation
    title: str = ""
    composer: str = ""
    ids: frozenset[str] = frozenset()

    @property
    def work(self) -> str:
        """Key of the musical work. Two editions of one song share it, so that they are in the same split."""
        key = re.sub(r"[\W_]+", " ", f"{self.composer} {self.title}".casefold()).strip()
        return key or self.name


def read_score(file: ScoreFile, reader: ArchiveReader | None = None) -> Score:
    """Read a score in MusicXML (compressed or not), MEI, ABC or Humdrum.

    Args:
        file: location of the score.
        reader: keeps archives open between scores; None: the archive is opened for this score only.

    Returns:
        The parsed score.

    Raises:
        ValueError: the score cannot be engraved; the message is one line that names it.
    """
    data = read_bytes(file) if reader is None else reader.read(file)
    text = _decode(data, file)
    if not text.lstrip("\ufeff \t\r\n").startswith("<"):
        suffix = "." + (file.member or file.path.name).lower().rsplit(".", 1)[-1]
        notation: Notation = _BY_SUFFIX.get(suffix, "humdrum" if text.lstrip().startswith(("**", "!!")) else "abc")
        if notation == "mei" or (suffix not in _BY_SUFFIX and not _is_abc(text) and notation == "abc"):
            raise ValueError(f"{file}: is not a score; expected MusicXML, MEI, ABC or Humdrum")
        if notation == "abc":
            text = _select_tune(text, file)
        return Score(file.name, text, notation, *text_heading(text, notation))
    return _read_xml(text, file)


def parse_score(text: str, name: str) -> Score:
    """Parse MusicXML or MEI from a string.

    Args:
        text: the document.
        name: name of the score in the output and in error messages.

    Returns:
        The parsed score.

    Raises:
        ValueError: the score cannot be engraved; the message is one line that names it.
    """
    return _read_xml(text, ScoreFile(name, Path(name)))


def _select_tune(text: str, file: ScoreFile) -> str:
    """Extract the requested tune of an ABC file; Verovio would engrave all tunes as one, in the key of the last."""
    try:
        return nth_tune(text, file.tune)
    except ValueError as error:
        raise ValueError(f"{file}: {error}") from error


def _read_xml(text: str, file: ScoreFile) -> Score:
    if "<!ENTITY" in text:
        raise ValueError(f"{file}: declares entities, which could read files or grow without bound; expected plain XML")
    body = _DECLARED.sub("", text.lstrip("\ufeff"), count=1).encode()
    try:
        root = parse_xml(body, comments=False)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"{file}: is not well-formed XML: {error_reason(error)}; expected MusicXML or MEI") from error
    except ValueError as error:  # too many elements
        raise ValueError(f"{file}: {error}") from error
    _check_depth(root, file)
    kind = etree.QName(root).localname
    if kind == "mei":
        ids = _add_xml_ids(root)
        return Score(file.name, etree.tostring(root, encoding="unicode"), "mei", *mei_heading(root), ids)
    if kind == "score-timewise":
        root = _partwise(root)
    elif kind != "score-partwise":
        raise ValueError(f"{file}: is <{kind}>; expected <score-partwise>, <score-timewise> or <mei>")
    if next(root.iter("note"), None) is None:
        raise ValueError(f"{file}: has no notes; expected at least one")
    ids = _add_ids(root)
    return Score(file.name, etree.tostring(root, encoding="unicode"), "musicxml", *musicxml_heading(root), ids)


def _decode(data: bytes, file: ScoreFile) -> str:
    declared = _ENCODING.match(data)
    encoding = declared[1].decode("ascii") if declared else "utf-8"
    if encoding.lower().startswith("utf-16"):  # wrong: the declaration itself was readable as single bytes
        encoding = "utf-8"
    if data.startswith(codecs.BOM_UTF8):
        encoding = "utf-8-sig"
    elif data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        encoding = "utf-16"
    elif data[:2] in (b"<\0", b"\0<"):  # UTF-16 without a byte order mark
        encoding = "utf-16-le" if data[:1] == b"<" else "utf-16-be"
    try:
        return data.decode(encoding)
    except (
        ValueError,
        LookupError,
    ) as error:  # some codecs raise other errors than UnicodeDecodeError
        raise ValueError(f"{file}: is not text in {encoding}: {error}") from error


def _is_abc(text: str) -> bool:
    return re.search(r"^X:\s*\d", text, re.MULTILINE) is not None and re.search(r"^K:", text, re.MULTILINE) is not None


def _check_depth(root: etree._Element, file: ScoreFile) -> None:
    depth = 0
    for event, _ in etree.iterwalk(root, events=("start", "end")):
        depth += 1 if event == "start" else -1
        if depth > _MAX_DEPTH:
            raise ValueError(f"{file}: nests elements more than {_MAX_DEPTH} deep; expected a score")


def _add_xml_ids(root: etree._Element) -> frozenset[str]:
    """Add an id such as note12 to each element of MEI's `<music>` that has none, and return all ids."""
    key = "{http://www.w3.org/XML/1998/namespace}id"
    ids = {i for element in root.iter("*") if (i := element.get(key))}
    counts: dict[str, int] = {}
    for music in root.iter("{*}music"):
        for element in music.iter("*"):
            if element.get(key) is None:
                tag = etree.QName(element).localname
                counts[tag] = counts.get(tag, 0) + 1
                name = f"{tag}{counts[tag]}"
                while name in ids:
                    name += "x"
                element.set(key, name)
                ids.add(name)
    return frozenset(ids)


def _add_ids(root: etree._Element) -> frozenset[str]:
    """Add ids such as p1m12n3 to MusicXML and return all ids; existing ids are retained unless they are duplicates."""
    ids: set[str] = set()

    def set_id(element: etree._Element, fallback: str) -> None:
        existing = element.get("id")
        if existing is None or existing in ids or not re.fullmatch(r"[A-Za-z_][\w.-]*", existing):
            while fallback in ids:  # taken by another element
                fallback += "x"
            element.set("id", fallback)
        ids.add(element.get("id", fallback))

    for p, part in enumerate(root.iterchildren("part"), start=1):
        for m, measure in enumerate(part.iterchildren("measure"), start=1):
            set_id(measure, f"p{p}m{m}")
            counts: dict[str, int] = {}
            for element in measure.iter("note", *_ID_TAGS):
                tag = "n" if element.tag == "note" else str(element.tag)
                counts[tag] = counts.get(tag, 0) + 1
                set_id(element, f"p{p}m{m}{tag}{counts[tag]}")
    return frozenset(ids)


def _partwise(root: etree._Element) -> etree._Element:
    """Convert a timewise score (measures that contain parts) to a partwise one."""
    partwise = etree.Element("score-partwise", dict(root.attrib))
    parts: dict[str, etree._Element] = {}
    for child in list(root):
        if child.tag != "measure":
            partwise.append(child)
            continue
        for part in list(child):
            key = part.get("id", "P1")
            if key not in parts:
                parts[key] = etree.SubElement(partwise, "part", id=key)
            measure = etree.SubElement(parts[key], "measure", dict(child.attrib))
            measure.extend(list(part))
    for part in parts.values():
        partwise.append(part)  # after the header elements
    return partwise
