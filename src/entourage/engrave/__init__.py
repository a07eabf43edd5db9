"""Engraving of scores into annotated pages: data sets such as DeepScores, of any scores and size (thesis, chapter 5).

Names are imported on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from entourage.lazy_imports import lazy_exports

if TYPE_CHECKING:
    from entourage.engrave.align import Alignment, write_alignment
    from entourage.engrave.dataset.inspection import count_symbols, draw_annotations
    from entourage.engrave.dataset.pipeline import engrave
    from entourage.engrave.engines.fonts import find_fonts
    from entourage.engrave.engines.lilypond import LilypondEngraver
    from entourage.engrave.engines.verovio import VerovioEngraver
    from entourage.engrave.options import EngraveOptions, PageOptions
    from entourage.engrave.render.degrade import Degrader
    from entourage.engrave.render.marks import Symbol
    from entourage.engrave.render.page import Page
    from entourage.engrave.scores.archives import find_scores
    from entourage.engrave.scores.parsing import parse_score, read_score

__all__ = [
    "Alignment",
    "Degrader",
    "EngraveOptions",
    "LilypondEngraver",
    "Page",
    "PageOptions",
    "Symbol",
    "VerovioEngraver",
    "count_symbols",
    "draw_annotations",
    "engrave",
    "find_fonts",
    "find_scores",
    "parse_score",
    "read_score",
    "write_alignment",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "align": ("Alignment", "write_alignment"),
        "dataset.inspection": ("count_symbols", "draw_annotations"),
        "dataset.pipeline": ("engrave",),
        "engines.fonts": ("find_fonts",),
        "engines.lilypond": ("LilypondEngraver",),
        "engines.verovio": ("VerovioEngraver",),
        "options": ("EngraveOptions", "PageOptions"),
        "render.degrade": ("Degrader",),
        "render.marks": ("Symbol",),
        "render.page": ("Page",),
        "scores.archives": ("find_scores",),
        "scores.parsing": ("parse_score", "read_score"),
    },
)
