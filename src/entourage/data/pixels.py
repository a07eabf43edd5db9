"""Decoded pixels of all images of a set, in memory or in a cache file.

A cache file is a `.npy` file, which NumPy can map into memory, followed by a footer with the digest of its source. It
is written in one step, so that pixels and footer always agree.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray
from PIL import Image

from entourage.compute import count_threads, map_ahead
from entourage.data.image_set import ImageFiles, ImageSet, ImageSource
from entourage.data.media import UnreadableImageError
from entourage.io.files import atomic_path, error_reason
from entourage.io.progress import progress_bar
from entourage.io.safe_formats import read_npy

_MAGIC = b"entourage pixels"
_LENGTH_BYTES = 8

Failures = list[tuple[int, str]]


def write_pixel_file(
    path: str | Path,
    digest: str,
    shape: tuple[int, ...],
    chunks: Iterable[tuple[NDArray[np.uint8], Failures]],
) -> None:
    """Write pixels to a cache file, chunk by chunk.

    Args:
        path: the file; an existing one is replaced in one step at the end.
        digest: digest of the source of the pixels.
        shape: (n, height, width, 3) for n images, including those that cannot be read.
        chunks: for consecutive images, the pixels (k, height, width, 3) of those that could be read, and index and
            reason of each that could not.

    Raises:
        ValueError: the file cannot be written.
    """
    failures: Failures = []
    rows = 0
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            header_end = _write_header(stream, shape)
            for values, failed in chunks:
                stream.write(np.ascontiguousarray(values).data)
                rows += len(values)
                failures += failed
            footer = json.dumps({"digest": digest, "failures": failures}).encode()
            stream.write(footer + len(footer).to_bytes(_LENGTH_BYTES, "little") + _MAGIC)
            stream.seek(0)
            # The final header is as long as the provisional one: NumPy reserves digits for the number of rows.
            if _write_header(stream, (rows, *shape[1:])) != header_end:
                raise ValueError(f"cannot write {path}: the header has another length; expected NumPy to pad it")
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from error


def open_pixel_file(path: str | Path, digest: str) -> tuple[NDArray[np.uint8], Failures] | None:
    """Open a cache file if it was made from the expected source.

    Args:
        path: the file.
        digest: digest of the expected source.

    Returns:
        The pixels, mapped into memory and read-only, with index and reason of the images that failed; None if the file
        does not exist or was made from another source.

    Raises:
        ValueError: the file exists but was not written by `write_pixel_file`, so that it must not be overwritten.
    """
    path = Path(path)
    if not path.exists():
        return None
    footer = _read_footer(path)
    if footer is None:
        advice = "delete it, or the folder above it if a training run made it, or choose another name"
        raise ValueError(f"{path}: damaged, or not a file of decoded pixels, so it is not overwritten; {advice}")
    if footer.get("digest") != digest:
        return None
    try:
        values = read_npy(path, mmap_mode="r")
        return values, [(int(index), str(reason)) for index, reason in footer["failures"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged: {error_reason(error)}; delete it to have it written again") from error


def _write_header(stream: BinaryIO, shape: tuple[int, ...]) -> int:
    """Write the header of a `.npy` file and return the position of its end in the stream."""
    npy.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return stream.seek(0, os.SEEK_CUR)


def _read_footer(path: Path) -> dict[str, Any] | None:
    """Return the footer of a cache file, or None if `write_pixel_file` did not write the file."""
    tail = _LENGTH_BYTES + len(_MAGIC)
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            if size < tail:
                return None
            stream.seek(size - tail)
            length = int.from_bytes(stream.read(_LENGTH_BYTES), "little")
            if stream.read() != _MAGIC or length > size - tail:
                return None
            stream.seek(size - tail - length)
            footer = json.loads(stream.read(length))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError:
        return None
    return footer if isinstance(footer, dict) else None


_CHUNK_BYTES = 2**22
_CHUNK_IMAGES = 256
_SMALL_BYTES = 4096  # for smaller files, Pillow holds the interpreter lock most of the time: one thread is faster
_VERSION = "entourage pixels 1"  # must change with every change of the decoding


@dataclass(frozen=True, eq=False)
class Pixels:
    """Decoded pixels of those images of a set that could be read.

    Attributes:
        values: RGB, shape (n_ok, height, width, 3); mapped from the cache file, read-only, if there is one.
        indices: index in the set of the image in each row of `values`, shape (n_ok,), ascending.
        failures: name of every image that could not be read, and the reason in one line.
    """

    values: NDArray[np.uint8]
    indices: NDArray[np.int64]
    failures: list[tuple[str, str]]


@dataclass(frozen=True)
class _Chunk:
    """Pixels of consecutive images, shape (k, height, width, 3), and index and reason of those that failed."""

    values: NDArray[np.uint8]
    failures: list[tuple[int, str]]


def decode_pixels(
    images: ImageSet | Sequence[Path],
    size: tuple[int, int],
    *,
    crop: float | None = None,
    workers: int | None = None,
    progress: bool | None = None,
    cache_file: str | Path | None = None,
) -> Pixels:
    """Decode all images and resize them, with antialiased bicubic resampling, unless they have the requested size.

    Args:
        images: an image set or image files, n of them.
        size: height and width.
        crop: None resizes the entire image to `size`, ignoring its aspect ratio. A fraction keeps the aspect ratio
            ("resize, then centre crop"): the largest centred rectangle with the aspect ratio of `size` is scaled by
            this fraction, and the result is resized.
        workers: number of threads. None: one per core, at most 16, and a single one for tiny images.
        progress: whether to show a progress bar on stderr; None: only on a terminal.
        cache_file: a `.npy` file that stores the pixels instead of memory. It is reused if it was made from the same
            images with the same options, otherwise replaced. Image files count as the same if path, size and
            modification time are equal.

    Returns:
        The pixels. Memory: the result, or with a file, 12 MiB per thread (more only for very large images).

    Raises:
        ValueError: `size`, `crop` or `workers` is out of range, or `cache_file` is a file of another kind.
    """
    _check(size, crop)
    source: ImageSource = images.source if isinstance(images, ImageSet) else ImageFiles(images)
    names: Sequence[object] = images.items if isinstance(images, ImageSet) else images
    threads = _choose_threads(source, workers)
    shape = (len(source), *size, 3)
    if cache_file is None:
        values = np.empty(shape, dtype=np.uint8)
        failures: list[tuple[int, str]] = []
        end = 0
        for chunk in _decode_chunks(source, size, crop, threads, progress):
            values[end : end + len(chunk.values)] = chunk.values
            end += len(chunk.values)
            failures += chunk.failures
        return _pixels(values[:end], failures, names)
    digest = hashlib.blake2b(f"{_VERSION} {size} {crop} {source.digest()}".encode(), digest_size=16).hexdigest()
    stored = open_pixel_file(cache_file, digest)
    if stored is None:
        chunks = _decode_chunks(source, size, crop, threads, progress)
        write_pixel_file(cache_file, digest, shape, ((chunk.values, chunk.failures) for chunk in chunks))
        stored = open_pixel_file(cache_file, digest)
    if stored is None:
        raise ValueError(f"{cache_file}: replaced by another process during use; expected a separate file for each set")
    return _pixels(*stored, names)


def _pixels(values: NDArray[np.uint8], failures: list[tuple[int, str]], names: Sequence[object]) -> Pixels:
    failed = np.array([index for index, _ in failures], dtype=np.int64)
    indices = np.setdiff1d(np.arange(len(names)), failed)
    return Pixels(values, indices, [(str(names[index]), reason) for index, reason in failures])


def _decode_chunks(
    source: ImageSource, size: tuple[int, int], crop: float | None, threads: int, progress: bool | None
) -> Iterator[_Chunk]:
    n = len(source)
    # Chunks, because passing a tiny image to a thread takes longer than decoding it.
    step = max(1, min(_CHUNK_IMAGES, _CHUNK_BYTES // (size[0] * size[1] * 3)))
    chunks = [range(start, min(start + step, n)) for start in range(0, n, step)]
    with progress_bar("Decoding images", n, progress) as advance:
        for chunk in map_ahead(partial(_decode_chunk, source, size, crop), chunks, threads):
            yield chunk
            advance(len(chunk.values) + len(chunk.failures))


def _decode_chunk(source: ImageSource, size: tuple[int, int], crop: float | None, indices: range) -> _Chunk:
    values = np.empty((len(indices), *size, 3), dtype=np.uint8)  # (k, height, width, 3)
    failures: list[tuple[int, str]] = []
    row = 0
    # Twice the required size, so that the quality depends on the resampling below and not on the JPEG decoder.
    shorter_side = int(2 * max(size) / (crop or 1.0))
    for index in indices:
        try:
            image = source.read(index, shorter_side=shorter_side)
        except UnreadableImageError as error:
            failures.append((index, error.reason))
            continue
        values[row] = np.asarray(resize_image(image, size, crop))
        row += 1
    return _Chunk(values[:row], failures)


def resize_image(image: Image.Image, size: tuple[int, int], crop: float | None = None) -> Image.Image:
    """Resize an image, and crop it first if `crop` is given, as `decode_pixels` does."""
    height, width = size
    if image.size == (width, height) and crop in (None, 1.0):
        return image
    if crop is None:
        return image.resize((width, height), Image.Resampling.BICUBIC, reducing_gap=3.0)
    scale = crop * min(image.width / width, image.height / height)  # source pixels for one pixel of the result
    left, top = (image.width - scale * width) / 2, (image.height - scale * height) / 2
    box = (left, top, left + scale * width, top + scale * height)
    return image.resize((width, height), Image.Resampling.BICUBIC, box=box, reducing_gap=3.0)


def _choose_threads(source: ImageSource, workers: int | None) -> int:
    tiny = source.mean_bytes is not None and source.mean_bytes < _SMALL_BYTES
    return 1 if tiny and workers is None else count_threads(workers)


def _check(size: tuple[int, int], crop: float | None) -> None:
    if min(size) < 1:
        raise ValueError(f"size is {size}; expected height and width, each 1 or more")
    if crop is not None and not 0.0 < crop <= 1.0:
        raise ValueError(f"crop is {crop}; expected a fraction above 0 and at most 1, or None")
