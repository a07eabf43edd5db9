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
    mirror: bool = True  # whether a mirror image shows the same thing; digits and text say no

    def __post_init__(self) -> None:
        validate_counts(self, 2, "n_weak")
        validate_counts(self, 0, "n_strong")

    def view(self, kind: AugmentationOptions) -> AugmentationOptions:
        """`weak` or `strong`, without mirror images if there are to be none."""
        return kind if self.mirror else replace(kind, flip=0.0)


class Views(Protocol):
    """What a network sees of n images. Positions are tensors of shape (b,), on the device of the training.

    Attributes:
        mirror: whether there are mirror images.
    """

    mirror: bool

    def __len__(self) -> int: ...

    def move(self, device: torch.device) -> None:
        """Go to the device, as far as there is room."""
        ...

    def plain(self, rows: Tensor, mirrored: bool = False) -> Tensor:
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
        self.mirror = self.options.mirror
        self.device = torch.device("cpu")

    def __len__(self) -> int:
        return len(self.bank)

    def move(self, device: torch.device) -> None:
        """Pixels that fit go to the GPU."""
        self.bank.move(device)
        self.device = device

    def plain(self, rows: Tensor, mirrored: bool = False) -> Tensor:
        """Normalised images, shape (b, 3, height, width)."""
        check_mirrored(mirrored, self.mirror)
        images = resized(self._pixels(rows), self.preprocessing.size)
        return self.preprocessing.normalize(images.flip(3) if mirrored else images)

    def weak(self, rows: Tensor) -> Tensor:
        """Normalised weak views."""
        return self._view(rows, self.options.view(self.options.weak))

    def strong(self, rows: Tensor) -> Tensor:
        """Normalised strong views."""
        return self._view(rows, self.options.view(self.options.strong))

    def digest(self) -> str:
        """Of all pixels, of the network's input and of the views; computed once, about a second per gigabyte."""
        return digest_of((), self.bank.digest, self.bank.values.shape, self.preprocessing, self.options)

    def _view(self, rows: Tensor, options: AugmentationOptions) -> Tensor:
        return self.preprocessing.normalize(augment(self._pixels(rows), self.preprocessing.size, options))

    def _pixels(self, rows: Tensor) -> Tensor:
        return self.bank.take(rows).to(self.device)


def check_mirrored(wanted: bool, there: bool) -> None:
    """Refuse to show mirror images where there are none."""
    if wanted and not there:
        raise ValueError("mirror images are asked for where there are none; expected ViewOptions(mirror=True)")


def digest_of(blocks: Iterable[NDArray[np.generic]], *notes: object) -> str:
    """Of arrays, which may lie in a file larger than memory and come one after another, and of notes on them."""
    digest = hashlib.blake2b(repr(notes).encode(), digest_size=8)
    for block in blocks:
        digest.update(np.ascontiguousarray(block).data)
    return digest.hexdigest()


def resized(pixels: Tensor, size: tuple[int, int]) -> Tensor:
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
        self._told = {"origin": origin, "shape": list(shape)}
        size = torch.bfloat16.itemsize * math.prod(shape)
        known = read_json_object(self._note)
        self.done = int(known.pop("done", 0))
        if known != self._told or not path.is_file() or path.stat().st_size != size:
            self.done = 0
            self._note.unlink(missing_ok=True)  # first of all: views of others are never taken for these
            _make_room(path, size)
        mapped = torch.from_file(str(path), shared=True, size=math.prod(shape), dtype=torch.bfloat16)
        self.values = mapped.view(shape)

    def mark(self, done: int) -> None:
        """Note that the views of so many images are there."""
        self.done = done
        write_json(self._note, {**self._told, "done": done}, indent=None)


def _make_room(path: Path, size: int) -> None:
    """A new file in the old one's place: a process that has mapped the old one keeps what it sees."""
    try:
        path.unlink(missing_ok=True)  # before the new one is there: the disk need not hold both
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            if hasattr(os, "posix_fallocate"):  # a disk that is full is found now: later it would end the process
                os.posix_fallocate(stream.fileno(), 0, size)
            else:
                stream.truncate(size)
    except OSError as error:
        room = f"{size / 2**30:.1f} GiB for the views of all images"
        raise ValueError(f"cannot write {path}: {error.strerror}; expected room for {room}") from error


