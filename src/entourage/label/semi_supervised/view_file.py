"""What a stem has seen, in a file: a training that was stopped need not look again, and memory holds what it can."""

from __future__ import annotations

import math
import os
from pathlib import Path

import torch

from entourage.io.files import read_object
from entourage.io.writing import atomic_path, write_json


class ViewFile:
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
        known = read_object(self._note)
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
