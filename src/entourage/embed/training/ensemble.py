"""Ensembles (thesis, chapter 4): networks trained from different seeds, whose embeddings stand side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from entourage.backbones.backbone import Backbone
from entourage.data.image_set import ImageSet
from entourage.data.pixels import decode_pixels
from entourage.embed.represent import Rows, embed_rows, join_embeddings
from entourage.embed.training.fit import TrainedEmbedding, train_embedding
from entourage.embed.training.recipes import Recipe
from entourage.embed.training.task import EmbeddingData
from entourage.io.progress import progress_bar
from entourage.training.bank import PixelBank

CHUNK = 2048  # images decoded at a time


def train_ensemble(
    load: Callable[[], Backbone],
    data: EmbeddingData,
    recipe: Recipe,
    members: int,
    *,
    run: str | Path | None = None,
    device: str | torch.device = "auto",
    progress: bool | None = None,
) -> list[TrainedEmbedding]:
    """Train several networks by one recipe, each with the next seed.

    Args:
        load: gives a fresh backbone for each.
        data: as for `train_embedding`.
        recipe: of all; the first network has its seed.
        members: how many networks.
        run: a folder with one for each of them.
        device: where.
        progress: show a line; None: only on a terminal.

    Raises:
        ValueError: there are no members.
    """
    if members < 1:
        raise ValueError(f"members is {members}; expected 1 or more")
    return [
        train_embedding(
            load(),
            data,
            replace(recipe, seed=recipe.seed + member),
            run=None if run is None else Path(run) / f"member-{member + 1}",
            device=device,
            progress=progress,
        )
        for member in range(members)
    ]


@dataclass(frozen=True, eq=False)
class EmbeddedImages:
    """Embeddings of the images of a set that could be read.

    Attributes:
        embeddings: rows of length 1, shape (k, d), on the networks' device.
        kept: the place in the set of each, shape (k,), ascending.
        skipped: name and reason of each image that could not be read.
    """

    embeddings: Tensor
    kept: Rows
    skipped: list[tuple[str, str]]


def embed_images(
    members: Sequence[TrainedEmbedding],
    images: ImageSet,
    side: int,
    *,
    flip: bool = False,
    progress: bool | None = None,
) -> EmbeddedImages:
    """Embed images of any number: some are decoded, embedded and forgotten before the next ones are.

    Args:
        members: trained networks; one is an ensemble, too.
        images: n of them.
        side: that images are decoded to, `Recipe.decoded_side`.
        flip: add the embedding of the mirror image.
        progress: show a bar; None: only on a terminal.

    Raises:
        ValueError: none of the images can be read.
    """
    parts, kept, skipped = [], [], []
    with progress_bar("Embedding images", len(images), progress) as advance:
        for start in range(0, len(images), CHUNK):
            places = np.arange(start, min(start + CHUNK, len(images)))
            pixels = decode_pixels(images.subset(places), (side, side), progress=False)
            parts.append(embed_ensemble(members, PixelBank(pixels.values), np.arange(len(pixels.kept)), flip=flip))
            kept.append(places[pixels.kept])
            skipped += pixels.failures
            advance(len(places))
    if not sum(map(len, kept)):
        raise ValueError(f"{images.name}: none of its {len(images)} images can be read: {skipped[0][1]}")
    return EmbeddedImages(torch.cat(parts), np.concatenate(kept), skipped)


def embed_ensemble(
    members: Sequence[TrainedEmbedding],
    bank: PixelBank,
    rows: Rows,
    *,
    flip: bool = False,
    progress: bool | None = False,
) -> Tensor:
    """Embeddings of some images by all networks together, shape (k, d_1 + d_2 + ...), rows of length 1.

    Args:
        members: trained networks; one is an ensemble, too.
        bank: decoded images.
        rows: which of them, shape (k,).
        flip: add the embedding of the mirror image.
        progress: show a bar for each network; None: only on a terminal.
    """
    return join_embeddings(
        [
            embed_rows(member.network, bank, rows, member.preprocessing, flip=flip, progress=progress)
            for member in members
        ]
    )
