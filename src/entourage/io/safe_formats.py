"""Readers of formats that may be damaged or hostile: NumPy archives, Parquet tables, pickles and XML.

Nothing that a file contains is executed. A pickle is a program that may call any function of any module; the python
version of CIFAR-10 has no other format, so it is read with all names rejected but a few, which inert placeholders
replace. XML is parsed without resolving entities, loading other files or reaching the network.

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

from entourage.io.files import error_reason

if TYPE_CHECKING:
    from lxml import etree

# What NumPy raises of an archive that is missing or broken; pandas and others of their tables, too.
READ_ERRORS = (OSError, ValueError, EOFError, KeyError, MemoryError, zipfile.BadZipFile, zlib.error)


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
    except READ_ERRORS as error:
        raise ValueError(f"{path}: cannot be read: {error_reason(error)}") from error


@contextmanager
def parquet_errors(path: Path, command: str) -> Iterator[None]:
    """Says in one line of a table that is read within the block if it is damaged.

    Args:
        path: the file.
        command: the command that writes such tables.

    Raises:
        ValueError: it is no Parquet at all, or another table.
    """
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        raise ValueError(f"{path} is damaged, or another table; expected what `{command}` wrote") from error


class _Placeholder:
    """Keeps what a pickle says of an object. Without `__setstate__` the pickle could set attributes on the class."""

    state: object = None

    def __init__(self, *args: object) -> None:
        self.args = args

    def __setstate__(self, state: object) -> None:
        self.state = state


class _ArrayPlaceholder(_Placeholder):
    """In place of an array, and of the function that makes an empty one."""


class _DtypePlaceholder(_Placeholder):
    """In place of a NumPy type."""


class _EncodePlaceholder(_Placeholder):
    """In place of `codecs.encode`, by which Python 3 writes bytes into pickles that Python 2 can read."""

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
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not allowed")
        return _ALLOWED[module, name]


def read_plain_pickle(path: str | Path) -> dict[str, object]:
    """Read a pickled dictionary of numbers, texts, lists and arrays of bytes.

    Args:
        path: the file, written by Python 2 or 3.

    Returns:
        Its entries; arrays must be of type uint8. Texts written by Python 2 are bytes.

    Raises:
        ValueError: the file cannot be read, holds anything else, or asks for anything to be imported.
    """
    path = Path(path)
    try:
        with path.open("rb") as stream:
            loaded = _Unpickler(stream, encoding="bytes").load()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    # A hostile or damaged pickle makes the machine that runs it raise almost anything.
    except Exception as error:
        raise ValueError(f"{path}: not a pickle that can be read safely: {error_reason(error)}") from error
    if not isinstance(loaded, dict):
        raise ValueError(f"{path}: holds a {type(loaded).__name__}; expected a dictionary")
    entries = {key.decode("latin1") if isinstance(key, bytes) else str(key): value for key, value in loaded.items()}
    return {
        key: _to_array(path, value) if isinstance(value, _ArrayPlaceholder) else value for key, value in entries.items()
    }


def _to_array(path: Path, array: _ArrayPlaceholder) -> NDArray[np.uint8]:
    """The array that a stand-in stands for: state is (version, shape, type, is Fortran order, bytes)."""
    match array.state:
        case (int(), tuple(shape), _DtypePlaceholder(args=("u1" | b"u1", *_)), fortran, bytes(data)) if all(
            isinstance(side, int) and side >= 0 for side in shape
        ):
            values = np.frombuffer(data, dtype=np.uint8)
            if values.size == np.prod([int(side) for side in shape], dtype=object):
                return values.reshape(shape, order="F" if fortran else "C")
    raise ValueError(f"{path}: an array in it is damaged or not of type uint8")


def parse_xml(data: bytes, *, comments: bool = True, ids: bool = True) -> etree._Element:
    """The root of an XML document, however large or deep it is.

    Args:
        data: the document.
        comments: keep them.
        ids: index elements by their ids, which costs time. Without it lxml insists on the DTD that a document names,
            so that only documents without any can be read.

    Raises:
        lxml.etree.XMLSyntaxError: it is not well-formed.
    """
    from lxml import etree

    parser = etree.XMLParser(
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        huge_tree=True,
        collect_ids=ids,
        remove_comments=not comments,
    )
    return etree.fromstring(data, parser)
