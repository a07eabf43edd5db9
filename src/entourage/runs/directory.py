"""Run directories: a lock, the configuration that a run was started with, and the comparison of configurations."""

from __future__ import annotations

import json
import operator
import os
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Literal, TextIO

from entourage.io.files import remove_unfinished, write_json

try:
    import fcntl
except ImportError:  # Windows has no flock: there, every lock is acquired
    fcntl = None  # type: ignore[assignment]

_ABSENT = "not set"
_NO_MESSAGES: Mapping[str, str] = MappingProxyType({})


@contextmanager
def try_lock(target: Path) -> Iterator[bool]:
    """Lock a file or folder until the block ends, without waiting.

    The lock is a flock on a hidden file next to the target. The system releases it when the process ends, also if it is
    killed. Locks within one process exclude each other, too.

    Args:
        target: the file or folder; it need not exist. Missing parent folders are created.

    Yields:
        Whether the lock was acquired.
    """
    path = lock_path(target)
    file = _acquire(path)
    try:
        yield file is not None
    finally:
        if file is not None:
            if _is_same_file(path, file):  # the folder may have been deleted and the lock taken by another process
                path.unlink(missing_ok=True)
            file.close()


def lock_path(target: Path) -> Path:
    """Return the path of the hidden file that `try_lock` locks for a target."""
    return target.with_name(f".{target.name}.claim")


