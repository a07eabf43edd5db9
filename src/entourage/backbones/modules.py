"""Backbones from modules: a user's own, and models of torchvision, open_clip and transformers by name.

The libraries are imported only if one of their models is requested. Weights are read from a local file, or are random:
nothing is downloaded.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from entourage.backbones.backbone import Backbone, Preprocessing, digest_weights
from entourage.io.files import error_reason

IMAGENET_MEAN, IMAGENET_STD = (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)  # of pixels of 0 to 255
CLIP_MEAN, CLIP_STD = (122.771, 116.746, 104.094), (68.501, 66.632, 70.323)


def wrap_module(
    module: nn.Module,
    *,
    size: int | tuple[int, int] = 224,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
    crop: float = 0.875,
    interpolation: str = "bicubic",
    name: str = "module",
) -> Backbone:
    """Make a backbone of any module that maps images to vectors.

    Args:
        module: from normalised images, shape (b, 3, h, w), to features, shape (b, dim). It is set to evaluation mode.
        size: side, or height and width, of the module's input.
        mean: mean of each RGB channel, which is subtracted from values of 0 to 255; the default is that of ImageNet.
        std: standard deviation of each channel, which divides the result.
        crop: fraction of the shorter side that is kept, see `Preprocessing`.
        interpolation: "nearest", "bilinear", "bicubic" or "lanczos".
        name: name of the backbone.

    Returns:
        The backbone, on the device of the module.

    Raises:
        ValueError: an option is not valid, or the module does not return features of shape (b, dim).
    """
    sides = (size, size) if isinstance(size, int) else size
    preprocessing = Preprocessing(sides, tuple(mean), tuple(std), crop, interpolation)
    module.eval()
    dim = feature_dim(name, module, sides)
    return Backbone(name, dim, module, preprocessing, _digest(module))


def feature_dim(name: str, module: nn.Module, size: tuple[int, int]) -> int:
    """Return the length of a feature vector, from a forward pass: some models state a wrong `num_features`.

    Raises:
        ValueError: the result is not a tensor of shape (b, dim).
    """
    device = next((one.device for one in module.parameters()), torch.device("cpu"))
    with torch.inference_mode():
        features = module(torch.zeros(1, 3, *size, device=device))
    if not isinstance(features, Tensor) or features.ndim != 2:
        kind = f"have shape {tuple(features.shape)}" if isinstance(features, Tensor) else f"are {type(features)}"
        raise ValueError(f"backbone {name!r}: features {kind}; expected a tensor of shape (1, dim)")
    return int(features.shape[1])


def _digest(module: nn.Module) -> str:
    """Return a digest of the structure of a module and of its weights, if it has any."""
    return hashlib.blake2b(f"{module}{digest_weights(module.state_dict())}".encode(), digest_size=16).hexdigest()


class _Output(nn.Module):
    """Module that returns the image vectors of a model of transformers or open_clip."""

    def __init__(self, model: nn.Module, select: Callable[[nn.Module, Tensor], Any]) -> None:
        super().__init__()
        self.model = model
        self.select = select

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.select(self.model, images)
        return features


def _torchvision(model: str, weights: Path | None) -> tuple[nn.Module, Preprocessing]:
    module: nn.Module = import_module("torchvision.models").get_model(model, weights=None)
    if weights is not None:
        _load(module, weights)
    for head in ("fc", "classifier", "heads", "head"):  # the classifier of each family of models
        if isinstance(getattr(module, head, None), nn.Module):
            setattr(module, head, nn.Identity())
            break
    return module, Preprocessing((224, 224), IMAGENET_MEAN, IMAGENET_STD, interpolation="bilinear")


def _open_clip(model: str, weights: Path | None) -> tuple[nn.Module, Preprocessing]:
    clip = import_module("open_clip").create_model(model, pretrained=None)
    if weights is not None:
        _load(clip, weights)
    visual = clip.visual
    size = visual.image_size if isinstance(visual.image_size, tuple) else (visual.image_size,) * 2
    return visual, Preprocessing(size, CLIP_MEAN, CLIP_STD, crop=1.0)


def _transformers(model: str, weights: Path | None) -> tuple[nn.Module, Preprocessing]:
    """Build a model from a folder with `config.json` and weights, or with random weights from its type."""
    library = import_module("transformers")
    folder = Path(model) if weights is None else weights
    if folder.is_dir():
        module = library.AutoModel.from_pretrained(folder, local_files_only=True)
    elif weights is not None:
        raise ValueError(f"{weights} is not a folder; expected one with config.json and model.safetensors")
    else:
        module = library.AutoModel.from_config(library.AutoConfig.for_model(model))
    module = getattr(module, "vision_model", module)  # the image encoder of a model of images and texts
    size = module.config.image_size
    sides = (size, size) if isinstance(size, int) else (size[0], size[1])
    clip = "clip" in module.config.model_type
    mean, std = (CLIP_MEAN, CLIP_STD) if clip else ((127.5,) * 3, (127.5,) * 3)
    if folder.is_dir() and (folder / "preprocessor_config.json").is_file():
        values = library.AutoImageProcessor.from_pretrained(folder, local_files_only=True).to_dict()
        mean, std = (tuple(255.0 * one for one in values[key]) for key in ("image_mean", "image_std"))
    return _Output(module, _pooled), Preprocessing(sides, mean, std, crop=1.0)


def _pooled(model: nn.Module, images: Tensor) -> Tensor:
    """Return the pooled output of a model of transformers, or the mean of its last states if it has none."""
    output = model(pixel_values=images)
    pooled: Tensor | None = getattr(output, "pooler_output", None)
    return output.last_hidden_state.mean(dim=1) if pooled is None else pooled.flatten(1)


_LIBRARIES: Mapping[str, tuple[str, Callable[[str, Path | None], tuple[nn.Module, Preprocessing]]]] = {
    "torchvision": ("torchvision", _torchvision),
    "open_clip": ("open_clip_torch", _open_clip),
    "transformers": ("transformers", _transformers),
}
LIBRARIES = tuple(_LIBRARIES)


def load_library_model(name: str, *, pretrained: bool = True) -> Backbone:
    """Load a model of torchvision, open_clip or transformers.

    Args:
        name: "LIBRARY:MODEL@FILE" with the file of its weights (a folder for transformers), or "LIBRARY:MODEL" for
            random weights.
        pretrained: whether to read the weights; False if they will be replaced.

    Returns:
        The backbone, on the CPU, without the classifier. The name of the backbone does not contain the file.

    Raises:
        ValueError: the library is missing, the model is unknown, or the weights cannot be read.
    """
    library, _, rest = name.partition(":")
    model, _, file = rest.partition("@")
    package, build = _LIBRARIES[library]
    try:
        import_module(library)
    # torchvision's import fails with OSError or RuntimeError if it does not match torch.
    except Exception as error:
        problem = f"cannot import {library} ({error_reason(error)[:200]})"
        raise ValueError(f"backbone {name!r}: {problem}; expected `pip install {package}`, matching torch") from error
    try:
        module, preprocessing = build(model, Path(file) if file and pretrained else None)
    # The types of exceptions for unknown names and unsuitable files differ between libraries and are not documented.
    except Exception as error:
        raise ValueError(f"backbone {name!r}: {library} cannot load the model: {error_reason(error)[:200]}") from error
    module.eval()
    short = f"{library}:{model}"
    dim = feature_dim(short, module, preprocessing.size)
    return Backbone(short, dim, module, preprocessing, digest_weights(module.state_dict()))


def _load(module: nn.Module, file: Path) -> None:
    module.load_state_dict(read_state(file))


def read_state(file: Path) -> dict[str, Tensor]:
    """Read a state dict, which may be the entry "state_dict" of a checkpoint and have names prefixed by "module.".

    Args:
        file: `.safetensors`, or a file of `torch.save`, of which nothing but tensors is read.

    Returns:
        The tensors by name.

    Raises:
        ValueError: the file cannot be read, or contains other objects.
    """
    read = load_file if file.suffix == ".safetensors" else partial(torch.load, weights_only=True, map_location="cpu")
    try:
        state: object = read(file)
    except pickle.UnpicklingError as error:  # torch's message suggests `weights_only=False`
        raise ValueError(f"{file} contains other objects; expected a state dict") from error
    # The exceptions for missing, truncated and other files differ between readers.
    except Exception as error:
        raise ValueError(
            f"{file} cannot be read as weights: {error_reason(error)[:200]}; expected a state dict"
        ) from error
    weights = state.get("state_dict", state) if isinstance(state, dict) else None
    if not isinstance(weights, dict):
        raise ValueError(f"{file} contains other objects; expected a state dict")
    return {str(key).removeprefix("module."): value for key, value in weights.items()}
