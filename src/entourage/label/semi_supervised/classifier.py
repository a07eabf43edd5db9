"""The trained image classifier in one file, and its predictions as a table."""

from __future__ import annotations

import copy
import csv
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage import __version__
from entourage.backbones.backbone import Backbone, Preprocessing
from entourage.backbones.efficientnet_lite import freeze
from entourage.backbones.features import extract_features
from entourage.backbones.registry import load_backbone
from entourage.compute import resolve_device
from entourage.data.media import list_images
from entourage.io.files import atomic_path, check_output_file
from entourage.io.weights import load_weights, read_weights, write_weights
from entourage.label.semi_supervised.data import Images, files_or_pixels
from entourage.label.semi_supervised.network import ImageNetwork, compute_outputs
from entourage.label.semi_supervised.student.network import STUDENT, student_backbone
from entourage.label.semi_supervised.views import LiveViews, ViewOptions

_KIND = "entourage classifier"


@dataclass(frozen=True)
class Predictions:
    """Predictions of an `ImageClassifier`.

    Attributes:
        labels: most probable class of each of the k readable images.
        probabilities: class probabilities, shape (k, m), columns in the order of `ImageClassifier.classes`.
        indices: index of each of the k images in the input, ascending.
        failures: path and reason, in one line, of every image that could not be read.
    """

    labels: list[str]
    probabilities: NDArray[np.float32]
    indices: list[int]
    failures: list[tuple[Path, str]]


@dataclass(frozen=True, eq=False)
class ImageClassifier:
    """A trained network with its classes and the preprocessing of images.

    Attributes:
        network: normalised images (b, 3, h, w) to logits (b, m).
        backbone: name of the pretrained network, or "student".
        classes: m names, in the order of the logits.
        preprocessing: conversion of images to inputs of the network.
        flip: average the logits of each image and its mirror image.

    Examples:
        >>> import numpy as np
        >>> from entourage import ImageClassifier
        >>> from entourage.backbones.registry import load_backbone
        >>> from entourage.label.semi_supervised.network import ImageNetwork
        >>> backbone = load_backbone("efficientnet-lite0", "cpu", frozen=False)
        >>> network = ImageNetwork(backbone.module, backbone.dim, 2)  # untrained; see `LabelAugmenter.classifier_`
        >>> classifier = ImageClassifier(network, backbone.name, ["cat", "dog"], backbone.preprocessing)
        >>> predictions = classifier.predict(np.zeros((3, 64, 64, 3), dtype=np.uint8), device="cpu")
        >>> predictions.probabilities.shape
        (3, 2)
    """

    network: ImageNetwork
    backbone: str
    classes: list[str]
    preprocessing: Preprocessing
    flip: bool = False

    def predict(
        self,
        images: Images,
        *,
        device: str | torch.device = "auto",
        progress: bool | None = None,
    ) -> Predictions:
        """Classify images; unreadable files are reported in `Predictions.failures`.

        Args:
            images: a list of image files; or decoded images of any size, uint8, shape (n, h, w, 3), which are resized
                without cropping, as by `LabelAugmenter.fit`.
            device: device of the network.
            progress: show a bar; None: only on a terminal.

        Returns:
            Labels and probabilities of the readable images.

        Raises:
            ValueError: an array has another type or shape, or the arrays of a list differ in shape.
            TypeError: `images` has another type.
        """
        inputs = files_or_pixels(images)
        network = copy.deepcopy(self.network).eval()  # `freeze` changes the copy, which cannot be trained or saved
        freeze(network.body)
        if isinstance(inputs, np.ndarray):
            logits = self._pixel_logits(network, inputs, resolve_device(device), progress)
            return self._to_predictions(logits, list(range(len(inputs))), [])
        module = _FlipAverage(network) if self.flip else network
        backbone = Backbone(self.backbone, len(self.classes), module, self.preprocessing, weights="trained")
        extracted = extract_features(inputs, backbone, device=device, progress=progress)
        return self._to_predictions(torch.from_numpy(extracted.features), extracted.indices, extracted.failures)

    def _pixel_logits(
        self, network: ImageNetwork, pixels: NDArray[np.uint8], device: torch.device, progress: bool | None
    ) -> Tensor:
        """Compute logits of decoded images, shape (n, m), with the resizing of the training."""
        views = LiveViews(pixels, self.preprocessing, ViewOptions(flip=self.flip))
        if not len(views):
            return torch.empty(0, len(self.classes))
        return compute_outputs(network, views, device, progress=progress).cpu()

    def _to_predictions(self, logits: Tensor, indices: list[int], failures: list[tuple[Path, str]]) -> Predictions:
        """Convert logits, shape (k, m), to predictions."""
        labels = [self.classes[code] for code in logits.argmax(dim=1).tolist()]
        return Predictions(labels, torch.softmax(logits, dim=1).numpy(), indices, failures)

    def save(self, path: str | Path) -> None:
        """Write a safetensors file: the weights, and all other attributes as JSON in the header.

        Args:
            path: the file.
        """
        notes = {
            "kind": _KIND,
            "version": __version__,
            "backbone": self.backbone,
            "classes": self.classes,
            "preprocessing": asdict(self.preprocessing),
            "mirror": self.flip,
        }
        write_weights(Path(path), self.network.state_dict(), notes)

    @classmethod
    def load(cls, path: str | Path) -> ImageClassifier:
        """Load a file written by `save`.

        Args:
            path: the file.

        Returns:
            The classifier.

        Raises:
            ValueError: the file is missing, damaged, or not a classifier.
        """
        source = Path(path)
        expected = "expected a classifier that `entourage label --train` wrote"
        try:
            state, notes = read_weights(source)
        except ValueError as error:
            raise ValueError(f"cannot read {path}: {_failure_reason(source)}; {expected}") from error
        try:
            if notes.get("kind") != _KIND:
                raise ValueError("it holds weights of another kind")
            classes = [str(name) for name in notes["classes"]]
            preprocessing = _read_preprocessing(notes["preprocessing"])
            flip = bool(notes.get("mirror", False))  # files of earlier versions have no such entry, and do not flip
            with torch.random.fork_rng(devices=[]):  # random initial weights must not advance the caller's generator
                backbone = _untrained_backbone(str(notes["backbone"]), preprocessing)
                network = ImageNetwork(backbone.module, backbone.dim, len(classes))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path}: cannot be read as a classifier: {reason}; {expected}") from error
        load_weights(network, state, source)
        return cls(network.eval(), backbone.name, classes, preprocessing, flip)


