"""Dots that are moved into the surroundings of another kind of dots: which class does the detector give them?

python -m experiments.detect_transplants --test clean=pages

All dots of a page are replaced by the pixels of dots of one kind, cut from other places of the test set. The detector
then runs on the page: the outcome of a dot is the class that is detected at its position, or missed. If the shape
alone determined the class, all dots would be of the kind whose pixels they have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.detect.detections import Detections
from entourage.detect.detector import Detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from experiments.command import run_command
from experiments.detect_context import KINDS, check_dots
from experiments.detect_rows import load_test_sets, measurement_parser, require_test_sets
from experiments.ledger import Ledger, ledger_of
from experiments.tables import table

TITLE = "Detection: dots moved into other surroundings"
NOTE = (
    "Detection on entire pages on which all dots are replaced by the pixels of dots of one kind from other places. Per"
    " cent of the positions of a kind at which the detector finds a class of each kind, another class, or nothing. If"
    " the class follows the surroundings, the column of the third column's kind has 100; if it follows the shape, that"
    " of the second column's."
)
ORDER = tuple(dict.fromkeys(KINDS.values()))
OTHER, MISSED = "another class", "missed"
OUTCOMES = (*ORDER, OTHER, MISSED)
MAX_DISTANCE = 0.5  # interlines between the centres of a dot and a detection
MAX_PATCHES = 50  # patches of each kind
WHITE = 255

Gray = NDArray[np.uint8]


def main() -> None:
    """Measure all rows and write the table."""
    options = measurement_parser("Dots in the surroundings of other dots.").parse_args()
    require_test_sets(options)
    book = ledger_of("detect_transplants", options.results)
    detector = Detector.load(options.model, options.device)
    check_dots(detector, options.model)
    suffix = "" if options.model is None else f", {options.model}"
    for name, pages in load_test_sets(options).items():
        patches = collect_patches(pages)
        for kind, dots in patches.items():
            book.row(f"{name}{suffix}: {kind}", lambda p=pages, d=dots: measure(detector, p, d))  # type: ignore[misc]
    book.write_table(TITLE, _text)


def collect_patches(pages: Sequence[GroundTruthPage]) -> dict[str, list[Gray]]:
    """Cut dots of each kind out of the pages.

    Args:
        pages: the pages.

    Returns:
        Up to `MAX_PATCHES` patches of each kind that occurs, evenly distributed over the pages.
    """
    patches: dict[str, list[Gray]] = {}
    for page in pages:
        image = page.image()
        for row, kind in _dots(page):
            top, bottom, left, right = _frame(page.boxes[row], image.shape)
            patches.setdefault(kind, []).append(image[top:bottom, left:right].copy())
    steps = {kind: max(1, len(found) // MAX_PATCHES) for kind, found in patches.items()}
    return {kind: found[:: steps[kind]][:MAX_PATCHES] for kind, found in patches.items()}


def transplant(page: GroundTruthPage, patches: Sequence[Gray]) -> Gray:
    """Replace all dots of a page by patches, in turn, each centred on the dot that it replaces.

    Args:
        page: the page.
        patches: gray pixels of dots.

    Returns:
        The image with the patches, shape (h, w).
    """
    image = page.image().copy()
    for number, (row, _) in enumerate(_dots(page)):
        box = page.boxes[row]
        top, bottom, left, right = _frame(box, image.shape)
        image[top:bottom, left:right] = WHITE
        patch = patches[number % len(patches)]
        height, width = patch.shape
        y, x = round((box[1] + box[3] - height) / 2), round((box[0] + box[2] - width) / 2)
        y, x = min(max(y, 0), image.shape[0] - height), min(max(x, 0), image.shape[1] - width)
        image[y : y + height, x : x + width] = np.minimum(image[y : y + height, x : x + width], patch)
    return image


def outcomes(page: GroundTruthPage, detections: Detections) -> list[tuple[str, str]]:
    """Return the kind and the outcome (one of `OUTCOMES`) of each dot of a page.

    A detection belongs to a dot if it is the nearest one within half an interline; dots have priority.
    """
    boxes = detections.boxes.numpy()
    centres = (boxes[:, :2] + boxes[:, 2:]) / 2  # (m, 2)
    names = detections.names
    found = []
    for row, kind in _dots(page):
        box = page.boxes[row]
        distances = np.linalg.norm(centres - (box[:2] + box[2:]) / 2, axis=1)
        near = [one for one in np.argsort(distances) if distances[one] <= MAX_DISTANCE * page.interline]
        dots = [one for one in near if names[one] in KINDS]
        outcome = KINDS[names[dots[0]]] if dots else OTHER if near else MISSED
        found.append((kind, outcome))
    return found


def measure(detector: Detector, pages: Sequence[GroundTruthPage], patches: Sequence[Gray]) -> dict[str, Any]:
    """Return the number of dots of each kind by outcome, with the pixels of all dots replaced by `patches`."""
    total: Counter[tuple[str, str]] = Counter()
    for page in pages:
        if _dots(page):
            total.update(outcomes(page, detector.detect(transplant(page, patches))))
    return {kind: {outcome: total[kind, outcome] for outcome in OUTCOMES} for kind in ORDER}


def _dots(page: GroundTruthPage) -> list[tuple[int, str]]:
    """Return row and kind of each dot."""
    return [(row, KINDS[label]) for row, label in enumerate(page.labels) if label in KINDS]


def _frame(box: NDArray[np.float32], shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return top, bottom, left and right of the pixels that a box touches, with a margin of one pixel."""
    left, top = np.floor(box[:2]).astype(int) - 1
    right, bottom = np.ceil(box[2:]).astype(int) + 1
    return max(0, top), min(shape[0], bottom), max(0, left), min(shape[1], right)


def _text(book: Ledger) -> str:
    rows = []
    for key, row in book.rows.items():
        pages, _, shape = key.rpartition(": ")
        for kind in ORDER:
            rows += _row(pages, shape, kind, row[kind])
    header = (
        "pages",
        "pixels of",
        "surroundings of",
        *(f"detected as {name}" for name in ORDER),
        OTHER,
        MISSED,
        "dots",
    )
    return f"{table(header, rows)}\n\n{NOTE}"


def _row(pages: str, shape: str, kind: str, counts: Mapping[str, int]) -> list[tuple[str, ...]]:
    dots = sum(counts.values())
    if not dots:
        return []
    return [(pages, shape, kind, *(f"{100 * counts[outcome] / dots:.1f}" for outcome in OUTCOMES), str(dots))]


if __name__ == "__main__":
    run_command(main)
