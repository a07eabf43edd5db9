"""The detector as a module with torchvision's contract: images in, losses or objects out."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import Tensor, nn

from entourage.detect.classes import DETECTOR_CLASSES, group_of
from entourage.detect.decode_options import DecodeOptions
from entourage.detect.models.balance import class_weights
from entourage.detect.models.decode import decode
from entourage.detect.models.encoder import fold
from entourage.detect.models.losses import DetectionLoss
from entourage.detect.models.maps import paint
from entourage.detect.models.network import Predictions, WatershedNetwork
from entourage.detect.models.targets import join_targets
from entourage.detect.options import DetectorOptions


class WatershedDetector(nn.Module):
    """The Deep Watershed Detector.

    In training it takes images and targets and returns a dict of losses; in evaluation it takes images and returns a
    list of dicts. There is no bound on the number of objects and no resizing: pages are expected with staff lines
    `INTERLINE` pixels apart.

    Args:
        classes: names of the classes, in the order of their labels, which start at 1.
        options: of maps, decoding, network and losses.

    Attributes:
        classes: as given.
        options: as given.
        notes: what its file says besides: what it was trained on, and how.
    """

    groups: Tensor
    sides: Tensor | None

    def __init__(self, classes: Sequence[str] = DETECTOR_CLASSES, options: DetectorOptions | None = None) -> None:
        super().__init__()
        if not classes or len(set(classes)) != len(classes):
            raise ValueError(f"classes are {len(classes)} names; expected one or more, each once")
        self.classes = tuple(classes)
        self.options = options or DetectorOptions()
        self.notes: dict[str, str] = {}
        groups = group_of(self.classes, self.options.maps.groups)
        self.register_buffer("groups", groups, persistent=False)
        self.register_buffer("sides", None, persistent=False)
        self.network = WatershedNetwork(len(self.classes), self.options)
        self.loss = DetectionLoss(self.options.loss, groups)
        self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    def forward(
        self, images: Sequence[Tensor] | Tensor, targets: Sequence[dict[str, Tensor]] | None = None
    ) -> dict[str, Tensor] | list[dict[str, Tensor]]:
        """Losses in training, objects in evaluation.

        Args:
            images: (1, h, w) each, ink 1 and paper 0, of any sizes.
            targets: for each image "boxes" (n, 4) and "labels" (n,), from 1.

        Returns:
            In training the losses "energy", "class" and "box", to be added; in evaluation for each image "boxes",
            "labels" and "scores", best first.

        Raises:
            ValueError: images and targets do not fit together, or a target is not as above.
        """
        batch = stack(images)
        if not self.training:
            return self.objects(batch, [(image.shape[-2], image.shape[-1]) for image in images])
        if targets is None or len(targets) != len(batch):
            given = "no targets" if targets is None else f"{len(targets)} targets"
            raise ValueError(f"training was given {given} for {len(batch)} images; expected one each")
        boxes, labels, pages = (part.to(batch.device) for part in join_targets(targets, len(self.classes)))
        return self.losses(batch, boxes, labels, pages)

    def maps(self, batch: Tensor) -> Predictions:
        """What the network says of pages (b, 1, h, w)."""
        predictions: Predictions = self.network(batch)
        return predictions

    def losses(
        self, batch: Tensor, boxes: Tensor, labels: Tensor, image_index: Tensor, ignore: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The losses on pages (b, 1, h, w), given all their objects as `paint` takes them."""
        shape = batch.shape[0], batch.shape[2], batch.shape[3]
        painted = paint(boxes.float(), labels, image_index, shape, self.options.maps, self.groups, ignore)
        losses: dict[str, Tensor] = self.loss(self.maps(batch), painted)
        return losses

    @torch.inference_mode()
    def objects(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]] | None = None, options: DecodeOptions | None = None
    ) -> list[dict[str, Tensor]]:
        """The objects on pages (b, 1, h, w), of which only the first `sizes` rows and columns are page.

        Args:
            batch: pages, padded with paper.
            sizes: height and width of each; None for all of it.
            options: how they are read; None for the detector's own.
        """
        options = options or self.options.decode
        found = decode(self.maps(batch), options, self.options.maps, self.groups, self.sides)
        sizes = sizes or [(batch.shape[-2], batch.shape[-1])] * len(batch)
        return [_clip(page, *size) for page, size in zip(found, sizes, strict=True)]

    def folded(self) -> WatershedDetector:
        """A copy for evaluation alone, faster by the batch normalisations that its convolutions take over."""
        copy = deepcopy(self).eval()
        fold(copy.network)
        copy.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return copy

    def remember(self, sides: Tensor) -> None:
        """Cache the width and height of each class, (classes, 2), for decoding with boxes of classes."""
        if sides.shape != (len(self.classes), 2):
            raise ValueError(f"sides have shape {tuple(sides.shape)}; expected ({len(self.classes)}, 2)")
        self.sides = sides.to(self.groups.device, torch.float32)

    def balance(self, counts: Tensor) -> None:
        """Weigh classes by how many objects of each, (classes,), there are to train with."""
        if counts.shape != (len(self.classes),):
            raise ValueError(f"counts have shape {tuple(counts.shape)}; expected ({len(self.classes)},)")
        self.loss.class_weights.copy_(class_weights(counts, self.options.loss.rarest))


def stack(images: Sequence[Tensor] | Tensor) -> Tensor:
    """Images (1, h, w) of any sizes as one batch (b, 1, most rows, most columns), the rest paper.

    Raises:
        ValueError: there are none, or one has another shape.
    """
    if len(images) == 0:
        raise ValueError("there are no images; expected one or more")
    for number, image in enumerate(images):
        if image.ndim != 3 or image.shape[0] != 1 or image.numel() == 0:
            raise ValueError(f"image {number} has shape {tuple(image.shape)}; expected (1, height, width)")
    if isinstance(images, Tensor):
        return images
    high, wide = (max(image.shape[axis] for image in images) for axis in (1, 2))
    batch = images[0].new_zeros(len(images), 1, high, wide)
    for place, image in zip(batch, images, strict=True):
        place[:, : image.shape[1], : image.shape[2]] = image
    return batch


def _clip(page: dict[str, Tensor], high: int, wide: int) -> dict[str, Tensor]:
    """Boxes within the page, without those that have no part in it."""
    limits = page["boxes"].new_tensor([wide, high, wide, high])
    boxes = page["boxes"].clamp(min=0).minimum(limits)
    keep = (boxes[:, 2:] > boxes[:, :2]).all(1)
    return {"boxes": boxes[keep], "labels": page["labels"][keep], "scores": page["scores"][keep]}
