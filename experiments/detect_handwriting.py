"""Average precision of a detector next to the published values, class by class (two tables of chapter 6).

Used by `experiments.detect_deepscores`. The chapter lists its twenty best classes at each overlap, on DeepScores and on
MUSCIMA++. The latter have the names of MUSCIMA++ 1.0; a class that is split today, such as flags, is averaged with the
numbers of objects as weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from experiments.detect_rows import percent
from experiments.tables import table

# Name in the chapter, present classes, published AP at overlaps of 0.5 and of 0.25.
PublishedClass = tuple[str, tuple[str, ...], float | None, float | None]
PUBLISHED: tuple[PublishedClass, ...] = (
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


SYNTHETIC: tuple[PublishedClass, ...] = (
    ("rest16th", ("rest16th",), 0.8773, 0.9233),
    ("noteheadBlack", ("noteheadBlack",), 0.8619, 0.92),
    ("keySharp", ("keySharp",), 0.8185, 0.924),
    ("tuplet6", ("tuplet6",), 0.8028, 0.9252),
    ("restQuarter", ("restQuarter",), 0.7942, 0.8462),
    ("rest8th", ("rest8th",), 0.7803, 0.8544),
    ("noteheadHalf", ("noteheadHalf",), 0.7474, 0.8593),
    ("flag8thUp", ("flag8thUp",), 0.7325, 0.8279),
    ("flag8thDown", ("flag8thDown",), 0.6634, 0.7917),
    ("accidentalSharp", ("accidentalSharp",), 0.6626, 0.8897),
    ("accidentalNatural", ("accidentalNatural",), 0.6559, 0.8417),
    ("tuplet3", ("tuplet3",), 0.6298, 0.7601),
    ("noteheadWhole", ("noteheadWhole",), 0.6265, 0.7523),
    ("dynamicMF", ("dynamicMF",), 0.5563, None),
    ("rest32nd", ("rest32nd",), 0.542, 0.8658),
    ("flag16thUp", ("flag16thUp",), 0.532, 0.6621),
    ("restWhole", ("restWhole",), 0.518, 0.7183),
    ("timeSig8", ("timeSig8",), 0.518, None),
    ("accidentalFlat", ("accidentalFlat",), 0.4949, 0.6759),
    ("keyFlat", ("keyFlat",), 0.4685, 0.8134),
    ("fClef", ("fClef",), None, 0.7184),
    ("dynamicPiano", ("dynamicPiano",), None, 0.7069),
)


def synthetic_table(classes: Mapping[str, list[Any]], sizes: Mapping[str, list[float]]) -> str:
    """Return a table of the chapter's classes of DeepScores with the published figures, those of a row, and sizes.

    Args:
        classes: for each class of V1 the number of objects, AP, AP50 and AP25, as in `score_row`.
        sizes: median width and height of each class in interlines; empty: unknown.
    """
    rows = []
    for name, half, quarter, objects, means in _compare(SYNTHETIC, classes):
        width, height = sizes.get(name, (None, None))
        size = "-" if width is None else f"{width:.2f} x {height:.2f}"
        rows.append((name, str(objects), size, percent(half), percent(means[0]), percent(quarter), percent(means[1])))
    header = ("class of DeepScores", "objects", "size in interlines", "AP50 of the thesis (other pages)", "AP50")
    return table((*header, "AP25 of the thesis", "AP25"), rows)


def handwritten_table(classes: Mapping[str, list[Any]]) -> str:
    """Return a table of the chapter's classes with the published figures and those of a row.

    Args:
        classes: for each class the number of objects, AP, AP50 and AP25, as in `score_row`.
    """
    rows = [
        (name, str(objects), percent(half), percent(means[0]), percent(quarter), percent(means[1]))
        for name, half, quarter, objects, means in _compare(PUBLISHED, classes)
    ]
    return table(
        ("handwritten class", "objects", "AP50 of the thesis (other split)", "AP50", "AP25 of the thesis", "AP25"), rows
    )


def _compare(
    published: Sequence[PublishedClass], classes: Mapping[str, list[Any]]
) -> Iterator[tuple[str, float | None, float | None, int, list[float | None]]]:
    """Yield name, published AP50 and AP25, number of objects, and mean AP50 and AP25 of each published class."""
    for name, present_names, half, quarter in published:
        values = [classes[one] for one in present_names if one in classes]
        objects = sum(one[0] for one in values)
        measured = [at for at in (2, 3) if objects and all(at < len(one) for one in values)]  # older rows lack AP25
        means = [sum(one[0] * one[at] for one in values) / objects if at in measured else None for at in (2, 3)]
        yield name, half, quarter, objects, means
