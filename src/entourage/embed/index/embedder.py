"""A network that embeds images: pretrained, trained by a run, or passed as a module."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from entourage.backbones.backbone import Backbone, Preprocessing
from entourage.backbones.features import BATCHES_AHEAD, FeatureBatch, embed_batches
from entourage.backbones.modules import wrap_module
from entourage.backbones.registry import load_backbone
from entourage.compute import count_threads, map_ahead, resolve_device
from entourage.data.image_set import ImageFiles, ImageSource
from entourage.data.media import UnreadableImageError
from entourage.data.pixels import resize_image
from entourage.embed.index.source import ImageCollection, read_collection
from entourage.embed.models import center_crop
from entourage.embed.training.run_folder import CONFIG_FILE, RunConfig, load_members, read_run_config
from entourage.game.similarity import normalize_rows
from entourage.io.fingerprint import fingerprint
from entourage.io.progress import progress_bar


class UnitEmbedding(nn.Module):
    """Network from pixels to embeddings of length 1, including the normalisation of the pixels.

    Args:
        networks: networks from normalised images to embeddings, shape (b, d_i); those of an ensemble are concatenated.
        preprocessing: input size and normalisation of each network.
    """

    def __init__(self, networks: Sequence[nn.Module], preprocessing: Sequence[Preprocessing]) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.sizes = [one.size for one in preprocessing]
        for number, one in enumerate(preprocessing):
            self.register_buffer(f"mean_{number}", torch.tensor(one.mean).view(3, 1, 1), persistent=False)
            self.register_buffer(f"std_{number}", torch.tensor(one.std).view(3, 1, 1), persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        """Compute embeddings, shape (b, d), rows of length 1, from RGB pixels of 0 to 255, shape (b, 3, h, w)."""
        parts = []
        for number, (network, size) in enumerate(zip(self.networks, self.sizes, strict=True)):
            images = center_crop(pixels, size).float() - getattr(self, f"mean_{number}")
            images = images / getattr(self, f"std_{number}")
            parts.append(normalize_rows(network(images.contiguous(memory_format=torch.channels_last)).float()))
        return torch.cat(parts, dim=1) / math.sqrt(len(parts))

    def encode(self, images: Tensor) -> Tensor:
        """Compute embeddings, shape (b, d), rows of length 1, from images that are normalised already."""
        parts = [normalize_rows(network(images).float()) for network in self.networks]
        return torch.cat(parts, dim=1) / math.sqrt(len(parts))


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Embeddings with the names of their items; `numpy.asarray` returns the vectors.

    Attributes:
        items: names of the images, length n.
        vectors: rows of length 1, shape (n, d).
        skipped: name and reason of each image that could not be read.
    """

    items: list[str]
    vectors: NDArray[np.float32]
    skipped: list[tuple[str, str]]

    def __len__(self) -> int:
        return len(self.items)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return np.array(self.vectors, dtype=dtype) if copy else np.asarray(self.vectors, dtype=dtype)


