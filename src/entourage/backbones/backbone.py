"""Pretrained image encoders with the preprocessing of their input."""

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
    """Preprocessing of images: resize, centre crop and normalisation of each channel.

    Attributes:
        size: height and width of the network's input.
        mean: mean of each RGB channel, which is subtracted from values of 0 to 255.
        std: standard deviation of each channel, which divides the result.
        crop: fraction of the shorter side that is kept: 0.875 is "resize to size / 0.875, then crop to size".
        interpolation: "nearest", "bilinear", "bicubic" or "lanczos".

    Raises:
        ValueError: the interpolation is unknown, or the crop is out of range.
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
            raise ValueError(f"crop is {self.crop}; expected a number above 0 and at most 1")

    @property
    def decode_side(self) -> int:
        """Shorter side to decode images at: twice the required size, so that `pixels` determines the smoothing."""
        return int(2 * max(self.size) / self.crop)

    def pixels(self, image: Image.Image) -> Tensor:
        """Crop the centre of an image and resize it to the size of the network; smaller images are enlarged.

        Args:
            image: an RGB image of any size.

        Returns:
            Pixels, uint8, which need a quarter of the memory of float32, shape (3, height, width).
        """
        height, width = self.size
        scale = self.crop * min(image.width / width, image.height / height)  # source pixels per pixel of the result
        left, top = (image.width - scale * width) / 2, (image.height - scale * height) / 2
        box = (left, top, left + scale * width, top + scale * height)
        # Only the crop is resized: the result is that of resizing the entire image first, for less work.
        small = image.resize((width, height), _FILTERS[self.interpolation], box=box, reducing_gap=3.0)
        return torch.from_numpy(np.array(small)).permute(2, 0, 1)  # (height, width, 3) -> (3, height, width)

    def normalize(self, pixels: Tensor) -> Tensor:
        """Normalise uint8 pixels to the mean and standard deviation that the network expects.

        Args:
            pixels: uint8, shape (b, 3, height, width).

        Returns:
            float32, the same shape, in channels-last memory format, in which convolutions are fastest.
        """
        mean = torch.tensor(self.mean, device=pixels.device).view(3, 1, 1)
        std = torch.tensor(self.std, device=pixels.device).view(3, 1, 1)
        return ((pixels.float() - mean) / std).contiguous(memory_format=torch.channels_last)


_VERSION = 1  # incremented by changes of the code that alter features, which invalidates older caches


@dataclass(frozen=True)
class Backbone:
    """An image encoder with its preprocessing.

    Attributes:
        name: name as passed to `load_backbone`, without the file of weights.
        dim: length of a feature vector.
        module: network from normalised images, shape (b, 3, h, w), to features, shape (b, dim), in evaluation mode.
        preprocessing: preprocessing of images.
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
        """Name and abbreviated digest of the weights; a training run can be resumed only if they are unchanged."""
        return f"{self.name} {self.weights[:8]}"

    @property
    def fingerprint(self) -> str:
        """Cache key made from name, weights and preprocessing; it is a valid file name."""
        identity = repr((_VERSION, self.name, self.dim, self.weights, self.preprocessing))
        digest = hashlib.blake2b(identity.encode(), digest_size=12).hexdigest()
        return f"{re.sub(r'[^A-Za-z0-9._-]+', '-', self.name)[:80]}-{digest}"

    def preprocess(self, image: Image.Image) -> Tensor:
        """Convert an RGB image to uint8 pixels, shape (3, height, width)."""
        return self.preprocessing.pixels(image)

    def embed(self, pixels: Tensor) -> Tensor:
        """Compute the features of a batch of preprocessed images.

        Args:
            pixels: result of `preprocess` for each image, uint8, shape (b, 3, height, width), on the device of
                `module`.

        Returns:
            Features, float32, shape (b, dim).
        """
        with torch.inference_mode():
            features: Tensor = self.module(self.preprocessing.normalize(pixels))
        return features.float()


def digest_weights(state: dict[str, Tensor]) -> str:
    """Compute a digest of names, shapes, types and values of a state dict. Costs about a second per gigabyte."""
    digest = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(state.items()):
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        digest.update(flat.view(torch.uint8).numpy().data)  # as bytes, because NumPy has no bfloat16
    return digest.hexdigest()
