"""Files and folders that one process works on and others leave alone.

A claim is the lock of a file. The system gives it back when its process ends, however that ends.

Which run a folder holds: options and a description that must not change while it goes on.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any, TextIO

try:
    import fcntl
except ImportError:  # Windows has other locks: there all is as if nobody else were at work
    fcntl = None  # type: ignore[assignment]


@contextmanager
def try_lock(target: Path) -> Iterator[bool]:
    """Claims a file or a folder until the block ends, by a hidden file beside it.

    Args:
        target: what is claimed; it need not be there.

    Yields:
        Whether it is claimed now; False: another process has it.
    """
    path = lock_path(target)
    file = _take(path)
    try:
        yield file is not None
    finally:
        if file is not None:
            path.unlink(missing_ok=True)
            file.close()


def lock_path(target: Path) -> Path:
    """The hidden file that stands for a claim."""
    return target.with_name(f".{target.name}.claim")


def _take(path: Path) -> TextIO | None:
    """The open file with its lock; None if another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    while True:
        file = path.open("a")
        try:
            if fcntl is not None:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            return None
        if _is_there(path, file):
            return file
        file.close()  # who had it removed it between the two calls: others would lock another file of that name


def _is_there(path: Path, file: TextIO) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False


_ABSENT = "not set"


def check_config(
    folder: Path,
    then: Mapping[str, Any],
    now: Mapping[str, Any],
    told: Mapping[str, str] = MappingProxyType({}),
    whole: Path | None = None,
) -> None:
    """Refuse to continue a run under other circumstances.

    Args:
        folder: of the run.
        then: what it was started with.
        now: what it is to be continued with.
        told: by name, what to say in place of values that say nothing to people.
        whole: the folder to delete to begin anew; None names none.

    Raises:
        ValueError: names the first value that differs.
    """
    for name in [*now, *(name for name in then if name not in now)]:
        before, after = then.get(name, _ABSENT), now.get(name, _ABSENT)
        if before != after:
            said = told.get(name) or difference(name, before, after)
            ways = "or choose another folder" + ("" if whole is None else f", or {restart_hint(whole)}")
            raise ValueError(f"{folder} holds a run with {said}; continue it as it was started, {ways}")


def restart_hint(folder: Path) -> str:
    """What to do where a run cannot go on: the end of a line that says why."""
    return f"delete the folder {folder} to begin anew"


def difference(name: str, then: Any, now: Any) -> str:
    """Two values that are not the same, told by the first thing in them that differs: a whole recipe would hide it.

    Args:
        name: what they are called.
        then: one of them, as it comes back from JSON.
        now: the other.

    Returns:
        Such as "recipe.stages[1].epochs 2, now 3"; what only one of them has is 'not set' in the other.
    """
    before, after = _parts(then), _parts(now)
    if type(then) is type(now):
        for part in {**after, **before}:
            one, other = before.get(part, _ABSENT), after.get(part, _ABSENT)
            if one != other:
                return difference(f"{name}{part}", one, other)
    return f"{name} {then!r}, now {now!r}"


def _parts(value: Any) -> dict[str, Any]:
    """What a value holds, each by what it adds to the value's name; nothing where it is a plain one."""
    if isinstance(value, dict):
        return {f".{key}": inner for key, inner in value.items()}
    return {f"[{place}]": inner for place, inner in enumerate(value)} if isinstance(value, list) else {}
