"""The classifier that comes out: a network, its classes and how its images are prepared, in one file.

A saved classifier and some images in, a table of labels out.
"""

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
from entourage.label.semi_supervised.views import LiveViews, ViewOptions

_KIND = "entourage classifier"


@dataclass(frozen=True)
class Predictions:
    """What a classifier says of images.

    Attributes:
        labels: the most probable class of each image that could be read, k of them.
        probabilities: of all classes, shape (k, m), in the order of `ImageClassifier.classes`.
        indices: for each of the k its place among the given images, ascending.
        failures: path and reason, one line, of every image that could not be read.
    """

    labels: list[str]
    probabilities: NDArray[np.float32]
    indices: list[int]
    failures: list[tuple[Path, str]]


@dataclass(frozen=True, eq=False)
class ImageClassifier:
    """A trained network with all it takes to ask it.

    Attributes:
        network: normalised images (b, 3, h, w) to logits (b, m).
        backbone: name of the network it grew from.
        classes: what the logits stand for, m names.
        preprocessing: from image to network input.
        flip: whether an image and its mirror image answer together.

    Example:
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
        """Classify images; broken files are set aside.

        Args:
            images: a list of image files, or decoded images as `LabelAugmenter.fit` takes them: uint8, shape
                (n, h, w, 3), of which the whole is looked at, whatever their size.
            device: where the network runs.
            progress: show a bar; None: only on a terminal.

        Raises:
            ValueError: an array is of another type or shape, or those in a list differ in it.
            TypeError: what is given is neither.
        """
        inputs = files_or_pixels(images)
        network = copy.deepcopy(self.network).eval()  # what is made fast can be neither trained nor saved again
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
        """Logits of decoded images, shape (n, m), seen as in the training."""
        views = LiveViews(pixels, self.preprocessing, ViewOptions(flip=self.flip))
        if not len(views):
            return torch.empty(0, len(self.classes))
        return compute_outputs(network, views, device, progress=progress).cpu()

    def _to_predictions(self, logits: Tensor, indices: list[int], failures: list[tuple[Path, str]]) -> Predictions:
        """What logits of shape (k, m) say."""
        labels = [self.classes[code] for code in logits.argmax(dim=1).tolist()]
        return Predictions(labels, torch.softmax(logits, dim=1).numpy(), indices, failures)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file: weights, and everything else as JSON in its header."""
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
        """Read what `save` wrote.

        Raises:
            ValueError: the file is missing, broken, or not a classifier.
        """
        source = Path(path)
        expected = "expected a classifier that `entourage label --train` wrote"
        try:
            state, notes = read_weights(source)
        except ValueError as error:
            raise ValueError(f"cannot read {path}: {_failure_reason(source)}; {expected}") from error
        try:
            if notes.get("kind") != _KIND:
                raise ValueError("it holds other weights")
            classes = [str(name) for name in notes["classes"]]
            preprocessing = _read_preprocessing(notes["preprocessing"])
            flip = bool(notes.get("mirror", False))  # files of earlier versions do not say, and answer as they did
            with torch.random.fork_rng(devices=[]):  # weights are drawn at random before they are replaced
                backbone = load_backbone(notes["backbone"], "cpu", frozen=False, pretrained=False)
                network = ImageNetwork(backbone.module, backbone.dim, len(classes))
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            reason = f"it has no {error}" if isinstance(error, KeyError) else str(error)
            raise ValueError(f"{path}: cannot be read as a classifier: {reason}; {expected}") from error
        load_weights(network, state, source)
        return cls(network.eval(), backbone.name, classes, preprocessing, flip)


class _FlipAverage(nn.Module):
    """Average the logits of images and of their mirror images, as `compute_outputs` does in training."""

    def __init__(self, network: ImageNetwork) -> None:
        super().__init__()
        self.network = network

    def forward(self, images: Tensor) -> Tensor:
        """Logits, shape (b, m)."""
        logits: Tensor = (self.network(images) + self.network(images.flip(3))) / 2
        return logits


def _failure_reason(path: Path) -> str:
    """Why a file is no weights, in words for people who may have named the wrong one."""
    if path.is_dir():
        return "it is a folder"
    if not path.exists():
        return "no such file"
    return "damaged, or no file of weights"


def _read_preprocessing(values: Mapping[str, Any]) -> Preprocessing:
    """From JSON, which knows lists but no tuples."""
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

    Args:
        classifier: a file that `ImageClassifier.save` wrote.
        images: files and folders.
        out: where the answers will be written; that there is room for them is checked before any image is looked at.
        device: where the network runs.
        progress: show a bar; None: only on a terminal.

    Returns:
        The paths that were found, and what the classifier says of them.

    Raises:
        ValueError: none of the images is there or can be read, the classifier cannot be read, a folder holds no image,
            or `out` cannot be written or would replace the classifier or an image. (A file that is missing beside
            others is set aside, as broken ones are.)
    """
    if images and not any(path.exists() for path in images):  # a slip of the hand, not a broken file
        raise ValueError(f"{images[0]}: no such file or folder; expected image files, or folders of them")
    paths = [file for path in images for file in (list_images(path) if path.is_dir() else [path])]
    if out is not None:
        check_output_file(out, ".csv", [Path(classifier), *paths])
    model = ImageClassifier.load(classifier)
    predictions = model.predict(paths, device=device, progress=progress)
    if paths and not predictions.indices:
        path, reason = predictions.failures[0]
        raise ValueError(f"none of the {len(paths)} images can be read; the first is {path}: {reason}")
    return paths, predictions


def write_predictions(target: Path | TextIO, paths: Sequence[Path], predictions: Predictions) -> None:
    """Write item, label and confidence of every image that could be read, as CSV; a file is written whole or not.

    Names of files need not be UTF-8: a byte that is not is written as its number, such as \\udce9, and so is whatever
    else a stream cannot write in its encoding.
    """
    if isinstance(target, Path):
        with atomic_path(target) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
            write_predictions(stream, paths, predictions)
        return
    writer = csv.writer(target, lineterminator="\n")
    writer.writerow(["item", "label", "confidence"])
    rows = zip(predictions.indices, predictions.labels, predictions.probabilities.max(axis=1, initial=0), strict=True)
    encoding = target.encoding or "utf-8"  # a text in memory has none

    def writable(text: str) -> str:
        return text.encode(encoding, "backslashreplace").decode(encoding)

    writer.writerows(
        [writable(str(paths[index])), writable(label), f"{confidence:.4f}"] for index, label, confidence in rows
    )
