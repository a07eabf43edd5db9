"""What a detector finds on a page.

The classes that the shipped network tells apart, and their names in the lists of data sets.

From single symbols to those that are made of several, and from the network's classes to a class list.

The network sees letters and digits. V1 counts dynamics such as *mf* and the numbers 12 and 16 as one symbol each: here
neighbours on a line are read as words, with the words that engraving writes and boxes around all their letters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.symbols import CLASSES, EXTENDED_IDS, ClassSet, class_ids, split_dynamics


@dataclass(frozen=True)
class Detections:
    """Objects with their places, classes and scores.

    Attributes:
        boxes: (n, 4) float32, x0, y0, x1, y1 in pixels; x1 and y1 lie beyond the last pixel.
        labels: (n,) int64, position in `classes` from 1.
        scores: (n,) float32 in [0, 1].
        classes: the names.

    Example:
        >>> import torch
        >>> from entourage import Detections
        >>> boxes = torch.tensor([[10.0, 40.0, 22.0, 50.0], [20.0, 10.0, 22.0, 46.0]])
        >>> detections = Detections(boxes, torch.tensor([1, 2]), torch.tensor([0.9, 0.4]), ("noteheadBlack", "stem"))
        >>> detections.select(detections.scores > 0.5).names
        ['noteheadBlack']
    """

    boxes: Tensor
    labels: Tensor
    scores: Tensor
    classes: tuple[str, ...]

    def __post_init__(self) -> None:
        n = len(self.boxes)
        if self.boxes.shape != (n, 4) or self.labels.shape != (n,) or self.scores.shape != (n,):
            shapes = ", ".join(str(tuple(part.shape)) for part in (self.boxes, self.labels, self.scores))
            raise ValueError(f"boxes, labels and scores have shapes {shapes}; expected (n, 4), (n,), (n,)")
        if n and not 1 <= int(self.labels.min()) <= int(self.labels.max()) <= len(self.classes):
            bounds = f"{int(self.labels.min())} to {int(self.labels.max())}"
            raise ValueError(f"labels are {bounds}; expected 1 to {len(self.classes)}, the number of classes")

    def __len__(self) -> int:
        return len(self.boxes)

    @classmethod
    def empty(cls, classes: tuple[str, ...]) -> Detections:
        """Of a page with nothing on it."""
        return cls(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), torch.zeros(0), classes)

    @classmethod
    def from_dict(cls, found: dict[str, Tensor], classes: tuple[str, ...]) -> Detections:
        """From what a module with torchvision's contract returns for an image, brought to the CPU."""
        boxes, labels, scores = (found[key].detach().cpu() for key in ("boxes", "labels", "scores"))
        return cls(boxes.float(), labels, scores.float(), classes)

    @property
    def names(self) -> list[str]:
        """The class of each object by name."""
        return [self.classes[label - 1] for label in self.labels.tolist()]

    def select(self, mask: Tensor) -> Detections:
        """Those that a mask of shape (n,) or a list of positions picks, in that order."""
        return replace(self, boxes=self.boxes[mask], labels=self.labels[mask], scores=self.scores[mask])

    def resized(self, factor: float) -> Detections:
        """As on a page `factor` times as large."""
        return replace(self, boxes=self.boxes * factor)

    def shifted(self, dx: float, dy: float) -> Detections:
        """As on a page that holds this one with its corner at (dx, dy)."""
        return replace(self, boxes=self.boxes + self.boxes.new_tensor([dx, dy, dx, dy]))

    def rotated_180(self, width: float, height: float) -> Detections:
        """As on a page of that size that is turned by 180 degrees."""
        corners = self.boxes.new_tensor([width, height, width, height]) - self.boxes
        return replace(self, boxes=corners[:, [2, 3, 0, 1]])

    def to_dict(self) -> dict[str, Tensor]:
        """As torchvision's detectors return an image's."""
        return {"boxes": self.boxes, "labels": self.labels, "scores": self.scores}


# What V1 tells apart and the extended list does not, with the extended name where there is one.
_V1_ONLY: dict[str, str | None] = {
    "gClefChange": "clefG",
    "cClefAltoChange": "clefCAlto",
    "cClefTenorChange": "clefCTenor",
    "fClefChange": "clefF",
    "restMaxima": None,
    "restLonga": None,
}

DETECTOR_CLASSES: tuple[str, ...] = (*sorted(EXTENDED_IDS, key=EXTENDED_IDS.__getitem__), *_V1_ONLY)


def detector_class(label: str, v1: str) -> str | None:
    """The network class of a symbol that has these names in the two lists ("" where it is in neither).

    Returns:
        None for dynamic words and two-digit metres, which the network reads letter by letter.
    """
    if v1 in _V1_ONLY:
        return v1
    return label or None


def map_class(name: str, class_list: ClassSet) -> str | None:
    """What a network class is called in a list of classes, or None where the list lacks it.

    Raises:
        ValueError: there is no such list or no such network class.
    """
    if name not in DETECTOR_CLASSES:
        raise ValueError(f"{name!r} is no class of the detector; expected one of its {len(DETECTOR_CLASSES)} names")
    names = class_ids(class_list)
    row = CLASSES[name]
    if class_list in ("v1", "v1-118"):
        found = row.v1
    else:
        extended = _V1_ONLY.get(name, name)
        found = extended if class_list == "extended" or extended is None else CLASSES[extended].muscima
    return found if found in names else None


