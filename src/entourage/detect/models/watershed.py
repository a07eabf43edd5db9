"""The detector as a module with torchvision's contract: images in, losses or objects out.

A detector in files: safetensors, in one or in several pieces, with classes, options and notes in the header.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from entourage import __version__
from entourage.detect.detections import DETECTOR_CLASSES, energy_channels
from entourage.detect.models.decode import decode
from entourage.detect.models.encoder_decoder import fuse_conv_bn
from entourage.detect.models.losses import DetectionLoss, class_weights
from entourage.detect.models.maps import join_targets, render_targets
from entourage.detect.models.network import MapPredictions, WatershedNetwork
from entourage.detect.options import DecodeOptions, DetectorOptions
from entourage.io.files import error_reason


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
    typical_sizes: Tensor | None

    def __init__(self, classes: Sequence[str] = DETECTOR_CLASSES, options: DetectorOptions | None = None) -> None:
        super().__init__()
        if not classes or len(set(classes)) != len(classes):
            raise ValueError(f"classes are {len(classes)} names; expected one or more, each once")
        self.classes = tuple(classes)
        self.options = options or DetectorOptions()
        self.notes: dict[str, str] = {}
        groups = energy_channels(self.classes, self.options.maps.groups)
        self.register_buffer("groups", groups, persistent=False)
        self.register_buffer("typical_sizes", None, persistent=False)
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
        batch = pad_batch(images)
        if not self.training:
            return self.objects(batch, [(image.shape[-2], image.shape[-1]) for image in images])
        if targets is None or len(targets) != len(batch):
            given = "no targets" if targets is None else f"{len(targets)} targets"
            raise ValueError(f"training was given {given} for {len(batch)} images; expected one each")
        boxes, labels, pages = (part.to(batch.device) for part in join_targets(targets, len(self.classes)))
        return self.losses(batch, boxes, labels, pages)

    def maps(self, batch: Tensor) -> MapPredictions:
        """What the network says of pages (b, 1, h, w)."""
        predictions: MapPredictions = self.network(batch)
        return predictions

    def losses(
        self, batch: Tensor, boxes: Tensor, labels: Tensor, image_index: Tensor, ignore: Tensor | None = None
    ) -> dict[str, Tensor]:
        """The losses on pages (b, 1, h, w), given all their objects as `render_targets` takes them."""
        shape = batch.shape[0], batch.shape[2], batch.shape[3]
        targets = render_targets(boxes.float(), labels, image_index, shape, self.options.maps, self.groups, ignore)
        losses: dict[str, Tensor] = self.loss(self.maps(batch), targets)
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
        found = decode(self.maps(batch), options, self.options.maps, self.groups, self.typical_sizes)
        sizes = sizes or [(batch.shape[-2], batch.shape[-1])] * len(batch)
        return [_clip(page, *size) for page, size in zip(found, sizes, strict=True)]

    def fuse_batch_norm(self) -> WatershedDetector:
        """A copy for evaluation alone, faster by the batch normalisations that its convolutions take over."""
        copy = deepcopy(self).eval()
        fuse_conv_bn(copy.network)
        copy.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return copy

    def set_typical_sizes(self, sizes: Tensor) -> None:
        """Cache the width and height of each class, (classes, 2), for decoding with boxes of classes."""
        if sizes.shape != (len(self.classes), 2):
            raise ValueError(f"sides have shape {tuple(sizes.shape)}; expected ({len(self.classes)}, 2)")
        self.typical_sizes = sizes.to(self.groups.device, torch.float32)

    def set_class_weights(self, counts: Tensor) -> None:
        """Weigh classes by how many objects of each, (classes,), there are to train with."""
        if counts.shape != (len(self.classes),):
            raise ValueError(f"counts have shape {tuple(counts.shape)}; expected ({len(self.classes)},)")
        self.loss.class_weights.copy_(class_weights(counts, self.options.loss.rarest))


def pad_batch(images: Sequence[Tensor] | Tensor) -> Tensor:
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


_KEY = "entourage.detect"
SHARD_BYTES = 16 * 2**20  # bytes of tensors in a file
_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})$")


class DetectorNotFoundError(ValueError):
    """There is no file of a detector where one is looked for."""


def save_detector(
    model: WatershedDetector, path: str | Path, *, float16: bool = False, max_shard_size: int | None = None
) -> list[Path]:
    """Write weights, classes, options and notes.

    Args:
        model: what is kept.
        path: a file that ends in .safetensors.
        float16: keep weights in 16 bits, which halves the file; what is read is single precision again.
        max_shard_size: maximum bytes of tensors in a file; larger detectors are split into
            `name-00001-of-00002.safetensors` and so on; None: one file.

    Returns:
        The files.
    """
    from entourage.io.weights import write_weights  # who only detects does not load the training loop

    path = Path(path)
    head = {
        "entourage": __version__,
        "classes": list(model.classes),
        "options": model.options.to_dict(),
        "notes": model.notes,
        "sides": None if model.typical_sizes is None else model.typical_sizes.tolist(),
    }
    state = {name: torch.empty(value.shape, dtype=value.dtype).copy_(value) for name, value in _state(model).items()}
    if float16:  # not buffers: statistics need their digits
        state |= {name: state[name].half() for name, _ in model.named_parameters()}
    pieces = _split_into_shards(state, max_shard_size)
    names = [path] if len(pieces) == 1 else [_shard_path(path, number, len(pieces)) for number in range(len(pieces))]
    for name, tensors in zip(names, pieces, strict=True):
        write_weights(name, tensors, head, key=_KEY)
    return names


def find_shards(path: str | Path) -> list[Path]:
    """The files of a detector: `path` itself, or the pieces that it was cut into.

    Args:
        path: as given to `save_detector`, or any one of the pieces.

    Raises:
        NoDetectorError: a ValueError; there is neither.
        ValueError: a piece is missing.
    """
    path = Path(path)
    match = _SHARD_NAME.match(path.stem)
    whole = path.with_name(f"{match['stem']}{path.suffix}") if match else path
    if not match and whole.is_file():
        return [whole]
    found = sorted(whole.parent.glob(f"{whole.stem}-[0-9]*-of-[0-9]*{whole.suffix}"))
    counts = [int(one["count"]) for one in (_SHARD_NAME.match(file.stem) for file in found) if one]
    if not counts:
        raise DetectorNotFoundError(f"{path}: no such file; expected a detector that `entourage detect train` wrote")
    expected = [_shard_path(whole, number, counts[-1]) for number in range(counts[-1])]
    missing = [file.name for file in expected if not file.is_file()]
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} missing; expected all {counts[-1]} pieces in one folder")
    return expected


def load_detector(path: str | Path) -> WatershedDetector:
    """Read what `save_detector` wrote; the detector is on the CPU and in evaluation mode.

    Raises:
        ValueError: a file is missing, damaged, or holds something else.
    """
    path = Path(path)
    head, state = read_detector(path)
    try:
        model = WatershedDetector(head["classes"], DetectorOptions.from_dict(head["options"]))
        model.load_state_dict(state)
        model.notes = dict(head.get("notes", {}))
        if head.get("sides") is not None:
            model.set_typical_sizes(torch.tensor(head["sides"]))
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: was written by another version of entourage: {error_reason(error)[:200]}") from error
    return model.eval()


def read_detector(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header (classes, options, notes) and the tensors of a detector's files.

    Raises:
        ValueError: a file is missing, damaged, or holds something else.
    """
    head: dict[str, Any] | None = None
    state: dict[str, Tensor] = {}
    for file_path in find_shards(path):
        try:
            with safe_open(file_path, framework="pt") as file:
                head = json.loads((file.metadata() or {}).get(_KEY, "null"))
                state |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        except (SafetensorError, OSError, ValueError) as error:
            raise ValueError(f"{file_path}: cannot be read: {error_reason(error)}") from error
        if not isinstance(head, dict):
            raise ValueError(f"{file_path}: holds no detector; expected one that `entourage detect train` wrote")
    assert head is not None
    return head, state


def _state(model: WatershedDetector) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in model.state_dict().items()}


def _split_into_shards(state: dict[str, Tensor], most: int | None) -> list[dict[str, Tensor]]:
    pieces: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, value in state.items():
        size = value.numel() * value.element_size()
        if most is not None and pieces[-1] and filled + size > most:
            pieces.append({})
            filled = 0
        pieces[-1][name] = value
        filled += size
    return pieces


def _shard_path(path: Path, number: int, count: int) -> Path:
    return path.with_name(f"{path.stem}-{number + 1:05d}-of-{count:05d}{path.suffix}")
