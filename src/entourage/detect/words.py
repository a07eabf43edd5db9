"""From single symbols to those that are made of several, and from the network's classes to a class list.

The network sees letters and digits. V1 counts dynamics such as *mf* and the numbers 12 and 16 as one symbol each: here
neighbours on a line are read as words, with the words that engraving writes and boxes around all their letters.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.detect.classes import DETECTOR_CLASSES, to_list
from entourage.detect.detections import Detections
from entourage.symbols import ClassSet, class_ids

_LETTERS = {f"dynamic{letter}": letter.lower() for letter in "PMFSZR"}
_WORDS = {"p": "Piano", "m": "Mezzo", "f": "Forte", "fp": "FortePiano", "sf": "Sforzando1", "sfz": "Sforzato"}
_WORDS |= {"rfz": "Rinforzando2", "mp": "MP", "mf": "MF"}
_WORDS |= {letter * n: letter.upper() * n for letter in "pf" for n in (2, 3, 4, 5)}
# The height of a small letter without its parts above and below the line, and its middle, as shares of the box.
_BODY = {"p": (0.6, 0.3), "f": (0.42, 0.5)}
_PAIRS = ("12", "16")
_SURE = 0.3  # letters below this score are read by themselves, lest a doubtful one spoils a sure word

Word = tuple[str, list[int]]
Boxes = NDArray[np.float64]


def as_list(detections: Detections, classes: ClassSet) -> Detections:
    """The detections under the names of a class list; what the list has no name for is left out.

    Args:
        detections: of any network whose class names are in the table of symbols, or in the list itself.
        classes: "extended", "v1" and "v1-118" (with dynamics and time signatures as words), or "muscima".

    Returns:
        Detections whose `classes` is the whole list, best first. A word's box holds its letters; its score is their
        lowest.
    """
    names = tuple(class_ids(classes))
    numbers = {name: number for number, name in enumerate(names, start=1)}
    labels = _labels(detections, classes, numbers)
    boxes, scores = detections.boxes, detections.scores
    if found := _words(detections, classes, numbers):
        for name, members in found:
            if name.startswith("timeSig"):
                labels[members] = 0  # the digits of 12 and 16 are no symbols of V1
        labels = torch.cat([labels, torch.tensor([numbers[name] for name, _ in found], dtype=labels.dtype)])
        around = [torch.cat([boxes[m, :2].amin(dim=0), boxes[m, 2:].amax(dim=0)]) for _, m in found]
        boxes = torch.cat([boxes, *(box[None] for box in around)])
        scores = torch.cat([scores, *(scores[m].amin()[None] for _, m in found)])
    order = scores.argsort(descending=True, stable=True)
    kept = order[labels[order] > 0]
    return Detections(boxes[kept], labels[kept], scores[kept], names)


def count_unnamed(detections: Detections, classes: ClassSet) -> int:
    """How many of the detections `as_list` leaves out: the list has no name for them, nor for a word they are part of.

    Args:
        detections, classes: as `as_list` takes them.
    """
    numbers = {name: number for number, name in enumerate(class_ids(classes), start=1)}
    named = _labels(detections, classes, numbers) > 0
    for _, members in _words(detections, classes, numbers):
        named[members] = True
    return int((~named).sum())


def dynamics(detections: Detections) -> list[Word]:
    """Dynamics of V1, each with the positions of its letters.

    What V1 has no name for falls into parts that it has, as in engraving: *sfp* is *sf* and *p*.
    """
    names = np.array([_LETTERS.get(name, "") for name in detections.names], dtype=object)
    boxes = detections.boxes.numpy().astype(np.float64)
    sure = detections.scores.numpy() >= _SURE
    found: list[Word] = []
    for part in (sure, ~sure):
        letters = np.flatnonzero((names != "") & part)
        for line in _lines(letters, names, boxes):
            found += _split(line, "".join(names[i] for i in line))
    return found


def times(detections: Detections) -> list[Word]:
    """The numbers 12 and 16 of time signatures, each with the positions of its two digits."""
    names = np.array([name[7:] if name.startswith("timeSig") else "" for name in detections.names], dtype=object)
    boxes = detections.boxes.numpy().astype(np.float64)
    ones = np.flatnonzero(names == "1")
    seconds = np.flatnonzero((names == "2") | (names == "6"))
    found, taken = [], set()
    for first in ones[np.argsort(boxes[ones, 0])]:
        height = boxes[first, 3] - boxes[first, 1]
        gap = boxes[seconds, 0] - boxes[first, 2]
        level = np.abs(boxes[seconds][:, [1, 3]] - boxes[first, [1, 3]]).max(axis=1, initial=0.0)
        near = (np.abs(gap) < 0.4 * height) & (level < 0.3 * height)
        for second in seconds[near][np.argsort(np.abs(gap[near]))]:
            if second not in taken and names[first] + names[second] in _PAIRS:
                taken.add(second)
                found.append((f"timeSig{names[first]}{names[second]}", [int(first), int(second)]))
                break
    return found


def _labels(detections: Detections, classes: ClassSet, numbers: Mapping[str, int]) -> Tensor:
    """The number of each detection in a list, 0 where the list has none, shape (n,)."""
    known = [_translated(name, classes) for name in detections.classes]
    return torch.tensor([0, *(numbers.get(name, 0) if name else 0 for name in known)])[detections.labels]


def _words(detections: Detections, classes: ClassSet, numbers: Mapping[str, int]) -> list[Word]:
    """What a list counts as one symbol and the network as several."""
    if classes not in ("v1", "v1-118"):
        return []
    return [word for word in (*dynamics(detections), *times(detections)) if word[0] in numbers]


def _translated(name: str, classes: ClassSet) -> str | None:
    if name in DETECTOR_CLASSES:
        return to_list(name, classes)
    return name if name in class_ids(classes) else None


def _lines(letters: NDArray[np.intp], names: NDArray[np.object_], boxes: Boxes) -> list[list[int]]:
    """Letters that stand together, each group from left to right."""
    height = boxes[:, 3] - boxes[:, 1]
    body = np.array([_BODY.get(name, (1.0, 0.5)) for name in names]).reshape(-1, 2)
    size, middle = body[:, 0] * height, boxes[:, 1] + body[:, 1] * height
    lines: list[list[int]] = []
    for letter in letters[np.argsort(boxes[letters, 0], kind="stable")]:
        for line in lines:
            last = line[-1]
            scale = max(size[last], size[letter])
            close = -1.2 * scale < boxes[letter, 0] - boxes[last, 2] < 0.5 * scale
            if close and abs(middle[letter] - middle[last]) < 0.4 * scale:
                line.append(int(letter))
                break
        else:
            lines.append([int(letter)])
    return lines


def _split(line: list[int], text: str) -> list[Word]:
    """The longest words that the text begins with, one after another; a letter that begins none is passed over."""
    found: list[Word] = []
    while text:
        known = next((n for n in range(len(text), 0, -1) if text[:n] in _WORDS), 0)
        if known:
            found.append((f"dynamic{_WORDS[text[:known]]}", line[:known]))
        text, line = text[max(known, 1) :], line[max(known, 1) :]
    return found
