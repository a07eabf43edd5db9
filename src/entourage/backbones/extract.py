"""Features of many images: decoded by threads a few batches ahead, embedded in batches, broken ones set aside."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.backbones.backbone import Backbone
from entourage.data.images import UnreadableImageError, read_image
from entourage.device import resolve_device
from entourage.io.progress import progress_bar
from entourage.threads import count_threads, map_ahead

_BATCHES_AHEAD = 2


@dataclass(frozen=True)
class Extraction:
    """Features of the images that could be read.

    Attributes:
        features: shape (n_ok, dim).
        kept: for each row of `features` its image's place among the given paths, ascending.
        failures: path and reason, one line, of every image that could not be read.
    """

    features: NDArray[np.float32]
    kept: list[int]
    failures: list[tuple[Path, str]]


@dataclass(frozen=True)
class FeatureBatch:
    """One batch on its way: features (b, dim) of the images at `kept`, and place and reason of those that failed."""

    kept: list[int]
    features: NDArray[np.float32]
    failures: list[tuple[int, str]]


def extract_features(
    paths: Sequence[Path],
    backbone: Backbone,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    device: str | torch.device = "auto",
    progress: bool | None = None,
) -> Extraction:
    """Features of all images that can be read, in their order.

    Args:
        paths: image files, n of them.
        backbone: moved to `device` if it is not there.
        batch_size: images that go through the network together.
        workers: threads that decode images; by default one for each core, at most 16.
        device: where the network runs.
        progress: show a bar on stderr; None: only if it is a terminal.

    Returns:
        The features. Memory: the result, and the pixels of about three batches.
    """
    parts = [np.empty((0, backbone.dim), dtype=np.float32)]
    kept: list[int] = []
    failures: list[tuple[Path, str]] = []
    with progress_bar("Reading images", len(paths), progress) as advance:
        for batch in extract_batches(paths, backbone, batch_size=batch_size, workers=workers, device=device):
            parts.append(batch.features)
            kept += batch.kept
            failures += [(paths[index], reason) for index, reason in batch.failures]
            advance(len(batch.kept) + len(batch.failures))
    return Extraction(np.concatenate(parts), kept, failures)


def extract_batches(
    paths: Sequence[Path],
    backbone: Backbone,
    *,
    batch_size: int = 64,
    workers: int | None = None,
    device: str | torch.device = "auto",
) -> Iterator[FeatureBatch]:
    """As `extract_features`, but batch by batch, for those who save as they go."""
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}; expected 1 or more")
    place = resolve_device(device)
    backbone.module.to(place)
    # Threads, not processes: Pillow releases the interpreter's lock while it decodes and resizes, and threads neither
    # copy pixels between processes nor hang after a fork.
    decode = partial(_pixels_or_reason, backbone)
    decoded = enumerate(map_ahead(decode, paths, count_threads(workers), _BATCHES_AHEAD * batch_size))
    while chunk := list(islice(decoded, batch_size)):
        images = [(index, pixels) for index, pixels in chunk if isinstance(pixels, Tensor)]
        failures = [(index, reason) for index, reason in chunk if isinstance(reason, str)]
        features = np.empty((0, backbone.dim), dtype=np.float32)
        if images:
            pixels = torch.stack([tensor for _, tensor in images])  # (b, 3, height, width)
            features = backbone.embed(pixels.to(place)).cpu().numpy()  # (b, dim)
        yield FeatureBatch([index for index, _ in images], features, failures)


def _pixels_or_reason(backbone: Backbone, path: Path) -> Tensor | str:
    try:
        return backbone.preprocess(read_image(path, shorter_side=backbone.preprocessing.decode_side))
    except UnreadableImageError as error:
        return error.reason
