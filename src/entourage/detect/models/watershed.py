"""The Deep Watershed Detector, with the interface of torchvision's detectors, and its files.

A detector is stored as safetensors, in one file or several shards, with classes, options and notes in the header.
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
from entourage.io.weights import no_larger_than, write_weights


class WatershedDetector(nn.Module):
    """Deep Watershed Detector: a network that detects all symbols of a page in one pass (thesis, chapter 6).

    As in torchvision, a call in training mode takes images and targets and returns a dict of losses; in evaluation
    mode, it takes images and returns a list of dicts. The number of objects is unlimited. Images are not resized: staff
    lines should be `INTERLINE` pixels apart.

    Args:
        classes: names of the classes; the labels are their positions, from 1.
        options: options of maps, decoding, network and losses; None: the defaults.

    Attributes:
        classes: names of the classes.
        options: options of the detector.
        notes: description of the training, such as data and steps; stored in the header of the detector's file.
    """

    groups: Tensor
    typical_sizes: Tensor | None

    def __init__(self, classes: Sequence[str] = DETECTOR_CLASSES, options: DetectorOptions | None = None) -> None:
        super().__init__()
        if not classes or len(set(classes)) != len(classes):
            raise ValueError(f"classes: {len(classes)} names, {len(set(classes))} distinct; expected distinct names")
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
        """Compute losses in training mode, detections in evaluation mode.

        Args:
            images: images of any sizes, shape (1, h, w) each; ink is 1 and paper 0.
            targets: for each image, "boxes" (n, 4), x0, y0, x1, y1 in pixels, and "labels" (n,), from 1; required in
                training mode.

        Returns:
            In training mode, the losses "energy", "class" and "box", to be summed. In evaluation mode, for each image,
            "boxes" (n, 4), "labels" (n,) and "scores" (n,), highest scores first.

        Raises:
            ValueError: an image or a target has another form, or their numbers differ.
        """
        batch = pad_batch(images)
        if not self.training:
            return self.objects(batch, [(image.shape[-2], image.shape[-1]) for image in images])
        if targets is None or len(targets) != len(batch):
            count = "none" if targets is None else len(targets)
            raise ValueError(f"targets: {count} for {len(batch)} images; expected one for each image in training")
        boxes, labels, pages = (part.to(batch.device) for part in join_targets(targets, len(self.classes)))
        return self.losses(batch, boxes, labels, pages)

    def maps(self, batch: Tensor) -> MapPredictions:
        """Predict the energy, class and box maps of pages, shape (b, 1, h, w)."""
        predictions: MapPredictions = self.network(batch)
        return predictions

    def losses(
        self, batch: Tensor, boxes: Tensor, labels: Tensor, image_index: Tensor, ignore: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Compute the losses on pages, shape (b, 1, h, w); the other arguments are those of `render_targets`."""
        shape = batch.shape[0], batch.shape[2], batch.shape[3]
        targets = render_targets(boxes.float(), labels, image_index, shape, self.options.maps, self.groups, ignore)
        losses: dict[str, Tensor] = self.loss(self.maps(batch), targets)
        return losses

    @torch.inference_mode()
    def objects(
        self, batch: Tensor, sizes: Sequence[tuple[int, int]] | None = None, options: DecodeOptions | None = None
    ) -> list[dict[str, Tensor]]:
        """Detect the objects on a batch of pages.

        Args:
            batch: pages padded with paper, shape (b, 1, h, w).
            sizes: height and width of each page without padding; None: the pages are not padded.
            options: options of decoding; None: those of the detector.

        Returns:
            For each page, "boxes", "labels" and "scores" as in `forward`.
        """
        options = options or self.options.decode
        found = decode(self.maps(batch), options, self.options.maps, self.groups, self.typical_sizes)
        sizes = sizes or [(batch.shape[-2], batch.shape[-1])] * len(batch)
        return [_clip(page, *size) for page, size in zip(found, sizes, strict=True)]

    def fuse_batch_norm(self) -> WatershedDetector:
        """Return a copy for evaluation, faster because batch normalisation is fused into the convolutions."""
        copy = deepcopy(self).eval()
        fuse_conv_bn(copy.network)
        copy.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return copy

    def set_typical_sizes(self, sizes: Tensor) -> None:
        """Store the typical width and height of each class, shape (classes, 2), for `DecodeOptions(box="class")`."""
        if sizes.shape != (len(self.classes), 2):
            raise ValueError(f"sizes have shape {tuple(sizes.shape)}; expected ({len(self.classes)}, 2)")
        self.typical_sizes = sizes.to(self.groups.device, torch.float32)

    def set_class_weights(self, counts: Tensor) -> None:
        """Set the weights of classes in the loss from their numbers of training objects, shape (classes,)."""
        if counts.shape != (len(self.classes),):
            raise ValueError(f"counts have shape {tuple(counts.shape)}; expected ({len(self.classes)},)")
        self.loss.class_weights.copy_(class_weights(counts, self.options.loss.rarest))


def pad_batch(images: Sequence[Tensor] | Tensor) -> Tensor:
    """Stack images (1, h, w) of any sizes into one batch (b, 1, max h, max w), padded with paper.

    Raises:
        ValueError: there are no images, or one has another shape.
    """
    if len(images) == 0:
        raise ValueError("images: none; expected one or more")
    for number, image in enumerate(images):
        if image.ndim != 3 or image.shape[0] != 1 or image.numel() == 0:
            raise ValueError(f"images[{number}] has shape {tuple(image.shape)}; expected (1, height, width)")
    if isinstance(images, Tensor):
        return images
    height, width = (max(image.shape[axis] for image in images) for axis in (1, 2))
    batch = images[0].new_zeros(len(images), 1, height, width)
    for padded, image in zip(batch, images, strict=True):
        padded[:, : image.shape[1], : image.shape[2]] = image
    return batch


