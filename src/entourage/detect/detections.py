"""Detections on a page, the classes of the shipped detector, and their conversion to the class lists of data sets.

The detector has a class for each letter of a dynamic and each digit of a time signature. DeepScores V1 has classes for
complete dynamics, such as *mf*, and for the numbers 12 and 16. Letters and digits on one line are therefore combined
into such words; the box of a word contains all of its letters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from colorsys import hsv_to_rgb
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from entourage.extras import extra_imports
from entourage.symbols import CLASSES, EXTENDED_IDS, FULL_IDS, ClassSet, class_ids, split_dynamics

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

_N_COMMON = 3  # classes in the representation
_N_LEGEND = 30  # classes in the legend of a plot
_GOLDEN_RATIO = 0.618034  # multiples of it, modulo 1, are spread evenly: frequent classes have distinct hues


@dataclass(frozen=True, repr=False)
class Detections:
    """Boxes, classes and scores of the objects on a page.

    Attributes:
        boxes: (n, 4) float32, x0, y0, x1, y1 in pixels; x1 and y1 are exclusive.
        labels: (n,) int64, position in `classes`, from 1.
        scores: (n,) float32 in [0, 1].
        classes: names of the classes.

    Raises:
        ValueError: the shapes do not match, or a label exceeds the number of classes.

    Examples:
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
        """Return `Detections` without any objects."""
        return cls(torch.zeros(0, 4), torch.zeros(0, dtype=torch.int64), torch.zeros(0), classes)

    @classmethod
    def from_dict(cls, output: dict[str, Tensor], classes: tuple[str, ...]) -> Detections:
        """Convert the output of a torchvision detector for one image; tensors are moved to the CPU.

        Args:
            output: "boxes", "labels" and "scores".
            classes: names of the classes, in the order of their labels.

        Returns:
            The detections.
        """
        boxes, labels, scores = (output[key].detach().cpu() for key in ("boxes", "labels", "scores"))
        return cls(boxes.float(), labels, scores.float(), classes)

    @property
    def names(self) -> list[str]:
        """Name of the class of each object."""
        return [self.classes[label - 1] for label in self.labels.tolist()]

    def select(self, mask: Tensor) -> Detections:
        """Return the objects selected by a boolean mask, shape (n,), or by a tensor of indices, in its order."""
        return replace(self, boxes=self.boxes[mask], labels=self.labels[mask], scores=self.scores[mask])

    def resized(self, factor: float) -> Detections:
        """Return detections whose box coordinates are multiplied by `factor`."""
        return replace(self, boxes=self.boxes * factor)

    def shifted(self, dx: float, dy: float) -> Detections:
        """Return detections whose boxes are shifted by `dx` pixels to the right and `dy` pixels down."""
        return replace(self, boxes=self.boxes + self.boxes.new_tensor([dx, dy, dx, dy]))

    def rotated_180(self, width: float, height: float) -> Detections:
        """Rotate all boxes by 180 degrees around the centre of a page of this width and height."""
        corners = self.boxes.new_tensor([width, height, width, height]) - self.boxes
        return replace(self, boxes=corners[:, [2, 3, 0, 1]])

    def __repr__(self) -> str:
        common = Counter(self.names).most_common(_N_COMMON)
        listed = ", ".join(f"{n} {name}" for name, n in common)
        more = ", ..." if len(set(self.labels.tolist())) > _N_COMMON else ""
        return f"Detections({len(self)} objects{': ' if listed else ''}{listed}{more})"

    def plot(self, image: ArrayLike | None = None, *, ax: Axes | None = None) -> Axes:
        """Draw the boxes, in one colour for each class, with a legend of the classes and their counts.

        Args:
            image: the page, shape (h, w) or (h, w, 3); None draws boxes only.
            ax: axes to draw on; None makes a figure.

        Returns:
            The axes.
        """
        from matplotlib import pyplot
        from matplotlib.collections import PolyCollection

        axes = pyplot.subplots(figsize=(10, 8))[1] if ax is None else ax
        if image is not None:
            axes.imshow(np.asarray(image), cmap="gray")
        for order, (label, n) in enumerate(Counter(self.labels.tolist()).most_common()):
            boxes = self.boxes[self.labels == label].numpy()  # (n, 4)
            corners = boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)
            colour = hsv_to_rgb(order * _GOLDEN_RATIO % 1.0, 0.9, 0.75)
            name = f"{self.classes[label - 1]}: {n}" if order < _N_LEGEND else None
            axes.add_collection(PolyCollection(list(corners), facecolors="none", edgecolors=[colour], label=name))
        if len(self):
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small")
        if image is None:
            axes.autoscale_view()
            axes.set_aspect("equal")
            axes.yaxis.set_inverted(True)
        return axes

    def to_dataframe(self) -> pd.DataFrame:
        """Return a table with a row for each object: class, score, x0, y0, x1 and y1."""
        import pandas as pd

        table = pd.DataFrame(self.boxes.numpy(), columns=["x0", "y0", "x1", "y1"])
        table.insert(0, "class", self.names)
        table.insert(1, "score", self.scores.numpy())
        return table

    def to_supervision(self) -> Any:
        """Return the objects as `supervision.Detections`; requires that package.

        Raises:
            MissingExtraError: the package supervision is not installed.
        """
        with extra_imports():
            import supervision

        return supervision.Detections(
            xyxy=self.boxes.numpy(),
            confidence=self.scores.numpy(),
            class_id=self.labels.numpy(),
            data={"class_name": np.array(self.names, dtype=str)},
        )

    def to_dict(self) -> dict[str, Tensor]:
        """Return "boxes", "labels" and "scores", as torchvision's detectors do for an image."""
        return {"boxes": self.boxes, "labels": self.labels, "scores": self.scores}


