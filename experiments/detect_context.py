"""Is a dot known by its surroundings? Augmentation dot, staccato and repeat dot, with less and less around them.

python -m experiments.detect_context --test clean=pages

The detector is told where each dot is and must choose among the classes of dots: once with the whole page before it,
then with everything blanked out that is further away than so many interlines.
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
RADII = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0)  # interlines that stay around a dot
CHOICE = "A forced choice among the classes of dots, at the true centre of each: dots that are overlooked do not count."
_VIEW = 384  # pixels of a side of the picture around a dot
_BATCH = 32


def main() -> None:
    """Measures and writes the table."""
    parser = measurement_parser("Dots with and without their surroundings")
    parser.add_argument("--dots", type=int, default=400, help="of each kind, at most")
    options = parser.parse_args()
    require_test_sets(options)
    book = ledger_of("detect_context", options.results)
    detector = Detector.load(options.model, options.device)
    check_dots(detector, options.model)
    for name, pages in load_test_sets(options).items():
        for radius in (None, *reversed(RADII)):
            book.row(key_of(name, radius, options.model), lambda p=pages, r=radius: accuracy(detector, p, r, options))  # type: ignore[misc]
    book.write_table("Detection: dots and their surroundings", _text)


def check_dots(detector: Detector, model: str | None) -> None:
    """Refuses a detector that cannot choose among the classes of dots.

    Args:
        detector: the detector.
        model: what it is called; None for the shipped one.

    Raises:
        ValueError: it does not know one of them.
    """
    unknown = [name for name in DOTS if name not in detector.classes]
    if unknown:
        message = f"the detector {model or 'default'} does not know the class of dots {', '.join(unknown)}"
        raise ValueError(f"{message}; expected one that knows {', '.join(DOTS)}")


def key_of(name: str, radius: float | None, model: str | None) -> str:
    """The name of a row: the pages, the detector if it is not the shipped one, and how much is seen."""
    seen = "all of the page" if radius is None else f"{radius:g} interlines"
    return f"{name}: {seen}" if model is None else f"{name}, {model}: {seen}"


@torch.inference_mode()
def accuracy(
    detector: Detector, pages: Sequence[GroundTruthPage], radius: float | None, options: argparse.Namespace
) -> dict[str, Any]:
    """How many dots of each kind are told right, when only so much around them can be seen."""
    right = dict.fromkeys(KINDS.values(), 0)
    seen = dict.fromkeys(KINDS.values(), 0)
    for page in pages:
        image, boxes = scaled_page(page)
        ink = 1 - torch.from_numpy(image).float() / 255
        rows = _first(page, {kind: options.dots - count for kind, count in seen.items()})
        if not rows:
            continue
        centres = np.asarray((boxes[rows, :2] + boxes[rows, 2:]) / 2, dtype=np.float32)
        found = _whole(detector, ink, centres) if radius is None else _alone(detector, ink, centres, radius)
        for row, name in zip(rows, found, strict=True):
            kind = KINDS[str(page.labels[row])]
            seen[kind] += 1
            right[kind] += KINDS[name] == kind
    shares = {kind: right[kind] / seen[kind] if seen[kind] else None for kind in seen}
    total = sum(seen.values())
    return {"dots": total, "accuracy": sum(right.values()) / total if total else None, **shares, "seen": seen}


def _first(page: GroundTruthPage, room: dict[str, int]) -> list[int]:
    """The dots of a page, of each kind no more than there is room for."""
    rows: list[int] = []
    for kind, most in room.items():
        rows += [row for row, label in enumerate(page.labels) if label in KINDS and KINDS[label] == kind][:most]
    return sorted(rows)


def _whole(detector: Detector, ink: Tensor, centres: NDArray[np.float32]) -> list[str]:
    """The kinds of dots by what the network says of the whole page."""
    return _read(detector, ink[None, None], centres, np.zeros(len(centres), dtype=np.int64))


def _alone(detector: Detector, ink: Tensor, centres: NDArray[np.float32], radius: float) -> list[str]:
    """The same by pictures in which only a disc around each dot is left."""
    half = _VIEW // 2
    padded = torch.nn.functional.pad(ink, (half, half, half, half))
    at = torch.arange(_VIEW) - half + 0.5
    disc = (at[:, None].square() + at[None].square()).sqrt() <= radius * INTERLINE
    found: list[str] = []
    for first in range(0, len(centres), _BATCH):
        corners = np.floor(centres[first : first + _BATCH]).astype(int)
        views = torch.stack([padded[y : y + _VIEW, x : x + _VIEW] * disc for x, y in corners])
        middle = centres[first : first + _BATCH] - corners + half
        found += _read(detector, views[:, None], middle, np.arange(len(corners)))
    return found


def _read(detector: Detector, pages: Tensor, centres: NDArray[np.float32], image: NDArray[np.int64]) -> list[str]:
    """The most probable of the kinds of dots at given places."""
    model = detector.model
    predictions = model.maps(pages.to(detector.device))
    stride = model.options.maps.stride
    columns, rows = (centres // stride).astype(np.int64).T
    index = torch.from_numpy(np.stack([image, np.zeros_like(image), rows, columns], axis=1)).to(detector.device)
    logits, _ = predictions.read(index)
    known = [model.classes.index(name) for name in DOTS]
    return [DOTS[number] for number in logits[:, known].argmax(1).tolist()]


def _text(book: Ledger) -> str:
    kinds = tuple(dict.fromkeys(KINDS.values()))
    rows = []
    for key, row in book.rows.items():
        pages, _, seen = key.rpartition(": ")
        rows.append((pages, seen, *(percent(row[kind]) for kind in kinds), percent(row["accuracy"])))
    return f"{table(('pages', 'what is seen', *kinds, 'all'), rows)}\n\n{CHOICE}"


if __name__ == "__main__":
    run_command(main)