class _FlipAverage(nn.Module):
    """Average of the logits of images and of their mirror images, as in `compute_outputs` during training."""

    def __init__(self, network: ImageNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Compute logits, shape (b, m)."""
        logits: Tensor = (self.network(images) + self.network(images.flip(3))) / 2
        return logits


def _untrained_backbone(name: str, preprocessing: Preprocessing) -> Backbone:
    """Return a backbone by name, with random weights; that of a student is built for its image size."""
    if name == STUDENT:
        return student_backbone(preprocessing.size[0])
    return load_backbone(name, "cpu", frozen=False, pretrained=False)


def _failure_reason(path: Path) -> str:
    """Return why a file cannot be read as weights, for an error message."""
    if path.is_dir():
        return "it is a folder"
    if not path.exists():
        return "no such file"
    return "damaged, or not a safetensors file with weights"


def _read_preprocessing(values: Mapping[str, Any]) -> Preprocessing:
    """Convert JSON values, in which tuples are lists."""
    fields: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in values.items()}
    return Preprocessing(**fields)


def predict_images(
    classifier: str | Path,
    images: Sequence[Path],
    *,
    out: Path | None = None,
    device: str = "auto",
    progress: bool | None = None,
) -> tuple[list[Path], Predictions]:
    """Classify image files and all images below folders.

    A missing file is reported in `Predictions.failures` like an unreadable one, unless all of `images` are missing.

    Args:
        classifier: a file written by `ImageClassifier.save`.
        images: files and folders.
        out: the output file, which is validated before any image is read.
        device: device of the network.
        progress: show a bar; None: only on a terminal.

    Returns:
        The image files, and their predictions.

    Raises:
        ValueError: none of the images exists or can be read, the classifier cannot be read, a folder has no image, or
            `out` cannot be written or would overwrite the classifier or an image.
    """
    if images and not any(path.exists() for path in images):  # probably a mistyped path
        raise ValueError(f"{images[0]}: no such file or folder; expected image files, or folders of them")
    paths = [file for path in images for file in (list_images(path) if path.is_dir() else [path])]
    if out is not None:
        check_output_file(out, ".csv", [Path(classifier), *paths])
    model = ImageClassifier.load(classifier)
    predictions = model.predict(paths, device=device, progress=progress)
    if paths and not predictions.indices:
        path, reason = predictions.failures[0]
        raise ValueError(f"images: none of {len(paths)} can be read ({path}: {reason}); expected at least one")
    return paths, predictions


def write_predictions(target: Path | TextIO, paths: Sequence[Path], predictions: Predictions) -> None:
    """Write item, label and confidence of every readable image as CSV; files are written atomically.

    Characters that the encoding of the output does not have, such as bytes of file names that are not UTF-8, are
    written as escapes such as \\udce9.

    Args:
        target: an output file or stream.
        paths: the image files, as returned by `predict_images`.
        predictions: their predictions.
    """
    if isinstance(target, Path):
        with atomic_path(target) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
            write_predictions(stream, paths, predictions)
        return
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["item", "label", "confidence"])
    rows = zip(predictions.indices, predictions.labels, predictions.probabilities.max(axis=1, initial=0), strict=True)
    encoding = target.encoding or "utf-8"  # StringIO has no encoding

    def writable(text: str) -> str:
        return text.encode(encoding, "backslashreplace").decode(encoding)

    writer.writerows(
        [writable(str(paths[index])), writable(label), f"{confidence:.4f}"] for index, label, confidence in rows
    )
