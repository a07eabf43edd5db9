"""Classification of dots (augmentation, staccato, repeat) as a function of the visible context.

python -m experiments.detect_context --test clean=pages

At the true centre of each dot, the class with the highest logit among the classes of dots is taken: once from the
entire page, then with everything outside a radius around the dot blanked out.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.detect.detector import Detector
from entourage.detect.evaluation.ground_truth import GroundTruthPage
from entourage.detect.options import INTERLINE
from entourage.detect.training.windows import scaled_page
from experiments.command import run_command
from experiments.detect_rows import load_test_sets, measurement_parser, percent, require_test_sets
from experiments.ledger import Ledger, ledger_of
from experiments.tables import table

DOTS = ("augmentationDot", "articStaccatoAbove", "articStaccatoBelow", "repeatDot")
KINDS = {
    "augmentationDot": "augmentation",
    "articStaccatoAbove": "staccato",
    "articStaccatoBelow": "staccato",
    "repeatDot": "repeat",
}
RADII = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # visible interlines around a dot
CHOICE = "Accuracy of a forced choice among the classes of dots at their true centres; missed detections do not count."
TITLE = "Detection: classification of dots by visible context"
_VIEW = 384  # width and height of the crop around a dot, in pixels
_BATCH = 32


def main() -> None:
    """Measure all rows and write the table."""
    parser = measurement_parser("Classification of dots by visible context.")
    parser.add_argument("--dots", type=int, default=400, help="Maximum number of dots of each kind.")
    options = parser.parse_args()
    require_test_sets(options)
    book = ledger_of("detect_context", options.results)
    detector = Detector.load(options.model, options.device)
    check_dots(detector, options.model)
    for name, pages in load_test_sets(options).items():
        for radius in (None, *reversed(RADII)):
            book.row(key_of(name, radius, options.model), lambda p=pages, r=radius: accuracy(detector, p, r, options))  # type: ignore[misc]
    book.write_table(TITLE, _text)


def check_dots(detector: Detector, model: str | None) -> None:
    """Check that a detector has all classes of dots.

    Args:
        detector: the detector.
        model: its name in the message; None for the shipped one.

    Raises:
        ValueError: a class is missing.
    """
    unknown = [name for name in DOTS if name not in detector.classes]
    if unknown:
        message = f"{model or 'default'}: the detector has no class {', '.join(unknown)}"
        raise ValueError(f"{message}; expected one with {', '.join(DOTS)}")


def key_of(name: str, radius: float | None, model: str | None) -> str:
    """Return the name of a row: pages, detector unless it is the shipped one, and radius."""
    seen = "all of the page" if radius is None else f"{radius:g} interlines"
    return f"{name}: {seen}" if model is None else f"{name}, {model}: {seen}"


@torch.inference_mode()
def accuracy(
    detector: Detector, pages: Sequence[GroundTruthPage], radius: float | None, options: argparse.Namespace
) -> dict[str, Any]:
    """Return the accuracy of each kind of dots within a radius of visible interlines; None shows the entire page."""
    right = dict.fromkeys(KINDS.values(), 0)
    seen = dict.fromkeys(KINDS.values(), 0)
    for page in pages:
        image, boxes = scaled_page(page)
        ink = 1 - torch.from_numpy(image).float() / 255
        rows = _first(page, {kind: options.dots - count for kind, count in seen.items()})
        if not rows:
            continue
        centres = np.asarray((boxes[rows, :2] + boxes[rows, 2:]) / 2, dtype=np.float32)
        found = _from_page(detector, ink, centres) if radius is None else _from_discs(detector, ink, centres, radius)
        for row, name in zip(rows, found, strict=True):
            kind = KINDS[str(page.labels[row])]
            seen[kind] += 1
            right[kind] += KINDS[name] == kind
    shares = {kind: right[kind] / seen[kind] if seen[kind] else None for kind in seen}
    total = sum(seen.values())
    return {"dots": total, "accuracy": sum(right.values()) / total if total else None, **shares, "seen": seen}


def _first(page: GroundTruthPage, limits: dict[str, int]) -> list[int]:
    """Return the rows of the dots of a page, up to a limit for each kind."""
    rows: list[int] = []
    for kind, limit in limits.items():
        rows += [row for row, label in enumerate(page.labels) if label in KINDS and KINDS[label] == kind][:limit]
    return sorted(rows)


def _from_page(detector: Detector, ink: Tensor, centres: NDArray[np.float32]) -> list[str]:
    """Classify dots from the entire page."""
    return _classify(detector, ink[None, None], centres, np.zeros(len(centres), dtype=np.int64))


def _from_discs(detector: Detector, ink: Tensor, centres: NDArray[np.float32], radius: float) -> list[str]:
    """Classify dots from crops in which only a disc around each dot is visible."""
    half = _VIEW // 2
    padded = torch.nn.functional.pad(ink, (half, half, half, half))
    at = torch.arange(_VIEW) - half + 0.5
    disc = (at[:, None].square() + at[None].square()).sqrt() <= radius * INTERLINE
    found: list[str] = []
    for first in range(0, len(centres), _BATCH):
        corners = np.floor(centres[first : first + _BATCH]).astype(int)
        views = torch.stack([padded[y : y + _VIEW, x : x + _VIEW] * disc for x, y in corners])
        middle = centres[first : first + _BATCH] - corners + half
        found += _classify(detector, views[:, None], middle, np.arange(len(corners)))
    return found


def _classify(detector: Detector, pages: Tensor, centres: NDArray[np.float32], image: NDArray[np.int64]) -> list[str]:
    """Return the class of dots with the highest logit at each centre."""
    model = detector.model
    predictions = model.maps(pages.to(detector.device))
    stride = model.options.maps.stride
    columns, rows = (centres // stride).astype(np.int64).T
    index = torch.from_numpy(np.stack([image, np.zeros_like(image), rows, columns], axis=1)).to(detector.device)
    logits, _ = predictions.read(index)
    columns_of_dots = [model.classes.index(name) for name in DOTS]
    return [DOTS[number] for number in logits[:, columns_of_dots].argmax(1).tolist()]


def _text(book: Ledger) -> str:
    kinds = tuple(dict.fromkeys(KINDS.values()))
    rows = []
    for key, row in book.rows.items():
        pages, _, seen = key.rpartition(": ")
        rows.append((pages, seen, *(percent(row[kind]) for kind in kinds), percent(row["accuracy"])))
    return f"{table(('pages', 'visible', *kinds, 'all'), rows)}\n\n{CHOICE}"


if __name__ == "__main__":
    run_command(main)
