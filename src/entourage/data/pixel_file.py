"""Decoded pixels on disk: a `.npy` file that any NumPy can map, followed by a note of what it was made from.

The note is in the same file, and the file appears in one step, so that pixels and note can never disagree.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from entourage.io.files import reason_of
from entourage.io.writing import atomic_path

_MAGIC = b"entourage pixels"
_LENGTH_BYTES = 8

Failures = list[tuple[int, str]]


def write_pixel_file(
    path: str | Path,
    digest: str,
    shape: tuple[int, ...],
    chunks: Iterable[tuple[NDArray[np.uint8], Failures]],
) -> None:
    """Write pixels as they come.

    Args:
        path: the file; made, or replaced in one step when all is written.
        digest: what the pixels were made from.
        shape: (n, height, width, 3), as if no image fails.
        chunks: pixels (k, height, width, 3) of the images that could be read, and place and reason of the others.

    Raises:
        ValueError: the file cannot be written.
    """
    failures: Failures = []
    rows = 0
    try:
        with atomic_path(path) as temporary, temporary.open("wb") as stream:
            _write_header(stream, shape)
            begin = stream.tell()
            for values, failed in chunks:
                stream.write(np.ascontiguousarray(values).data)
                rows += len(values)
                failures += failed
            note = json.dumps({"digest": digest, "failures": failures}).encode()
            stream.write(note + len(note).to_bytes(_LENGTH_BYTES, "little") + _MAGIC)
            stream.seek(0)
            _write_header(stream, (rows, *shape[1:]))  # as long as before: NumPy leaves room for the number of rows
            if stream.tell() != begin:
                raise ValueError(f"cannot write {path}: NumPy's header changed its length")
    except OSError as error:
        raise ValueError(f"cannot write {path}: {error.strerror}") from error


def open_pixel_file(path: str | Path, digest: str) -> tuple[NDArray[np.uint8], Failures] | None:
    """Open a file of pixels if it was made from this.

    Args:
        path: the file.
        digest: what the pixels should have been made from.

    Returns:
        The pixels, mapped into memory and read-only, with place and reason of the images that failed; None if there is
        no such file, or it was made from something else.

    Raises:
        ValueError: the file is there but was not written by `write_pixel_file`; it shall not be overwritten.
    """
    path = Path(path)
    if not path.exists():
        return None
    note = _read_note(path)
    if note is None:
        anew = "delete it, or the folder above it if a training made that, or choose another name"
        raise ValueError(f"{path}: damaged, or not a file of decoded pixels, so it is not overwritten; {anew}")
    if note.get("digest") != digest:
        return None
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
        return values, [(int(place), str(reason)) for place, reason in note["failures"]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: damaged: {reason_of(error)}; remove it to have it made anew") from error


def _write_header(stream: BinaryIO, shape: tuple[int, ...]) -> None:
    npy.write_array_header_1_0(stream, {"descr": "|u1", "fortran_order": False, "shape": shape})


def _read_note(path: Path) -> dict[str, Any] | None:
    """The note at the end of the file, or None if the file is of another kind."""
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
            note = json.loads(stream.read(length))
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError:
        return None
    return note if isinstance(note, dict) else None
