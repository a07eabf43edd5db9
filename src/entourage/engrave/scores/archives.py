"""Scores in files, folders and archives: listing them and reading their bytes.

All sources are untrusted. Nothing is unpacked to disk: members of archives are read into memory, up to a limit on the
decompressed size. The name of a member is a label and never a path to write to.
"""

from __future__ import annotations

import os
import tarfile
import weakref
import zipfile
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Self, TypeVar

from entourage.engrave.scores.notations import read_limited, tune_numbers, unpack_mxl, zip_errors
from entourage.io.safe_formats import READ_ERRORS

SCORE_SUFFIXES = (".xml", ".musicxml", ".mxl", ".mei", ".abc", ".krn")
_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_SCORE_BYTES = 64 * 2**20  # the largest orchestral scores are about 40 MB of MusicXML
MAX_MEMBERS = 500_000
# Errors of unreadable files and archives; ValueErrors have their message already.
_UNREADABLE = (*(error for error in READ_ERRORS if error is not ValueError), UnicodeError, tarfile.TarError)
T = TypeVar("T")


class OpenArchive:
    """A ZIP or tar archive that is open for reading until it is closed or garbage-collected.

    Listing the members of a compressed tar decompresses all of it; seeking backwards decompresses it from the start.

    Args:
        path: the archive.
        is_zip: whether it is a ZIP archive; otherwise a tar archive.
    """

    def __init__(self, path: Path, *, is_zip: bool) -> None:
        self._path, self._file_state = path, _file_state(path)
        with zip_errors():
            self._archive = zipfile.ZipFile(path) if is_zip else tarfile.open(path)  # noqa: SIM115 - `close` is below
        self.close = weakref.finalize(self, self._archive.close)

    def is_current(self, path: Path) -> bool:
        """Return whether this is the archive at `path` and the file has not been replaced since it was opened."""
        return path == self._path and _file_state(path) == self._file_state

    def file_names(self) -> list[str]:
        """Return the names of the regular files in the archive, in its order."""
        if isinstance(self._archive, zipfile.ZipFile):
            infos = _limited(self._archive.infolist(), "files", self._path)
            return [info.filename for info in infos if not info.is_dir()]
        return [info.name for info in _limited(self._archive, "files", self._path) if info.isfile()]

    def open(self, member: str) -> IO[bytes] | None:
        """Open a member for reading; return None if it is not a regular file.

        Raises:
            FileNotFoundError: the archive has no such member.
        """
        try:
            if isinstance(self._archive, zipfile.ZipFile):
                with zip_errors():
                    return self._archive.open(member)
            return self._archive.extractfile(self._tar_members[member])
        except KeyError as error:
            raise FileNotFoundError("no such file in the archive") from error

    @cached_property
    def _tar_members(self) -> dict[str, tarfile.TarInfo]:
        """Members of a tar by name, the last of equal names; `tarfile` would search its list for every name."""
        return {info.name: info for info in self._archive} if isinstance(self._archive, tarfile.TarFile) else {}