# Classes that only V1 has, and the class of the extended list that includes them; None: it has no such class.
_V1_ONLY: dict[str, str | None] = {
    "gClefChange": "clefG",
    "cClefAltoChange": "clefCAlto",
    "cClefTenorChange": "clefCTenor",
    "fClefChange": "clefF",
    "restMaxima": None,
    "restLonga": None,
}

_FULL_ONLY = tuple(name for name in FULL_IDS if name not in EXTENDED_IDS)
DETECTOR_CLASSES: tuple[str, ...] = (*sorted(EXTENDED_IDS, key=EXTENDED_IDS.__getitem__), *_V1_ONLY, *_FULL_ONLY)


def detector_class(label: str, v1: str) -> str | None:
    """Return the class in `DETECTOR_CLASSES` of a symbol that `engrave` annotated.

    Args:
        label: its class in the full list, or "".
        v1: its class in V1, or "".

    Returns:
        The class; None for dynamics of several letters and for the numbers 12 and 16, which are detected by letters
        and digits.
    """
    if v1 in _V1_ONLY:
        return v1
    return label or None


def map_class(name: str, class_list: ClassSet) -> str | None:
    """Return the name of a class of `DETECTOR_CLASSES` in a class list, or None if the list lacks it.

    Args:
        name: one of `DETECTOR_CLASSES`.
        class_list: "extended", "full", "v1", "v1-118" or "muscima".

    Returns:
        The name, or None.

    Raises:
        ValueError: the list or the class does not exist.
    """
    if name not in DETECTOR_CLASSES:
        raise ValueError(f"name is {name!r}; expected one of the {len(DETECTOR_CLASSES)} classes of the detector")
    names = class_ids(class_list)
    row = CLASSES[name]
    if class_list in ("v1", "v1-118"):
        mapped = row.v1
    else:
        full = _V1_ONLY.get(name, name)
        mapped = full if class_list in ("extended", "full") or full is None else CLASSES[full].muscima
    return mapped if mapped in names else None


def energy_channels(classes: Sequence[str], groups: Sequence[Sequence[str]]) -> Tensor:
    """Return the energy channel of each label: the number, from 1, of the group that contains its class, or 0.

    Args:
        classes: names, in the order of their labels, which start at 1.
        groups: names of the classes that share a separate channel.

    Returns:
        Shape (1 + classes,), int64; 0 for label 0, the background.
    """
    channel = {name: number for number, names in enumerate(groups, start=1) for name in names}
    return torch.tensor([0, *(channel.get(name, 0) for name in classes)])


_LETTERS = {f"dynamic{letter}": letter.lower() for letter in "PMFSZR"}
# Height of a letter without ascender and descender, and the position of its middle, as fractions of the box height.
_BODY = {"p": (0.6, 0.3), "f": (0.42, 0.5)}
_PAIRS = ("12", "16")
_CONFIDENT = 0.3  # letters with lower scores form separate words, so that they do not corrupt words with higher scores

Word = tuple[str, list[int]]
Boxes = NDArray[np.float64]


