"""What a detector finds on a page."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True)
class Detections:
    """Objects with their places, classes and scores.

    Attributes:
        boxes: (n, 4) float32, x0, y0, x1, y1 in pixels; x1 and y1 lie beyond the last pixel.
        labels: (n,) int64, position in `classes` from 1.
        scores: (n,) float32 in [0, 1].
        classes: the names.
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

    def scaled(self, factor: float) -> Detections:
        """As on a page `factor` times as large."""
        return replace(self, boxes=self.boxes * factor)

    def moved(self, dx: float, dy: float) -> Detections:
        """As on a page that holds this one with its corner at (dx, dy)."""
        return replace(self, boxes=self.boxes + self.boxes.new_tensor([dx, dy, dx, dy]))

    def turned(self, width: float, height: float) -> Detections:
        """As on a page of that size that is turned by 180 degrees."""
        corners = self.boxes.new_tensor([width, height, width, height]) - self.boxes
        return replace(self, boxes=corners[:, [2, 3, 0, 1]])

    def to_dict(self) -> dict[str, Tensor]:
        """As torchvision's detectors return an image's."""
        return {"boxes": self.boxes, "labels": self.labels, "scores": self.scores}
