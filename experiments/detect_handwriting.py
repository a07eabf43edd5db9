"""Average precision of a detector on MUSCIMA++ next to the published values, class by class (thesis, chapter 6).

Used by `experiments.detect_deepscores`. The chapter lists its twenty best classes at each overlap under the names of
MUSCIMA++ 1.0; a class that is split today, such as flags, is averaged with the numbers of objects as weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.detect_rows import percent
from experiments.tables import table

# Name in the chapter, present classes, published AP at overlaps of 0.5 and of 0.25.
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
    """Return a table of the chapter's classes with the published figures and those of a row.

    Args:
        classes: for each class the number of objects, AP, AP50 and AP25, as in `score_row`.
    """
    rows = []
    for name, present_names, half, quarter in PUBLISHED:
        values = [classes[one] for one in present_names if one in classes]
        objects = sum(one[0] for one in values)
        means = [sum(one[0] * one[at] for one in values) / objects if objects else None for at in (2, 3)]
        rows.append((name, str(objects), percent(half), percent(means[0]), percent(quarter), percent(means[1])))
    return table(
        ("handwritten class", "objects", "AP50 of the thesis (other split)", "AP50", "AP25 of the thesis", "AP25"), rows
    )
