"""The handwritten classes of chapter 6 beside a detector's: average precision on MUSCIMA++, class by class.

Used by `experiments.detect_deepscores`. The chapter prints its twenty best classes, those of each overlap apart, under
the names of MUSCIMA++ 1.0; a class that has become two, as flags have, is their mean by objects.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.detect_rows import percent
from experiments.tables import table

# The chapter's name, today's classes, and what the chapter has at overlaps of 0.5 and of 0.25.
PUBLISHED: tuple[tuple[str, tuple[str, ...], float | None, float | None], ...] = (
    ("half-rest", ("restHalf",), 0.8981, 0.8981),
    ("flat", ("accidentalFlat",), 0.8752, 0.8752),
    ("natural", ("accidentalNatural",), 0.8531, 0.8711),
    ("whole-rest", ("restWhole",), 0.8226, 0.9762),
    ("notehead-full", ("noteheadFull",), 0.8044, 0.8298),
    ("sharp", ("accidentalSharp",), 0.8033, 0.8121),
    ("notehead-empty", ("noteheadHalf", "noteheadWhole"), 0.7475, 0.7475),
    ("stem", ("stem",), 0.7426, 0.8377),
    ("quarter-rest", ("restQuarter",), 0.6699, 0.6849),
    ("8th-rest", ("rest8th",), 0.6432, 0.6432),
    ("f-clef", ("fClef",), 0.6395, 0.6395),
    ("numeral-4", ("numeral4",), 0.6391, 0.7158),
    ("letter-c", ("characterSmallC",), 0.6313, 0.6643),
    ("8th-flag", ("flag8thUp", "flag8thDown"), 0.6051, 0.7055),
    ("slur", ("slur",), 0.5699, None),
    ("beam", ("beam",), 0.5188, 0.6412),
    ("time-signature", ("timeSignature",), 0.4940, None),
    ("staccato-dot", ("articulationStaccato",), 0.4793, 0.8302),
    ("letter-o", ("characterSmallO",), 0.4793, None),
    ("ledger-line", ("legerLine",), None, 0.9163),
    ("tenuto", ("articulationTenuto",), None, 0.7903),
    ("duration-dot", ("augmentationDot",), None, 0.7285),
)


def handwritten_table(classes: Mapping[str, list[Any]]) -> str:
    """The chapter's classes, with its figures and those of a row.

    Args:
        classes: by name, how many objects there are, and AP, AP50 and AP25, as `scores` gives them.
    """
    rows = []
    for name, today, half, quarter in PUBLISHED:
        own = [classes[one] for one in today if one in classes]
        objects = sum(one[0] for one in own)
        found = [sum(one[0] * one[at] for one in own) / objects if objects else None for at in (2, 3)]
        rows.append((name, str(objects), percent(half), percent(found[0]), percent(quarter), percent(found[1])))
    return table(("handwritten class", "objects", "thesis, AP50", "AP50", "thesis, AP25", "AP25"), rows)
