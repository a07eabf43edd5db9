"""The views that a network is trained on, made from pixels at every step; see `kept` for those that are made once.

What a stem has seen, in a file: a training that was stopped need not look again, and memory holds what it can.

Views that a frozen stem looks at once and for all, on a GPU, in memory or in a file.
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

BATCH = {"cpu": 64, "cuda": 2048}


@dataclass(frozen=True)
class ViewOptions:
    """Which views there are."""

    weak: AugmentationOptions = field(default=WEAK)
    strong: AugmentationOptions = field(default=STRONG)
    n_weak: int = 4  # views of each image that a stem looks at, with the image itself and its mirror image as two
    n_strong: int = 12
    flip: bool = True  # whether a mirror image shows the same thing; digits and text say no

    def __post_init__(self) -> None:
        validate_counts(self, 2, "n_weak")
        validate_counts(self, 0, "n_strong")

    def augmentation(self, options: AugmentationOptions) -> AugmentationOptions:
        """`weak` or `strong`, without mirror images if there are to be none."""
        return options if self.flip else replace(options, flip=0.0)


class Views(Protocol):
    """What a network sees of n images. Positions are tensors of shape (b,), on the device of the training.

    Attributes:
        flip: whether there are mirror images.
    """

    flip: bool

    def __len__(self) -> int: ...

    def move(self, device: torch.device) -> None:
        """Go to the device, as far as there is room."""
        ...

    def unaugmented(self, rows: Tensor, flipped: bool = False) -> Tensor:
        """The images as they are, or their mirror images: inputs of the network, (b, ...)."""
        ...

    def weak(self, rows: Tensor) -> Tensor:
        """A weak view of each image."""
        ...

    def strong(self, rows: Tensor) -> Tensor:
        """A strong view of each image."""
        ...

    def digest(self) -> str:
        """A short text that is another one if the images or their views are."""
        ...


class LiveViews:
    """Views made anew at every step, for a network that is trained as a whole.

    Args:
        pixels: uint8, shape (n, h, w, 3).
        preprocessing: size and normalisation of the network's input.
        options: which views.
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
        """Pixels that fit go to the GPU."""
        self.bank.move(device)
        self.device = device

    def unaugmented(self, rows: Tensor, flipped: bool = False) -> Tensor:
        """Normalised images, shape (b, 3, height, width)."""
        check_flip(flipped, self.flip)
        images = resize_pixels(self._pixels(rows), self.preprocessing.size)
        return self.preprocessing.normalize(images.flip(3) if flipped else images)

    def weak(self, rows: Tensor) -> Tensor:
        """Normalised weak views."""
        return self._view(rows, self.options.augmentation(self.options.weak))

    def strong(self, rows: Tensor) -> Tensor:
        """Normalised strong views."""
        return self._view(rows, self.options.augmentation(self.options.strong))

    def digest(self) -> str:
        """Of all pixels, of the network's input and of the views; computed once, about a second per gigabyte."""
        return digest_blocks((), self.bank.digest, self.bank.values.shape, self.preprocessing, self.options)

    def _view(self, rows: Tensor, options: AugmentationOptions) -> Tensor:
        return self.preprocessing.normalize(augment(self._pixels(rows), self.preprocessing.size, options))

    def _pixels(self, rows: Tensor) -> Tensor:
        return self.bank.take(rows).to(self.device)


def check_flip(requested: bool, available: bool) -> None:
    """Refuse to show mirror images where there are none."""
    if requested and not available:
        raise ValueError("mirror images are asked for where there are none; expected ViewOptions(flip=True)")


