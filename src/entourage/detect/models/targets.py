"""What a user trains with, a dict for each image as torchvision has it, checked and put into one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def join_targets(targets: Sequence[Mapping[str, Tensor]], classes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The objects of all images, as `paint` takes them.

    Args:
        targets: for each image "boxes" (n, 4), x0, y0, x1, y1 in pixels, and "labels" (n,), whole numbers from 1.
        classes: how many there are.

    Returns:
        Boxes (n, 4) float32, labels (n,) int64 and the number of the image of each, (n,), on the device of the boxes.

    Raises:
        ValueError: a target is something else; it says which.
    """
    for number, target in enumerate(targets):
        _check_form(number, target)
    boxes = torch.cat([target["boxes"].reshape(-1, 4) for target in targets]).float()
    labels = torch.cat([target["labels"] for target in targets]).to(boxes.device, torch.int64)
    counts = torch.tensor([len(target["labels"]) for target in targets])
    image = torch.arange(len(targets)).repeat_interleave(counts).to(boxes.device)
    _check_values(boxes, labels, image, classes)
    return boxes, labels, image


def _check_form(number: int, target: object) -> None:
    """Refuses what has not the form of a target; looks at no value, so it costs no time on a GPU."""
    parts = target if isinstance(target, Mapping) else {}
    for key in ("boxes", "labels"):
        if not isinstance(parts.get(key), Tensor):
            raise ValueError(f'target of image {number} has no tensor "{key}"; expected a dict of "boxes" and "labels"')
    boxes, labels = parts["boxes"], parts["labels"]
    if boxes.shape != (len(boxes), 4) and boxes.numel():
        raise ValueError(f"boxes of image {number} have shape {tuple(boxes.shape)}; expected (n, 4)")
    if labels.ndim != 1 or len(labels) != boxes.numel() // 4:
        told = f"labels of image {number} have shape {tuple(labels.shape)} for {boxes.numel() // 4} boxes"
        raise ValueError(f"{told}; expected one each, ({boxes.numel() // 4},)")
    if len(labels) and (labels.dtype == torch.bool or labels.is_floating_point() or labels.is_complex()):
        raise ValueError(f"labels of image {number} are {labels.dtype}; expected whole numbers, such as torch.int64")


def _check_values(boxes: Tensor, labels: Tensor, image: Tensor, classes: int) -> None:
    """Refuses boxes and labels that mean nothing, all at once; which it is, is asked only if there is one."""
    ordered = (boxes[:, 2:] >= boxes[:, :2]).all(1) & boxes.isfinite().all(1)  # what is no number is not in order
    wrong = ~ordered | (labels < 1) | (labels > classes)
    if not bool(wrong.any()):
        return
    first = int(wrong.nonzero()[0])
    if not ordered[first]:
        told = f"image {int(image[first])} has the box {boxes[first].tolist()}"
        raise ValueError(f"{told}; expected finite x0, y0, x1, y1 with x0 <= x1 and y0 <= y1")
    told = f"image {int(image[first])} has the label {int(labels[first])}"
    raise ValueError(f"{told}; expected 1 to {classes}, the classes")