def _clip(page: dict[str, Tensor], height: int, width: int) -> dict[str, Tensor]:
    """Clip the boxes of a page to its height and width; objects entirely outside are removed."""
    limits = page["boxes"].new_tensor([width, height, width, height])
    boxes = page["boxes"].clamp(min=0).minimum(limits)
    keep = (boxes[:, 2:] > boxes[:, :2]).all(1)
    return {"boxes": boxes[keep], "labels": page["labels"][keep], "scores": page["scores"][keep]}


_KEY = "entourage.detect"
_SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})$")


class DetectorNotFoundError(ValueError):
    """Error for a path that is not a file of a detector."""


def save_detector(
    model: WatershedDetector, path: str | Path, *, float16: bool = False, max_shard_size: int | None = None
) -> list[Path]:
    """Save weights, classes, options and notes of a detector.

    Args:
        model: the detector.
        path: a file that ends in .safetensors.
        float16: store the weights as float16, which halves the file; `load_detector` converts them to float32.
        max_shard_size: maximum bytes of tensors per file; larger detectors are split into
            `name-00001-of-00002.safetensors` and so on. None: one file.

    Returns:
        The paths of the files.
    """
    path = Path(path)
    header = {
        "entourage": __version__,
        "classes": list(model.classes),
        "options": model.options.to_dict(),
        "notes": model.notes,
        "sides": None if model.typical_sizes is None else model.typical_sizes.tolist(),
    }
    state = {name: value.detach().cpu() for name, value in model.state_dict().items()}
    if float16:  # parameters only: the statistics of batch normalisation need full precision
        state |= {name: state[name].half() for name, _ in model.named_parameters()}
    shards = _split_into_shards(state, max_shard_size)
    paths = [path] if len(shards) == 1 else [_shard_path(path, number, len(shards)) for number in range(len(shards))]
    for shard_path, tensors in zip(paths, shards, strict=True):
        write_weights(shard_path, tensors, header, key=_KEY)
    return paths


def find_shards(path: str | Path) -> list[Path]:
    """Return the files of a detector: a single file, or all of its shards.

    Args:
        path: the path passed to `save_detector`, or any of the shards.

    Raises:
        DetectorNotFoundError: a ValueError; neither the file nor a shard exists.
        ValueError: a shard is missing.
    """
    path = Path(path)
    match = _SHARD_NAME.match(path.stem)
    base = path.with_name(f"{match['stem']}{path.suffix}") if match else path
    if not match and base.is_file():
        return [base]
    found = sorted(base.parent.glob(f"{base.stem}-[0-9]*-of-[0-9]*{base.suffix}"))
    counts = [int(match["count"]) for match in (_SHARD_NAME.match(file.stem) for file in found) if match]
    if not counts:
        raise DetectorNotFoundError(f"{path}: no such file; expected a detector that `entourage detect train` wrote")
    expected = [_shard_path(base, number, counts[-1]) for number in range(counts[-1])]
    missing = [file.name for file in expected if not file.is_file()]
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} missing; expected all {counts[-1]} shards in one folder")
    return expected


def load_detector(path: str | Path) -> WatershedDetector:
    """Load a detector that `save_detector` wrote.

    Args:
        path: the file, or any of its shards.

    Returns:
        The detector on the CPU, in evaluation mode.

    Raises:
        ValueError: a file is missing, damaged or not a detector.
    """
    path = Path(path)
    header, state = read_detector(path)
    try:
        options = DetectorOptions.from_dict(header["options"])
        sizes = (*vars(options.network).values(), *options.network.blocks, options.loss.window)
        with no_larger_than(state, sizes):
            model = WatershedDetector(header["classes"], options)
        model.load_state_dict(state)
        model.notes = dict(header.get("notes", {}))
        if header.get("sides") is not None:
            model.set_typical_sizes(torch.tensor(header["sides"]))
    except (KeyError, TypeError, RuntimeError, ValueError, AttributeError) as error:
        raise ValueError(
            f"{path}: cannot be loaded: {error_reason(error)[:200]}; expected a detector of this version"
        ) from error
    return model.eval()


def read_detector(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read the header (classes, options, notes) and the tensors of a detector's files.

    Raises:
        ValueError: a file is missing, damaged or not a detector.
    """
    header: dict[str, Any] | None = None
    state: dict[str, Tensor] = {}
    for file_path in find_shards(path):
        try:
            with safe_open(file_path, framework="pt") as file:
                header = json.loads((file.metadata() or {}).get(_KEY, "null"))
                state |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        except (SafetensorError, OSError, ValueError, RecursionError) as error:
            reason = error_reason(error)
            raise ValueError(f"{file_path}: cannot be read: {reason}; expected a file of safetensors") from error
        if not isinstance(header, dict):
            raise ValueError(f"{file_path}: holds no detector; expected one that `entourage detect train` wrote")
    assert header is not None
    return header, state


def _split_into_shards(state: dict[str, Tensor], max_size: int | None) -> list[dict[str, Tensor]]:
    shards: list[dict[str, Tensor]] = [{}]
    shard_size = 0
    for name, value in state.items():
        size = value.numel() * value.element_size()
        if max_size is not None and shards[-1] and shard_size + size > max_size:
            shards.append({})
            shard_size = 0
        shards[-1][name] = value
        shard_size += size
    return shards


def _shard_path(path: Path, number: int, count: int) -> Path:
    return path.with_name(f"{path.stem}-{number + 1:05d}-of-{count:05d}{path.suffix}")
