"""An index that is open in the browser: queries, and the items that the user accepted or refused."""

from __future__ import annotations

import base64
import binascii
import io
import threading
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.data.image_set import ImageSource
from entourage.data.media import decode_image
from entourage.embed.index.embedder import Embedder
from entourage.embed.index.source import ImageCollection, read_collection
from entourage.embed.index.vector_index import Index
from entourage.serve.changes import OpenStore, open_store

FOUND_FILE = "found.csv"
MAX_FOUND = 500
_MAX_UPLOADS = 200
_MAX_CANDIDATES = 5000  # of which those that were accepted or refused are left out
_REFUSED_WEIGHT = 0.25  # of the mean of the refused items, as in Rocchio's method


def refused_name(name: str) -> str:
    """Return the class of the items that were refused in a search with a name."""
    return f"not {name}"


class SearchSession:
    """An index with the labels of searches. Methods may be called from several threads.

    Args:
        folder: folder of the index.
        source: the images, if they may be shown; None: the items have no pictures.
        embedder: network for pictures that are queries; None: that of the index, if it has a name.
        device: device of that network.

    Attributes:
        index: the index.
        has_network: whether pictures can be queries.
        pictures: the images of the items, in the order of the index; None if they have none or it may not be shown.
        labels: accepted items have the name of the search as their label, refused ones "not NAME".

    Raises:
        ValueError: the folder contains no index, two items have one name, or the source lacks an item.
    """

    def __init__(
        self,
        folder: Path,
        source: str | Path | None = None,
        embedder: Embedder | None = None,
        device: str = "auto",
    ) -> None:
        self.folder = folder
        self.index = Index.load(folder, embedder, device=device)
        self.has_network = embedder is not None or bool(self.index.version.model)
        self.pictures = None if source is None else _pictures(self.index, source)
        self.labels: OpenStore = open_store(folder, FOUND_FILE, self.index.items)
        self._uploads: OrderedDict[int, NDArray[np.float32]] = OrderedDict()
        self._next_upload = 0
        self._lock = threading.Lock()

    def upload(self, encoded: str) -> int:
        """Embed a picture.

        Args:
            encoded: the picture, in a format of the image reader, in base64.

        Returns:
            A number by which `find` knows the picture.

        Raises:
            ValueError: it is not a picture, or the index has no network.
        """
        try:
            content = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError) as error:
            raise ValueError("image: not in base64; expected a picture in base64") from error
        image = decode_image(io.BytesIO(content), "picture", self.index.embedder.decode_side)
        with self._lock:
            features = np.asarray(self.index.embedder.embed(image))
            number = self._next_upload
            self._next_upload += 1
            self._uploads[number] = features[0]
            while len(self._uploads) > _MAX_UPLOADS:
                self._uploads.popitem(last=False)
        return number

    def find(self, items: Sequence[int], uploads: Sequence[int], name: str, limit: int) -> list[dict[str, Any]]:
        """Find the items that are nearest to a query and to what was accepted, and far from what was refused.

        Args:
            items: rows of the index that are the query.
            uploads: numbers of pictures that are the query.
            name: name of the search; what was accepted and refused under this name is left out of the result.
            limit: number of items, at most `MAX_FOUND`.

        Returns:
            Index, name, class, cosine and label of each item, nearest first.

        Raises:
            ValueError: an item or a picture does not exist, or there is no query.
        """
        self.labels.names_of(items)
        given = self.labels.labels()[0]
        accepted = [row for row, label in given.items() if label == name]
        refused = [row for row, label in given.items() if label == refused_name(name)]
        vector = self._query(items, uploads, accepted, refused)
        left_out = {*accepted, *refused, *items}
        k = min(len(self.index), _MAX_CANDIDATES, max(1, min(limit, MAX_FOUND)) + len(left_out))
        rows, cosines = self.index.nearest(vector[None], k)
        found = [
            self._item(row, cosine, given)
            for row, cosine in zip(rows[0].tolist(), cosines[0].tolist(), strict=True)
            if row >= 0 and row not in left_out
        ]
        return found[:limit]

    def describe(self, rows: Sequence[int]) -> list[dict[str, Any]]:
        """Return index, name, class and label of items.

        Raises:
            ValueError: one does not exist.
        """
        self.labels.names_of(rows)
        given = self.labels.labels()[0]
        return [self._item(row, 1.0, given) for row in rows]

    def _item(self, row: int, cosine: float, given: dict[int, str]) -> dict[str, Any]:
        labels = self.index.labels
        return {
            "index": row,
            "name": self.index.items[row],
            "class": "" if labels is None else labels[row],
            "cosine": round(float(cosine), 4),
            "label": given.get(row, ""),
        }

    def _query(
        self, items: Sequence[int], uploads: Sequence[int], accepted: Sequence[int], refused: Sequence[int]
    ) -> NDArray[np.float32]:
        """Return the vector of a query, of length 1."""
        with self._lock:
            missing = [number for number in uploads if number not in self._uploads]
            pictures = [self._uploads[number] for number in uploads if number in self._uploads]
        if missing:
            raise ValueError(f"picture: {missing[0]} is no longer known; expected a picture of this page")
        wanted = [*pictures, *(self.index.vectors[row] for row in (*items, *accepted))]
        if not wanted:
            raise ValueError("query: is empty; expected an item, a picture or accepted items")
        vector = np.mean(wanted, axis=0)
        if refused:
            vector = vector - _REFUSED_WEIGHT * np.mean(self.index.vectors[list(refused)], axis=0)
        length = float(np.linalg.norm(vector))
        return np.asarray(vector / max(length, 1e-12), dtype=np.float32)


def _pictures(index: Index, source: str | Path) -> ImageSource | None:
    """Return the images of the items of an index; None if they are vectors."""
    if index.version.model == "":
        return None
    collection = read_collection(source)
    if not isinstance(collection, ImageCollection):
        return None
    place = {item: number for number, item in enumerate(collection.items)}
    missing = next((item for item in index.items if item not in place), None)
    if missing is not None:
        raise ValueError(f"{source}: has no image {missing!r}; expected the images of the index")
    return collection.source.select(np.array([place[item] for item in index.items], dtype=np.int64))
