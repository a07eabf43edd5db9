"""Near-duplicates in an index: copies that were resized, recompressed, cropped a little or mirrored.

Candidates are pairs with similar embeddings. Embeddings ignore details on purpose, so that two pictures of one bird may
be as similar as two copies of one picture. Pairs of images are therefore aligned and compared pixel by pixel, at a
small size; pairs of vectors are compared by their cosine only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from entourage.compute import count_threads, map_ahead
from entourage.data.media import UnreadableImageError
from entourage.embed.index.queries import Query
from entourage.embed.index.search import draw_items
from entourage.embed.index.source import ImageCollection
from entourage.embed.index.vector_index import Index
from entourage.io.files import check_output_file
from entourage.io.progress import progress_bar
from entourage.report.page import Block, Section, pluralize, write_page

CANDIDATE_COSINE = 0.6  # of pairs that are compared by pixels; mirrored copies of small pictures reach 0.66 or more
VECTOR_COSINE = 0.999  # of duplicates among vectors, which have no pixels to compare
MIN_CORRELATION = 0.92  # of aligned thumbnails; nearly all copies exceed 0.96, different pictures rarely 0.8
COARSE_SIDE, COARSE_CORRELATION = 8, 0.5  # pairs that are less similar at this size are not aligned
N_NEIGHBORS = 16  # candidates per item; larger groups are connected through each other
SIDE = 32  # side of the thumbnails
MARGIN = 2  # pixels at the border that are not compared, because a crop has no counterpart of them
N_ITER = 10  # steps of the alignment
MAX_SCALE = 0.15  # largest change of size and position that is accepted: crops by 5 % of each side need half of it
MIN_CONTRAST = 2.0  # standard deviation of the grey values; correlations of plainer images are noise
PAIR_BLOCK, QUERY_BLOCK = 2048, 1024  # pairs and queries that are compared at a time
MAX_SHOWN = 100  # groups on the page


@dataclass(frozen=True)
class Duplicates:
    """Near-duplicates of an index.

    Attributes:
        groups: names of the items of each group, in the order of the index; the largest group first.
        similarities: smallest similarity of the pairs that connect each group: a correlation of pixels, or a cosine.
        skipped: name and reason of each image that could not be read again.
    """

    groups: list[list[str]]
    similarities: list[float]
    skipped: list[tuple[str, str]]


def find_duplicates(
    index: str | Path | Index,
    *,
    threshold: float | None = None,
    out: Path | None = None,
    workers: int | None = None,
    progress: bool | None = False,
) -> Duplicates:
    """Find groups of near-duplicates.

    Args:
        index: the index, or its folder. The images of the candidates are read from its source.
        threshold: smallest correlation of the pixels of two copies, 0.92 if None; for vectors, smallest cosine, 0.999.
        out: HTML file that shows the groups, or None.
        workers: threads that read images; None for one per core, at most 16.
        progress: whether to show progress bars; None: only on a terminal.

    Returns:
        The groups. Items are of one group if a chain of pairs connects them. Costs a search for every item, and reads
        every image that has a candidate.

    Raises:
        ValueError: the index is not valid, its source does not exist any more, or the threshold is out of range.
    """
    opened = index if isinstance(index, Index) else Index.load(index)
    if out is not None:
        check_output_file(out, ".html")
    if threshold is not None and not 0 < threshold <= 1:
        raise ValueError(f"threshold is {threshold}; expected a number above 0 and at most 1")
    collection = opened.collection
    skipped: list[tuple[str, str]] = []
    if collection is None:
        pairs, scores = _candidates(opened, threshold or VECTOR_COSINE, progress)
    else:
        pairs, _ = _candidates(opened, CANDIDATE_COSINE, progress)
        thumbnails, skipped = _thumbnails(opened, collection, np.unique(pairs), workers, progress)
        scores = correlations(thumbnails, pairs, progress=progress)
        accepted = scores >= (threshold or MIN_CORRELATION)
        pairs, scores = pairs[accepted], scores[accepted]
    groups, similarities = _group(pairs, scores, len(opened))
    result = Duplicates([[opened.items[row] for row in group] for group in groups], similarities, skipped)
    if out is not None:
        _write_groups(out, opened, result)
    return result


def _candidates(index: Index, cosine: float, progress: bool | None) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Return pairs of rows, shape (p, 2), the first below the second, and their cosines."""
    n = len(index)
    k = min(N_NEIGHBORS + 1, n)
    pairs, cosines = [np.empty((0, 2), dtype=np.int64)], [np.empty(0, dtype=np.float32)]
    with progress_bar("Searching candidates", n, progress) as advance:
        for start in range(0, n, QUERY_BLOCK):
            rows, similar = index.nearest(index.vectors[start : start + QUERY_BLOCK], k)  # (b, k)
            own = np.arange(start, start + len(rows))[:, None]
            chosen = (rows >= 0) & (rows != own) & (similar >= cosine)
            found = np.stack([np.broadcast_to(own, rows.shape)[chosen], rows[chosen]], axis=1)
            pairs.append(np.sort(found, axis=1))
            cosines.append(similar[chosen])
            advance(len(rows))
    unique, first = np.unique(np.concatenate(pairs), axis=0, return_index=True)
    return unique, np.concatenate(cosines)[first]


