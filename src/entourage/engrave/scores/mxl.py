"""Compressed MusicXML: a ZIP that holds a score, and says in a container which of its files that is."""

from __future__ import annotations

import io
import zipfile
from typing import IO

from lxml import etree

from entourage.io.safe_xml import parse_xml

_CONTAINER = "META-INF/container.xml"


def unpack_mxl(data: bytes, largest: int, where: object) -> bytes:
    """The score inside compressed MusicXML: the first root file of its container, or else its first XML file.

    Args:
        data: the bytes of the .mxl.
        largest: how many bytes may come out, whatever the file says of itself.
        where: how errors call it.

    Raises:
        ValueError: there is no score inside, its container is no XML, or it is larger than that.
        zipfile.BadZipFile: it is damaged; so are others of what `zipfile` raises.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = [n for n in archive.namelist() if n.lower().endswith((".xml", ".musicxml", ".mei"))]
        names = [n for n in names if not n.startswith("META-INF")]
        if not names:
            raise ValueError(f"{where} holds no score; expected a MusicXML file inside")
        container = b""
        if _CONTAINER in archive.namelist():
            container = read_limited(archive.open(_CONTAINER), largest, where)
        rooted = [path for path in _root_files(container, where) if path in names]
        return read_limited(archive.open((rooted or names)[0]), largest, where)


def read_limited(stream: IO[bytes], largest: int, where: object) -> bytes:
    """All bytes of a stream, which is closed.

    Raises:
        ValueError: there are more of them than the largest score has.
    """
    with stream:
        data = stream.read(largest + 1)
    if len(data) > largest:
        raise ValueError(f"{where} is larger than {largest // 2**20} MB; expected one score")
    return data


def _root_files(container: bytes, where: object) -> list[str]:
    """The files that a container names as its scores, the first of which is the score itself."""
    if not container.strip():
        return []
    try:
        root = parse_xml(container)
    except etree.XMLSyntaxError as error:
        raise ValueError(f"{where}: {_CONTAINER} is not well-formed XML: {error.msg}") from error
    return [element.get("full-path", "") for element in root.iter("{*}rootfile")]
