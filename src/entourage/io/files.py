"""Search for files, atomic writes, checks of output paths, and the error for unreadable files."""

import errno
import json
import operator
import os
import re
import secrets
import shutil
from collections.abc import Iterable, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar


class UnreadableFileError(ValueError):
    """Error for a file that is missing, corrupt or too large.

    Args:
        path: the file.
        reason: the problem, on one line and without the path.

    Attributes:
        path: `path` as a string.
        reason: `reason`.
    """

    kind: ClassVar[str] = "file"

    def __init__(self, path: str | Path, reason: str) -> None:
        super().__init__(f"cannot read {self.kind} {path}: {reason}")
        self.path, self.reason = str(path), reason


def error_reason(error: BaseException) -> str:
    """Return the message of an error on one line, or the name of its type if the message is empty."""
    return " ".join(str(error).split()) or type(error).__name__


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file; an empty dict if the file is missing, damaged or contains another type."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def list_files(folder: str | Path, suffixes: Set[str], kind: str) -> list[Path]:
    """List all files below a folder that have one of the given suffixes, sorted by path.

    Hidden files and folders are skipped. Links to files are followed. Links to folders are not, which excludes loops
    and files outside the folder.

    Args:
        folder: the folder to search, at any depth.
        suffixes: suffixes in lower case.
        kind: description of such a file in error messages.

    Returns:
        Paths that begin with `folder`, at least one. Costs one pass over the directory tree; no file is opened.

    Raises:
        ValueError: the folder is missing, is not a folder, cannot be read, or contains no such file.
    """
    root = Path(folder)
    if not root.is_dir():
        problem = "is not a folder" if root.exists() else "does not exist"
        raise ValueError(f"{root} {problem}; expected a folder of {kind}s")
    paths: list[Path] = []
    for parent, folders, files in os.walk(root, onerror=_raise_unreadable):
        folders[:] = [name for name in folders if not name.startswith(".")]  # in place: os.walk then skips them
        paths += [Path(parent, name) for name in files if has_suffix(name, suffixes)]
    existing = sorted(path for path in paths if path.is_file())  # neither dead links nor pipes
    if not existing:
        raise ValueError(f"folder {root} holds no {kind}; expected files named {', '.join(sorted(suffixes))}")
    return existing


def has_suffix(name: str, suffixes: Set[str]) -> bool:
    """Return whether a file name is not hidden and ends in one of the suffixes, ignoring case."""
    return not name.startswith(".") and Path(name).suffix.lower() in suffixes


def _raise_unreadable(error: OSError) -> None:
    raise ValueError(f"cannot read folder {error.filename}: {error.strerror}") from error


