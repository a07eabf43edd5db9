"""A pretrained network that turns images into feature vectors, together with all it takes to feed it."""

import hashlib
import re
from dataclasses import dataclass

import torch
from PIL import Image
from torch import Tensor, nn

from entourage.backbones.preprocessing import Preprocessing

_RECIPE = 1  # counts changes of the code that alter features, so that caches of older versions are not used


@dataclass(frozen=True)
class Backbone:
    """A frozen network with its preprocessing.

    Attributes:
        name: as given to `load_backbone`, without the file of its weights if there was one.
        dim: length of a feature vector.
        module: normalised images (b, 3, h, w) to features (b, dim), in evaluation mode.
        preprocessing: from image to network input.
        weights: digest of the weights, see `digest_weights`.
    """

    name: str
    dim: int
    module: nn.Module
    preprocessing: Preprocessing
    weights: str

    @property
    def size(self) -> tuple[int, int]:
        """Height and width of the network's input."""
        return self.preprocessing.size

    @property
    def origin(self) -> str:
        """Name and weights in short: a training that began with others does not go on from here."""
        return f"{self.name} {self.weights[:8]}"

    @property
    def fingerprint(self) -> str:
        """Equal exactly when name, weights and preprocessing are: a key for caches that is safe as a file name."""
        recipe = repr((_RECIPE, self.name, self.dim, self.weights, self.preprocessing))
        digest = hashlib.blake2b(recipe.encode(), digest_size=12).hexdigest()
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', self.name)[:80]}-{digest}"

    def preprocess(self, image: Image.Image) -> Tensor:
        """An RGB image to uint8 pixels, shape (3, height, width)."""
        return self.preprocessing.pixels(image)

    def embed(self, pixels: Tensor) -> Tensor:
        """Features of a batch.

        Args:
            pixels: uint8 as `preprocess` makes them, shape (b, 3, height, width), on the device of `module`.

        Returns:
            float32, shape (b, dim).
        """
        with torch.inference_mode():
            features: Tensor = self.module(self.preprocessing.normalise(pixels))
        return features.float()


def digest_weights(state: dict[str, Tensor]) -> str:
    """Digest of a state dict: names, shapes, types and values. Costs about a second per gigabyte."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)  # as bytes, because NumPy does not know bfloat16
    return digest.hexdigest()
