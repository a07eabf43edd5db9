"""Readers of formats that may be damaged or hostile: NumPy archives, Parquet tables, pickles and XML.

Nothing that a file contains is executed. A pickle can call any function of any module; since the Python version of
CIFAR-10 has no other format, it is read with inert placeholders for a few names, and all other names are rejected. XML
is parsed without resolving entities, loading other files or using the network.

pyarrow and lxml are imported on first use, because their imports are slow.
"""

from __future__ import annotations

import lzma
import pickle
import pickletools
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from entourage.extras import extra_imports
from entourage.io.files import error_reason

if TYPE_CHECKING:
    from lxml import etree

# Raised by pandas, zipfile and others for missing and damaged tables and archives; zipfile raises RuntimeError and its
# subclass NotImplementedError for encrypted members and for methods, flags and versions that it does not support.
READ_ERRORS = (
    OSError,
    ValueError,
    EOFError,
    KeyError,
    MemoryError,
    RuntimeError,
    OverflowError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
)
FREE_BYTES = 2**27  # unpacked bytes that every file may have
MAX_EXPANSION = 16  # unpacked bytes above FREE_BYTES per byte of the file


def max_unpacked_bytes(path: Path) -> int:
    """Return the limit on the size in memory of a file's content: 128 MiB plus 16 times the size of the file.

    A file that unpacks to more is refused before it is unpacked. Measured data stay below: numbers rarely compress to
    less than a quarter. Data that compress better can be stored uncompressed.

    Raises:
        OSError: the file is missing.
    """
    return FREE_BYTES + MAX_EXPANSION * path.stat().st_size


def check_unpacked(path: Path, n_bytes: int) -> None:
    """Check that a file does not unpack to more than `max_unpacked_bytes`.

    Args:
        path: the file.
        n_bytes: bytes that its content takes in memory.

    Raises:
        ValueError: the content is larger; the message has no path.
        OSError: the file is missing.
    """
    limit = max_unpacked_bytes(path)
    if n_bytes > limit:
        size = f"unpacks to {n_bytes / 1e6:.0f} MB"
        raise ValueError(
            f"{size}; expected at most {limit / 1e6:.0f} MB for a file of its size, or an uncompressed file"
        )


def read_npy(path: Path, *, mmap_mode: Literal["r", "c"] | None = None) -> NDArray[Any]:
    """Read the array of a `.npy` file, which takes at most as much memory as the file has bytes.

    Args:
        path: the file.
        mmap_mode: "r" or "c" to map the array into memory, read-only or copied on write; None to read it.

    Returns:
        The array.

    Raises:
        ValueError: the file is missing, damaged, an archive, or contains a pickle.
    """
    with _array_errors(path):
        with path.open("rb") as stream:
            if stream.read(4) == b"PK\x03\x04":
                raise ValueError("an archive of several arrays; expected one array, or the suffix .npz")
        array = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
        check_unpacked(path, array.size)  # items of zero bytes may be any number
        return np.asarray(array) if mmap_mode is None else array


