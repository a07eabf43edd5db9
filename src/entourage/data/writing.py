"""Output files that are either complete or not there at all."""

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
    # The name is cut short: together with the random part it must stay below the 255 bytes of most file systems.
    temporary = target.with_name(f".{target.stem[:40]}.{secrets.token_hex(8)}{target.suffix}")
    try:
        yield temporary
        temporary.replace(target)
    finally:  # also after KeyboardInterrupt; after a success there is nothing left to remove
        temporary.unlink(missing_ok=True)
