"""Options of `entourage engrave`, and the tasks that a run consists of."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from entourage.compute import derive_seed
from entourage.engrave.scores.archives import ScoreFile

FONTS = ("Bravura", "Gootville", "Leipzig", "Leland", "Petaluma")  # bundled with Verovio


@dataclass(frozen=True)
class PageOptions:
    """Size and resolution of pages.

    Attributes:
        width: width in pixels; the default size is that of DeepScores.
        height: height in pixels.
        interline: pixels between staff lines.
        dpi: resolution stored in the images.
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
    """A music font: one of Verovio's, or a custom SMuFL font.

    Attributes:
        name: name of the font.
        file: archive of a custom font's outlines, in Verovio's format (see `convert_font`).
        digest: SHA-256 of a custom font's outlines and anchors.
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
    """Options of a run of `engrave`.

    Attributes:
        out: folder of the data set.
        sources: files, folders and archives of scores.
        compose: number of scores to compose in addition.
        balanced: compose all classes about equally often.
        engine: "verovio" or "lilypond".
        fonts: music fonts; each score gets one of them.
        all_fonts: engrave each score in all fonts.
        page: size of pages.
        degrade: simulate scanned or photographed pages.
        substitute: fraction of common symbols that is replaced by similar rare ones (MusicXML only).
        formats: files to write in addition to images, sources and symbols.parquet; "parquet" adds none.
        min_symbols: minimum number of symbols on a page; others are omitted.
        seed: seed of all random choices.
        workers: number of processes; 0: one per core.
        ray: address of a Ray cluster to run on instead.
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
            raise ValueError("fonts is empty; expected at least one font")
        names = [font.name.lower() for font in self.fonts]  # page names contain the names of fonts
        if repeated := next((name for name in names if names.count(name) > 1), ""):
            raise ValueError(f"fonts has {repeated!r} twice; expected fonts of different names")
        if not self.sources and self.compose < 1:
            raise ValueError("sources is empty and compose is 0; expected scores, or a number of scores to compose")
        if self.balanced and self.compose < 1:
            raise ValueError(f"balanced needs composed scores; expected compose of 1 or more, got {self.compose}")
        if self.engine == "lilypond":  # LilyPond has a single music font
            object.__setattr__(self, "fonts", (MusicFont("Emmentaler"),))
        if not 0 <= self.substitute <= 1:
            raise ValueError(f"substitute is {self.substitute}; expected a fraction from 0 to 1")
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}; expected 0 or more")

    def config(self) -> dict[str, Any]:
        """Return the options that determine the contents of the data set, converted to JSON types."""
        options = asdict(self)
        for name in ("out", "sources", "workers", "ray"):
            del options[name]
        options["formats"] = [name for name in FORMATS if name in self.formats]  # independent of their order
        options["fonts"] = [f"{font.name} {font.digest}".strip() for font in self.fonts]
        return json.loads(json.dumps(options))  # type: ignore[no-any-return]


@dataclass(frozen=True)
class EngraveTask:
    """Unit of work of a run: one score in one font.

    Attributes:
        name: name of the result, unique in a run.
        font: the music font.
        file: location of the score; None: it is composed.
        index: number of a composed score.
    """

    name: str
    font: MusicFont
    file: ScoreFile | None = None
    index: int = 0


def make_tasks(options: EngraveOptions, files: list[ScoreFile]) -> list[EngraveTask]:
    """List the tasks of a run: the scores in their fonts.

    Args:
        options: the options of the run.
        files: the scores; composed ones are added.

    Returns:
        The tasks, in an order that depends on names only.

    Raises:
        ValueError: a score has the name of a composed one.
    """
    composed = [f"composed-{i:05d}" for i in range(options.compose)]
    if clashing := {file.name.casefold() for file in files}.intersection(composed):  # on macOS, case does not count
        raise ValueError(f"score {min(clashing)}: has the name of a composed score; expected another file name")
    scores: list[tuple[str, ScoreFile | None, int]] = [(file.name, file, 0) for file in files]
    scores += [(name, None, i) for i, name in enumerate(composed)]
    tasks = []
    for name, file, index in scores:
        index_of_font = derive_seed(options.seed, "font", name) % len(options.fonts)
        fonts = options.fonts if options.all_fonts else (options.fonts[index_of_font],)
        tasks += [EngraveTask(f"{name}-{font.name.lower()}", font, file, index) for font in fonts]
    return tasks