def energy_channels(classes: Sequence[str], groups: Sequence[Sequence[str]]) -> Tensor:
    """The energy channel of every label: the number of the group that names its class, from 1, or 0.

    Args:
        classes: names, in the order of their labels, which start at 1.
        groups: names of the classes that have a channel of their own.

    Returns:
        Shape (1 + classes,), int64; that of the background, label 0, is 0.
    """
    channel = {name: number for number, names in enumerate(groups, start=1) for name in names}
    return torch.tensor([0, *(channel.get(name, 0) for name in classes)])


_LETTERS = {f"dynamic{letter}": letter.lower() for letter in "PMFSZR"}
# The height of a small letter without its parts above and below the line, and its middle, as shares of the box.
_BODY = {"p": (0.6, 0.3), "f": (0.42, 0.5)}
_PAIRS = ("12", "16")
_CONFIDENT = 0.3  # letters below this score are read by themselves, lest a doubtful one spoils a sure word

Word = tuple[str, list[int]]
Boxes = NDArray[np.float64]


def to_class_list(detections: Detections, class_list: ClassSet) -> Detections:
    """The detections under the names of a class list; what the list has no name for is left out.

    Args:
        detections: of any network whose class names are in the table of symbols, or in the list itself.
        class_list: "extended", "v1" and "v1-118" (with dynamics and time signatures as words), or "muscima".

    Returns:
        Detections whose `classes` is the whole list, best first. A word's box holds its letters; its score is their
        lowest.
    """
    names = tuple(class_ids(class_list))
    numbers = {name: number for number, name in enumerate(names, start=1)}
    labels = _list_labels(detections, class_list, numbers)
    boxes, scores = detections.boxes, detections.scores
    if found := _list_words(detections, class_list, numbers):
        for name, members in found:
            if name.startswith("timeSig"):
                labels[members] = 0  # the digits of 12 and 16 are no symbols of V1
        labels = torch.cat([labels, torch.tensor([numbers[name] for name, _ in found], dtype=labels.dtype)])
        around = [torch.cat([boxes[m, :2].amin(dim=0), boxes[m, 2:].amax(dim=0)]) for _, m in found]
        boxes = torch.cat([boxes, *(box[None] for box in around)])
        scores = torch.cat([scores, *(scores[m].amin()[None] for _, m in found)])
    order = scores.argsort(descending=True, stable=True)
    indices = order[labels[order] > 0]
    return Detections(boxes[indices], labels[indices], scores[indices], names)


def count_unnamed(detections: Detections, class_list: ClassSet) -> int:
    """Count the detections that `to_class_list` omits: neither they nor a word they belong to has a name in the list.

    Args:
        detections, class_list: as `to_class_list` takes them.
    """
    numbers = {name: number for number, name in enumerate(class_ids(class_list), start=1)}
    named = _list_labels(detections, class_list, numbers) > 0
    for _, members in _list_words(detections, class_list, numbers):
        named[members] = True
    return int((~named).sum())


def combine_dynamics(detections: Detections) -> list[Word]:
    """Dynamics of V1, each with the positions of its letters.

    What V1 has no name for falls into parts that it has, as in engraving: *sfp* is *sf* and *p*.
    """
    names = np.array([_LETTERS.get(name, "") for name in detections.names], dtype=object)
    boxes = detections.boxes.numpy().astype(np.float64)
    confident = detections.scores.numpy() >= _CONFIDENT
    found: list[Word] = []
    for part in (confident, ~confident):
        letters = np.flatnonzero((names != "") & part)
        for line in _text_lines(letters, names, boxes):
            text = "".join(names[i] for i in line)
            found += [(name, line[span]) for name, span in split_dynamics(text)]
    return found


def combine_time_signatures(detections: Detections) -> list[Word]:
    """The numbers 12 and 16 of time signatures, each with the positions of its two digits."""
    names = np.array([name[7:] if name.startswith("timeSig") else "" for name in detections.names], dtype=object)
    boxes = detections.boxes.numpy().astype(np.float64)
    ones = np.flatnonzero(names == "1")
    seconds = np.flatnonzero((names == "2") | (names == "6"))
    found, used = [], set()
    for first in ones[np.argsort(boxes[ones, 0])]:
        height = boxes[first, 3] - boxes[first, 1]
        gap = boxes[seconds, 0] - boxes[first, 2]
        level = np.abs(boxes[seconds][:, [1, 3]] - boxes[first, [1, 3]]).max(axis=1, initial=0.0)
        near = (np.abs(gap) < 0.4 * height) & (level < 0.3 * height)
        for second in seconds[near][np.argsort(np.abs(gap[near]))]:
            if second not in used and names[first] + names[second] in _PAIRS:
                used.add(second)
                found.append((f"timeSig{names[first]}{names[second]}", [int(first), int(second)]))
                break
    return found


def _list_labels(detections: Detections, class_list: ClassSet, numbers: Mapping[str, int]) -> Tensor:
    """The number of each detection in a list, 0 where the list has none, shape (n,)."""
    names_in_list = [_translate(name, class_list) for name in detections.classes]
    return torch.tensor([0, *(numbers.get(name, 0) if name else 0 for name in names_in_list)])[detections.labels]


def _list_words(detections: Detections, class_list: ClassSet, numbers: Mapping[str, int]) -> list[Word]:
    """What a list counts as one symbol and the network as several."""
    if class_list not in ("v1", "v1-118"):
        return []
    return [
        word for word in (*combine_dynamics(detections), *combine_time_signatures(detections)) if word[0] in numbers
    ]


def _translate(name: str, class_list: ClassSet) -> str | None:
    if name in DETECTOR_CLASSES:
        return map_class(name, class_list)
    return name if name in class_ids(class_list) else None


def _text_lines(letters: NDArray[np.intp], names: NDArray[np.object_], boxes: Boxes) -> list[list[int]]:
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
