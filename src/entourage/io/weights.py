"""Tensors and metadata in one safetensors file, written atomically and without pickle."""

from __future__ import annotations

import errno
import json
import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from threading import get_ident
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from entourage.io.files import atomic_path

_KEY = "entourage"
_SYSTEM = re.compile(r"\(os error (\d+)\)")  # how safetensors reports the system's error number


def write_weights(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], *, key: str = _KEY) -> None:
    """Write tensors and metadata to a file; an existing file is replaced in one step.

    Tensors may share memory, lie on a GPU or have another memory format (channels last): each is copied separately. The
    data are flushed to the disk before the file is renamed, so that a crash of the machine leaves the old or the new
    file.

    Args:
        path: the file.
        tensors: tensors by name.
        metadata: values that `json.dumps` accepts, also NumPy's integers; stored in the header of the file.
        key: name of the metadata in the header, which distinguishes kinds of files.

    Raises:
        OSError: the file cannot be written, for instance to a full disk.
    """
    copies = {name: torch.empty(value.shape, dtype=value.dtype).copy_(value) for name, value in tensors.items()}
    with atomic_path(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(copies, temporary, {key: json.dumps(metadata, default=operator.index)})
        except SafetensorError as error:
            raise _os_error(error, path) from error
        temporary.chmod(mode)  # save_file makes the file readable by its owner only
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read the tensors, on the CPU, and the metadata of a file.

    Raises:
        ValueError: the file is missing or was not written by `write_weights`.
    """
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
        return tensors, _read_metadata(file)


def read_metadata(path: Path) -> dict[str, Any]:
    """Read the metadata of a file without its tensors; raises ValueError as `read_weights` does."""
    with _opened(path) as file:
        return _read_metadata(file)


@contextmanager
def no_larger_than(tensors: Mapping[str, Tensor], sizes: Iterable[object] = ()) -> Iterator[None]:
    """Raise an error if a network has more parameters than a file has numbers, whose header may be hostile.

    The networks are built within the block, in this thread. A parameter that is too large is refused before it is
    initialised, so that its memory is reserved but not used.

    Args:
        tensors: the tensors of the file.
        sizes: options of the network, such as its width and depth; those that are no integers are ignored.

    Raises:
        ValueError: an option, or the number of parameters, is larger than the number of elements of all tensors.
    """
    allowed = sum(value.numel() for value in tensors.values())
    for size in sizes:
        if isinstance(size, int) and size > allowed:
            raise ValueError(f"the header has an option of {size}; expected at most {allowed}, the number of weights")
    thread = get_ident()
    registered: dict[int, nn.Parameter] = {}  # modules may share parameters

    def count(module: nn.Module, name: str, parameter: nn.Parameter | None) -> None:
        if parameter is not None and get_ident() == thread:
            registered[id(parameter)] = parameter
            if sum(each.numel() for each in registered.values()) > allowed:
                raise ValueError(f"the header has a network of more weights; expected {allowed}, those of the file")

    hook = register_module_parameter_registration_hook(count)
    try:
        yield
    finally:
        hook.remove()


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Load tensors into a module after checking their names and shapes.

    Args:
        module: the module.
        tensors: its state dict.
        source: the file that the tensors were read from, for the message.

    Raises:
        ValueError: a tensor is missing, unknown or of another shape.
    """
    expected = module.state_dict()
    for name in sorted({*expected, *tensors}):
        if name not in expected or name not in tensors:
            problem = "missing" if name in expected else "unknown"
            raise ValueError(f"{source}: weight {name!r} is {problem}; expected the weights of this network")
        shape, expected_shape = tuple(tensors[name].shape), tuple(expected[name].shape)
        if shape != expected_shape:
            raise ValueError(f"{source}: weight {name!r} has shape {shape}; expected {expected_shape}")
    module.load_state_dict(dict(tensors))


def _os_error(error: SafetensorError, path: Path) -> OSError:
    """Convert an error of safetensors to the OSError that caused it."""
    match = _SYSTEM.search(str(error))
    if match is None:
        return OSError(errno.EIO, str(error), str(path))
    number = int(match[1])
    return OSError(number, os.strerror(number), str(path))


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError, KeyError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"cannot read {path}: {error}; expected weights written by a training run") from error


def _read_metadata(file: Any) -> dict[str, Any]:
    return dict(json.loads((file.metadata() or {})[_KEY]))
