"""Finding scores in files, folders and archives, and taking out their bytes without trusting any of them.

Nothing is ever unpacked to disk: members are read into memory, up to a limit that holds for what comes out, whatever
the archive says of itself. A name inside an archive is a label and never a path to write to.
"""

from __future__ import annotations

import io
import lzma
import tarfile
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from lxml import etree

from entourage.engrave.safe_xml import parse_xml

SCORE_SUFFIXES = (".xml", ".musicxml", ".mxl", ".mei", ".abc", ".krn")
_TAR_SUFFIXES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
LARGEST_SCORE = 64 * 2**20  # bytes; the largest orchestral scores are some 40 MB of MusicXML
MOST_MEMBERS = 500_000


@dataclass(frozen=True)
class ScoreFile:
    """Where a score lies.

    Attributes:
        name: how it is called in the output, unique among those found together.
        path: the file, or the archive.
        member: its name inside the archive, or nothing.
    """

    name: str
    path: Path
    member: str = ""

    def __str__(self) -> str:
        return f"{self.path}:{self.member}" if self.member else str(self.path)


def find_scores(sources: Iterable[str | Path]) -> list[ScoreFile]:
    """All scores in the given files, folders (at any depth) and archives (.zip, .tar, compressed or not).

    Args:
        sources: files, folders and archives. A file that is named is taken whatever its suffix.

    Returns:
        The scores in an order that depends on their names alone, each once however often it is given.

    Raises:
        ValueError: a source does not exist, is no regular file, folder or readable archive, or all sources together
            hold no score.
    """
    found: list[tuple[str, Path, str]] = []
    for source in map(Path, sources):
        if source.is_dir():
            files = sorted(p for p in source.rglob("*") if p.is_file() and not p.name.startswith("."))
            scores = [p for p in files if p.suffix.lower() in SCORE_SUFFIXES]
            found += [(p.relative_to(source).as_posix(), p, "") for p in scores]
        elif not source.exists():
            raise ValueError(f"{source} does not exist; expected a score, a folder of scores or an archive of scores")
        elif not source.is_file():  # reading a pipe would wait for ever
            raise ValueError(
                f"{source} is no regular file; expected a score, a folder of scores or an archive of scores"
            )
        elif _is_archive(source):
            found += [(member, source, member) for member in _members(source)]
        else:
            found.append((source.name, source, ""))
    if not found:
        kinds = " ".join(SCORE_SUFFIXES)
        raise ValueError(
            f"no score in {', '.join(map(str, sources)) or 'nothing'}; expected files of the kinds {kinds}"
        )
    return _named(found)


def read_bytes(file: ScoreFile) -> bytes:
    """The bytes of a score; those of a compressed one (.mxl) are the bytes of the score inside.

    Raises:
        ValueError: one line that says which score cannot be read, and why.
    """
    try:
        data = _limited(file.path.open("rb"), file) if not file.member else _from_archive(file)
        if data[:4] == b"PK\x03\x04":
            data = _from_mxl(data, file)
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error, RuntimeError) as error:
        raise ValueError(f"{file} cannot be read: {str(error) or type(error).__name__}") from error
    if not data.strip():
        raise ValueError(f"{file} is empty; expected a score")
    return data


def _is_archive(path: Path) -> bool:
    name = path.name.lower()
    return name.endswith((".zip", *_TAR_SUFFIXES))


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip" or zipfile.is_zipfile(path)


def _members(archive: Path) -> list[str]:
    """The names of the scores in an archive; those that point out of it are among them, to be reported when read."""
    try:
        if _is_zip(archive):
            with zipfile.ZipFile(archive) as opened:
                names = [info.filename for info in opened.infolist() if not info.is_dir()]
        else:
            with tarfile.open(archive) as tar:
                names = [member.name for member in tar if member.isfile()]
    except (OSError, EOFError, zipfile.BadZipFile, tarfile.TarError, lzma.LZMAError, zlib.error) as error:
        raise ValueError(f"{archive} cannot be read as an archive: {error}") from error
    if len(names) > MOST_MEMBERS:
        raise ValueError(f"{archive} holds {len(names)} files; expected at most {MOST_MEMBERS}")
    scores = [n for n in names if PurePosixPath(n).suffix.lower() in SCORE_SUFFIXES and "__MACOSX" not in n]
    return sorted(set(scores))


def _from_archive(file: ScoreFile) -> bytes:
    inside = PurePosixPath(file.member.replace("\\", "/"))
    if inside.is_absolute() or ".." in inside.parts or ":" in inside.parts[0]:
        raise ValueError(f"{file}: the name points out of the archive; expected a relative path")
    if _is_zip(file.path):
        with zipfile.ZipFile(file.path) as archive:
            return _limited(archive.open(file.member), file)
    with tarfile.open(file.path) as tar:
        stream = tar.extractfile(file.member)
        if stream is None:
            raise ValueError(f"{file} is not a regular file")
        return _limited(stream, file)


def _from_mxl(data: bytes, file: ScoreFile) -> bytes:
    """The score inside compressed MusicXML: the first root file of its container, or else its first XML file."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [n for n in archive.namelist() if n.lower().endswith((".xml", ".musicxml", ".mei"))]
        names = [n for n in names if not n.startswith("META-INF")]
        if not names:
            raise ValueError(f"{file} holds no score; expected a MusicXML file inside")
        container = b""
        if "META-INF/container.xml" in archive.namelist():
            container = _limited(archive.open("META-INF/container.xml"), file)
        rooted = [path for path in _root_files(container, file) if path in names]
        return _limited(archive.open((rooted or names)[0]), file)


def _root_files(container: bytes, file: ScoreFile) -> list[str]:
    """The files that a container names as its scores, the first of which is the score itself."""
    if not container.strip():
        return []
    try:
        root = parse_xml(container)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"{file}: META-INF/container.xml is not well-formed XML: {error.msg}") from error
    return [element.get("full-path", "") for element in root.iter("{*}rootfile")]


def _limited(stream: IO[bytes], file: ScoreFile) -> bytes:
    with stream:
        data = stream.read(LARGEST_SCORE + 1)
    if len(data) > LARGEST_SCORE:
        raise ValueError(f"{file} is larger than {LARGEST_SCORE // 2**20} MB; expected one score")
    return data


def _named(found: list[tuple[str, Path, str]]) -> list[ScoreFile]:
    """Short names: the last part of the path, made of letters, digits, - and _; a number tells equal ones apart."""
    named: dict[tuple[Path, str], tuple[str, Path]] = {}
    for name, path, member in found:
        stem = PurePosixPath(name.replace("\\", "/")).stem[:80]
        plain = "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in stem)
        named.setdefault((path.resolve(), member), (plain, path))
    seen: dict[str, int] = {}
    files = []
    for (_, member), (name, path) in sorted(named.items(), key=lambda pair: (*pair[1], pair[0][1])):
        count = seen[name] = seen.get(name, 0) + 1
        files.append(ScoreFile(name if count == 1 else f"{name}~{count}", path, member))
    return files
