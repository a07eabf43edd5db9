"""The classifier that comes out: a network, its classes and how its images are prepared, in one file."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from entourage import __version__
from entourage.backbones import Backbone, Preprocessing, extract_features, freeze, load_backbone
from entourage.data import atomic_path, resolve_device
from entourage.label.classify.network import ImageNetwork

_KIND = "entourage classifier"


@dataclass(frozen=True)
class Predictions:
    """What a classifier says of image files.

    Attributes:
        labels: the most probable class of each image that could be read, k of them.
        probabilities: of all classes, shape (k, m), in the order of `ImageClassifier.classes`.
        kept: for each of the k its place among the given paths, ascending.
        failures: path and reason, one line, of every image that could not be read.
    """

    labels: list[str]
    probabilities: NDArray[np.float32]
    kept: list[int]
    failures: list[tuple[Path, str]]


@dataclass(frozen=True, eq=False)
class ImageClassifier:
    """A trained network with all it takes to ask it.

    Attributes:
        network: normalised images (b, 3, h, w) to logits (b, m).
        backbone: name of the network it grew from.
        classes: what the logits stand for, m names.
        preprocessing: from image to network input.
    """

    network: ImageNetwork
    backbone: str
    classes: list[str]
    preprocessing: Preprocessing

    def predict(
        self, paths: Sequence[Path], *, device: str | torch.device = "auto", progress: bool | None = None
    ) -> Predictions:
        """Classify image files; broken ones are set aside.

        Args:
            paths: image files.
            device: where the network runs.
            progress: show a bar; None: only on a terminal.
        """
        place = resolve_device(device)
        asked = Backbone(self.backbone, len(self.classes), self.network.eval(), self.preprocessing, weights="trained")
        found = extract_features(paths, asked, device=place, progress=progress)
        logits = torch.from_numpy(found.features)  # (k, m)
        labels = [self.classes[code] for code in logits.argmax(dim=1).tolist()]
        return Predictions(labels, torch.softmax(logits, dim=1).numpy(), found.kept, found.failures)

    def save(self, path: str | Path) -> None:
        """Write one safetensors file: weights, and everything else as JSON in its header."""
        notes = {
            "kind": _KIND,
            "entourage": __version__,
            "backbone": self.backbone,
            "classes": json.dumps(self.classes),
            "preprocessing": json.dumps(asdict(self.preprocessing)),
        }
        state = {name: value.detach().cpu().contiguous() for name, value in self.network.state_dict().items()}
        with atomic_path(path) as temporary:
            save_file(state, temporary, metadata=notes)

    @classmethod
    def load(cls, path: str | Path) -> ImageClassifier:
        """Read what `save` wrote, made fast for inference.

        Raises:
            ValueError: the file is missing, broken, or not a classifier.
        """
        try:
            with safe_open(path, framework="pt") as file:
                notes = file.metadata() or {}
                state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
            if notes.get("kind") != _KIND:
                raise ValueError("it holds other tensors")
            classes = json.loads(notes["classes"])
            preprocessing = _preprocessing(json.loads(notes["preprocessing"]))
            backbone = load_backbone(notes["backbone"], "cpu", frozen=False, pretrained=False)
            network = ImageNetwork(backbone.module, backbone.dim, len(classes))
            network.load_state_dict(state)
        except (OSError, SafetensorError, KeyError, TypeError, ValueError, RuntimeError) as error:
            reason = " ".join(str(error).split())[:200]
            expected = "expected a file that `entourage label --train` wrote"
            raise ValueError(f"{path}: cannot be read as a classifier: {reason}; {expected}") from error
        freeze(network.body)
        return cls(network.eval(), notes["backbone"], classes, preprocessing)


def _preprocessing(given: dict[str, Any]) -> Preprocessing:
    """From JSON, which knows lists but no tuples."""
    values: dict[str, Any] = {key: tuple(value) if isinstance(value, list) else value for key, value in given.items()}
    return Preprocessing(**values)
