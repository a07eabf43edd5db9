"""An archive that stays open while its members are read one after another.

Finding scores in files, folders and archives, and taking out their bytes without trusting any of them.

Nothing is ever unpacked to disk: members are read into memory, up to a limit that holds for what comes out, whatever
the archive says of itself. A name inside an archive is a label and never a path to write to.
"""

from __future__ import annotations

import lzma
import os
import tarfile
import weakref
import zipfile
import zlib
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, Self, TypeVar

from entourage.engrave.scores.notations import read_limited, tune_numbers, unpack_mxl


class OpenArchive:
    """A ZIP or a tar that is open for reading, until it is closed or nobody knows of it any more.

    To open a compressed tar and list its members is to unpack all of it; to go back in it is to begin anew.

    Args:
        path: the file.
        is_zip: which of the two it is.
    """

    def __init__(self, path: Path, *, is_zip: bool) -> None:
        self._path, self._file_state = path, _file_state(path)
        self._archive = zipfile.ZipFile(path) if is_zip else tarfile.open(path)  # noqa: SIM115 - `close` is below
        self.close = weakref.finalize(self, self._archive.close)

    def is_current(self, path: Path) -> bool:
        """Whether that is the file that is open, and has not been replaced since."""
        return path == self._path and _file_state(path) == self._file_state

    def open(self, member: str) -> IO[bytes] | None:
        """The stream of a member; None if it is not a regular file.

        Raises:
            FileNotFoundError: there is no such member any more.
        """
        try:
            if isinstance(self._archive, zipfile.ZipFile):
                return self._archive.open(member)
            return self._archive.extractfile(self._tar_members[member])
        except KeyError as error:
            raise FileNotFoundError("no such file in the archive") from error

    @cached_property
    def _tar_members(self) -> dict[str, tarfile.TarInfo]:
        """What is in a tar, by name; of equal names the last, as `tarfile` has it, which looks at all for each."""
        return {info.name: info for info in self._archive} if isinstance(self._archive, tarfile.TarFile) else {}


def _file_state(path: Path) -> tuple[int, int, int]:
    """What changes with a file."""
    status = path.stat()
    return status.st_ino, status.st_size, status.st_mtime_ns


SCORE_SUFFIXES = (".xml", ".musicxml", ".mxl", ".mei", ".abc", ".krn")
_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
MAX_SCORE_BYTES = 64 * 2**20  # bytes; the largest orchestral scores are some 40 MB of MusicXML
MAX_MEMBERS = 500_000
_UNREADABLE = (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, RuntimeError)
T = TypeVar("T")


class ScoreEntry(NamedTuple):
    """A score before it is named: what its file is called and what follows that name; its file; where inside it is."""

    name: str
    suffix: str
    path: Path
    member: str
    tune: int
    member_index: int


