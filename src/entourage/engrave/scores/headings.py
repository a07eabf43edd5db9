"""Title and composer as a score gives them, in the four notations: what tells works apart."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lxml import etree

_MEI = "{http://www.music-encoding.org/ns/mei}"
_LINES = {  # the fields of title and composer at the head of a line
    "abc": (r"^T:(.*)$", r"^C:(.*)$"),
    "humdrum": (r"^!!!OTL(?:@{0,2}\w+)?:(.*)$", r"^!!!COM:(.*)$"),
}


def text_heading(text: str, notation: str) -> tuple[str, str]:
    """Title and composer of ABC or Humdrum; nothing where the score says nothing."""
    title, composer = (re.search(field, text, re.MULTILINE) for field in _LINES[notation])
    return title[1].strip() if title else "", _natural(composer[1]) if composer else ""


def musicxml_heading(root: etree._Element) -> tuple[str, str]:
    """Title and composer of MusicXML."""
    title = root.findtext("movement-title") or root.findtext("work/work-title") or ""
    return title.strip(), _first(c for c in root.iter("creator") if c.get("type") == "composer")


def mei_heading(root: etree._Element) -> tuple[str, str]:
    """Title and composer of MEI."""
    statement = next(root.iter(f"{_MEI}titleStmt"), None)
    if statement is None:
        return "", ""
    titles = [t for t in statement.iterchildren(f"{_MEI}title") if t.get("type") != "subordinate"]
    names = [n for n in statement.iter(f"{_MEI}persName") if n.get("role") == "composer"]
    return _first(titles), _natural(_first([*statement.iter(f"{_MEI}composer"), *names]))


def _first(elements: Iterable[etree._Element]) -> str:
    return next((" ".join("".join(element.itertext()).split()) for element in elements), "")


def _natural(name: str) -> str:
    """Bach, Johann Sebastian is Johann Sebastian Bach."""
    last, comma, first = name.strip().partition(",")
    return f"{first.strip()} {last.strip()}" if comma and first.strip() else last.strip()
