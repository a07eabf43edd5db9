"""How pages are engraved."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

FONTS = ("Bravura", "Gootville", "Leipzig", "Leland", "Petaluma")  # those that come with Verovio


@dataclass(frozen=True)
class PageOptions:
    """The size of things.

    Attributes:
        width, height: of the page in pixels; the default is that of DeepScores.
        interline: pixels between staff lines.
        dpi: resolution written into the images.
        margin: white border in pixels at an interline of 20.
    """

    width: int = 1894
    height: int = 2668
    interline: float = 20.0
    dpi: float = 400.0
    margin: int = 50

    def __post_init__(self) -> None:
        if not 4 <= self.interline <= 100:
            raise ValueError(f"interline is {self.interline}; expected 4 to 100 pixels")
        for name, value in (("width", self.width), ("height", self.height)):
            if not 20 * self.interline <= value <= 20_000:
                raise ValueError(f"{name} is {value}; expected {20 * self.interline:g} (20 interlines) to 20000 pixels")
        if not 1 <= self.dpi <= 100_000:
            raise ValueError(f"dpi is {self.dpi}; expected 1 to 100000")
        if not 0 <= self.margin <= 200:
            raise ValueError(f"margin is {self.margin}; expected 0 to 200 pixels")


@dataclass(frozen=True)
class MusicFont:
    """A font for the music: one of Verovio's, or a SMuFL font of the user's.

    Attributes:
        name: of the font.
        file: of a font of the user's: its outlines, as the archive that Verovio loads (see `convert_font`).
        digest: of a font of the user's: the SHA-256 of its outlines and anchors.
    """

    name: str
    file: Path | None = None
    digest: str = ""


Engine = Literal["verovio", "lilypond"]
