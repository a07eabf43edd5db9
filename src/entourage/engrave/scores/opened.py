"""An archive that stays open while its members are read one after another."""

from __future__ import annotations

import tarfile
import weakref
import zipfile
from functools import cached_property
from pathlib import Path
from typing import IO


class OpenArchive:
    """A ZIP or a tar that is open for reading, until it is closed or nobody knows of it any more.

    To open a compressed tar and list its members is to unpack all of it; to go back in it is to begin anew.

    Args:
        path: the file.
        is_zip: which of the two it is.
    """

    def __init__(self, path: Path, *, is_zip: bool) -> None:
        self._path, self._stamp = path, _stamp(path)
        self._archive = zipfile.ZipFile(path) if is_zip else tarfile.open(path)  # noqa: SIM115 - `close` is below
        self.close = weakref.finalize(self, self._archive.close)

    def is_of(self, path: Path) -> bool:
        """Whether that is the file that is open, and has not been replaced since."""
        return path == self._path and _stamp(path) == self._stamp

    def open(self, member: str) -> IO[bytes] | None:
        """The stream of a member; None if it is not a regular file.

        Raises:
            FileNotFoundError: there is no such member any more.
        """
        try:
            if isinstance(self._archive, zipfile.ZipFile):
                return self._archive.open(member)
            return self._archive.extractfile(self._members[member])
        except KeyError as error:
            raise FileNotFoundError("no such file in the archive") from error

    @cached_property
    def _members(self) -> dict[str, tarfile.TarInfo]:
        """What is in a tar, by name; of equal names the last, as `tarfile` has it, which looks at all for each."""
        return {info.name: info for info in self._archive} if isinstance(self._archive, tarfile.TarFile) else {}


def _stamp(path: Path) -> tuple[int, int, int]:
    """What changes with a file."""
    known = path.stat()
    return known.st_ino, known.st_size, known.st_mtime_ns
