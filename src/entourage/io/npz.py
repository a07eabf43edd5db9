"""Archives of arrays, as `numpy.savez` writes them; nothing pickled is ever loaded."""

import zipfile
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from entourage.io.files import reason_of

# What NumPy raises of an archive that is missing or broken; pandas and others of their tables, too.
UNREADABLE = (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error)


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an archive by name, each read once.

    Args:
        path: the file.
        names: of the arrays to read, as far as there are such; None reads all.

    Raises:
        ValueError: the file is missing, broken, a single array, or holds a pickle.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("a single array; expected an archive of arrays")
        with archive:
            return {name: archive[name] for name in archive.files if names is None or name in names}
    except UNREADABLE as error:
        raise ValueError(f"{path}: cannot be read: {reason_of(error)}") from error
