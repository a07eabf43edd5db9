"""Weak and strong views of images: computed from pixels at every step, or cached as activations of a frozen stem.

Cached views lie on a GPU, in memory, or in a memory-mapped file from which an interrupted run is resumed.
"""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.backbones.backbone import Preprocessing, digest_weights
from entourage.io.files import atomic_path, read_json_object, write_json
from entourage.io.progress import progress_bar
from entourage.training.accelerator import reseed
from entourage.training.images import DIGEST_ROWS, STRONG, WEAK, AugmentationOptions, ImageBank, augment, fits_on_device
from entourage.validation import validate_counts

BATCH = {"cpu": 64, "cuda": 2048}  # images per forward pass without gradients


@dataclass(frozen=True)
class ViewOptions:
    """Options of the views.

    Attributes:
        weak: augmentation of weak views.
        strong: augmentation of strong views.
        n_weak: weak views of each image in a cache, including the image and its mirror image.
        n_strong: strong views of each image in a cache.
        flip: whether images keep their class when mirrored: False for digits and text.
    """

    weak: AugmentationOptions = field(default=WEAK)
    strong: AugmentationOptions = field(default=STRONG)
    n_weak: int = 4
    n_strong: int = 12
    flip: bool = True

    def __post_init__(self) -> None:
        validate_counts(self, 2, "n_weak")
        validate_counts(self, 0, "n_strong")

    def augmentation(self, options: AugmentationOptions) -> AugmentationOptions:
        """Return the augmentation options, without mirror images if `flip` is False."""
        return options if self.flip else replace(options, flip=0.0)


class Views(Protocol):
    """Interface of the views of n images; `rows` are indices of images, shape (b,), on the device of the training.

    Attributes:
        flip: whether there are mirror images.
    """

    flip: bool

    def __len__(self) -> int: ...

    def move(self, device: torch.device) -> None:
        """Move the data to the device if they fit."""
        ...

    def unaugmented(self, rows: Tensor, flipped: bool = False) -> Tensor:
        """Return the unaugmented images, or their mirror images, as inputs of the network, shape (b, ...)."""
        ...

    def weak(self, rows: Tensor) -> Tensor:
        """Return a random weak view of each image."""
        ...

    def strong(self, rows: Tensor) -> Tensor:
        """Return a random strong view of each image."""
        ...

    def digest(self) -> str:
        """Return a digest of the images and of the options of their views."""
        ...


class LiveViews:
    """Views computed from pixels at every step, for training all layers of a network.

    Args:
        pixels: decoded images, uint8, shape (n, h, w, 3).
        preprocessing: size and normalisation of the network's input.
        options: options of the views.
    """

    def __init__(
        self, pixels: NDArray[np.uint8], preprocessing: Preprocessing, options: ViewOptions | None = None
    ) -> None:
        self.bank = ImageBank(pixels)
        self.preprocessing = preprocessing
        self.options = options or ViewOptions()
        self.flip = self.options.flip
        self.device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.bank)

    def move(self, device: torch.device) -> None:
        """Move the pixels to a GPU if they fit; views are computed on the device in any case."""
        self.bank.move(device)
        self.device = device

    def unaugmented(self, rows: Tensor, flipped: bool = False) -> Tensor:
        """Return normalised images, shape (b, 3, height, width)."""
        check_flip(flipped, self.flip)
        images = resize_pixels(self._pixels(rows), self.preprocessing.size)
        return self.preprocessing.normalize(images.flip(3) if flipped else images)

    def weak(self, rows: Tensor) -> Tensor:
        """Return normalised weak views, shape (b, 3, height, width)."""
        return self._view(rows, self.options.augmentation(self.options.weak))

    def strong(self, rows: Tensor) -> Tensor:
        """Return normalised strong views, shape (b, 3, height, width)."""
        return self._view(rows, self.options.augmentation(self.options.strong))

    def digest(self) -> str:
        """Return a digest of the pixels, the preprocessing and the options; about a second per gigabyte, once."""
        return digest_blocks((), self.bank.digest, self.bank.values.shape, self.preprocessing, self.options)

    def _view(self, rows: Tensor, options: AugmentationOptions) -> Tensor:
        return self.preprocessing.normalize(augment(self._pixels(rows), self.preprocessing.size, options))

    def _pixels(self, rows: Tensor) -> Tensor:
        return self.bank.take(rows).to(self.device)


def check_flip(requested: bool, available: bool) -> None:
    """Raise ValueError if mirror images are requested but not available."""
    if requested and not available:
        raise ValueError("flipped is True, but the views have no mirror images; expected ViewOptions(flip=True)")


