"""Records of the finished units of a run, such as pages: one file per unit, written in one step."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable
from pathlib import Path, PurePosixPath
from typing import Generic, TypeVar

from entourage.io.files import atomic_path, is_unfinished

T = TypeVar("T")

_RESERVED = ".begun"


class RecordStore(Generic[T]):
    """Records of finished units of work in a folder, by key, with the output files that belong to them.

    `KEY.SUFFIX` is the record of a finished unit. `KEY.begun` is its reservation: a list of the output files that may
    exist from now on. It is written before these files, so that a killed process leaves no unknown file. Any number of
    processes may use a store at once if each key is used by one of them only.

    Args:
        folder: the folder of the records; it is made with the first one.
        suffix: ending of the record files, such as ".json".
        read: function that reads a record from a file; it returns None or raises a ValueError if the file is damaged.
        write: function that writes a record to a file.
        root: the folder that output files lie in; None: `folder`.
        folders: the folders below `root` that units write to. Only files directly in them are reserved or deleted.
        outputs: function that returns the output files listed in a record file, relative to `root`, also if `read`
            returns None, as for records of an earlier version. None: records list no files, and the reservation of a
            finished unit stays as long as its record.
    """

    def __init__(
        self,
        folder: Path,
        suffix: str,
        read: Callable[[Path], T | None],
        write: Callable[[Path, T], None],
        *,
        root: Path | None = None,
        folders: Collection[str] = (),
        outputs: Callable[[Path], Iterable[str]] | None = None,
    ) -> None:
        self.folder = folder
        self.suffix = suffix
        self.root = folder if root is None else root
        self.folders = tuple(folders)
        self._read, self._write, self._outputs = read, write, outputs

    def path(self, key: str) -> Path:
        """Return the path of the record file of a unit.

        Raises:
            ValueError: the key is empty or cannot be part of a file name.
        """
        return self.folder / f"{_check_key(key)}{self.suffix}"

    def keys(self) -> list[str]:
        """Return the keys of all record files, sorted; damaged ones are included."""
        return self._stems(self.suffix)

    def get(self, key: str) -> T | None:
        """Return the record of a unit, or None if it is missing or damaged."""
        path = self.path(key)
        if not path.is_file():
            return None
        try:
            return self._read(path)
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def put(self, key: str, value: T) -> None:
        """Write the record of a unit in one step; an earlier one is replaced.

        Raises:
            OSError: the record cannot be written, for example to a full disk.
        """
        with atomic_path(self.path(key)) as temporary:
            self._write(temporary, value)

    def invalidate(self, key: str) -> None:
        """Delete the record of a unit before the unit is repeated; the files in it are reserved first."""
        path = self.path(key)
        if self._outputs is not None and path.is_file():
            self.reserve(key, (file for file in self._outputs(path) if self._is_output(file)))
        path.unlink(missing_ok=True)

    def reserve(self, key: str, outputs: Iterable[str | Path]) -> None:
        """Note output files of a unit before they are written.

        Args:
            key: the unit.
            outputs: the files, relative to `root`.

        Raises:
            ValueError: a file does not lie directly in one of `folders`.
            OSError: the reservation cannot be written, for example to a full disk.
        """
        files = [PurePosixPath(output).as_posix() for output in outputs]
        for file in files:
            if not self._is_output(file):
                raise ValueError(f"{file}: not an output; expected a file in {', '.join(self.folders) or 'no folder'}")
        path = self._reservation(key)
        if not files:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("a", encoding="utf-8") as stream:
                # The line break comes first, so that an incomplete line of a killed process does not damage the next
                # line.
                stream.write("".join(f"\n{json.dumps(file)}" for file in files))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(path)) from error  # a full disk names no file

    def reserved(self, key: str) -> list[str]:
        """Return the files reserved for a unit; incomplete lines are skipped, as their files were not written."""
        path, files = self._reservation(key), []
        for line in path.read_bytes().splitlines() if path.is_file() else ():
            try:
                file = json.loads(line)
            except ValueError:
                continue
            if isinstance(file, str):
                files.append(file)
        return files

    def remove_stale(self, keep: Collection[str], protected: Collection[Path] = ()) -> list[Path]:
        """Delete all records except those of `keep`, and all output files that no remaining record lists.

        Only files that a record lists or that were reserved are deleted. The reservations are deleted last, so that a
        process that is killed here does not lose them.

        Args:
            keep: keys of the records that stay.
            protected: files that stay in any case, such as the inputs of the run.

        Returns:
            The output files that were deleted, sorted. Costs reading the lists of all records.
        """
        records, reservations = self.keys(), self._stems(_RESERVED)
        listed = {key: self._listed(key) for key in records}
        reserved = {key: self.reserved(key) for key in reservations}
        current = {file for key in keep for file in (listed if self._outputs else reserved).get(key, ())}
        known = {file for files in (*listed.values(), *reserved.values()) for file in files}
        inputs = {path.resolve() for path in protected}
        stale = [self.root / file for file in sorted(known - current) if self._is_output(file)]
        removed = [path for path in stale if _is_plain_file(path) and path.resolve() not in inputs]
        for path in removed:
            path.unlink(missing_ok=True)
        for key in records:
            if key not in keep:
                self.path(key).unlink(missing_ok=True)
        for key in reservations:
            if self._outputs or key not in keep:
                self._reservation(key).unlink(missing_ok=True)
        return removed

    def _listed(self, key: str) -> list[str]:
        return [] if self._outputs is None else list(self._outputs(self.path(key)))

    def _reservation(self, key: str) -> Path:
        return self.folder / f"{_check_key(key)}{_RESERVED}"

    def _stems(self, suffix: str) -> list[str]:
        paths = self.folder.glob(f"*{suffix}") if self.folder.is_dir() else ()
        return sorted(path.name.removesuffix(suffix) for path in paths if not is_unfinished(path))

    def _is_output(self, file: str) -> bool:
        """Return whether a file lies directly in one of the folders; a damaged list may name other files."""
        path = PurePosixPath(file)
        return path.name not in ("", "..") and path.parent.as_posix() in self.folders


def _is_plain_file(path: Path) -> bool:
    return path.is_file() and not path.is_symlink()


def _check_key(key: str) -> str:
    if not key or "/" in key or "\\" in key or "\0" in key:
        raise ValueError(f"key is {key!r}; expected a name without slashes")
    return key
