"""Lyrics: rows of text below a staff, divided into syllables, each at the chord above it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from entourage.detect.options import INTERLINE
from entourage.read.layout.systems import Mask
from entourage.read.score import Chord, Lyric
from entourage.read.text.recognition import TextLine, Word

_MAX_DISTANCE = 4.5  # between a syllable and its chord, in interlines
_SKIP = 2.6  # cost of a syllable without a chord, in interlines of distance
_MELISMA = 0.02  # cost of a chord without a syllable
_VERSE = re.compile(r"\d{1,2}[.)]?")
_HEAD = 0.6 * INTERLINE  # half the width of a notehead

_MIN_HYPHEN, _MAX_HYPHEN = 3, 10  # pixels

Page = tuple[Mask, float]  # ink, right end of the staff
Syllabic = Literal["single", "begin", "middle", "end"]


@dataclass
class Row:
    """Text on one line below a staff.

    Attributes:
        lines: its parts from left to right.
        depth: distance of its centre below the bottom line of the staff.
    """

    lines: list[TextLine]
    depth: float

    @property
    def words(self) -> list[Word]:
        """Its words from left to right."""
        return sorted((word for line in self.lines for word in line.words), key=lambda word: word.x0)


@dataclass
class Syllable:
    """A syllable of a row: its text, its ends and whether a hyphen follows."""

    text: str
    x0: float
    x1: float
    hyphen: bool = False


def to_rows(lines: Sequence[tuple[float, TextLine]]) -> list[Row]:
    """Join lines at about the same depth to rows, from top to bottom.

    Args:
        lines: distance below the staff, and the line.
    """
    rows: list[Row] = []
    for depth, line in sorted(lines, key=lambda item: item[0]):
        if rows and depth - rows[-1].depth < 0.85 * INTERLINE:
            row = rows[-1]
            row.depth = (row.depth * len(row.lines) + depth) / (len(row.lines) + 1)
            row.lines.append(line)
        else:
            rows.append(Row([line], depth))
    return rows


def to_syllables(words: Sequence[Word]) -> list[Syllable]:
    """Divide words at their hyphens; a hyphen by itself belongs to the syllable before it.

    Args:
        words: words of a row from left to right. The number of a verse becomes part of the first syllable.
    """
    found: list[Syllable] = []
    prefix = ""
    for word in words:
        if _VERSE.fullmatch(word.text) and not found and not prefix:
            prefix = word.text
            continue
        pieces = word.text.strip("_").split("-")
        width = (word.x1 - word.x0) / max(len(word.text), 1)
        x = word.x0
        for k, piece in enumerate(pieces):
            x0, x = x, x + len(piece) * width
            if k and found:
                found[-1].hyphen = True
            if any(c.isalpha() for c in piece):
                found.append(Syllable(f"{prefix} {piece}".strip(), x0, x))
                prefix = ""
            elif piece and found and not any(c.isdigit() for c in piece):
                found[-1].text += piece  # punctuation
            x += width
    return found


def is_lyrics(row: Row, places: Sequence[float], known: Sequence[float]) -> bool:
    """Return whether a row of text below a staff is a row of lyrics.

    Args:
        row: the row.
        places: places of the chords of the staff.
        known: depths of the lyrics of the same staff in other systems.
    """
    syllables = to_syllables(row.words)
    if not syllables or not places:
        return False
    near = sum(min(_distance(syllable, x) for x in places) < 1.5 for syllable in syllables)
    if near < 0.6 * len(syllables):
        return False
    if any(abs(row.depth - depth) < INTERLINE for depth in known):
        return True
    return len(syllables) >= 5 or (len(syllables) >= 3 and any(syllable.hyphen for syllable in syllables))


def _distance(syllable: Syllable, x: float) -> float:
    """Return the distance in interlines: syllables are centred below a head, or begin with it."""
    centred = abs((syllable.x0 + syllable.x1) / 2 - x)
    return min(centred, abs(syllable.x0 - (x - _HEAD))) / INTERLINE


def find_hyphens(row: Row, syllables: Sequence[Syllable], ink: Mask, right: float) -> None:
    """Mark syllables before a hyphen that was not read as text: a short stroke in the middle of the row.

    Args:
        row: the row.
        syllables: its syllables, changed in place.
        ink: ink of the page, shape (h, w).
        right: right end of the staff.
    """
    height = max(line.height for line in row.lines)
    ends = [*(syllable.x0 for syllable in syllables[1:]), right]
    for syllable, end in zip(syllables, ends, strict=True):
        near = min(row.lines, key=lambda line: abs((line.box[0] + line.box[2]) / 2 - syllable.x1))
        top, bottom = round(near.y - 0.2 * height), round(near.y + 0.25 * height)
        part = ink[max(0, top) : bottom, max(0, round(syllable.x1) + 1) : max(0, round(end) - 1)]
        syllable.hyphen |= _has_hyphen(part)


def _has_hyphen(ink: Mask) -> bool:
    """Return whether an image has a stroke of the size of a hyphen with empty rows above and below it."""
    columns = ink.any(axis=0) if ink.size else np.zeros(0, dtype=np.bool_)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], columns.astype(np.int8), [0]])))
    for x0, x1 in zip(edges[::2], edges[1::2], strict=True):
        rows = np.flatnonzero(ink[:, x0:x1].any(axis=1))
        inside = rows[0] > 0 and rows[-1] < len(ink) - 1
        if _MIN_HYPHEN <= x1 - x0 <= _MAX_HYPHEN and inside and rows[-1] - rows[0] + 1 < 0.6 * (x1 - x0):
            return True
    return False


def attach_lyrics(row: Row, chords: Sequence[tuple[float, Chord]], verse: int, continued: bool, page: Page) -> bool:
    """Give each syllable of a row to the chord above it, in order and with the smallest sum of distances.

    Args:
        row: the row.
        chords: places and chords that begin a syllable, from left to right; changed in place.
        verse: number of the verse.
        continued: whether the row begins within a word.
        page: ink of the page and right end of the staff, where hyphens are searched.

    Returns:
        Whether it ends within a word. Costs O(number of syllables x number of chords).
    """
    syllables = to_syllables(row.words)
    find_hyphens(row, syllables, *page)
    before = continued
    for syllable, chosen in zip(syllables, _align(syllables, [x for x, _ in chords]), strict=True):
        kinds: dict[tuple[bool, bool], Syllabic] = {
            (False, False): "single",
            (False, True): "begin",
            (True, True): "middle",
            (True, False): "end",
        }
        if chosen is not None:
            chords[chosen][1].lyrics.append(Lyric(syllable.text, kinds[before, syllable.hyphen], verse))
        before = syllable.hyphen
    return before


def _align(syllables: Sequence[Syllable], places: Sequence[float]) -> list[int | None]:
    """Return the chord of each syllable, or None, in ascending order and with the smallest cost."""
    n, m = len(syllables), len(places)
    cost = [[0.0] * (m + 1) for _ in range(n + 1)]
    for i in range(n + 1):
        for j in range(m + 1):
            if i == 0 and j == 0:
                continue
            options = []
            if i:
                options.append(cost[i - 1][j] + _SKIP)
            if j:
                options.append(cost[i][j - 1] + _MELISMA)
            if i and j and (distance := _distance(syllables[i - 1], places[j - 1])) < _MAX_DISTANCE:
                options.append(cost[i - 1][j - 1] + distance)
            cost[i][j] = min(options)
    chosen: list[int | None] = [None] * n
    i, j = n, m
    while i and j:
        if cost[i][j] == cost[i][j - 1] + _MELISMA:
            j -= 1
        elif cost[i][j] == cost[i - 1][j] + _SKIP:
            i -= 1
        else:
            i, j = i - 1, j - 1
            chosen[i] = j
    return chosen