_UNFINISHED = re.compile(r"\..*\.(?P<random>[0-9a-f]{16})(\.[^.]*)?", re.DOTALL)  # see `_temporary_name`


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`, which replaces `path` if the block succeeds and is deleted otherwise.

    The temporary name is hidden, unique, and keeps the suffix, because many writers choose the format by the suffix and
    `numpy.savez` appends a missing one. Missing parent folders are created. An existing file is replaced in one step,
    so that readers find either the old or the new file, never a part.

    Args:
        path: the file to write.

    Yields:
        The path to write to, in the same folder (a rename is atomic only within one file system).

    Raises:
        ValueError: `path` is a folder, or its parent cannot be one.
        OSError: the disk is full or read-only, or the file may not be written; `filename` is `path`.
    """
    target = Path(path)
    if target.is_dir():
        raise ValueError(f"cannot write {target}: it is a folder; expected the name of a file")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ValueError(f"cannot write {target}: {target.parent} is not a folder; expected one") from error
    temporary = target.with_name(_temporary_name(target, f"{secrets.token_hex(4)}{os.getpid():08x}"))
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        raise _with_file(error, temporary, target) from error
    finally:  # also after KeyboardInterrupt; after a success the file no longer exists
        temporary.unlink(missing_ok=True)


_EXPECTED = {
    errno.ENOSPC: "free space, or another folder",
    errno.EDQUOT: "free space, or another folder",
    errno.EFBIG: "a higher limit on the size of files, or another folder",
    errno.EROFS: "another folder",
    errno.EACCES: "permission, or another path",
    errno.EPERM: "permission, or another path",
    errno.ENOENT: "a path that exists",
    errno.EMFILE: "a higher limit on open files",
}


def describe_os_error(error: OSError) -> str:
    """Return an error of the system in one line: file, problem and remedy, without the number of the error."""
    if error.errno is None:
        return error_reason(error)
    file = "" if error.filename is None else f"{os.fsdecode(error.filename)}: "
    problem = os.strerror(error.errno)
    expected = f"; expected {_EXPECTED[error.errno]}" if error.errno in _EXPECTED else ""
    return f"{file}{problem[0].lower()}{problem[1:]}{expected}"


def _with_file(error: OSError, temporary: Path, target: Path) -> OSError:
    """Return an error of writing a temporary file as one of its target; errors of other files are unchanged."""
    if error.filename is not None and os.fsdecode(error.filename) != str(temporary):
        return error
    number = error.errno
    if number is None and shutil.disk_usage(target.parent).free < _FULL:  # NumPy only states the missing bytes
        number = errno.ENOSPC
    return error if number is None else OSError(number, os.strerror(number), str(target))


_FULL = 1 << 16  # bytes; a disk with less is full, because programs write blocks


def is_unfinished(path: str | Path, target: str | None = None) -> bool:
    """Return whether a file has the name of a temporary file of `atomic_path`, which a killed process leaves behind.

    Args:
        path: the file; only its name is used.
        target: name of the file that it was to become; None: any.
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


def _remove_abandoned(target: Path) -> None:
    """Delete the temporary files of `atomic_path` for a file whose processes, by their names, no longer run."""
    for path in target.parent.glob(f".*{target.suffix}"):
        if is_unfinished(path, target.name):
            process = int(path.name.removesuffix(target.suffix)[-8:], 16)
            try:
                os.kill(process, 0)
            except ProcessLookupError:
                path.unlink(missing_ok=True)
            except (PermissionError, OverflowError):  # a process of another user, or no number of a process
                continue


def _temporary_name(target: Path, random: str) -> str:
    # The stem is truncated to keep the name below the limit of most file systems, 255 bytes.
    return f".{target.stem[:40]}.{random}{target.suffix}"


def write_text(path: str | Path, text: str) -> None:
    r"""Write a text file in UTF-8 atomically; see `atomic_path`.

    File names in the text need not be UTF-8: a byte that is not is written as its escape, such as \udce9.
    """
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_json(path: str | Path, value: Any, *, indent: int | None = 2) -> None:
    """Write a value as JSON atomically; see `atomic_path`.

    Args:
        path: the file to write.
        value: a value that `json.dumps` accepts; it may contain NumPy's integers.
        indent: spaces per level; None writes a single line.
    """
    write_text(path, json.dumps(value, indent=indent, default=operator.index) + "\n")


def check_outputs(
    folder: Path, names: Iterable[str] = (), inputs: Iterable[Path | None] = (), *, command: str | None = None
) -> None:
    """Check, before any work is done, that results can be written and will not replace inputs or other results.

    Args:
        folder: output folder; it need not exist.
        names: names of the output files.
        inputs: input files; None is ignored.
        command: the command that writes the results, compared with "made_by" in an existing summary.json; None: the
            folder may contain the results of any command.

    Raises:
        ValueError: the folder or one of its parents is a file; the folder is not writable; an output file is an input;
            the folder contains the results of another command.
    """
    _check_writable(folder)
    earlier = read_json_object(folder / "summary.json").get("made_by", command)
    if command is not None and earlier != command:
        raise ValueError(f"{folder}: contains results of `entourage {earlier}`; expected another folder to write to")
    read = {path.resolve() for path in inputs if path is not None}
    for name in names:
        if (folder / name).resolve() in read:
            raise ValueError(f"{folder / name}: is an input and would be overwritten; expected another output path")


def check_output_file(path: Path, suffix: str, inputs: Iterable[Path | None] = ()) -> None:
    """Check, before any work is done, that an output file has the required suffix, is writable and is not an input.

    Temporary files that killed processes left for it are deleted.

    Args:
        path: the file to write.
        suffix: required suffix, such as ".html", so that a mistyped path does not overwrite an image or a table.
        inputs: input files; None is ignored.

    Raises:
        ValueError: the path has another suffix, is a folder or an input, or its folder is not writable.
    """
    if path.is_dir() or path.suffix.lower() != suffix:
        raise ValueError(f"{path}: not a valid output file; expected a file whose name ends in {suffix}")
    check_outputs(path.parent, [path.name], inputs)
    _remove_abandoned(path)


def _check_writable(folder: Path) -> None:
    """Create and delete a file in the folder or its nearest existing parent; no other test is portable."""
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