def read_npz(path: Path, names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read the arrays of a `.npz` archive; they take at most `max_unpacked_bytes` of memory together.

    Args:
        path: the file.
        names: names of the arrays to read; missing ones are ignored. None: all.

    Returns:
        The arrays by name.

    Raises:
        ValueError: the file is missing, damaged, too large when unpacked, a single array, or contains a pickle.
    """
    with _array_errors(path):
        archive = np.load(path, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise ValueError("a single array; expected an archive of arrays")
        with archive:
            read = [name for name in archive.files if names is None or name in names]
            sizes = {info.filename.removesuffix(".npy"): info.file_size for info in archive.zip.infolist()}
            check_unpacked(path, sum(sizes[name.removesuffix(".npy")] for name in read))
            arrays = {name: archive[name] for name in read}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):
                raise ValueError(f"{name} is not an array; expected arrays only")
            check_unpacked(path, array.size)  # items of zero bytes may be any number
        return arrays


@contextmanager
def _array_errors(path: Path) -> Iterator[None]:
    """Convert errors of NumPy about a file to a ValueError of one line."""
    try:
        yield
    # NumPy parses headers as Python: besides READ_ERRORS, TokenError, SyntaxError, TypeError and others.
    except Exception as error:
        raise ValueError(f"{path}: cannot be read: {error_reason(error)}") from error


@contextmanager
def parquet_errors(path: Path, command: str | None = None) -> Iterator[None]:
    """Check the size of a Parquet table, and convert errors raised within the block to a ValueError of one line.

    The table may take at most `max_unpacked_bytes`, by its numbers of rows and columns and by the sizes of its column
    chunks. The block has to include conversions: some damage is found only by `to_pandas`.

    Args:
        path: the file.
        command: the command that writes such tables, for the message; None: any table.

    Raises:
        ValueError: the file is not a Parquet table, lacks a column or is too large when unpacked.
    """
    with extra_imports():
        import pyarrow.parquet as pq

    try:
        metadata = pq.read_metadata(path)
        chunks = [metadata.row_group(group) for group in range(metadata.num_row_groups)]
        unpacked = max(metadata.num_rows * metadata.num_columns * 8, sum(chunk.total_byte_size for chunk in chunks))
        check_unpacked(path, unpacked)
        yield
    # Damaged metadata raise almost anything: ArrowException, UnicodeDecodeError, JSONDecodeError, TypeError, ...
    except Exception as error:
        if command is None:
            raise ValueError(f"{path}: cannot be read: {error_reason(error)}") from error
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


MAX_PICKLE_OBJECTS = 10_000_000  # a pickle of CIFAR-10 has some ten thousand


def _check_opcodes(stream: IO[bytes]) -> None:
    """Check that a pickle is complete and stores no more objects than it can, which the unpickler reserves memory for.

    Raises:
        ValueError: the pickle is truncated or has an unknown opcode.
        pickle.UnpicklingError: an object has too large a number.
    """
    for number, (opcode, argument, _) in enumerate(pickletools.genops(stream)):
        stored = int(argument or 0) if opcode.name.endswith("PUT") else 0
        if max(number, stored) > MAX_PICKLE_OBJECTS or stored > number + 1:
            raise pickle.UnpicklingError("more objects are stored than there are")


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
            _check_opcodes(stream)
            stream.seek(0)
            loaded = _Unpickler(stream, encoding="bytes").load()
    except OSError as error:
        raise ValueError(f"{path}: cannot be read: {error.strerror}") from error
    # A hostile or damaged pickle can raise almost any exception.
    except Exception as error:
        reason = error_reason(error)
        raise ValueError(f"{path}: cannot be read safely: {reason}; expected arrays, numbers and text") from error
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


MAX_XML_MARKS = 3_000_000  # tags and attributes; an orchestral score of 36 MB has about as many


def parse_xml(data: bytes, *, comments: bool = True, ids: bool = True) -> etree._Element:
    """Parse an XML document of any depth and at most `MAX_XML_MARKS` tags and attributes, which take 0.4 GB.

    Args:
        data: the document.
        comments: whether to keep comments.
        ids: whether to index elements by id, which costs time. False: lxml then requires the DTD that a document names,
            so that only documents without one can be parsed.

    Returns:
        The root element.

    Raises:
        lxml.etree.XMLSyntaxError: the document is not well-formed.
        ValueError: it has too many tags and attributes.
    """
    with extra_imports():
        from lxml import etree

    if data.count(b"<") + data.count(b"=") > MAX_XML_MARKS:
        raise ValueError(f"has more than {MAX_XML_MARKS} tags and attributes; expected at most {MAX_XML_MARKS}")
    limits = {"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": True}
    parser = etree.XMLParser(collect_ids=ids, remove_comments=not comments, **limits)
    return etree.fromstring(data, parser)