@dataclass(frozen=True)
class ScoreFile:
    """Where a score lies.

    Attributes:
        name: how it is called in the output, unique among those found together.
        path: the file, or the archive.
        member: its name inside the archive, or nothing.
        tune: its place among the tunes of an ABC file that holds several, from 1; else 0.
        member_index: its member's place among the scores of the archive, from 0.
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
    """All scores in the given files, folders (at any depth) and archives (.zip, .tar, compressed or not).

    Each tune of an ABC file is a score, called NAME-X12 by its `X:` if it is not the only one.

    Args:
        sources: files, folders and archives. A file that is named is taken whatever its suffix; hidden files and
            folders are taken only if they are named.
        exclude: a folder that is not searched, since what lies in it is to be written over.

    Returns:
        The scores in an order that depends on their names alone, each once however often it is given.

    Raises:
        ValueError: a source does not exist, lies in the folder that is kept apart, is no regular file, folder or
            readable archive, holds more than `MAX_MEMBERS`, or all sources together hold no score.
    """
    entries: list[ScoreEntry] = []
    for source in map(Path, sources):
        if not source.exists():
            raise ValueError(f"{source} does not exist; expected a score, a folder of scores or an archive of scores")
        if exclude is not None and any(
            _is_same_folder(folder, exclude) for folder in (source, *source.resolve().parents)
        ):
            raise ValueError(f"{source} lies in {exclude}, where the output goes; expected scores from elsewhere")
        if source.is_dir():
            for path in _search_folder(source, exclude):
                name = path.relative_to(source).as_posix()
                entries += _limited(_list_tunes(name, path, "", partial(_open, path)), "tunes", path)
        elif not source.is_file():  # reading a pipe would wait for ever
            raise ValueError(
                f"{source} is no regular file; expected a score, a folder of scores or an archive of scores"
            )
        elif _is_archive(source):
            entries += _list_archive(source)
        else:
            entries += _limited(_list_tunes(source.name, source, "", partial(_open, source)), "tunes", source)
    if not entries:
        kinds = " ".join(SCORE_SUFFIXES)
        raise ValueError(
            f"no score in {', '.join(map(str, sources)) or 'nothing'}; expected files of the kinds {kinds}"
        )
    return _assign_names(entries)


class ScoreReader:
    """Reads one score after another; the archive of the last one stays open for the next.

    Scores of an archive should be read in the order of their `member_index`: to go back in a compressed tar means to
    decompress it again from the start.
    """

    def __init__(self) -> None:
        self._archive: OpenArchive | None = None
        self._last = ("", b"")  # the member that was read last, since tunes and fonts ask for it again

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, file: ScoreFile) -> bytes:
        """The bytes of a score; those of a compressed one (.mxl) are the bytes of the score inside.

        Raises:
            ValueError: one line that says which score cannot be read, and why.
        """
        try:
            data = self._from_archive(file) if file.member else read_limited(_open(file.path), MAX_SCORE_BYTES, file)
            if data[:4] == b"PK\x03\x04":
                data = unpack_mxl(data, MAX_SCORE_BYTES, file)
        except _UNREADABLE as error:
            self.close()  # where in the archive it stands now is not known
            raise ValueError(f"{file} cannot be read: {_first_line(error)}") from error
        if not data.strip():
            raise ValueError(f"{file} is empty; expected a score")
        return data

    def close(self) -> None:
        """Closes the archive; the next score opens its own."""
        if self._archive is not None:
            self._archive.close()
        self._archive, self._last = None, ("", b"")

    def _from_archive(self, file: ScoreFile) -> bytes:
        inside = PurePosixPath(file.member.replace("\\", "/"))
        if inside.is_absolute() or ".." in inside.parts or ":" in inside.parts[0]:
            raise ValueError(f"{file}: the name points out of the archive; expected a relative path")
        if self._archive is None or not self._archive.is_current(file.path):
            self.close()
            self._archive = OpenArchive(file.path, is_zip=_is_zip(file.path))
        if self._last[0] != file.member:
            stream = self._archive.open(file.member)
            if stream is None:
                raise ValueError(f"{file} is not a regular file")
            self._last = file.member, read_limited(stream, MAX_SCORE_BYTES, file)
        return self._last[1]


def read_bytes(file: ScoreFile) -> bytes:
    """The bytes of a single score; see `ScoreReader`."""
    with ScoreReader() as reader:
        return reader.read(file)


def _search_folder(source: Path, exclude: Path | None) -> list[Path]:
    """The scores in a folder at any depth; folders that are hidden or kept apart are not entered."""
    scores = []
    for name, folders, files in os.walk(source):
        folder = Path(name)
        folders[:] = [
            f for f in folders if not f.startswith(".") and not (exclude and _is_same_folder(folder / f, exclude))
        ]
        paths = [folder / f for f in files if not f.startswith(".")]
        scores += [p for p in paths if p.suffix.lower() in SCORE_SUFFIXES and p.is_file()]
    return sorted(scores)


def _is_same_folder(folder: Path, other: Path) -> bool:
    """Whether two paths, however they are written, lead to the same folder."""
    return folder.exists() and other.exists() and folder.samefile(other)


def _is_archive(path: Path) -> bool:
    name = path.name.lower()
    return name.endswith((".zip", *_TAR_SUFFIXES))


def _is_zip(path: Path) -> bool:
    """Whether it is ZIP, by its name or else its start: a tar that ends in an .mxl has the end of a ZIP."""
    name = path.name.lower()
    if name.endswith((".zip", *_TAR_SUFFIXES)):
        return name.endswith(".zip")
    with path.open("rb") as stream:
        return stream.read(4) in (b"PK\x03\x04", b"PK\x05\x06")  # the second begins one that holds nothing


def _list_archive(archive: Path) -> list[ScoreEntry]:
    """The scores in an archive; those whose names point out of it are among them, to be reported when read."""
    try:
        if _is_zip(archive):
            with zipfile.ZipFile(archive) as zip_file:
                infos = _limited(zip_file.infolist(), "files", archive)
                names = _filter_scores(info.filename for info in infos if not info.is_dir())
                return _list_members(archive, names, lambda name: zip_file.open(name))
        with tarfile.open(archive) as tar:
            members = {member.name: member for member in _limited(tar, "files", archive) if member.isfile()}
            return _list_members(archive, _filter_scores(members), lambda name: tar.extractfile(members[name]))
    except _UNREADABLE as error:
        raise ValueError(f"{archive} cannot be read as an archive: {_first_line(error)}") from error


def _list_members(archive: Path, names: list[str], open_member: Callable[[str], IO[bytes] | None]) -> list[ScoreEntry]:
    """The scores that members are, or hold, in the order of the archive."""
    entries = (f for k, n in enumerate(names) for f in _list_tunes(n, archive, n, partial(open_member, n), k))
    return _limited(entries, "scores", archive)


def _first_line(error: Exception) -> str:
    """What an error says, on one line: tarfile adds a line for each kind it has tried."""
    return str(error).partition("\n")[0].rstrip(":") or type(error).__name__


def _filter_scores(names: Iterable[str]) -> list[str]:
    """Those of the names that are scores, in the order of the archive."""
    scores = [n for n in names if PurePosixPath(n).suffix.lower() in SCORE_SUFFIXES and "__MACOSX" not in n]
    return list(dict.fromkeys(scores))


def _limited(items: Iterable[T], noun: str, source: Path) -> list[T]:
    """All of them, unless they are so many that a small file must be meant to fill the memory."""
    taken = list(islice(items, MAX_MEMBERS + 1))
    if len(taken) > MAX_MEMBERS:
        raise ValueError(f"{source} holds more than {MAX_MEMBERS} {noun}; expected at most as many")
    return taken


def _open(path: Path) -> IO[bytes]:
    return path.open("rb")


def _list_tunes(
    name: str, path: Path, member: str, open_member: Callable[[], IO[bytes] | None], member_index: int = 0
) -> list[ScoreEntry]:
    """A score, or one a tune if it is ABC; what cannot be read is reported when it is to be engraved."""
    suffix = PurePosixPath(name).suffix.lower()
    numbers: list[str] = []
    if suffix == ".abc" or suffix not in SCORE_SUFFIXES:
        with suppress(*_UNREADABLE):
            stream = open_member()
            if stream is not None:
                with stream:
                    numbers = list(islice(tune_numbers(stream.read(MAX_SCORE_BYTES)), MAX_MEMBERS + 1))
    if len(numbers) < 2:
        return [ScoreEntry(name, "", path, member, 0, member_index)]
    return [
        ScoreEntry(name, f"-X{number or k}", path, member, k, member_index) for k, number in enumerate(numbers, start=1)
    ]


def _assign_names(entries: list[ScoreEntry]) -> list[ScoreFile]:
    """Short names: the last part of the path, made of letters, digits, - and _; a number tells equal ones apart."""
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
        files.append(
            ScoreFile(name if count == 1 else f"{name}~{count}", path, member, tune, member_indices[path, member])
        )
    return files
