"""Compressed MusicXML: a ZIP that holds a score, and says in a container which of its files that is.

ABC files hold any number of tunes, each of which begins at its `X:`, has a key, and is a score of its own.

Title and composer as a score gives them, in the four notations: what tells works apart.
"""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import IO

from lxml import etree

from entourage.io.safe_formats import parse_xml

_CONTAINER = "META-INF/container.xml"


def unpack_mxl(data: bytes, max_bytes: int, source: object) -> bytes:
    """The score inside compressed MusicXML: the first root file of its container, or else its first XML file.

    Args:
        data: the bytes of the .mxl.
        max_bytes: how many bytes may come out, whatever the file says of itself.
        source: how errors call it.

    Raises:
        ValueError: there is no score inside, its container is no XML, or it is larger than that.
        zipfile.BadZipFile: it is damaged; so are others of what `zipfile` raises.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [n for n in archive.namelist() if n.lower().endswith((".xml", ".musicxml", ".mei"))]
        names = [n for n in names if not n.startswith("META-INF")]
        if not names:
            raise ValueError(f"{source} holds no score; expected a MusicXML file inside")
        container = b""
        if _CONTAINER in archive.namelist():
            container = read_limited(archive.open(_CONTAINER), max_bytes, source)
        root_files = [path for path in _root_files(container, source) if path in names]
        return read_limited(archive.open((root_files or names)[0]), max_bytes, source)


def read_limited(stream: IO[bytes], max_bytes: int, source: object) -> bytes:
    """All bytes of a stream, which is closed.

    Raises:
        ValueError: there are more of them than the largest score has.
    """
    with stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{source} is larger than {max_bytes // 2**20} MB; expected one score")
    return data


def _root_files(container: bytes, source: object) -> list[str]:
    """The files that a container names as its scores, the first of which is the score itself."""
    if not container.strip():
        return []
    try:
        root = parse_xml(container)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"{source}: {_CONTAINER} is not well-formed XML: {error.msg}") from error
    return [element.get("full-path", "") for element in root.iter("{*}rootfile")]


# Both patterns start at a newline, not with ^, which takes three times as long; `_normalise_newlines` puts one first.
_MARK = re.compile(r"\n(?:X:[ \t]*([0-9]{0,9})|K:)")
_FIELD = re.compile(r"\n([ABCDFGHILMNORSUZmr]):[^\n]*")  # those that a file may give for all of its tunes
_EMPTY = re.compile(r"\n[ \t]*\n")
MAX_SHARED_FIELDS = 10_000  # characters of such fields, which every tune gets


def nth_tune(text: str, k: int = 0) -> str:
    """One tune of an ABC file, with the fields that the file gives for all of them.

    A tune ends at the first empty line after its key, as the standard has it: what follows is prose.

    Args:
        text: the file.
        k: which one, from 1; 0 for the only one, which may be the whole file if there is no `X:` in it.

    Raises:
        ValueError: one line that says what is wrong with the file, which it does not name.
    """
    text = _normalise_newlines(text)
    tune = next(islice(_find_tunes(text), max(k - 1, 0), None), None)
    if tune is None or k == 0:
        count = sum(1 for _ in _find_tunes(text))
        if k > count:
            raise ValueError(f"it holds {count} tunes; expected at least {k}")
        if count > 1:
            raise ValueError(f"it holds {count} tunes; expected one, as find_scores tells them apart")
        if "\nK:" not in text:
            raise ValueError("it has no K: field; expected ABC, in which every tune has a key")
    if tune is None:
        return text[1:]
    _, start, key = tune
    return _extract_tune(text[start : text.find("\nX:", key) + 1 or None], key - start, text[: text.index("\nX:") + 1])


def tune_numbers(data: bytes) -> Iterator[str]:
    """What stands after each tune's `X:` in the bytes of an ABC file, one after the other: a number, or nothing."""
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = _normalise_newlines(data.decode("utf-16" if utf16 else "utf-8", errors="replace"))
    return (number for number, _, _ in _find_tunes(text))


def _find_tunes(text: str) -> Iterator[tuple[str, int, int]]:
    """Number, start and place of the key of each tune; an `X:` without a key before the next one begins none."""
    start: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        if mark[1] is not None:
            start = mark
        elif start is not None:
            yield start[1], start.start() + 1, mark.start() + 1
            start = None


def _normalise_newlines(text: str) -> str:
    return "\n" + text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _extract_tune(text: str, key: int, shared: str) -> str:
    """A tune without the prose that follows, and with those shared fields that it lacks before its key."""
    present = set(_FIELD.findall("\n" + text[:key]))
    added = "".join(field[0][1:] + "\n" for field in _FIELD.finditer(shared) if field[1] not in present)
    if len(added) > MAX_SHARED_FIELDS:
        raise ValueError(f"its fields for all tunes have {len(added)} characters; expected at most {MAX_SHARED_FIELDS}")
    end = _EMPTY.search(text, key)
    return text[:key] + added + text[key : end.start() + 1 if end else None]


_MEI = "{http://www.music-encoding.org/ns/mei}"
_LINES = {  # the fields of title and composer at the head of a line
    "abc": (r"^T:(.*)$", r"^C:(.*)$"),
    "humdrum": (r"^!!!OTL(?:@{0,2}\w+)?:(.*)$", r"^!!!COM:(.*)$"),
}


def text_heading(text: str, notation: str) -> tuple[str, str]:
    """Title and composer of ABC or Humdrum; nothing where the score says nothing."""
    title, composer = (re.search(field, text, re.MULTILINE) for field in _LINES[notation])
    return title[1].strip() if title else "", _natural_name(composer[1]) if composer else ""


def musicxml_heading(root: etree._Element) -> tuple[str, str]:
    """Title and composer of MusicXML."""
    title = root.findtext("movement-title") or root.findtext("work/work-title") or ""
    return title.strip(), _first_text(c for c in root.iter("creator") if c.get("type") == "composer")


def mei_heading(root: etree._Element) -> tuple[str, str]:
    """Title and composer of MEI."""
    statement = next(root.iter(f"{_MEI}titleStmt"), None)
    if statement is None:
        return "", ""
    titles = [t for t in statement.iterchildren(f"{_MEI}title") if t.get("type") != "subordinate"]
    names = [n for n in statement.iter(f"{_MEI}persName") if n.get("role") == "composer"]
    return _first_text(titles), _natural_name(_first_text([*statement.iter(f"{_MEI}composer"), *names]))


def _first_text(elements: Iterable[etree._Element]) -> str:
    return next((" ".join("".join(element.itertext()).split()) for element in elements), "")


def _natural_name(name: str) -> str:
    """Bach, Johann Sebastian is Johann Sebastian Bach."""
    last, comma, first = name.strip().partition(",")
    return f"{first.strip()} {last.strip()}" if comma and first.strip() else last.strip()
