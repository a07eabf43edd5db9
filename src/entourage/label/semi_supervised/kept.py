"""Views that a frozen stem looks at once and for all, on a GPU, in memory or in a file."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from entourage.backbones.backbone import digest_weights
from entourage.io.progress import progress_bar
from entourage.label.semi_supervised.looks import BATCH, LiveLooks, check_mirrored, digest_of
from entourage.label.semi_supervised.view_file import ViewFile
from entourage.training.accelerator import reseed
from entourage.training.bank import DIGESTED, has_room


class KeptLooks:
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
        self.values = self.values.to(device if has_room(device, self.values.nbytes) else "cpu")

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
            raise ValueError(f"none of the {count} views of each image is strong; expected strong_kept of 1 or more")
        return self._pick(rows, torch.randint(self.weak_count, count, rows.shape, device=rows.device))

    def digest(self) -> str:
        """Of what the activations were made from: on a GPU, their last digits differ from run to run."""
        blocks: Iterable[NDArray[np.generic]] = ()
        if self.origin is None:
            starts = range(0, len(self), DIGESTED)
            blocks = (self.values[start : start + DIGESTED].float().cpu().numpy() for start in starts)
        return digest_of(blocks, self.origin, tuple(self.values.shape), self.weak_count, self.mirror)

    def _pick(self, rows: Tensor, views: Tensor) -> Tensor:
        home = self.values.device
        chosen = self.values[rows.to(home), views.to(home)].to(rows.device)  # (b, c, h, w)
        return chosen.float().contiguous(memory_format=torch.channels_last)


@torch.no_grad()
def keep_looks(
    stem: nn.Module,
    live: LiveLooks,
    device: torch.device,
    *,
    seed: int = 0,
    file: Path | None = None,
    progress: bool | None = None,
) -> KeptLooks:
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
        n * (weak_kept + strong_kept) activations in 16 bits (bfloat16). Costs one pass of the stem for each.

    Raises:
        ValueError: there are no images, or no room for the file.
    """
    if not len(live):
        raise ValueError("there are no images to look at; expected at least one")
    origin = f"{digest_weights(stem.state_dict())} {seed} {live.digest()}"
    stem.to(device).eval()
    live.move(device)
    options, n = live.options, len(live)
    count = options.weak_kept + options.strong_kept
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
    return KeptLooks(kept.values, options.weak_kept, mirror=options.mirror, origin=origin)


def _nth(live: LiveLooks, rows: Tensor, view: int) -> Tensor:
    """The images of one of the views that are kept."""
    if view == 0 or (view == 1 and live.mirror):
        return live.plain(rows, mirrored=view == 1)
    return live.weak(rows) if view < live.options.weak_kept else live.strong(rows)


class _Memory:
    """Room in memory, or on a GPU, with the face of a `ViewFile`."""

    def __init__(self, values: Tensor) -> None:
        self.values, self.done = values, 0

    def mark(self, done: int) -> None:
        """Nothing is left behind."""
        self.done = done


def _room_for(shape: tuple[int, ...], device: torch.device, file: Path | None, origin: str) -> ViewFile | _Memory:
    """Room for the views of all images: on the GPU if there is enough, else in the file, else in memory."""
    fits = has_room(device, torch.bfloat16.itemsize * math.prod(shape))
    if file is not None and not fits:
        return ViewFile(file, origin, shape)
    return _Memory(torch.empty(shape, dtype=torch.bfloat16, device=device if fits else "cpu"))
