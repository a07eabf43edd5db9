import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def encode(value: int, size: tuple[int, int] = (6, 4)) -> bytes:
    """Return a PNG filled with a grey value; size is (width, height)."""
    stream = io.BytesIO()
    Image.new("RGB", size, (value,) * 3).save(stream, format="PNG")
    return stream.getvalue()


@pytest.fixture
def pack_arrays() -> Callable[..., dict[str, Any]]:
    """Function that makes the arrays of a pack; image i is filled with the grey value first + 10 * i."""

    def make(labels: Sequence[int], class_names: Sequence[str] = ("ant", "bee"), first: int = 0) -> dict[str, Any]:
        encoded = [encode(first + 10 * index) for index in range(len(labels))]
        return {
            "data": np.frombuffer(b"".join(encoded), dtype=np.uint8),
            "offsets": np.cumsum([0, *map(len, encoded)], dtype=np.int64),
            "labels": np.array(labels, dtype=np.int16),
            "class_names": np.array(class_names),
            "split": np.arange(len(labels), dtype=np.uint8) % 2,
            "filenames": np.array([f"{index}.png" for index in range(len(labels))]),
            "orig_size": np.array([[60 + index, 40] for index in range(len(labels))], dtype=np.int16),
        }

    return make


@pytest.fixture
def save_grey() -> Callable[[Path, int], Path]:
    """Function that writes an image filled with a grey value; missing parent folders are made."""

    def save(path: Path, value: int) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (value,) * 3).save(path)
        return path

    return save
