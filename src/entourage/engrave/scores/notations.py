"""Parts of score formats: compressed MusicXML, the tunes of ABC files, and titles and composers in headers."""

from __future__ import annotations

import codecs
import io
import re
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import IO

from lxml import etree

from entourage.io.files import error_reason
from entourage.io.safe_formats import parse_xml

MAX_MXL_EXPANSION = 100  # scores are compressed to a thirtieth, and repetitive ones to a sixtieth
_CONTAINER = "META-INF/container.xml"


def unpack_mxl(data: bytes, max_bytes: int, source: object) -> bytes:
    """Extract the score from compressed MusicXML: the first root file in its container, else its first XML file.

    Args:
        data: the bytes of the .mxl file.
        max_bytes: limit on the decompressed size, whatever size the file declares; it is also limited to 1 MiB and
            `MAX_MXL_EXPANSION` times the size of the file.
        source: name of the file for error messages.

    Returns:
        The bytes of the score.

    Raises:
        ValueError: the file contains no score, its container is not XML, or it exceeds the limit.
        zipfile.BadZipFile: the file is damaged; `zipfile` raises other errors for this, too.
    """
    max_bytes = min(max_bytes, 2**20 + MAX_MXL_EXPANSION * len(data))
    with zip_errors():
        archive = zipfile.ZipFile(io.BytesIO(data))
    with archive:
        names = [n for n in archive.namelist() if n.lower().endswith((".xml", ".musicxml", ".mei"))]
        names = [n for n in names if not n.startswith("META-INF")]
        if not names:
            raise ValueError(f"{source}: holds no score; expected a MusicXML file inside")
        container = b""
        if _CONTAINER in archive.namelist():
            with zip_errors():
                stream = archive.open(_CONTAINER)
            container = read_limited(stream, max_bytes, source)
        root_files = [path for path in _root_files(container, source) if path in names]
        with zip_errors():
            stream = archive.open((root_files or names)[0])
        return read_limited(stream, max_bytes, source)


@contextmanager
def zip_errors() -> Iterator[None]:
    """Convert errors of `zipfile` such as "negative seek value" from ValueError to BadZipFile."""
    try:
        yield
    except ValueError as error:
        raise zipfile.BadZipFile(error_reason(error)) from error


def read_limited(stream: IO[bytes], max_bytes: int, source: object) -> bytes:
    """Read a stream up to a maximum length, and close it.

    Args:
        stream: the stream.
        max_bytes: limit on its length.
        source: name of the file for error messages.

    Returns:
        All bytes of the stream.

    Raises:
        ValueError: the stream is longer than the limit.
    """
    with stream:
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"{source}: is larger than {max_bytes // 2**20} MB; expected one score")
    return data


def _root_files(container: bytes, source: object) -> list[str]:
    """Return the paths of the scores that a container lists; the first is the score itself."""
    if not container.strip():
        return []
    try:
        root = parse_xml(container)
    except etree.XMLSyntaxError as error:
        reason = error_reason(error)
        raise ValueError(
            f"{source}: {_CONTAINER} is not well-formed XML: {reason}; expected a list of scores"
        ) from error
    except ValueError as error:  # too many elements
        raise ValueError(f"{source}: {_CONTAINER} {error}") from error
    return [element.get("full-path", "") for element in root.iter("{*}rootfile")]


# The patterns start with a newline instead of ^, which is three times slower; `_normalize_newlines` prepends one.
_MARK = re.compile(r"\n(?:X:[ \t]*([0-9]{0,9})|K:)")
_FIELD = re.compile(r"\n([ABCDFGHILMNORSUZmr]):[^\n]*")  # fields that a file header may define for all tunes
_EMPTY = re.compile(r"\n[ \t]*\n")
MAX_SHARED_FIELDS = 10_000  # characters of the header fields, which are copied into every tune