def _thumbnails(
    index: Index, collection: ImageCollection, rows: NDArray[np.int64], workers: int | None, progress: bool | None
) -> tuple[dict[int, Tensor], list[tuple[str, str]]]:
    """Return the thumbnails of rows of the index, and the images that cannot be read."""
    position = {item: number for number, item in enumerate(collection.items)}
    thumbnails: dict[int, Tensor] = {}
    skipped = []
    items = [index.items[row] for row in rows]
    with progress_bar("Reading images", len(rows), progress) as advance:
        read = partial(_thumbnail, collection, position)
        for row, result in zip(rows.tolist(), map_ahead(read, items, count_threads(workers)), strict=True):
            if isinstance(result, Tensor):
                thumbnails[row] = result
            else:
                skipped.append((index.items[row], result))
            advance(1)
    return thumbnails, skipped


def _thumbnail(collection: ImageCollection, position: dict[str, int], item: str) -> Tensor | str:
    if item not in position:
        return "no such file"
    try:
        image = collection.source.read(position[item], shorter_side=2 * SIDE)
    except UnreadableImageError as error:
        return error.reason
    return thumbnail(image)


def thumbnail(image: Image.Image) -> Tensor:
    """Return the grey values of an image, of any aspect ratio, resized to 32 x 32, uint8."""
    small = image.resize((SIDE, SIDE), Image.Resampling.BICUBIC, reducing_gap=3.0).convert("L")
    return torch.from_numpy(np.array(small))


def correlations(
    thumbnails: dict[int, Tensor], pairs: NDArray[np.int64], *, progress: bool | None = False
) -> NDArray[np.float32]:
    """Compute the correlation of the grey values of pairs of images after alignment.

    The second image of a pair, or its mirror image, is scaled and moved until it differs least from the first: by the
    Gauss-Newton method for scale and position along both axes, with gain and offset of the brightness.

    Args:
        thumbnails: grey values by row, uint8, shape (32, 32).
        pairs: rows, shape (p, 2).
        progress: whether to show a progress bar; None: only on a terminal.

    Returns:
        Correlations, shape (p,); 0 for images that were not read, are nearly plain, or need a larger change.
    """
    result = np.zeros(len(pairs), dtype=np.float32)
    readable = np.array([one in thumbnails and other in thumbnails for one, other in pairs.tolist()], dtype=bool)
    chosen = np.flatnonzero(readable)
    with progress_bar("Comparing pairs", len(chosen), progress) as advance:
        for start in range(0, len(chosen), PAIR_BLOCK):
            rows = chosen[start : start + PAIR_BLOCK]
            first = torch.stack([thumbnails[one] for one in pairs[rows, 0].tolist()]).float()
            second = torch.stack([thumbnails[one] for one in pairs[rows, 1].tolist()]).float()
            result[rows] = torch.maximum(_score(first, second), _score(first, second.flip(2))).numpy()
            advance(len(rows))
    return result


def _score(first: Tensor, second: Tensor) -> Tensor:
    """Return the correlation of pairs after alignment, shape (p,); 0 for those that differ at a coarse size."""
    coarse, other = (F.adaptive_avg_pool2d(one, COARSE_SIDE).flatten(1) for one in (first, second))
    score = _correlation(coarse, other, torch.ones_like(coarse))
    close = score >= COARSE_CORRELATION
    score = torch.zeros_like(score)
    score[close] = aligned_correlation(first[close], second[close])
    return score


