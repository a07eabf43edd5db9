import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image


def encode(value: int, size: tuple[int, int] = (6, 4)) -> bytes:
    """A grey PNG of this value, size (width, height)."""
    stream = io.BytesIO()
    Image.new("RGB", size, (value,) * 3).save(stream, format="PNG")
    return stream.getvalue()


@pytest.fixture
def pack_arrays() -> Callable[..., dict[str, Any]]:
    """Makes the arrays of a pack whose image i is grey of value 10 * i, plus `first`."""

    def make(labels: Sequence[int], class_names: Sequence[str] = ("ant", "bee"), first: int = 0) -> dict[str, Any]:
        encoded = [encode(first + 10 * place) for place in range(len(labels))]
        return {
            "data": np.frombuffer(b"".join(encoded), dtype=np.uint8),
            "offsets": np.cumsum([0, *map(len, encoded)], dtype=np.int64),
            "labels": np.array(labels, dtype=np.int16),
            "class_names": np.array(class_names),
            "split": np.arange(len(labels), dtype=np.uint8) % 2,
            "filenames": np.array([f"{place}.png" for place in range(len(labels))]),
            "orig_size": np.array([[60 + place, 40] for place in range(len(labels))], dtype=np.int16),
        }

    return make


@pytest.fixture
def save_grey() -> Callable[[Path, int], Path]:
    """Writes a grey image of this value, with the folders above it."""

    def save(path: Path, value: int) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (6, 4), (value,) * 3).save(path)
        return path

    return save
