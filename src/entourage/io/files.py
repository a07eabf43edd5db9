"""Files of a kind, whatever the kind: find them below a folder, read one, and say of one that it cannot be read."""

import json
import os
from collections.abc import Set
from pathlib import Path
from typing import Any, ClassVar


class UnreadableFileError(ValueError):
    """A file that is missing, corrupt or too large.

    Args:
        path: the file.
        reason: what is wrong with it, on one line and without the path.

    Attributes:
        path: as it was given, as a text.
        reason: as it was given.
    """

    kind: ClassVar[str] = "file"

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"cannot read {self.kind} {path}: {reason}")
        self.path, self.reason = str(path), reason


def reason_of(error: BaseException) -> str:
    """What an error says, on one line; its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def read_object(path: Path) -> dict[str, Any]:
    """What an object in a file of JSON holds; nothing, if the file is missing, damaged, or holds something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def list_files(folder: str | Path, suffixes: Set[str], kind: str) -> list[Path]:
    """All files below a folder that are named like one kind, sorted by path.

    Hidden files and folders are skipped. Links to folders are not followed, so a loop or a link that leads out of the
    folder is harmless; a link to a file counts as that file.

    Args:
        folder: where to look, at any depth.
        suffixes: of the kind's files, in small letters.
        kind: what an error calls one of them.

    Returns:
        Paths that begin with `folder`, at least one. Costs one pass over the directory tree; no file is opened.

    Raises:
        ValueError: the folder is missing, is not a folder, cannot be read, or holds no such file.
    """
    root = Path(folder)
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise ValueError(f"{root} {problem}; expected a folder of {kind}s")
    found: list[Path] = []
    for parent, folders, files in os.walk(root, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]  # in place: os.walk then skips them
        found += [Path(parent, name) for name in files if is_named_like(name, suffixes)]
    existing = sorted(path for path in found if path.is_file())  # neither dead links nor pipes
    if not existing:
        raise ValueError(f"folder {root} holds no {kind}; expected files named {', '.join(sorted(suffixes))}")
    return existing


def is_named_like(name: str, suffixes: Set[str]) -> bool:
    """Whether a file is not hidden and has one of the suffixes, in letters of any size."""
    return not name.startswith(".") and Path(name).suffix.lower() in suffixes


def _refuse(error: OSError) -> None:
    raise ValueError(f"cannot read folder {error.filename}: {error.strerror}") from error
