"""Tensors and notes in one safetensors file: nothing pickled, complete or not there at all."""

from __future__ import annotations

import errno
import json
import operator
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from entourage.io.files import atomic_path

_KEY = "entourage"
_SYSTEM = re.compile(r"\(os error (\d+)\)")  # how safetensors tells what the system said


def write_weights(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, Any], *, key: str = _KEY) -> None:
    """Write tensors and notes; a file of that name is replaced in one step.

    Tensors may share memory, lie on a GPU or be stored in another order (channels last): each is copied on its own.
    The file is on the disk when it takes its name, so that a crash of the machine leaves the old one or the new one.

    Args:
        path: the file.
        tensors: by name.
        metadata: anything JSON can say, or NumPy's whole numbers in it; they travel in the file's header...
        key: ...under this name, by which a file of one kind does not pass for one of another.

    Raises:
        OSError: it cannot be written, as on a full disk.
    """
    copies = {name: torch.empty(value.shape, dtype=value.dtype).copy_(value) for name, value in tensors.items()}
    with atomic_path(path) as temporary:
        temporary.touch()
        mode = temporary.stat().st_mode
        try:
            save_file(copies, temporary, {key: json.dumps(metadata, default=operator.index)})
        except SafetensorError as error:
            raise _os_error(error, path) from error
        temporary.chmod(mode)  # save_file lets only its owner read
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors, on the CPU, and the notes of a file.

    Raises:
        ValueError: there is no such file, or it is no file that `write_weights` wrote.
    """
    with _opened(path) as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        return tensors, _read_metadata(file)


def read_metadata(path: Path) -> dict[str, Any]:
    """The notes of a file alone, which takes no time; a ValueError as of `read_weights`."""
    with _opened(path) as file:
        return _read_metadata(file)


def load_weights(module: nn.Module, tensors: Mapping[str, Tensor], source: Path) -> None:
    """Give a module the weights that were read from `source`.

    Raises:
        ValueError: a tensor is missing, unknown or of another shape.
    """
    expected = module.state_dict()
    for name in sorted({*expected, *tensors}):
        if name not in expected or name not in tensors:
            raise ValueError(f"{source} {'lacks' if name in expected else 'holds the unknown'} weight {name!r}")
        if expected[name].shape != tensors[name].shape:
            shapes = f"{tuple(tensors[name].shape)}; expected {tuple(expected[name].shape)}"
            raise ValueError(f"{source} holds {name!r} of shape {shapes}")
    module.load_state_dict(dict(tensors))


def _os_error(error: SafetensorError, path: Path) -> OSError:
    """What stopped safetensors, which has an error of its own for it, as all others say it."""
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
    except (OSError, SafetensorError, KeyError, ValueError) as error:
        raise ValueError(f"cannot read {path}: {error}; expected weights that a training run wrote") from error


def _read_metadata(file: Any) -> dict[str, Any]:
    return dict(json.loads((file.metadata() or {})[_KEY]))