class CachedViews:
    """Views that a frozen stem has looked at once: a step of training then begins in the middle of the network.

    Args:
        values: activations of each image's views, shape (n, views, c, h, w): the image, its mirror image, further weak
            views, then strong ones.
        weak: how many of the views are weak, 2 or more.
        mirror: whether the second view is the mirror image; otherwise it is a further weak view.
        origin: a text that is another one if the activations were made from something else; None: they speak for
            themselves, to the last bit.
    """

    def __init__(self, values: Tensor, weak: int, *, mirror: bool = True, origin: str | None = None) -> None:
        if values.ndim != 5:
            raise ValueError(f"views of shape {tuple(values.shape)}; expected (n, views, c, h, w)")
        if not 2 <= weak <= values.shape[1]:
            raise ValueError(f"{weak} weak views of {values.shape[1]}; expected 2 to all of them")
        self.values = values
        self.weak_count = weak
        self.mirror = mirror
        self.origin = origin

    def __len__(self) -> int:
        return len(self.values)

    def move(self, device: torch.device) -> None:
        """To a GPU, if all views take no more than a quarter of what is free there; otherwise they stay at home."""
        here = self.values.device
        if here.type == device.type and device.index in (None, here.index):
            return
        self.values = self.values.to(device if fits_on_device(device, self.values.nbytes) else "cpu")

    def plain(self, rows: Tensor, mirrored: bool = False) -> Tensor:
        """Activations of the images themselves, shape (b, c, h, w)."""
        check_mirrored(mirrored, self.mirror)
        return self._pick(rows, torch.full_like(rows, int(mirrored)))

    def weak(self, rows: Tensor) -> Tensor:
        """Activations of one of the weak views of each image."""
        return self._pick(rows, torch.randint(self.weak_count, rows.shape, device=rows.device))

    def strong(self, rows: Tensor) -> Tensor:
        """Activations of one of the strong views of each image."""
        count = self.values.shape[1]
        if count == self.weak_count:
            raise ValueError(f"none of the {count} views of each image is strong; expected n_strong of 1 or more")
        return self._pick(rows, torch.randint(self.weak_count, count, rows.shape, device=rows.device))

    def digest(self) -> str:
        """Of what the activations were made from: on a GPU, their last digits differ from run to run."""
        blocks: Iterable[NDArray[np.generic]] = ()
        if self.origin is None:
            starts = range(0, len(self), DIGEST_ROWS)
            blocks = (self.values[start : start + DIGEST_ROWS].float().cpu().numpy() for start in starts)
        return digest_of(blocks, self.origin, tuple(self.values.shape), self.weak_count, self.mirror)

    def _pick(self, rows: Tensor, views: Tensor) -> Tensor:
        home = self.values.device
        chosen = self.values[rows.to(home), views.to(home)].to(rows.device)  # (b, c, h, w)
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

    def look(rows: Tensor, view: int) -> Tensor:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            activations: Tensor = stem(_nth(live, rows, view))
        return activations

    shape = (n, count, *look(torch.zeros(1, dtype=torch.int64, device=device), 0).shape[1:])
    kept = _room_for(shape, device, file, f"{origin} {device.type} {size}")  # chance comes in batches of that size
    with (
        torch.random.fork_rng(devices=[device] if device.type == "cuda" else []),
        progress_bar("Looking at images", n * count, progress) as advance,
    ):
        advance(kept.done * count)
        for start in range(kept.done, n, size):
            rows = torch.arange(start, min(start + size, n), device=device)
            reseed(device, [seed, start])
            for view in range(count):
                kept.values[start : start + size, view] = look(rows, view).to(kept.values.dtype)
                advance(len(rows))
            kept.mark(start + len(rows))
    return CachedViews(kept.values, options.n_weak, mirror=options.mirror, origin=origin)


def _nth(live: LiveViews, rows: Tensor, view: int) -> Tensor:
    """The images of one of the views that are kept."""
    if view == 0 or (view == 1 and live.mirror):
        return live.plain(rows, mirrored=view == 1)
    return live.weak(rows) if view < live.options.n_weak else live.strong(rows)


class _Memory:
    """Room in memory, or on a GPU, with the face of a `ViewCacheFile`."""

    def __init__(self, values: Tensor) -> None:
        self.values, self.done = values, 0

    def mark(self, done: int) -> None:
        """Nothing is left behind."""
        self.done = done


def _room_for(shape: tuple[int, ...], device: torch.device, file: Path | None, origin: str) -> ViewCacheFile | _Memory:
    """Room for the views of all images: on the GPU if there is enough, else in the file, else in memory."""
    fits = fits_on_device(device, torch.bfloat16.itemsize * math.prod(shape))
    if file is not None and not fits:
        return ViewCacheFile(file, origin, shape)
    return _Memory(torch.empty(shape, dtype=torch.bfloat16, device=device if fits else "cpu"))
