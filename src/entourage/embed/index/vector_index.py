"""An index of embeddings that is searched."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn

from entourage.embed.index.approximate import CellSearch, top_cosines
from entourage.embed.index.build import build_index
from entourage.embed.index.embedder import Embedder
from entourage.embed.index.source import ImageCollection, read_collection
from entourage.embed.index.storage import CURRENT_FILE, Version, read_items, read_vectors_file, read_version
from entourage.game.similarity import normalize_rows
from entourage.io.files import read_json_object
from entourage.validation import check_count


class Hit(NamedTuple):
    """A neighbour of a query: name, class ("" if unknown) and cosine similarity."""

    item: str
    label: str
    cosine: float


class Index:
    """Embeddings with the names of their items, mapped into memory; see `Index.load` and `Index.build`.

    Attributes:
        folder: folder of the index.
        version: description of the version that is open.
        items: names of the items, length n.
        labels: classes of the items, length n; None if they are unknown.
        vectors: rows of length 1, shape (n, d).

    Examples:
        >>> import numpy as np, tempfile
        >>> from entourage.embed import Index
        >>> folder = tempfile.mkdtemp()
        >>> np.save(f"{folder}/vectors.npy", np.eye(3, dtype=np.float32))
        >>> index = Index.build(f"{folder}/vectors.npy", f"{folder}/index")
        >>> [hit.item for hit in index.search([[1.0, 0.5, 0.0]], top_k=2)[0]]
        ['0', '1']
    """

    def __init__(self, folder: Path, version: Version, embedder: Embedder | None = None) -> None:
        self.folder = folder
        self.version = version
        names = read_items(folder, version)
        self.items, self.labels = names.items, names.labels
        self.vectors = read_vectors_file(version.vectors_file(folder), (version.n, version.dim))
        self._embedder = embedder
        self._device: str | torch.device = "auto"

    @classmethod
    def load(cls, folder: str | Path, embedder: Embedder | None = None, *, device: str | torch.device = "auto") -> Self:
        """Open an index.

        Args:
            folder: folder of the index.
            embedder: network for queries that are images; None: the one that the index was built with, which is loaded
                when it is needed.
            device: device of that network.

        Returns:
            The index.

        Raises:
            ValueError: the folder contains no index, the index is damaged, or the network is another one.
        """
        path = Path(folder)
        version = read_version(path)
        if version is None:
            raise ValueError(f"{path}: contains no {CURRENT_FILE}; expected an index of `entourage embed index`")
        index = cls(path, version, embedder)
        index._device = device
        if embedder is not None:
            index._check(embedder)
        return index

    @classmethod
    def build(
        cls,
        source: str | Path,
        folder: str | Path,
        model: str | Path | nn.Module | Embedder = "efficientnet-lite1-gem",
        *,
        device: str | torch.device = "auto",
        progress: bool | None = False,
    ) -> Self:
        """Build or update an index, see `build_index`, and open it."""
        if isinstance(model, nn.Module):
            model = Embedder.load(model, device=device)
        build_index(source, folder, model, device=device, progress=progress)
        return cls.load(folder, model if isinstance(model, Embedder) else None, device=device)

    def __len__(self) -> int:
        return len(self.items)

    @cached_property
    def embedder(self) -> Embedder:
        """The network of the index.

        Raises:
            ValueError: the index is of vectors or of a module, or the network has changed since.
        """
        if self._embedder is not None:
            return self._embedder
        if not self.version.model:
            kind = "vectors" if self.version.model == "" else "a module that is not stored"
            raise ValueError(f"{self.folder}: an index of {kind}; expected queries that are items or vectors")
        embedder = Embedder.load(self.version.model, device=self._device)
        self._check(embedder)
        return embedder

    @cached_property
    def collection(self) -> ImageCollection | None:
        """The images of the index, as its source holds them now; None for vectors.

        Raises:
            ValueError: the source does not exist any more.
        """
        if self.version.model == "":
            return None
        collection = read_collection(self.version.source)
        return collection if isinstance(collection, ImageCollection) else None

    @cached_property
    def row_of(self) -> dict[str, int]:
        """The row of each item."""
        return {item: row for row, item in enumerate(self.items)}

    @cached_property
    def _cells(self) -> CellSearch | None:
        probes = self.version.probes
        return CellSearch.open(self.version.cells_file(self.folder), probes) if probes else None

    def search(
        self,
        queries: ArrayLike,
        top_k: int = 8,
        threshold: float | None = None,
        *,
        exclude: Sequence[int | None] | None = None,
    ) -> list[list[Hit]]:
        """Find the items that are most similar to each query.

        Args:
            queries: vectors of any length but zero, shape (q, d), such as rows of `vectors` or a result of `embedder`.
            top_k: number of items to find for each query, limited to n.
            threshold: smallest cosine of an item; None for any.
            exclude: for each query, the row of the index that is left out of its results; None leaves out no row.

        Returns:
            The items of each query, most similar first. Costs O(q n d) time; with an approximate index, the time of a
            few of its cells.

        Raises:
            ValueError: the queries have another number of dimensions or are not finite, or `top_k` is less than 1.
        """
        check_count("top_k", top_k, 1)
        points = self._points(queries)
        own = [None] * len(points) if exclude is None else list(exclude)
        k = min(top_k + any(row is not None for row in own), len(self))
        rows, cosines = self.nearest(points, k)
        return [
            [
                Hit(self.items[row], "" if self.labels is None else self.labels[row], float(cosine))
                for row, cosine in zip(found.tolist(), similar.tolist(), strict=True)
                if row >= 0 and row != itself and (threshold is None or cosine >= threshold)
            ][:top_k]
            for found, similar, itself in zip(rows, cosines, own, strict=True)
        ]

    def nearest(self, points: NDArray[np.float32], k: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return rows and cosines of the k most similar vectors, shape (q, k); -1 for rows that were not found."""
        if self._cells is None:
            return top_cosines(points, self.vectors, k)
        return self._cells.search(points, self.vectors, k)

    def _points(self, queries: ArrayLike) -> NDArray[np.float32]:
        points = np.asarray(queries, dtype=np.float32)
        if points.ndim != 2 or points.shape[1] != self.version.dim:
            raise ValueError(f"queries have shape {points.shape}; expected (queries, {self.version.dim})")
        if not np.isfinite(points).all():
            raise ValueError("queries have values that are not finite; expected finite numbers")
        return np.asarray(normalize_rows(torch.from_numpy(points)).numpy())

    def _check(self, embedder: Embedder) -> None:
        stored = read_json_object(self.folder / "index.json").get("model")
        if stored != embedder.fingerprint:
            raise ValueError(
                f"{self.folder}: built with another network than {embedder.model or 'this module'}; build it again"
            )
