"""From decoded images to embeddings, with a network that may still be in training; ensembles by concatenation."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from entourage.backbones.preprocessing import Preprocessing
from entourage.embed.network import EmbeddingNetwork
from entourage.game.similarity import directions
from entourage.io.progress import progress_bar
from entourage.training.bank import PixelBank

Rows = NDArray[np.int64]

BATCH = {"cpu": 64, "cuda": 1024}


@torch.inference_mode()
def embed_rows(
    network: EmbeddingNetwork,
    bank: PixelBank,
    rows: Rows,
    preprocessing: Preprocessing,
    *,
    flip: bool = False,
    progress: bool | None = False,
) -> Tensor:
    """Embeddings of some images of a bank, computed where the network is, in bfloat16 on a GPU.

    Args:
        network: in evaluation mode.
        bank: decoded images.
        rows: which of them, shape (k,).
        preprocessing: size and normalisation of the network's input; of larger images the middle is taken.
        flip: add the embedding of the mirror image.
        progress: show a bar; None: only on a terminal.

    Returns:
        float32, shape (k, d), on the network's device.
    """
    device = network.head.weight.device
    size = BATCH.get(device.type, BATCH["cpu"])
    found = []
    with progress_bar("Embedding images", len(rows), progress) as advance:
        for start in range(0, len(rows), size):
            some = rows[start : start + size]
            images = preprocessing.normalise(middle(bank.take(some).to(device), preprocessing.size))
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                embeddings = network.embed(images).float()
                if flip:
                    embeddings = embeddings + network.embed(images.flip(3)).float()
            found.append(embeddings)
            advance(len(some))
    return torch.cat(found) if found else torch.empty(0, network.dimensions, device=device)


def middle(pixels: Tensor, size: tuple[int, int]) -> Tensor:
    """The middle of images, shape (b, 3, h, w) -> (b, 3, *size).

    Raises:
        ValueError: the images are smaller than that.
    """
    (height, width), (high, wide) = pixels.shape[2:], size
    if high > height or wide > width:
        raise ValueError(
            f"images of {height} x {width} pixels for a network that looks at {high} x {wide}; decode larger"
        )
    top, left = (height - high) // 2, (width - wide) // 2
    return pixels[:, :, top : top + high, left : left + wide]


def join_embeddings(parts: Sequence[Tensor]) -> Tensor:
    """The embeddings of an ensemble (thesis, chapter 4): each network's direction, one after the other, scaled to 1.

    Args:
        parts: embeddings of the same items by each network, shapes (n, d_1), (n, d_2), ...

    Returns:
        Shape (n, d_1 + d_2 + ...), rows of length 1: cosines are the means of the networks' cosines.

    Raises:
        ValueError: no networks, or embeddings of different numbers of items.
    """
    if len({len(part) for part in parts}) != 1:
        counts = ", ".join(str(len(part)) for part in parts) or "none"
        raise ValueError(f"embeddings of {counts} items; expected one or more networks' of the same items")
    return torch.cat([directions(part) for part in parts], dim=1) / math.sqrt(len(parts))
