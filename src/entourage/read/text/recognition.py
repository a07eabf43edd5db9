"""Recognition of text by RapidOCR, whose models are part of its package (extra `[text]`)."""

from __future__ import annotations

import importlib
import logging
import unicodedata
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from entourage.detect.preprocessing.reading import GrayImage
from entourage.extras import EXTRAS, extra_imports
from entourage.read.layout.ink import binarize
from entourage.read.layout.systems import Mask
from entourage.read.score import Box

_MIN_SCORE = 0.6
_MIN_SPACE = 0.17  # of the height of a line: a wider gap between two letters is a space
_PLAIN = str.maketrans({"–": "-", "—": "-", "−": "-", "‐": "-", "'": "’", "`": "’", "´": "’"})


@dataclass(frozen=True)
class Word:
    """A word of a line.

    Attributes:
        text: its characters.
        x0, x1: left and right end.
    """

    text: str
    x0: float
    x1: float


@dataclass(frozen=True)
class TextLine:
    """A line of text, or a part of one.

    Attributes:
        words: its words from left to right.
        box: its box, in pixels of the page.
        score: mean probability of its characters.
    """

    words: tuple[Word, ...]
    box: Box
    score: float = 1.0

    @property
    def text(self) -> str:
        """The words, separated by spaces."""
        return " ".join(word.text for word in self.words)

    @property
    def y(self) -> float:
        """Vertical coordinate of the centre."""
        return (self.box[1] + self.box[3]) / 2

    @property
    def height(self) -> float:
        """Height of the box."""
        return self.box[3] - self.box[1]


class TextRecognizer:
    """Finds and reads the text of a page. The models are loaded with the first page.

    Raises:
        MissingExtraError: the extra `[text]` is not installed.
    """

    def __init__(self) -> None:
        with extra_imports("text"):
            for package in EXTRAS["text"]:
                importlib.import_module(package)
        self._engine: Any = None

    def read(self, image: GrayImage) -> list[TextLine]:
        """Return the lines of text of a page, from top to bottom.

        Args:
            image: grayscale, dark ink on light paper, shape (h, w).

        Returns:
            Lines with letters or digits of European languages; a line with wide gaps may be in several parts.
        """
        if self._engine is None:
            self._engine = _load()
        colours = np.repeat(image[:, :, None], 3, axis=2)
        found = self._engine(colours, return_word_box=True, return_single_char_box=True, use_cls=False)
        if found.boxes is None:
            return []
        ink = binarize(image)
        lines = []
        for corners, text, score, parts in zip(found.boxes, found.txts, found.scores, found.word_results, strict=True):
            box = _box(corners)
            words = _to_words(text, box, [(str(part[0]), _box(part[2])) for part in parts], ink)
            if words and score >= _MIN_SCORE:
                lines.append(TextLine(tuple(words), box, float(score)))
        return sorted(lines, key=lambda line: line.y)


def _load() -> Any:
    from rapidocr import RapidOCR

    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    threads = torch.get_num_threads()
    return RapidOCR(params={"Global.log_level": "error", "EngineConfig.onnxruntime.intra_op_num_threads": threads})


def _box(corners: Any) -> Box:
    points = np.asarray(corners, dtype=np.float64)
    return (*map(float, points.min(axis=0)), *map(float, points.max(axis=0)))  # type: ignore[return-value]


def _to_words(text: str, box: Box, characters: list[tuple[str, Box]], ink: Mask) -> list[Word]:
    """Return the words of a line, divided at its spaces and at gaps in the ink between two letters.

    Args:
        text: the line with its spaces.
        box: its box.
        characters: its characters with their boxes, without spaces.
        ink: ink of the page, shape (h, w).
    """
    plain = [c for c in text if c != " "]
    places = [(x0, x1) for c, (x0, _, x1, _) in characters if c != " "]
    if len(places) != len(plain):  # the boxes do not cover the line
        width = (box[2] - box[0]) / max(len(text), 1)
        places = [(box[0] + k * width, box[0] + (k + 1) * width) for k, c in enumerate(text) if c != " "]
    words, position = [], 0
    for word in text.split():
        row = list(zip(word, places[position : position + len(word)], strict=True))
        position += len(word)
        first = 0
        for k in range(1, len(row) + 1):
            if k == len(row) or (
                row[k - 1][0].isalpha() and row[k][0].isalpha() and _has_gap(row[k - 1][1], row[k][1], box, ink)
            ):
                piece = row[first:k]
                first = k
                kept = "".join(c for c in "".join(c for c, _ in piece).translate(_PLAIN) if _is_european(c))
                if kept:
                    words.append(Word(kept, piece[0][1][0], piece[-1][1][1]))
    return words


def _has_gap(left: tuple[float, float], right: tuple[float, float], box: Box, ink: Mask) -> bool:
    """Return whether a space is between two characters: several columns without ink between their centres."""
    x0, x1 = round(sum(left) / 2), round(sum(right) / 2)
    columns: Mask = np.asarray(ink[max(0, round(box[1])) : round(box[3]), max(0, x0) : x1].any(axis=0))
    longest = run = 0
    for filled in columns.tolist():
        run = 0 if filled else run + 1
        longest = max(longest, run)
    return longest >= _MIN_SPACE * (box[3] - box[1])


def _is_european(character: str) -> bool:
    """Return whether a character is a Latin letter, a digit or punctuation."""
    return ord(character) < 0x250 or unicodedata.category(character) in ("Pd", "Pf", "Pi", "Po")
