"""MEI of a score, which Verovio converts from its MusicXML."""

from __future__ import annotations

from pathlib import Path

from entourage.io.files import write_text


def to_mei(musicxml: str) -> str:
    """Convert MusicXML to MEI.

    Args:
        musicxml: a partwise document.

    Returns:
        An MEI document.

    Raises:
        ValueError: Verovio cannot read the document.
    """
    import verovio  # a compiled library that only this format needs

    verovio.enableLog(verovio.LOG_OFF)
    toolkit = verovio.toolkit()
    toolkit.setOptions({"xmlIdChecksum": True})  # the same document has the same ids
    if not toolkit.loadData(musicxml):
        raise ValueError("musicxml: Verovio cannot read it; expected a partwise MusicXML document")
    return str(toolkit.getMEI())


def write_mei(musicxml: str, path: Path) -> None:
    """Write MusicXML as an MEI file; the file is complete or absent.

    Args:
        musicxml: a partwise document.
        path: file to write.

    Raises:
        ValueError: Verovio cannot read the document.
    """
    write_text(path, to_mei(musicxml))
