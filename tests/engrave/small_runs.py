"""Options for small runs of `engrave`, and reading of their files."""

from __future__ import annotations

from pathlib import Path

from entourage.engrave.options import EngraveOptions, MusicFont, PageOptions

SMALL = PageOptions(width=700, height=500, interline=10, margin=20)


def small_options(out: Path, songs: Path, **options: object) -> EngraveOptions:
    defaults: dict[str, object] = {"page": SMALL, "fonts": (MusicFont("Leipzig"),)}
    return EngraveOptions(out, (songs,), **(defaults | options))  # type: ignore[arg-type]


def read_files(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