def _acquire(path: Path) -> TextIO | None:
    """Lock a file and return it open, or return None if another process holds the lock."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = path.open("a")
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        if _is_same_file(path, file):
            return file
        file.close()  # its holder deleted it between the two calls; another process would lock a new file of that name


def _is_same_file(path: Path, file: TextIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


@contextmanager
def lock_directory(path: Path, state: Path | None = None) -> Iterator[None]:
    """Lock a run directory until the block ends; run directories inside it have separate locks.

    Args:
        path: the directory, for the message.
        state: folder of the lock file; None: the directory itself.

    Raises:
        ValueError: another process holds the lock.
    """
    with try_lock((path if state is None else state) / "run") as locked:
        if not locked:
            raise ValueError(f"{path}: another process is writing to it; wait for it, or choose another folder")
        yield


def check_config(
    path: Path,
    stored: Mapping[str, Any],
    current: Mapping[str, Any],
    messages: Mapping[str, str] = _NO_MESSAGES,
    root: Path | None = None,
) -> None:
    """Check that a run is resumed with the configuration that it was started with.

    Args:
        path: the run directory, for the message.
        stored: the configuration that the run was started with, as JSON returns it.
        current: the configuration that it is to be resumed with.
        messages: by name, the text to print instead of values without a meaning for users, such as digests.
        root: the folder to delete to start from scratch; None: the message suggests none.

    Raises:
        ValueError: a value differs, or only one configuration has it; the message names the first such value.
    """
    for name in _different_names(stored, current):
        message = messages.get(name) or difference(name, stored.get(name, _ABSENT), current.get(name, _ABSENT))
        advice = "or choose another folder" + ("" if root is None else f", or {restart_hint(root)}")
        raise ValueError(f"{path} holds a run with {message}; resume it with the same configuration, {advice}")


def restart_hint(folder: Path) -> str:
    """Return the advice, at the end of an error message, to delete a folder and start from scratch."""
    return f"delete the folder {folder} to start from scratch"


def difference(name: str, stored: Any, current: Any) -> str:
    """Describe the first difference between two values, without the parts that are equal.

    Args:
        name: name of the value.
        stored: the earlier value, as JSON returns it.
        current: the current value.

    Returns:
        A text such as "recipe.stages[1].epochs 2, now 3"; a part that only one value has is 'not set' in the other.
    """
    before, after = _parts(stored), _parts(current)
    if type(stored) is type(current):
        for part in {**after, **before}:
            one, other = before.get(part, _ABSENT), after.get(part, _ABSENT)
            if _differ(one, other):
                return difference(f"{name}{part}", one, other)
    return f"{name} {stored!r}, now {current!r}"


def _different_names(stored: Mapping[str, Any], current: Mapping[str, Any]) -> Iterator[str]:
    for name in {**current, **stored}:
        if _differ(stored.get(name, _ABSENT), current.get(name, _ABSENT)):
            yield name


def _differ(one: Any, other: Any) -> bool:
    return bool(one != other) and repr(one) != repr(other)  # NaN is unequal to itself


def _parts(value: Any) -> dict[str, Any]:
    """Return the items of a dict or list by the suffix that names them, ".key" or "[0]"; {} for other values."""
    if isinstance(value, dict):
        return {f".{key}": part for key, part in value.items()}
    return {f"[{index}]": part for index, part in enumerate(value)} if isinstance(value, list) else {}


class RunDirectory:
    """Lock a run directory and check that it was started with the same configuration.

    A context manager. On entry it locks the directory, compares the stored configuration with the current one and
    deletes temporary files that a killed process left. The caller writes the configuration with `commit`, before or
    after the first result that can be resumed.

        with RunDirectory(out, config, file=".state/options.json", folders=("images",)) as run:
            run.commit()
            ...

    Args:
        path: the directory; it is made if necessary. None: nothing is locked, compared or written.
        config: values by name that determine the results; anything that JSON can represent, or NumPy's integers.
        file: path of the stored configuration below `path`. The lock lies in the same folder. If that is a folder below
            `path`, all of its temporary files are deleted on entry.
        messages: see `check_config`.
        root: see `check_config`.
        on_mismatch: "error" raises an error if the configurations differ. "restart" only sets `restarted`; the caller
            then deletes the earlier results and calls `commit`, in this order, so that a killed process does not leave
            results of one configuration under another.
        owner: whether this process locks and writes. The other processes of a distributed run only compare.
        deferred: names of values that `check` adds later. Until then they are not compared.
        resumable: returns whether there is anything to resume. As long as there is not, a stored configuration is
            ignored and replaced. None: a stored configuration always counts.
        folders: names of folders below `path` whose temporary files are deleted on entry, as those in `path` are.

    Attributes:
        config: the current configuration, as JSON returns it.
        stored: the stored configuration; empty if it is missing, damaged or ignored.
        resumed: whether there is a stored configuration and it equals the current one, as far as compared.
        restarted: whether `on_mismatch` is "restart" and the stored configuration differs or is damaged.

    Raises:
        ValueError: on entry: another process holds the lock, the stored configuration is damaged, or a value differs;
            the message names the first such value.
    """

    def __init__(
        self,
        path: Path | None,
        config: Mapping[str, Any],
        *,
        file: str,
        messages: Mapping[str, str] = _NO_MESSAGES,
        root: Path | None = None,
        on_mismatch: Literal["error", "restart"] = "error",
        owner: bool = True,
        deferred: Collection[str] = (),
        resumable: Callable[[], bool] | None = None,
        folders: Iterable[str] = (),
    ) -> None:
        self.path = path
        self.config = to_json_values(config)
        self.stored: dict[str, Any] = {}
        self.resumed = self.restarted = False
        self._file = None if path is None else path / file
        self._messages, self._root = messages, root
        self._on_mismatch, self._owner = on_mismatch, owner
        self._deferred, self._resumable, self._folders = set(deferred), resumable, tuple(folders)
        self._stack = ExitStack()

    def __enter__(self) -> RunDirectory:
        if self.path is None or self._file is None:
            return self
        with ExitStack() as stack:  # releases the lock if the comparison fails
            if self._owner:
                stack.enter_context(lock_directory(self.path, self._file.parent))
            self._read()
            self._compare()
            if self._owner:
                self._remove_unfinished(self.path, self._file.parent)
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.close()

    def check(self, **values: Any) -> None:
        """Add values that are known only now, such as the digest of the images, and compare them.

        Args:
            values: by name; the names of `deferred`.

        Raises:
            ValueError: a value differs from the stored one, unless `on_mismatch` is "restart".
        """
        self.config |= to_json_values(values)
        self._deferred -= values.keys()
        if self.resumed:
            self._compare()

    def commit(self) -> None:
        """Write the configuration, unless the run is resumed; without effect in processes other than the owner.

        Raises:
            RuntimeError: a deferred value has not been checked.
        """
        if self._file is None or not self._owner or self.resumed or (self._resumable is not None and self._resumable()):
            return
        if self._deferred:
            raise RuntimeError(f"{', '.join(sorted(self._deferred))} not checked; expected check() before commit()")
        write_json(self._file, self.config)

    def _read(self) -> None:
        """Read the stored configuration, and set `stored` and `resumed`."""
        if self._file is None or (self._resumable is not None and not self._resumable()) or not self._file.is_file():
            return
        try:
            stored = json.loads(self._file.read_text(encoding="utf-8"))
        except ValueError:
            stored = None
        if isinstance(stored, dict):
            self.stored, self.resumed = stored, True
        elif self._on_mismatch == "error":
            advice = "" if self._root is None else f", or {restart_hint(self._root)}"
            raise ValueError(f"{self._file} is damaged; choose another folder{advice}")
        else:
            warnings.warn(f"{self._file} is damaged; the run starts from scratch", stacklevel=3)
            self.restarted = True

    def _compare(self) -> None:
        """Compare all values of the configuration except the deferred ones with the stored configuration."""
        if not self.resumed or self.path is None:
            return
        stored = {name: value for name, value in self.stored.items() if name not in self._deferred}
        if self._on_mismatch == "error":
            check_config(self.path, stored, self.config, self._messages, self._root)
        elif any(_different_names(stored, self.config)):
            self.resumed, self.restarted = False, True

    def _remove_unfinished(self, path: Path, state: Path) -> None:
        for folder in (path, *(path / name for name in self._folders)):
            remove_unfinished(folder)
        if state != path:
            remove_unfinished(state, recursive=True)


def to_json_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values as JSON returns them: tuples as lists, NumPy's integers as Python's."""
    return dict(json.loads(json.dumps(dict(values), default=operator.index)))