def _file_state(path: Path) -> tuple[int, int, int]:
    """Return inode, size and modification time of a file, which change when it is replaced."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


class _ScoreEntry(NamedTuple):
    """A score before it has a unique name, which `_assign_names` forms from `name` and `suffix`."""

    name: str
    suffix: str
    path: Path
    member: str
    tune: int
    member_index: int


@dataclass(frozen=True)
class ScoreFile:
    """Location of a score: a file, or a part of a file or archive.

    Attributes:
        name: name in the output, unique among the scores that were found together.
        path: the file or archive.
        member: name inside the archive, or "".
        tune: number of the tune in an ABC file with several, from 1; else 0.
        member_index: index of the member among the scores of the archive.
    """

    name: str
    path: Path
    member: str = ""
    tune: int = 0
    member_index: int = 0

    def __str__(self) -> str:
        where = f"{self.path}:{self.member}" if self.member else str(self.path)
        return f"{where}, tune {self.tune}" if self.tune else where


def find_scores(sources: Iterable[str | Path], exclude: Path | None = None) -> list[ScoreFile]:
    """List the scores in files, folders (at any depth) and archives (.zip, .tar, compressed or not).

    Each tune of an ABC file with several tunes is a separate score, named NAME-X12 after its `X:` field.

    Args:
        sources: files, folders and archives. A file that is listed here may have any suffix; hidden files and folders
            are skipped unless they are listed here.
        exclude: a folder that is not searched, such as the output folder.

    Returns:
        The scores without duplicates, in an order that depends on their names only.

    Raises:
        ValueError: a source does not exist, lies in the excluded folder, is neither a regular file, a folder nor a
            readable archive, or has more than `MAX_MEMBERS` members; or no source contains a score.
    """
    entries: list[_ScoreEntry] = []
    for source in map(Path, sources):
        if not source.exists():
            raise ValueError(f"{source}: does not exist; expected a score, a folder of scores or an archive of scores")
        parents = (source, *source.resolve().parents)
        if exclude is not None and any(_is_same_folder(folder, exclude) for folder in parents):
            raise ValueError(f"{source}: lies in the output folder {exclude}; expected scores outside of it")
        if source.is_dir():
            for path in _search_folder(source, exclude):
                name = path.relative_to(source).as_posix()
                entries += _limited(_list_tunes(name, path, "", partial(_open, path)), "tunes", path)
        elif not source.is_file():  # reading a pipe would block
            raise ValueError(f"{source}: is not a regular file; expected a score, a folder or an archive of scores")
        elif _is_archive(source):
            entries += _list_archive(source)
        else:
            entries += _limited(_list_tunes(source.name, source, "", partial(_open, source)), "tunes", source)
    if not entries:
        listed = ", ".join(map(str, sources)) or "nothing"
        raise ValueError(f"no score in {listed}; expected files named {' '.join(SCORE_SUFFIXES)}")
    return _assign_names(entries)


class ArchiveReader:
    """Reads scores one after another and keeps the last archive open.

    Read the scores of an archive in the order of their `member_index`: seeking backwards in a compressed tar
    decompresses it from the start.
    """

    def __init__(self) -> None:
        self._archive: OpenArchive | None = None
        self._last = ("", b"")  # name and bytes of the last member, which is read once for all its tunes and fonts

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, file: ScoreFile) -> bytes:
        """Return the bytes of a score; for compressed MusicXML (.mxl), those of the score inside.

        Raises:
            ValueError: the score cannot be read; the message is one line.
        """
        try:
            data = self._from_archive(file) if file.member else read_limited(_open(file.path), MAX_SCORE_BYTES, file)
            if data[:4] == b"PK\x03\x04":
                data = unpack_mxl(data, MAX_SCORE_BYTES, file)
        except _UNREADABLE as error:
            self.close()  # the position in the archive is unknown after an error
            raise ValueError(f"{file}: cannot be read: {_first_line(error)}") from error
        if not data.strip():
            raise ValueError(f"{file}: is empty; expected a score")
        return data

    def close(self) -> None:
        """Close the archive that is open, if any."""
        if self._archive is not None:
            self._archive.close()
        self._archive, self._last = None, ("", b"")

    def _from_archive(self, file: ScoreFile) -> bytes:
        inside = PurePosixPath(file.member.replace("\\", "/"))
        if inside.is_absolute() or ".." in inside.parts or ":" in inside.parts[0]:
            raise ValueError(f"{file}: the name points out of the archive; expected a relative path inside it")
        if self._archive is None or not self._archive.is_current(file.path):
            self.close()
            self._archive = OpenArchive(file.path, is_zip=_is_zip(file.path))
        if self._last[0] != file.member:
            stream = self._archive.open(file.member)
            if stream is None:
                raise ValueError(f"{file}: is not a regular file; expected a score")
            self._last = file.member, read_limited(stream, MAX_SCORE_BYTES, file)
        return self._last[1]


def read_bytes(file: ScoreFile) -> bytes:
    """Return the bytes of a single score; see `ArchiveReader`."""
    with ArchiveReader() as reader:
        return reader.read(file)


def _search_folder(source: Path, exclude: Path | None) -> list[Path]:
    """Return the scores in a folder at any depth, without hidden folders and the excluded one."""
    scores = []
    for name, folders, files in os.walk(source):
        folder = Path(name)
        visible = (f for f in folders if not f.startswith("."))
        folders[:] = [f for f in visible if not (exclude and _is_same_folder(folder / f, exclude))]
        paths = [folder / f for f in files if not f.startswith(".")]
        scores += [p for p in paths if p.suffix.lower() in SCORE_SUFFIXES and p.is_file()]
    return sorted(scores)


def _is_same_folder(folder: Path, other: Path) -> bool:
    """Return whether two paths, relative or absolute, lead to the same folder."""
    return folder.exists() and other.exists() and folder.samefile(other)


def _is_archive(path: Path) -> bool:
    return path.name.lower().endswith((".zip", *_TAR_SUFFIXES))


def _is_zip(path: Path) -> bool:
    """Detect a ZIP by its name or first bytes; its trailer may also be that of an .mxl file at the end of a tar."""
    if _is_archive(path):
        return path.name.lower().endswith(".zip")
    with path.open("rb") as stream:
        return stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")  # the second is that of an empty archive


def _list_archive(archive: Path) -> list[_ScoreEntry]:
    """List the scores in an archive, including names that point out of it, which are rejected when they are read."""
    try:
        with closing(OpenArchive(archive, is_zip=_is_zip(archive))) as opened:
            names = enumerate(_filter_scores(opened.file_names()))
            entries = (e for k, name in names for e in _list_tunes(name, archive, name, partial(opened.open, name), k))
            return _limited(entries, "scores", archive)
    except _UNREADABLE as error:
        raise ValueError(f"{archive}: cannot be read: {_first_line(error)}; expected a zip or tar archive") from error


def _first_line(error: Exception) -> str:
    """Return the first line of an error message; tarfile adds a line for each compression that it has tried."""
    return str(error).partition("\n")[0].rstrip(":") or type(error).__name__


def _filter_scores(names: Iterable[str]) -> list[str]:
    """Return the names that end like those of scores, each once, in the order of the archive."""
    scores = [n for n in names if PurePosixPath(n).suffix.lower() in SCORE_SUFFIXES and "__MACOSX" not in n]
    return list(dict.fromkeys(scores))


def _limited(items: Iterable[T], noun: str, source: Path) -> list[T]:
    """Return the items as a list; raise a ValueError for more than `MAX_MEMBERS`, which could exhaust the memory."""
    taken = list(islice(items, MAX_MEMBERS + 1))
    if len(taken) > MAX_MEMBERS:
        raise ValueError(f"{source}: holds more than {MAX_MEMBERS} {noun}; expected {MAX_MEMBERS} at most")
    return taken


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _list_tunes(
    name: str, path: Path, member: str, open_member: Callable[[], IO[bytes] | None], member_index: int = 0
) -> list[_ScoreEntry]:
    """List a score file, or the tunes of an ABC file with several. Unreadable files are reported when engraved."""
    suffix = PurePosixPath(name).suffix.lower()
    numbers: list[str] = []
    if suffix == ".abc" or suffix not in SCORE_SUFFIXES:
        with suppress(*_UNREADABLE):
            stream = open_member()
            if stream is not None:
                with stream:
                    numbers = list(islice(tune_numbers(stream.read(MAX_SCORE_BYTES)), MAX_MEMBERS + 1))
    if len(numbers) < 2:
        return [_ScoreEntry(name, "", path, member, 0, member_index)]
    tunes = enumerate(numbers, start=1)
    return [_ScoreEntry(name, f"-X{number or k}", path, member, k, member_index) for k, number in tunes]


def _assign_names(entries: list[_ScoreEntry]) -> list[ScoreFile]:
    """Name scores by their file: letters, digits, - and _ only; equal names are made unique by ~2, ~3 and so on."""
    by_location: dict[tuple[Path, str, int], tuple[str, Path]] = {}
    member_indices: dict[tuple[Path, str], int] = {}
    for name, suffix, path, member, tune, member_index in entries:
        stem = PurePosixPath(name.replace("\\", "/")).stem[:80] + suffix
        safe = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in stem)
        by_location.setdefault((path.resolve(), member, tune), (safe, path))
        member_indices[path, member] = member_index
    counts: dict[str, int] = {}
    files = []
    for (_, member, tune), (name, path) in sorted(by_location.items(), key=lambda pair: (*pair[1], *pair[0][1:])):
        folded = name.casefold()  # on macOS and Windows, Song and song are the same file
        count = counts[folded] = counts.get(folded, 0) + 1
        unique = name if count == 1 else f"{name}~{count}"
        files.append(ScoreFile(unique, path, member, tune, member_indices[path, member]))
    return files