def aligned_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Align the second image of each pair with the first, shape (p, s, s) each; return correlations, shape (p,)."""
    p, side = len(first), first.shape[1]
    axis = (torch.arange(side) + 0.5) * 2 / side - 1  # centres of pixels from -1 to 1
    y, x = torch.meshgrid(axis, axis, indexing="ij")
    inner = torch.zeros(side, side)
    inner[MARGIN:-MARGIN, MARGIN:-MARGIN] = 1
    change = torch.zeros(p, 4)  # of x = (1 + c0) x + c1, y = (1 + c2) y + c3
    images = torch.stack([second, *_gradients(second)], dim=1)  # (p, 3, s, s)
    target = first.flatten(1)
    for _ in range(N_ITER):
        warped, mask = _warp(images, change, x, y)
        weight = (mask * inner).flatten(1)  # (p, s^2)
        value, dx, dy = warped.flatten(2).unbind(1)
        columns = [dx * x.flatten(), dx, dy * y.flatten(), dy, value, torch.ones_like(value)]
        jacobian = torch.stack(columns, dim=2) * weight[:, :, None]  # (p, s^2, 6)
        normal = jacobian.transpose(1, 2) @ jacobian  # (p, 6, 6)
        damping = 1e-3 * normal.diagonal(dim1=1, dim2=2) + 1e-3
        # The gain multiplies the derivatives as well; near the solution it is close to one.
        solution = torch.linalg.solve(
            normal + torch.diag_embed(damping), (jacobian.transpose(1, 2) @ (target * weight)[:, :, None])
        )[:, :, 0]
        change = (change + solution[:, :4].clamp(-0.1, 0.1)).clamp(-MAX_SCALE, MAX_SCALE)
    warped, mask = _warp(images, change, x, y)
    score = _correlation(target, warped[:, 0].flatten(1), (mask * inner).flatten(1))
    return torch.where((change.abs() >= MAX_SCALE).any(dim=1), torch.zeros_like(score), score)


def _gradients(images: Tensor) -> tuple[Tensor, Tensor]:
    """Return the derivatives along x and y of images, shape (p, s, s), whose sides are from -1 to 1."""
    padded = F.pad(images[:, None], (1, 1, 1, 1), mode="replicate")[:, 0]
    scale = images.shape[1] / 4
    return (padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]) * scale, (padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]) * scale


def _warp(images: Tensor, change: Tensor, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Sample images, shape (p, c, s, s), at moved positions; also return which positions lie inside, (p, s, s)."""
    across = x + change[:, 0, None, None] * x + change[:, 1, None, None]
    down = y + change[:, 2, None, None] * y + change[:, 3, None, None]
    grid = torch.stack([across, down], dim=3)  # (p, s, s, 2)
    inside = ((across.abs() <= 1) & (down.abs() <= 1)).float()
    return F.grid_sample(images, grid, padding_mode="border", align_corners=False), inside


def _correlation(first: Tensor, second: Tensor, weight: Tensor) -> Tensor:
    """Compute weighted correlations of rows, shape (p,); 0 for nearly constant rows."""
    total = weight.sum(dim=1, keepdim=True).clamp_min(1)
    first = (first - (first * weight).sum(dim=1, keepdim=True) / total) * weight
    second = (second - (second * weight).sum(dim=1, keepdim=True) / total) * weight
    deviations = [(one.square().sum(dim=1) / total[:, 0]).sqrt() for one in (first, second)]
    score = (first * second).sum(dim=1) / total[:, 0] / (deviations[0] * deviations[1]).clamp_min(1e-6)
    return torch.where(torch.minimum(*deviations) < MIN_CONTRAST, torch.zeros_like(score), score)


def _group(pairs: NDArray[np.int64], scores: NDArray[np.float32], n: int) -> tuple[list[list[int]], list[float]]:
    """Return the connected components with two items or more, largest first, and their smallest score."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    if not len(pairs):
        return [], []
    graph = coo_array((np.ones(len(pairs), dtype=np.int8), (pairs[:, 0], pairs[:, 1])), shape=(n, n))
    component = connected_components(graph, directed=False)[1]  # (n,)
    rows = np.unique(pairs)
    rows = rows[np.argsort(component[rows], kind="stable")]
    borders = np.flatnonzero(np.diff(component[rows], prepend=-1, append=-1))
    groups = [rows[start:end].tolist() for start, end in pairwise(borders)]
    lowest = np.full(component.max() + 1, np.inf)
    np.minimum.at(lowest, component[pairs[:, 0]], scores)
    ordered = sorted(groups, key=lambda group: (-len(group), group))
    return ordered, [float(lowest[component[group[0]]]) for group in ordered]


def _write_groups(path: Path, index: Index, result: Duplicates) -> None:
    shown = result.groups[:MAX_SHOWN]
    count = sum(map(len, result.groups))
    subtitle = f"{pluralize(len(result.groups), 'groups')} of {count} items among {len(index)}"
    more = f" The first {MAX_SHOWN} groups are shown." if len(result.groups) > MAX_SHOWN else ""
    figure = draw_items(index, [Query(group[0], item=group[0]) for group in shown], [group[1:] for group in shown])
    rows: Sequence[Sequence[str]] = [("similarity", "items")]
    rows = [*rows, *((f"{one:.3f}", ", ".join(group)) for group, one in zip(shown, result.similarities, strict=False))]
    section = Section("Groups", f"One group per row, the largest first.{more}", wide=[Block(figure=figure, table=rows)])
    write_page(path, f"Near-duplicates in {index.version.source}", subtitle, [section])