def nth_tune(text: str, k: int = 0) -> str:
    """Extract a tune from an ABC file, with the header fields that apply to all of its tunes.

    As in the ABC standard, a tune ends at the first empty line after its key; the text that follows is prose.

    Args:
        text: the file.
        k: number of the tune, from 1; 0 for the only tune, which needs no `X:` field.

    Returns:
        The tune as ABC.

    Raises:
        ValueError: there is no such tune, or its header is too long; the message does not name the file.
    """
    text = _normalize_newlines(text)
    tune = next(islice(_find_tunes(text), max(k - 1, 0), None), None)
    if tune is None or k == 0:
        count = sum(1 for _ in _find_tunes(text))
        if k > count:
            raise ValueError(f"holds {count} tunes; expected at least {k}")
        if count > 1:
            raise ValueError(f"holds {count} tunes; expected one, or the number of a tune")
        if "\nK:" not in text:
            raise ValueError("has no K: field; expected ABC, in which every tune has a key")
    if tune is None:
        return text[1:]
    _, start, key = tune
    return _extract_tune(text[start : text.find("\nX:", key) + 1 or None], key - start, text[: text.index("\nX:") + 1])


def tune_numbers(data: bytes) -> Iterator[str]:
    """Yield the number after each tune's `X:` in the bytes of an ABC file; "" if missing."""
    utf16 = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    text = _normalize_newlines(data.decode("utf-16" if utf16 else "utf-8", errors="replace"))
    return (number for number, _, _ in _find_tunes(text))


def _find_tunes(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the number of each tune and the positions of its `X:` and `K:`; an `X:` that no `K:` follows is skipped."""
    start: re.Match[str] | None = None
    for mark in _MARK.finditer(text):
        if mark[1] is not None:
            start = mark
        elif start is not None:
            yield start[1], start.start() + 1, mark.start() + 1
            start = None


def _normalize_newlines(text: str) -> str:
    return "\n" + text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n")


def _extract_tune(text: str, key: int, shared: str) -> str:
    """Return a tune without the prose after it, and with those fields of the file header that it lacks before `K:`."""
    present = set(_FIELD.findall("\n" + text[:key]))
    added = "".join(field[0][1:] + "\n" for field in _FIELD.finditer(shared) if field[1] not in present)
    if len(added) > MAX_SHARED_FIELDS:
        raise ValueError(f"header fields have {len(added)} characters; expected {MAX_SHARED_FIELDS} at most")
    end = _EMPTY.search(text, key)
    return text[:key] + added + text[key : end.start() + 1 if end else None]


_MEI = "{http://www.music-encoding.org/ns/mei}"
_HEADER_FIELDS = {  # title and composer
    "abc": (r"^T:(.*)$", r"^C:(.*)$"),
    "humdrum": (r"^!!!OTL(?:@{0,2}\w+)?:(.*)$", r"^!!!COM:(.*)$"),
}


def text_heading(text: str, notation: str) -> tuple[str, str]:
    """Return title and composer of a score in ABC or Humdrum; "" for missing fields."""
    title, composer = (re.search(field, text, re.MULTILINE) for field in _HEADER_FIELDS[notation])
    return title[1].strip() if title else "", _natural_name(composer[1]) if composer else ""


def musicxml_heading(root: etree._Element) -> tuple[str, str]:
    """Return title and composer of a MusicXML document; "" for missing elements."""
    title = root.findtext("movement-title") or root.findtext("work/work-title") or ""
    return title.strip(), _first_text(c for c in root.iter("creator") if c.get("type") == "composer")


def mei_heading(root: etree._Element) -> tuple[str, str]:
    """Return title and composer of an MEI document; "" for missing elements."""
    statement = next(root.iter(f"{_MEI}titleStmt"), None)
    if statement is None:
        return "", ""
    titles = [t for t in statement.iterchildren(f"{_MEI}title") if t.get("type") != "subordinate"]
    names = [n for n in statement.iter(f"{_MEI}persName") if n.get("role") == "composer"]
    return _first_text(titles), _natural_name(_first_text([*statement.iter(f"{_MEI}composer"), *names]))


def _first_text(elements: Iterable[etree._Element]) -> str:
    return next((" ".join("".join(element.itertext()).split()) for element in elements), "")


def _natural_name(name: str) -> str:
    """Convert "Bach, Johann Sebastian" to "Johann Sebastian Bach"."""
    last, comma, first = name.strip().partition(",")
    return f"{first.strip()} {last.strip()}" if comma and first.strip() else last.strip()
