"""Readers of formats that may be damaged or hostile: NumPy archives, Parquet tables, pickles and XML.

Nothing that a file contains is executed. A pickle can call any function of any module; since the Python version of
CIFAR-10 has no other format, it is read with inert placeholders for a few names, and all other names are rejected. XML
is parsed without resolving entities, loading other files or using the network.

pyarrow and lxml are imported on first use, because their imports are slow.
"""

from __future__ import annotations

import pickle
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from entourage.extras import extra_imports
from entourage.io.files import error_reason

if TYPE_CHECKING:
    from lxml import etree

# Raised by NumPy for missing and damaged archives, and by pandas and others for their tables.
READ_ERRORS = (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error)


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays of a `.npz` archive.

    Args:
        path: the file.
        names: names of the arrays to read; missing ones are ignored. None: all.

    Returns:
        The arrays by name.

    Raises:
        ValueError: the file is missing, damaged, a single array, or contains a pickle.
    """
    try:
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("a single array; expected an archive of arrays")
        with archive:
            return {name: archive[name] for name in archive.files if names is None or name in names}
    except READ_ERRORS as error:
        raise ValueError(f"{path}: cannot be read: {error_reason(error)}") from error


@contextmanager
def parquet_errors(path: Path, command: str) -> Iterator[None]:
    """Convert pyarrow's errors about a damaged table, raised within the block, to a ValueError of one line.

    Args:
        path: the file.
        command: the command that writes such tables, for the message.

    Raises:
        ValueError: the file is not a Parquet table or lacks a column.
    """
    with extra_imports():
        import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise ValueError(f"{path}: damaged, or another table; expected a table written by `{command}`") from error


class _Placeholder:
    """Placeholder for an object of a pickle, with its arguments and state.

    Without `__setstate__`, the pickle could set attributes of the class.
    """

    state: object = None

    def __init__(self, *args: object) -> None:
        self.args = args

    def __setstate__(self, state: object) -> None:
        self.state = state


class _ArrayPlaceholder(_Placeholder):
    """Placeholder for a NumPy array in a pickle, and for the function that creates an empty one."""


class _DtypePlaceholder(_Placeholder):
    """Placeholder for the NumPy dtype of an array in a pickle."""


class _EncodePlaceholder(_Placeholder):
    """Placeholder for `codecs.encode`, by which Python 3 writes bytes into pickles that Python 2 can read."""

    def __new__(cls, text: object = "", encoding: object = "latin1") -> bytes:  # type: ignore[misc]
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError("an encoding other than latin1")
        return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], type[_Placeholder]] = {
    ("numpy.core.multiarray", "_reconstruct"): _ArrayPlaceholder,
    ("numpy._core.multiarray", "_reconstruct"): _ArrayPlaceholder,
    ("numpy", "ndarray"): _ArrayPlaceholder,
    ("numpy", "dtype"): _DtypePlaceholder,
    ("_codecs", "encode"): _EncodePlaceholder,
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> type[_Placeholder]:
        if (module, name) not in _ALLOWED:
            raise pickle.UnpicklingError(f"{module}.{name} is not allowed")
        return _ALLOWED[module, name]


def read_plain_pickle(path: str | Path) -> dict[str, object]:
    """Read a pickled dictionary of numbers, strings, lists and arrays of bytes; nothing is imported or called.

    Args:
        path: the file, written by Python 2 or 3.

    Returns:
        The entries; arrays have the dtype uint8. Strings written by Python 2 are bytes.

    Raises:
        ValueError: the file cannot be read, contains other types, or refers to functions or classes.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            loaded = _Unpickler(stream, encoding="bytes").load()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    # A hostile or damaged pickle can raise almost any exception.
    except Exception as error:
        raise ValueError(f"{path}: not a pickle that can be read safely: {error_reason(error)}") from error
    if not isinstance(loaded, dict):
        raise ValueError(f"{path}: holds a {type(loaded).__name__}; expected a dictionary")
    entries = {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in loaded.items()}
    return {
        key: _to_array(path, value) if isinstance(value, _ArrayPlaceholder) else value for key, value in entries.items()
    }


def _to_array(path: Path, array: _ArrayPlaceholder) -> NDArray[np.uint8]:
    """Return the array of a placeholder, whose state is (version, shape, dtype, Fortran order, bytes)."""
    match array.state:
        case (int(), tuple(shape), _DtypePlaceholder(args=("u1" | b"u1", *_)), fortran, bytes(data)) if all(
            isinstance(side, int) and side >= 0 for side in shape
        ):
            values = np.frombuffer(data, dtype=np.uint8)
            if values.size == np.prod([int(side) for side in shape], dtype=object):
                return values.reshape(shape, order="F" if fortran else "C")
    raise ValueError(f"{path}: contains an array that is damaged or not of type uint8; expected uint8")


def parse_xml(data: bytes, *, comments: bool = True, ids: bool = True) -> etree._Element:
    """Parse an XML document of any size and depth.

    Args:
        data: the document.
        comments: whether to keep comments.
        ids: whether to index elements by id, which costs time. False: lxml then requires the DTD that a document names,
            so that only documents without one can be parsed.

    Returns:
        The root element.

    Raises:
        lxml.etree.XMLSyntaxError: the document is not well-formed.
    """
    with extra_imports():
        from lxml import etree

    limits = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": True}
    parser = etree.XMLParser(collect_ids=ids, remove_comments=not comments, **limits)
    return etree.fromstring(data, parser)