class Embedder:
    """A network with the preprocessing of its input; see `Embedder.load`.

    Attributes:
        model: name from which `load` loads the network again; None for a module that was passed.
        dim: length of an embedding, d.
        fingerprint: digest of weights and preprocessing; indices of other networks are not searched.
        network: from pixels, shape (b, 3, *size), to embeddings, in evaluation mode.
        size: height and width of the pixels that `preprocess` returns.
        device: the device of the network.

    Examples:
        >>> from entourage.embed import Embedder
        >>> import PIL.Image
        >>> embedder = Embedder.load("efficientnet-lite0")
        >>> embedder.embed([PIL.Image.new("RGB", (64, 64))]).vectors.shape
        (1, 1280)
    """

    def __init__(
        self,
        model: str | None,
        network: UnitEmbedding,
        preprocessing: Preprocessing | int,
        identity: str,
        dim: int,
        device: torch.device,
    ) -> None:
        self.model = model
        self.network = network.to(device).eval()
        self.fingerprint = identity
        self.dim = dim
        self.device = device
        self._preprocessing = preprocessing
        self.size = (preprocessing, preprocessing) if isinstance(preprocessing, int) else preprocessing.size

    @classmethod
    def load(
        cls,
        model: str | Path | nn.Module = "efficientnet-lite1-gem",
        *,
        device: str | torch.device = "auto",
        **options: Any,
    ) -> Self:
        """Load a network.

        Args:
            model: name of a backbone (see `load_backbone`), the folder of a run of `embed train`, or a module from
                images, shape (b, 3, h, w), to embeddings, shape (b, d).
            device: device to compute on.
            **options: for a module: its preprocessing, see `wrap_module`.

        Returns:
            The network.

        Raises:
            ValueError: the model is unknown or not valid, or the device is not available.
        """
        if isinstance(model, nn.Module):
            backbone = wrap_module(model, **options)
            backbone.module.to(resolve_device(device))
            return cls.from_backbone(backbone, None)
        if options:
            raise ValueError(f"{', '.join(options)}: given with the name of a model; expected them with a module only")
        if (Path(model) / CONFIG_FILE).is_file():
            return cls.from_run(model, device)
        if Path(model).is_dir():
            raise ValueError(f"{model}: contains no {CONFIG_FILE}; expected a run of `entourage embed train`")
        return cls.from_backbone(load_backbone(str(model), device), str(model))

    @classmethod
    def from_backbone(cls, backbone: Backbone, model: str | None = None) -> Self:
        """Wrap a backbone, on its device; `model` is the name from which it can be loaded again."""
        network = UnitEmbedding([backbone.module], [backbone.preprocessing])
        device = next((one.device for one in backbone.module.parameters()), torch.device("cpu"))
        return cls(model, network, backbone.preprocessing, backbone.fingerprint, backbone.dim, device)

    @classmethod
    def from_run(cls, folder: str | Path, device: str | torch.device = "auto") -> Self:
        """Load the networks of a run of `embed train`; a ValueError if it is not valid."""
        config = read_run_config(folder)
        members = load_members(folder, config, device)
        networks = [nn.Sequential(member.network.body, member.network.project) for member in members]
        return cls(
            str(Path(folder).resolve()),
            UnitEmbedding(networks, [member.preprocessing for member in members]),
            config.recipe.decoded_side,
            run_fingerprint(config),
            sum(member.network.embedding_size for member in members),
            resolve_device(device),
        )

    @property
    def decode_side(self) -> int:
        """Shorter side to decode images at before `preprocess`."""
        return 2 * max(self.size) if isinstance(self._preprocessing, int) else self._preprocessing.decode_side

    def preprocess(self, image: Image.Image) -> Tensor:
        """Convert an RGB image to pixels, uint8, shape (3, *size)."""
        if isinstance(self._preprocessing, Preprocessing):
            return self._preprocessing.pixels(image)
        return torch.from_numpy(np.array(resize_image(image, self.size))).permute(2, 0, 1)  # (h, w, 3) -> (3, h, w)

    @torch.inference_mode()
    def embed_pixels(self, pixels: Tensor) -> Tensor:
        """Compute embeddings, float32, shape (b, d), from uint8 pixels, shape (b, 3, *size); a GPU uses bfloat16."""
        with torch.autocast(self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"):
            embeddings: Tensor = self.network(pixels.to(self.device))
            return embeddings

    def load_pixels(self, source: ImageSource, index: int) -> Tensor | str:
        """Read and preprocess an image; return the reason, in one line, if it cannot be read."""
        try:
            return self.preprocess(source.read(index, shorter_side=self.decode_side))
        except UnreadableImageError as error:
            return error.reason

    def embed(
        self, data: object, *, batch_size: int = 64, workers: int | None = None, progress: bool | None = False
    ) -> Embeddings:
        """Compute the embeddings of images.

        Args:
            data: a folder, CSV file or pack of images; one or several image files; one or several Pillow images;
                pixels, uint8, shape (n, h, w, 3); or a torch Dataset or DataLoader. Items of a Dataset are Pillow
                images, which are preprocessed here, or normalised tensors, shape (3, h, w), which are not; of a pair,
                such as an image with its label, the first is the image. Batches of a DataLoader are normalised tensors.
            batch_size: number of images per forward pass; that of a DataLoader is its own.
            workers: threads that decode images; None for one per core, at most 16.
            progress: whether to show a progress bar; None: only on a terminal.

        Returns:
            The embeddings, in order; images that cannot be read are listed instead.

        Raises:
            ValueError: the data do not exist or are of another type.
        """
        if isinstance(data, DataLoader):
            return self._embed_tensors(self._batches(data))
        if isinstance(data, Dataset):
            return self._embed_dataset(data, batch_size)
        collection = _collection(data)
        failures: dict[int, str] = {}
        indices: list[int] = []
        parts = [np.empty((0, self.dim), dtype=np.float32)]
        with progress_bar("Embedding images", len(collection.items), progress) as advance:
            for batch in self.stream(collection.source, batch_size=batch_size, workers=workers):
                indices += batch.indices
                parts.append(batch.features)
                failures.update(batch.failures)
                advance(len(batch.indices) + len(batch.failures))
        skipped = [(collection.items[index], reason) for index, reason in failures.items()]
        return Embeddings([collection.items[index] for index in indices], np.concatenate(parts), skipped)

    def stream(
        self, source: ImageSource, *, batch_size: int = 64, workers: int | None = None
    ) -> Iterator[FeatureBatch]:
        """Yield the embeddings of a source batch by batch, with decoding in threads."""
        decoded = map_ahead(
            partial(self.load_pixels, source), range(len(source)), count_threads(workers), BATCHES_AHEAD * batch_size
        )
        return embed_batches(enumerate(decoded), self.embed_pixels, self.dim, batch_size)

    def _batches(self, loader: Iterable[Any]) -> Iterator[Tensor]:
        for batch in loader:
            images = batch[0] if isinstance(batch, list | tuple) else batch
            if not isinstance(images, Tensor) or images.ndim != 4:
                kind = tuple(images.shape) if isinstance(images, Tensor) else type(images).__name__
                raise ValueError(f"data: a batch is {kind}; expected normalised images, shape (b, 3, h, w)")
            yield images

    @torch.inference_mode()
    def _embed_tensors(self, batches: Iterable[Tensor]) -> Embeddings:
        parts = [torch.empty(0, self.dim)]
        parts += [self.network.encode(batch.to(self.device)).cpu() for batch in batches]
        vectors = torch.cat(parts).numpy()
        return Embeddings([str(row) for row in range(len(vectors))], vectors, [])

    def _embed_dataset(self, data: Dataset[Any], batch_size: int) -> Embeddings:
        parts = [np.empty((0, self.dim), dtype=np.float32)]
        for start in range(0, len(data), batch_size):  # type: ignore[arg-type]
            rows = (data[row] for row in range(start, min(start + batch_size, len(data))))  # type: ignore[arg-type]
            images = [row[0] if isinstance(row, list | tuple) else row for row in rows]
            if isinstance(images[0], Tensor):
                parts.append(self._embed_tensors([torch.stack(images)]).vectors)
            else:
                pixels = torch.stack([self.preprocess(_rgb(image)) for image in images])
                parts.append(self.embed_pixels(pixels).cpu().numpy())
        vectors = np.concatenate(parts)
        return Embeddings([str(row) for row in range(len(vectors))], vectors, [])


def run_fingerprint(config: RunConfig) -> str:
    """Return the fingerprint of the networks of a run, without loading them."""
    recipe = config.recipe
    return f"run-{fingerprint(config.backbone, config.weights, repr((recipe.size, recipe.crop)), size=12)}"


@dataclass(frozen=True, eq=False)
class _MemoryImages(ImageFiles):
    """Pillow images in memory."""

    images: Sequence[Image.Image] = ()

    def __len__(self) -> int:
        return len(self.images)

    def read(self, index: int, *, shorter_side: int | None = None) -> Image.Image:
        return self.images[index]


def _collection(data: Any) -> ImageCollection:
    if isinstance(data, str | Path):
        file = Path(data)
        if file.is_file() and file.suffix.lower() not in (".csv", ".npz", ".npy", ".parquet"):
            return ImageCollection(str(data), ImageFiles([file]), [str(data)])
        collection = read_collection(data)
        if not isinstance(collection, ImageCollection):
            raise ValueError(f"{data}: holds vectors; expected images")
        return collection
    if isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.ndim in (3, 4):
        data = [Image.fromarray(one) for one in (data if data.ndim == 4 else data[None])]
    images = [data] if isinstance(data, Image.Image) else list(data) if isinstance(data, Iterable) else []
    files = [one for one in images if isinstance(one, str | Path)]
    if files and len(files) == len(images):
        return ImageCollection("data", ImageFiles([Path(one) for one in files]), [str(one) for one in files])
    if not isinstance(data, Iterable | Image.Image) or not all(isinstance(one, Image.Image) for one in images):
        expected = "expected a folder, image files, Pillow images, uint8 pixels, a Dataset or a DataLoader"
        raise ValueError(f"data is a {type(data).__name__}; {expected}")
    numbered = [str(row) for row in range(len(images))]
    return ImageCollection("data", _MemoryImages([], [_rgb(image) for image in images]), numbered)


def _rgb(image: Any) -> Image.Image:
    if not isinstance(image, Image.Image):
        raise ValueError(f"data: an item is a {type(image).__name__}; expected a Pillow image or a tensor")
    return image if image.mode == "RGB" else image.convert("RGB")
