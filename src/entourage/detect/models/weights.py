"""A detector in files: safetensors, in one or in several pieces, with classes, options and notes in the header."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from entourage import __version__
from entourage.detect.models.model import WatershedDetector
from entourage.detect.options import DetectorOptions
from entourage.io.files import reason_of

_KEY = "entourage.detect"
PIECE = 16 * 2**20  # bytes of tensors in a file
_PIECE_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})$")


class NoDetectorError(ValueError):
    """There is no file of a detector where one is looked for."""


def save_detector(
    model: WatershedDetector, path: str | Path, *, half: bool = False, piece: int | None = None
) -> list[Path]:
    """Write weights, classes, options and notes.

    Args:
        model: what is kept.
        path: a file that ends in .safetensors.
        half: keep weights in 16 bits, which halves the file; what is read is single precision again.
        piece: most bytes of tensors in a file; what is larger becomes `name-00001-of-00002.safetensors` and so on.

    Returns:
        The files.
    """
    from entourage.io.weights import write_weights  # who only detects does not load the training loop

    path = Path(path)
    head = {
        "entourage": __version__,
        "classes": list(model.classes),
        "options": model.options.to_dict(),
        "notes": model.notes,
        "sides": None if model.sides is None else model.sides.tolist(),
    }
    state = {name: torch.empty(value.shape, dtype=value.dtype).copy_(value) for name, value in _state(model).items()}
    if half:  # not buffers: statistics need their digits
        state |= {name: state[name].half() for name, _ in model.named_parameters()}
    pieces = _pieces(state, piece)
    names = [path] if len(pieces) == 1 else [_piece_path(path, number, len(pieces)) for number in range(len(pieces))]
    for name, tensors in zip(names, pieces, strict=True):
        write_weights(name, tensors, head, key=_KEY)
    return names


def find_pieces(path: str | Path) -> list[Path]:
    """The files of a detector: `path` itself, or the pieces that it was cut into.

    Args:
        path: as given to `save_detector`, or any one of the pieces.

    Raises:
        NoDetectorError: a ValueError; there is neither.
        ValueError: a piece is missing.
    """
    path = Path(path)
    match = _PIECE_NAME.match(path.stem)
    whole = path.with_name(f"{match['stem']}{path.suffix}") if match else path
    if not match and whole.is_file():
        return [whole]
    found = sorted(whole.parent.glob(f"{whole.stem}-[0-9]*-of-[0-9]*{whole.suffix}"))
    counts = [int(one["count"]) for one in (_PIECE_NAME.match(file.stem) for file in found) if one]
    if not counts:
        raise NoDetectorError(f"{path}: no such file; expected a detector that `entourage detect train` wrote")
    expected = [_piece_path(whole, number, counts[-1]) for number in range(counts[-1])]
    missing = [file.name for file in expected if not file.is_file()]
    if missing:
        raise ValueError(f"{path}: {', '.join(missing)} missing; expected all {counts[-1]} pieces in one folder")
    return expected


def load_detector(path: str | Path) -> WatershedDetector:
    """Read what `save_detector` wrote; the detector is on the CPU and in evaluation mode.

    Raises:
        ValueError: a file is missing, damaged, or holds something else.
    """
    path = Path(path)
    head, state = read_detector(path)
    try:
        model = WatershedDetector(head["classes"], DetectorOptions.from_dict(head["options"]))
        model.load_state_dict(state)
        model.notes = dict(head.get("notes", {}))
        if head.get("sides") is not None:
            model.remember(torch.tensor(head["sides"]))
    except (KeyError, TypeError, RuntimeError, ValueError) as error:
        raise ValueError(f"{path}: was written by another version of entourage: {reason_of(error)[:200]}") from error
    return model.eval()


def read_detector(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The header (classes, options, notes) and the tensors of a detector's files.

    Raises:
        ValueError: a file is missing, damaged, or holds something else.
    """
    head: dict[str, Any] | None = None
    state: dict[str, Tensor] = {}
    for file_path in find_pieces(path):
        try:
            with safe_open(file_path, framework="pt") as file:
                head = json.loads((file.metadata() or {}).get(_KEY, "null"))
                state |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
        except (SafetensorError, OSError, ValueError) as error:
            raise ValueError(f"{file_path}: cannot be read: {reason_of(error)}") from error
        if not isinstance(head, dict):
            raise ValueError(f"{file_path}: holds no detector; expected one that `entourage detect train` wrote")
    assert head is not None
    return head, state


def _state(model: WatershedDetector) -> dict[str, Tensor]:
    return {name: value.detach().cpu() for name, value in model.state_dict().items()}


def _pieces(state: dict[str, Tensor], most: int | None) -> list[dict[str, Tensor]]:
    pieces: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, value in state.items():
        size = value.numel() * value.element_size()
        if most is not None and pieces[-1] and filled + size > most:
            pieces.append({})
            filled = 0
        pieces[-1][name] = value
        filled += size
    return pieces


def _piece_path(path: Path, number: int, count: int) -> Path:
    return path.with_name(f"{path.stem}-{number + 1:05d}-of-{count:05d}{path.suffix}")