def to_class_list(detections: Detections, class_list: ClassSet) -> Detections:
    """Convert detections to a class list; detections whose class the list lacks are omitted.

    Args:
        detections: their classes are in `DETECTOR_CLASSES` or in the list itself.
        class_list: "extended", "full", "muscima", or "v1" or "v1-118", for which letters and digits are combined into
            dynamics and time signatures.

    Returns:
        Detections in descending order of score, whose `classes` are those of the list. The box of a word contains its
        letters; its score is the minimum of theirs.
    """
    names = tuple(class_ids(class_list))
    numbers = {name: number for number, name in enumerate(names, start=1)}
    labels = _list_labels(detections, class_list, numbers)
    boxes, scores = detections.boxes, detections.scores
    if words := _list_words(detections, class_list, numbers):
        for name, members in words:
            if name.startswith("timeSig"):
                labels[members] = 0  # V1 does not annotate the digits of 12 and 16
        labels = torch.cat([labels, torch.tensor([numbers[name] for name, _ in words], dtype=labels.dtype)])
        around = [torch.cat([boxes[m, :2].amin(dim=0), boxes[m, 2:].amax(dim=0)]) for _, m in words]
        boxes = torch.cat([boxes, *(box[None] for box in around)])
        scores = torch.cat([scores, *(scores[m].amin()[None] for _, m in words)])
    order = scores.argsort(descending=True, stable=True)
    indices = order[labels[order] > 0]
    return Detections(boxes[indices], labels[indices], scores[indices], names)


def count_unnamed(detections: Detections, class_list: ClassSet) -> int:
    """Count the detections whose class the list lacks and that are not part of a dynamic or number of the list."""
    numbers = {name: number for number, name in enumerate(class_ids(class_list), start=1)}
    named = _list_labels(detections, class_list, numbers) > 0
    for _, members in _list_words(detections, class_list, numbers):
        named[members] = True
    return int((~named).sum())


def combine_dynamics(detections: Detections) -> list[Word]:
    """Combine letters on one line into dynamics of V1, and return class names and indices of their letters.

    A dynamic that V1 lacks is split into dynamics of V1, as in `engrave`: *sfp* becomes *sf* and *p*.
    """
    names = np.array([_LETTERS.get(name, "") for name in detections.names], dtype=object)
    boxes = detections.boxes.numpy().astype(np.float64)
    confident = detections.scores.numpy() >= _CONFIDENT
    words: list[Word] = []
    for part in (confident, ~confident):
        letters = np.flatnonzero((names != "") & part)
        for line in _text_lines(letters, names, boxes):
            text = "".join(names[i] for i in line)
            words += [(name, line[span]) for name, span in split_dynamics(text)]
    return words


def combine_time_signatures(detections: Detections) -> list[Word]:
    """Combine digits into the numbers 12 and 16 of time signatures; return class names and indices of the digits."""
    names = np.array([name[7:] if name.startswith("timeSig") else "" for name in detections.names], dtype=object)
    boxes = detections.boxes.numpy().astype(np.float64)
    ones = np.flatnonzero(names == "1")
    seconds = np.flatnonzero((names == "2") | (names == "6"))
    words, used = [], set()
    for first in ones[np.argsort(boxes[ones, 0])]:
        height = boxes[first, 3] - boxes[first, 1]
        gap = boxes[seconds, 0] - boxes[first, 2]
        level = np.abs(boxes[seconds][:, [1, 3]] - boxes[first, [1, 3]]).max(axis=1, initial=0.0)
        near = (np.abs(gap) < 0.4 * height) & (level < 0.3 * height)
        for second in seconds[near][np.argsort(np.abs(gap[near]))]:
            if second not in used and names[first] + names[second] in _PAIRS:
                used.add(second)
                words.append((f"timeSig{names[first]}{names[second]}", [int(first), int(second)]))
                break
    return words


def _list_labels(detections: Detections, class_list: ClassSet, numbers: Mapping[str, int]) -> Tensor:
    """Return the label of each detection in a class list, or 0 if the list lacks its class; shape (n,)."""
    names_in_list = [_translate(name, class_list) for name in detections.classes]
    return torch.tensor([0, *(numbers.get(name, 0) if name else 0 for name in names_in_list)])[detections.labels]


def _list_words(detections: Detections, class_list: ClassSet, numbers: Mapping[str, int]) -> list[Word]:
    """Combine detections into the dynamics and time signatures of a class list; none except for the lists of V1."""
    if class_list not in ("v1", "v1-118"):
        return []
    words = (*combine_dynamics(detections), *combine_time_signatures(detections))
    return [word for word in words if word[0] in numbers]


def _translate(name: str, class_list: ClassSet) -> str | None:
    if name in DETECTOR_CLASSES:
        return map_class(name, class_list)
    return name if name in class_ids(class_list) else None


def _text_lines(letters: NDArray[np.intp], names: NDArray[np.object_], boxes: Boxes) -> list[list[int]]:
    """Group letters that are close to each other on one line; each group is ordered from left to right."""
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
