"""Queries of a search: items of the index, image files, folders, patterns and files of vectors."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from entourage.data.image_set import ImageFiles
from entourage.data.labels import ItemMatcher
from entourage.data.media import IMAGE_SUFFIXES, UnreadableImageError, list_images
from entourage.embed.index.embedder import Embedder
from entourage.embed.index.source import VECTOR_SUFFIXES, read_vectors
from entourage.io.files import has_suffix

MAX_LOOKUP = 4  # candidates that are named by a message


@dataclass(frozen=True, eq=False)
class Query:
    """A query: an item of the index, an image file or a vector.

    Attributes:
        name: name of the query in the result.
        item: name of the item, or None.
        file: image file, or None.
        vector: shape (d,), or None.
    """

    name: str
    item: str | None = None
    file: Path | None = None
    vector: NDArray[np.float32] | None = None


def resolve_queries(names: Sequence[str], items: Sequence[str], source: str) -> list[Query]:
    """Resolve the queries of a search.

    A name is, in this order of precedence: the path of an item below the source, an image file, a folder of images, a
    file of vectors, a pattern such as `new/*.jpg`, or an item by the end of its path.

    Args:
        names: the queries.
        items: names of the items of the index.
        source: source of the index, for paths of items and for messages.

    Returns:
        The queries; a folder, a pattern and a file of vectors are several.

    Raises:
        ValueError: a query matches nothing, or several items.
    """
    known, matcher = set(items), ItemMatcher(items)
    queries: list[Query] = []
    for name in names:
        item = _relative_path(name, source)
        if item in known:
            queries.append(Query(name, item=item))
        elif others := _resolve_files(name):
            inside = [(query, _relative_path(str(query.file), source)) for query in others]
            queries += [replace(query, item=path, file=None) if path in known else query for query, path in inside]
        else:
            queries.append(Query(name, item=_match(name, item, matcher, source)))
    return queries


def _resolve_files(name: str) -> list[Query]:
    """Return the queries of a file, folder or pattern; none if there is no such file."""
    path = Path(name)
    if path.is_dir():
        return [Query(str(file), file=file) for file in list_images(path)]
    if path.is_file() and path.suffix.lower() in VECTOR_SUFFIXES:
        table = read_vectors(path)
        vectors = np.concatenate(list(table.blocks()))
        return [Query(f"{name}: {item}", vector=one) for item, one in zip(table.items, vectors, strict=True)]
    if path.is_file():
        return [Query(name, file=path)]
    if not glob.has_magic(name):
        return []
    files = sorted(map(Path, glob.glob(name, recursive=True)))  # noqa: PTH207 - the pattern may be absolute
    return [Query(str(file), file=file) for file in files if file.is_file() and has_suffix(file.name, IMAGE_SUFFIXES)]


def _match(name: str, item: str, matcher: ItemMatcher, source: str) -> str:
    matches = matcher.find(item)
    if not matches:
        raise ValueError(
            f"query {name!r}: not found; expected an item of {source} or an image file, a folder, a pattern or vectors"
        )
    if len(matches) > 1:
        candidates = f"{matches[0]!r} and {matches[1]!r} of {source}"
        raise ValueError(f"query {name!r}: matches {candidates}; expected a longer part of the path")
    return matches[0]


def _relative_path(name: str, source: str) -> str:
    """Return the path of a file relative to the source; names that are not such a file are unchanged."""
    file, folder = Path(name).resolve(), Path(source).resolve()
    return file.relative_to(folder).as_posix() if file.is_file() and file.is_relative_to(folder) else name


def query_vectors(
    queries: Sequence[Query],
    vectors: NDArray[np.float32],
    row_of: dict[str, int],
    load: Callable[[], Embedder],
    skipped: Sequence[tuple[str, str]] = (),
) -> NDArray[np.float32]:
    """Return the vectors of queries; the network is loaded only if some are image files.

    Args:
        queries: the queries, q of them.
        vectors: vectors of the index, shape (n, d).
        row_of: the row of each item.
        load: returns the network.
        skipped: name and reason of the images that are not in the index, for messages.

    Returns:
        Shape (q, d).

    Raises:
        ValueError: a query cannot be read, or has another number of dimensions.
    """
    result = np.empty((len(queries), vectors.shape[1]), dtype=np.float32)
    reasons = dict(skipped)
    files: list[int] = []
    for number, query in enumerate(queries):
        if query.item in reasons:
            raise ValueError(f"query {query.name!r}: unreadable ({reasons[query.item]}); expected a readable image")
        if query.item is not None:
            result[number] = vectors[row_of[query.item]]
        elif query.vector is None:
            files.append(number)
        elif len(query.vector) != vectors.shape[1]:
            raise ValueError(f"query {query.name!r}: {len(query.vector)} numbers; expected {vectors.shape[1]}")
        else:
            result[number] = query.vector
    if files:
        source = ImageFiles([queries[number].file or Path() for number in files])
        for batch in load().stream(source):
            if batch.failures:
                index, reason = batch.failures[0]
                raise UnreadableImageError(source.paths[index], reason)
            result[[files[index] for index in batch.indices]] = batch.features
    return result
