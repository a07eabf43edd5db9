"""Reading of printed music: from images of pages to MusicXML, MEI, MIDI and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.read.reader import PageReading, PlacedNote, ScoreReader, Transcription
    from entourage.read.score import Chord, Clef, Direction, Measure, Note, PageInfo, Part, Pitch, Score

__all__ = [
    "Chord",
    "Clef",
    "Direction",
    "Measure",
    "Note",
    "PageInfo",
    "PageReading",
    "Part",
    "Pitch",
    "PlacedNote",
    "Score",
    "ScoreReader",
    "Transcription",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "reader": ("PageReading", "PlacedNote", "ScoreReader", "Transcription"),
        "score": ("Chord", "Clef", "Direction", "Measure", "Note", "PageInfo", "Part", "Pitch", "Score"),
    },
)