def digest_blocks(blocks: Iterable[NDArray[np.generic]], *notes: object) -> str:
    """Return a digest of arrays, which are read one at a time as they may exceed memory, and of further values."""
    digest = hashlib.blake2b(repr(notes).encode(), digest_size=8)
    for block in blocks:
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def resize_pixels(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Resize pixels by a bicubic filter, (b, 3, h, w) -> (b, 3, *size), clamped to 0..255."""
    if pixels.shape[2:] == size:
        return pixels
    # With antialias=True the filter equals that of `Preprocessing.pixels`, also where images are enlarged.
    fitted = F.interpolate(pixels.float(), size, mode="bicubic", align_corners=False, antialias=True)
    return fitted.clamp(0.0, 255.0)


class ViewCacheFile:
    """Memory-mapped file for the cached views of n images, filled in order.

    Args:
        path: the file; replaced if it has views of another origin or shape. A JSON file of the same stem stores the
            origin and the number of processed images.
        origin: digest of everything that determines the views.
        shape: shape of the views, (n, views, c, h, w).

    Attributes:
        values: the views, bfloat16, mapped from the file.
        done: number of processed images.

    Raises:
        ValueError: the file cannot be written.
    """

    def __init__(self, path: Path, origin: str, shape: tuple[int, ...]) -> None:
        self._note = path.with_suffix(".json")
        self._config = {"origin": origin, "shape": list(shape)}
        size = torch.bfloat16.itemsize * math.prod(shape)
        stored = read_json_object(self._note)
        self.done = int(stored.pop("done", 0))
        if stored != self._config or not path.is_file() or path.stat().st_size != size:
            self.done = 0
            self._note.unlink(missing_ok=True)  # first, so that old views are never read as these after a crash
            _allocate_file(path, size)
        mapped = torch.from_file(str(path), shared=True, size=math.prod(shape), dtype=torch.bfloat16)
        self.values = mapped.view(shape)

    def mark(self, done: int) -> None:
        """Store the number of processed images."""
        self.done = done
        write_json(self._note, {**self._config, "done": done}, indent=None)


def _allocate_file(path: Path, size: int) -> None:
    """Create a file of the given size in place of an old one; processes that have mapped that can still read it."""
    try:
        path.unlink(missing_ok=True)  # first, so that the disk never holds both
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            if hasattr(os, "posix_fallocate"):  # a full disk raises an error here; later it would kill the process
                os.posix_fallocate(stream.fileno(), 0, size)
            else:
                stream.truncate(size)
    except OSError as error:
        needed = f"{size / 2**30:.1f} GiB for the views of all images"
        raise ValueError(f"cannot write {path}: {error.strerror}; expected space for {needed}") from error


class CachedViews:
    """Activations of a frozen stem for a fixed set of views: training runs the late layers only.

    Args:
        values: activations of the views of each image, shape (n, views, c, h, w): the image, its mirror image, further
            weak views, then strong views.
        n_weak: number of weak views, at least 2.
        flip: whether the second view is the mirror image; otherwise it is another weak view.
        origin: digest of everything that determines the activations; None: `digest` hashes the activations.
    """

    def __init__(self, values: Tensor, n_weak: int, *, flip: bool = True, origin: str | None = None) -> None:
        if values.ndim != 5:
            raise ValueError(f"values has shape {tuple(values.shape)}; expected (n, views, c, h, w)")
        if not 2 <= n_weak <= values.shape[1]:
            raise ValueError(f"n_weak is {n_weak}; expected 2 to {values.shape[1]}, the number of views")
        self.values = values
        self.n_weak = n_weak
        self.flip = flip
        self.origin = origin

    def __len__(self) -> int:
        return len(self.values)

    def move(self, device: torch.device) -> None:
        """Move the activations to a GPU if they take at most a quarter of its free memory, otherwise to the CPU."""
        current = self.values.device
        if current.type == device.type and device.index in (None, current.index):
            return
        self.values = self.values.to(device if fits_on_device(device, self.values.nbytes) else "cpu")

    def unaugmented(self, rows: Tensor, flipped: bool = False) -> Tensor:
        """Return activations of the images without augmentation, shape (b, c, h, w)."""
        check_flip(flipped, self.flip)
        return self._pick(rows, torch.full_like(rows, int(flipped)))

    def weak(self, rows: Tensor) -> Tensor:
        """Return activations of a random weak view of each image, shape (b, c, h, w)."""
        return self._pick(rows, torch.randint(self.n_weak, rows.shape, device=rows.device))

    def strong(self, rows: Tensor) -> Tensor:
        """Return activations of a random strong view of each image, shape (b, c, h, w)."""
        count = self.values.shape[1]
        if count == self.n_weak:
            raise ValueError(f"all {count} views of each image are weak; expected n_strong of 1 or more")
        return self._pick(rows, torch.randint(self.n_weak, count, rows.shape, device=rows.device))

    def digest(self) -> str:
        """Return a digest of the origin, as on a GPU the last digits of the activations differ between runs."""
        blocks: Iterable[NDArray[np.generic]] = ()
        if self.origin is None:
            starts = range(0, len(self), DIGEST_ROWS)
            blocks = (self.values[start : start + DIGEST_ROWS].float().cpu().numpy() for start in starts)
        return digest_blocks(blocks, self.origin, tuple(self.values.shape), self.n_weak, self.flip)

    def _pick(self, rows: Tensor, views: Tensor) -> Tensor:
        device = self.values.device
        chosen = self.values[rows.to(device), views.to(device)].to(rows.device)  # (b, c, h, w)
        return chosen.float().contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def cache_views(
    stem: nn.Module,
    live: LiveViews,
    device: torch.device,
    *,
    seed: int = 0,
    file: Path | None = None,
    progress: bool | None = None,
) -> CachedViews:
    """Compute the activations of a stem for each image, its mirror image, and random weak and strong views.

    Without mirror images, the second view is another weak view.

    Args:
        stem: normalised images to activations (b, c, h, w); moved to the device.
        live: the images and the options of the views.
        device: device of the stem, with bfloat16 on a GPU. The views are stored on a GPU if they fit.
        seed: seed of the random views.
        file: cache file for views that are not stored on a GPU; views in the file are not computed again. None stores
            them in memory.
        progress: show a bar; None: only on a terminal.

    Returns:
        n * (n_weak + n_strong) activations in bfloat16. Costs one forward pass of the stem for each of them.

    Raises:
        ValueError: there are no images, or the file cannot be written.
    """
    if not len(live):
        raise ValueError("live: has no images; expected at least one")
    origin = f"{digest_weights(stem.state_dict())} {seed} {live.digest()}"
    stem.to(device).eval()
    live.move(device)
    options, n = live.options, len(live)
    count = options.n_weak + options.n_strong
    size = BATCH.get(device.type, BATCH["cpu"])

    def activations_of(rows: Tensor, view: int) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            activations: Tensor = stem(_nth_view(live, rows, view))
        return activations

    shape = (n, count, *activations_of(torch.zeros(1, dtype=torch.int64, device=device), 0).shape[1:])
    # Random numbers are drawn in batches of `size`, so the views depend on it.
    cache = _allocate_views(shape, device, file, f"{origin} {device.type} {size}")
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        progress_bar("Processing images", n * count, progress) as advance,
    ):
        advance(cache.done * count)
        for start in range(cache.done, n, size):
            rows = torch.arange(start, min(start + size, n), device=device)
            reseed(device, [seed, start])
            for view in range(count):
                cache.values[start : start + size, view] = activations_of(rows, view).to(cache.values.dtype)
                advance(len(rows))
            cache.mark(start + len(rows))
    return CachedViews(cache.values, options.n_weak, flip=options.flip, origin=origin)


def _nth_view(live: LiveViews, rows: Tensor, view: int) -> Tensor:
    """Return the images of one of the views to cache."""
    if view == 0 or (view == 1 and live.flip):
        return live.unaugmented(rows, flipped=view == 1)
    return live.weak(rows) if view < live.options.n_weak else live.strong(rows)


class _MemoryBuffer:
    """Views in memory or on a GPU, with the interface of `ViewCacheFile`."""

    def __init__(self, values: Tensor) -> None:
        self.values, self.done = values, 0

    def mark(self, done: int) -> None:
        self.done = done


def _allocate_views(
    shape: tuple[int, ...], device: torch.device, file: Path | None, origin: str
) -> ViewCacheFile | _MemoryBuffer:
    """Allocate space for all views: on the GPU if they fit, otherwise in the file, or in memory if there is no file."""
    fits = fits_on_device(device, torch.bfloat16.itemsize * math.prod(shape))
    if file is not None and not fits:
        return ViewCacheFile(file, origin, shape)
    return _MemoryBuffer(torch.empty(shape, dtype=torch.bfloat16, device=device if fits else "cpu"))
