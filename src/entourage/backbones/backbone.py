"""From an image of any size to the pixels a network expects.

A pretrained network that turns images into feature vectors, together with all it takes to feed it.
"""

import hashlib
import re
from dataclasses import dataclass

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


@dataclass(frozen=True)
class Preprocessing:
    """Resize and centre crop, then shift and scale each channel.

    Attributes:
        size: height and width of the network's input.
        mean: subtracted from each channel of RGB in 0..255.
        std: what each channel is divided by afterwards.
        crop: share of the shorter side that is kept: 0.875 is "resize to size / 0.875, then crop to size".
        interpolation: nearest, bilinear, bicubic or lanczos.
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop: float = 0.875
    interpolation: str = "bicubic"

    def __post_init__(self) -> None:
        if self.interpolation not in _FILTERS:
            raise ValueError(f"interpolation {self.interpolation!r} is unknown; expected {', '.join(_FILTERS)}")
        if not 0.0 < self.crop <= 1.0:
            raise ValueError(f"crop is {self.crop}; expected a share above 0 and at most 1")

    @property
    def decode_side(self) -> int:
        """Shorter side that is enough to decode: twice what is needed, so that the smoothing below still decides."""
        return int(2 * max(self.size) / self.crop)

    def pixels(self, image: Image.Image) -> Tensor:
        """The middle of an RGB image at the network's size; smaller images are enlarged.

        Args:
            image: RGB, any size.

        Returns:
            uint8, shape (3, height, width): a quarter of the memory of floats while it waits for its batch.
        """
        height, width = self.size
        scale = self.crop * min(image.width / width, image.height / height)  # source pixels for one pixel of the result
        left, top = (image.width - scale * width) / 2, (image.height - scale * height) / 2
        box = (left, top, left + scale * width, top + scale * height)
        # Only the crop is resized: the same picture as resizing everything first, for less work.
        small = image.resize((width, height), _FILTERS[self.interpolation], box=box, reducing_gap=3.0)
        return torch.from_numpy(np.array(small)).permute(2, 0, 1)  # (height, width, 3) -> (3, height, width)

    def normalize(self, pixels: Tensor) -> Tensor:
        """What the network sees: float32 in channels-last order, which its convolutions like best.

        Args:
            pixels: uint8, shape (b, 3, height, width).

        Returns:
            float32, the same shape.
        """
        mean = torch.tensor(self.mean, device=pixels.device).view(3, 1, 1)
        std = torch.tensor(self.std, device=pixels.device).view(3, 1, 1)
        return ((pixels.float() - mean) / std).contiguous(memory_format=torch.channels_last)


_VERSION = 1  # counts changes of the code that alter features, so that caches of older versions are not used


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
        identity = repr((_VERSION, self.name, self.dim, self.weights, self.preprocessing))
        digest = hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()
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
            features: Tensor = self.module(self.preprocessing.normalize(pixels))
        return features.float()


def digest_weights(state: dict[str, Tensor]) -> str:
    """Digest of a state dict: names, shapes, types and values. Costs about a second per gigabyte."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)  # as bytes, because NumPy does not know bfloat16
    return digest.hexdigest()