def digest_blocks(blocks: Iterable[NDArray[np.generic]], *notes: object) -> str:
    """Of arrays, which may lie in a file larger than memory and come one after another, and of notes on them."""
    digest = hashlib.blake2b(repr(notes).encode(), digest_size=8)
    for block in blocks:
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def resize_pixels(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """Pixels at the network's size, 0..255: (b, 3, h, w) -> (b, 3, *size)."""
    if pixels.shape[2:] == size:
        return pixels
    # Only the antialiased kind is the bicubic filter of `Preprocessing.pixels`, also where images are enlarged.
    fitted = F.interpolate(pixels.float(), size, mode="bicubic", align_corners=False, antialias=True)
    return fitted.clamp(0.0, 255.0)


class ViewCacheFile:
    """Room on disk for the views of n images, which is filled from the first image on.

    Args:
        path: the file; made, or made anew if it holds views of something else. A note lies beside it.
        origin: a text that is another one if the views would be.
        shape: (n, views, c, h, w).

    Attributes:
        values: bfloat16, of that shape, mapped from the file.
        done: how many images have been looked at.

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
            self._note.unlink(missing_ok=True)  # first of all: views of others are never taken for these
            _allocate_file(path, size)
        mapped = torch.from_file(str(path), shared=True, size=math.prod(shape), dtype=torch.bfloat16)
        self.values = mapped.view(shape)

    def mark(self, done: int) -> None:
        """Note that the views of so many images are there."""
        self.done = done
        write_json(self._note, {**self._config, "done": done}, indent=None)


def _allocate_file(path: Path, size: int) -> None:
    """A new file in the old one's place: a process that has mapped the old one keeps what it sees."""
    try:
        path.unlink(missing_ok=True)  # before the new one is there: the disk need not hold both
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            if hasattr(os, "posix_fallocate"):  # a disk that is full is found now: later it would end the process
                os.posix_fallocate(stream.fileno(), 0, size)
            else:
                stream.truncate(size)
    except OSError as error:
        needed = f"{size / 2**30:.1f} GiB for the views of all images"
        raise ValueError(f"cannot write {path}: {error.strerror}; expected space for {needed}") from error


class CachedViews:
    """Views that a frozen stem has looked at once: a step of training then begins in the middle of the network.

    Args:
        values: activations of each image's views, shape (n, views, c, h, w): the image, its mirror image, further weak
            views, then strong ones.
        n_weak: how many of the views are weak, 2 or more.
        flip: whether the second view is the mirror image; otherwise it is a further weak view.
        origin: a text that is another one if the activations were made from something else; None: they speak for
            themselves, to the last bit.
    """

    def __init__(self, values: Tensor, n_weak: int, *, flip: bool = True, origin: str | None = None) -> None:
        if values.ndim != 5:
            raise ValueError(f"views of shape {tuple(values.shape)}; expected (n, views, c, h, w)")
        if not 2 <= n_weak <= values.shape[1]:
            raise ValueError(f"{n_weak} weak views of {values.shape[1]}; expected 2 to all of them")
        self.values = values
        self.n_weak = n_weak
        self.flip = flip
        self.origin = origin

    def __len__(self) -> int:
        return len(self.values)

    def move(self, device: torch.device) -> None:
        """To a GPU, if all views take no more than a quarter of what is free there; otherwise they stay at home."""
        current = self.values.device
        if current.type == device.type and device.index in (None, current.index):
            return
        self.values = self.values.to(device if fits_on_device(device, self.values.nbytes) else "cpu")

    def unaugmented(self, rows: Tensor, flipped: bool = False) -> Tensor:
        """Activations of the images themselves, shape (b, c, h, w)."""
        check_flip(flipped, self.flip)
        return self._pick(rows, torch.full_like(rows, int(flipped)))

    def weak(self, rows: Tensor) -> Tensor:
        """Activations of one of the weak views of each image."""
        return self._pick(rows, torch.randint(self.n_weak, rows.shape, device=rows.device))

    def strong(self, rows: Tensor) -> Tensor:
        """Activations of one of the strong views of each image."""
        count = self.values.shape[1]
        if count == self.n_weak:
            raise ValueError(f"none of the {count} views of each image is strong; expected n_strong of 1 or more")
        return self._pick(rows, torch.randint(self.n_weak, count, rows.shape, device=rows.device))

    def digest(self) -> str:
        """Of what the activations were made from: on a GPU, their last digits differ from run to run."""
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
    """Let a stem look at every image: at itself, its mirror image, and as many random views as the options say.

    Without mirror images another weak view takes the place of the second.

    Args:
        stem: normalised images to activations (b, c, h, w); left on the device.
        live: the images.
        device: where to compute, in bfloat16 on a GPU. The views are kept there if there is room.
        seed: of the random views.
        file: where views are kept for which there is no GPU or no room on it. What lies there is not looked at again.
            None keeps them in memory.
        progress: show a bar; None: only on a terminal.

    Returns:
        n * (n_weak + n_strong) activations in 16 bits (bfloat16). Costs one pass of the stem for each.

    Raises:
        ValueError: there are no images, or no room for the file.
    """
    if not len(live):
        raise ValueError("there are no images to look at; expected at least one")
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
    # Random numbers are drawn in batches of `size`, so that the views depend on it.
    cache = _allocate_views(shape, device, file, f"{origin} {device.type} {size}")
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        progress_bar("Looking at images", n * count, progress) as advance,
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
    """The images of one of the cached views."""
    if view == 0 or (view == 1 and live.flip):
        return live.unaugmented(rows, flipped=view == 1)
    return live.weak(rows) if view < live.options.n_weak else live.strong(rows)


class _MemoryBuffer:
    """Room in memory, or on a GPU, with the face of a `ViewCacheFile`."""

    def __init__(self, values: Tensor) -> None:
        self.values, self.done = values, 0

    def mark(self, done: int) -> None:
        """Nothing is left behind."""
        self.done = done


def _allocate_views(
    shape: tuple[int, ...], device: torch.device, file: Path | None, origin: str
) -> ViewCacheFile | _MemoryBuffer:
    """Room for the views of all images: on the GPU if there is enough, else in the file, else in memory."""
    fits = fits_on_device(device, torch.bfloat16.itemsize * math.prod(shape))
    if file is not None and not fits:
        return ViewCacheFile(file, origin, shape)
    return _MemoryBuffer(torch.empty(shape, dtype=torch.bfloat16, device=device if fits else "cpu"))
