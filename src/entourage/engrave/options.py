"""How pages are engraved.

What the user asks for, and the tasks that it falls into.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from entourage.compute import derive_seed
from entourage.engrave.scores.archives import ScoreFile

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


Format = Literal["deepscores", "deepscoresv2", "coco", "parquet", "segmentation", "instances", "patches"]
FORMATS: tuple[Format, ...] = ("deepscores", "deepscoresv2", "coco", "parquet", "segmentation", "instances", "patches")
Degradation = Literal["none", "scan", "photo"]


@dataclass(frozen=True)
class EngraveOptions:
    """All that decides what comes out, and where it goes.

    Attributes:
        out: the folder for the data set.
        sources: files, folders and archives of scores.
        compose: how many scores to compose beside them.
        balanced: compose so that all classes are about equally frequent.
        engine: "verovio" or "lilypond".
        fonts: the music fonts; each score gets one of them.
        all_fonts: each score gets all of them.
        page: the size of things.
        degrade: make pages look scanned or photographed.
        substitute: the fraction of common symbols to substitute by similar rare ones, in MusicXML.
        formats: what to write besides images, sources and the table symbols.parquet, which are always written; so
            that "parquet" alone means these.
        min_symbols: pages with fewer symbols than this are left out.
        seed: decides everything that is random.
        workers: processes; 0 for one a core.
        ray: address of a Ray cluster to work on instead.
    """

    out: Path
    sources: tuple[Path, ...] = ()
    compose: int = 0
    balanced: bool = False
    engine: Engine = "verovio"
    fonts: tuple[MusicFont, ...] = tuple(MusicFont(name) for name in FONTS)
    all_fonts: bool = False
    page: PageOptions = field(default_factory=PageOptions)
    degrade: Degradation = "none"
    substitute: float = 0.0
    formats: tuple[Format, ...] = FORMATS
    min_symbols: int = 4
    seed: int = 0
    workers: int = 0
    ray: str = ""

    def __post_init__(self) -> None:
        for name in self.formats:
            if name not in FORMATS:
                raise ValueError(f"format {name!r} is unknown; expected some of {', '.join(FORMATS)}")
        if not self.fonts:
            raise ValueError("no font is given; expected at least one")
        names = [font.name.lower() for font in self.fonts]  # as they are in the names of pages
        if repeated := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"font {repeated!r} is given twice; expected fonts of different names")
        if not self.sources and self.compose < 1:
            raise ValueError("nothing to engrave; expected scores, or a number of scores to compose")
        if self.balanced and self.compose < 1:
            raise ValueError("only composed scores can be balanced; expected a number of scores to compose")
        if self.engine == "lilypond":  # it has one music font, its own
            object.__setattr__(self, "fonts", (MusicFont("Emmentaler"),))
        if not 0 <= self.substitute <= 1:
            raise ValueError(f"substitute is {self.substitute}; expected a share between 0 and 1")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; expected 0 or more")

    def config(self) -> dict[str, Any]:
        """The options that decide what comes out, without those that only say how it is made."""
        options = asdict(self)
        for name in ("out", "sources", "workers", "ray"):
            del options[name]
        options["formats"] = [name for name in FORMATS if name in self.formats]  # in whatever order they are given
        options["fonts"] = [f"{font.name} {font.digest}".strip() for font in self.fonts]
        return json.loads(json.dumps(options))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class EngraveTask:
    """One score in one font.

    Attributes:
        name: of the result, unique in the job.
        font: the music font.
        file: where the score lies; None if it is to be composed.
        index: of the composed score.
    """

    name: str
    font: MusicFont
    file: ScoreFile | None = None
    index: int = 0


def make_tasks(options: EngraveOptions, files: list[ScoreFile]) -> list[EngraveTask]:
    """The tasks of a job, in an order that depends on names alone.

    Raises:
        ValueError: a score has the name of one that is composed.
    """
    composed = [f"composed-{i:05d}" for i in range(options.compose)]
    if clashing := {file.name.casefold() for file in files}.intersection(
        composed
    ):  # the same file on macOS and Windows
        raise ValueError(f"a score is called {min(clashing)}, as is one to be composed; expected another name")
    scores: list[tuple[str, ScoreFile | None, int]] = [(file.name, file, 0) for file in files]
    scores += [(name, None, i) for i, name in enumerate(composed)]
    tasks = []
    for name, file, index in scores:
        fonts = (
            options.fonts
            if options.all_fonts
            else (options.fonts[derive_seed(options.seed, "font", name) % len(options.fonts)],)
        )
        tasks += [EngraveTask(f"{name}-{font.name.lower()}", font, file, index) for font in fonts]
    return tasks
