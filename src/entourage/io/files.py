"""Files of a kind, whatever the kind: find them below a folder, read one, and say of one that it cannot be read.

Output files that are either complete or not there at all.
"""

import json
import operator
import os
import re
import secrets
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
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


def error_reason(error: BaseException) -> str:
    """What an error says, on one line; its kind where it says nothing."""
    return " ".join(str(error).split()) or type(error).__name__


def read_json_object(path: Path) -> dict[str, Any]:
    """What an object in a file of JSON holds; nothing, if the file is missing, damaged, or holds something else."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


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
    for parent, folders, files in os.walk(root, onerror=_raise_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]  # in place: os.walk then skips them
        found += [Path(parent, name) for name in files if has_suffix(name, suffixes)]
    existing = sorted(path for path in found if path.is_file())  # neither dead links nor pipes
    if not existing:
        raise ValueError(f"folder {root} holds no {kind}; expected files named {', '.join(sorted(suffixes))}")
    return existing


def has_suffix(name: str, suffixes: Set[str]) -> bool:
    """Whether a file is not hidden and has one of the suffixes, in letters of any size."""
    return not name.startswith(".") and Path(name).suffix.lower() in suffixes


def _raise_unreadable(error: OSError) -> None:
    raise ValueError(f"cannot read folder {error.filename}: {error.strerror}") from error


_UNFINISHED = re.compile(r"\..*\.(?P<random>[0-9a-f]{16})(\.[^.]*)?", re.DOTALL)  # as `_temporary_name` makes them


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside `path`; it becomes `path` when the block succeeds and vanishes when it does not.

    The temporary name is hidden, unique, and keeps the suffix, because many writers choose the format by it (and
    `numpy.savez` adds one of its own). Missing parent folders are made. An existing target is replaced in one step, so
    a reader sees the old file or the new one, never a part.

    Args:
        path: the file to write.

    Yields:
        The path to write to, in the same folder (a rename is atomic only within one file system).

    Raises:
        ValueError: `path` is a folder, or its parent cannot be one.
    """
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"cannot write {target}: it is a folder; expected the name of a file")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ValueError(f"cannot write {target}: {target.parent} is not a folder") from error
    temporary = target.with_name(_temporary_name(target, secrets.token_hex(8)))
    try:
        yield temporary
        temporary.replace(target)
    finally:  # also after KeyboardInterrupt; after a success there is nothing left to remove
        temporary.unlink(missing_ok=True)


def is_unfinished(path: str | Path, target: str | None = None) -> bool:
    """Whether a name is one that `atomic_path` gives to what is not yet complete, and that a kill leaves behind.

    Args:
        path: the file; only its name is looked at.
        target: the name of the file that it was to become; None: any.
    """
    name = Path(path).name
    match = _UNFINISHED.fullmatch(name)
    return match is not None and (target is None or name == _temporary_name(Path(target), match["random"]))


def remove_unfinished(folder: Path, *, recursive: bool = False) -> None:
    """Delete the temporary files of `atomic_path` that a killed process left in a folder.

    Args:
        folder: the folder; no process may be writing to it. It need not exist.
        recursive: also delete those in all folders below it.
    """
    for path in (folder.rglob if recursive else folder.glob)(".*"):
        if is_unfinished(path) and path.is_file():
            path.unlink(missing_ok=True)


def _temporary_name(target: Path, random: str) -> str:
    # The name is cut short: together with the random part it must stay below the 255 bytes of most file systems.
    return f".{target.stem[:40]}.{random}{target.suffix}"


def write_text(path: str | Path, text: str) -> None:
    """Write a text in UTF-8, whole or not at all; see `atomic_path`.

    Names of files need not be UTF-8: a byte that is not is written as its number, such as \\udce9.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | Path, value: Any, *, indent: int | None = 2) -> None:
    """Write a value as JSON, whole or not at all; see `atomic_path`.

    Args:
        path: the file to write.
        value: what `json.dumps` takes, or NumPy's whole numbers in it.
        indent: spaces a level; None writes a single line.
    """
    write_text(path, json.dumps(value, indent=indent, default=operator.index) + "\n")


def check_outputs(
    folder: Path, names: Iterable[str] = (), inputs: Iterable[Path | None] = (), *, command: str | None = None
) -> None:
    """Notice before any work that results have nowhere to go, or would replace what they are made from.

    Args:
        folder: where they are to be written; it need not exist.
        names: of their files.
        inputs: what they are made from; None is left out.
        command: the command that makes them, as its summary.json says under "made_by"; None: anything may lie there.

    Raises:
        ValueError: the folder, or one above it, is a file; it cannot be written to; it holds an input under the name
            of a result, or the results of another command.
    """
    _check_writable(folder)
    earlier = read_json_object(folder / "summary.json").get("made_by", command)
    if command is not None and earlier != command:
        raise ValueError(f"{folder}: holds what `entourage {earlier}` made; expected another folder to write to")
    read = {path.resolve() for path in inputs if path is not None}
    for name in names:
        if (folder / name).resolve() in read:
            raise ValueError(f"{folder / name}: is read and would be overwritten; expected another place to write to")


def check_output_file(path: Path, suffix: str, inputs: Iterable[Path | None] = ()) -> None:
    """Notice before any work that a single file has nowhere to go, or would replace what is no result of its kind.

    Args:
        path: the file to write.
        suffix: how its name ends, as ".html": a slip of the hand names an image, or a table, and it would be lost.
        inputs: what it is made from; None is left out.

    Raises:
        ValueError: its name ends otherwise, it is a folder or one of the inputs, or its folder cannot be written to.
    """
    if path.is_dir() or path.suffix.lower() != suffix:
        raise ValueError(f"{path}: is no place for the result; expected a file to write whose name ends in {suffix}")
    check_outputs(path.parent, [path.name], inputs)


def _check_writable(folder: Path) -> None:
    """Make and remove a file, in the folder or where it would be made: only so can one tell on every file system."""
    existing = next((path for path in (folder, *folder.parents) if path.exists()), Path())
    if not existing.is_dir():
        raise ValueError(f"{existing}: is a file; expected a folder to write to")
    probe = existing / f".{secrets.token_hex(8)}"
    try:
        probe.touch(exist_ok=False)
        probe.unlink()
    except OSError as error:
        reason = error.strerror or str(error)
        raise ValueError(f"{folder}: cannot be written to ({reason}); expected a folder to write to") from error
