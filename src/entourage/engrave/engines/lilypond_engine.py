"""LilyPond, the second engraver: slower by far, with a layout and a font of its own; what the thesis used."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.resources import files
from pathlib import Path

from lxml import etree

from entourage.engrave.engines.lilypond_svg import LilypondReader
from entourage.engrave.options import PageOptions
from entourage.engrave.render.degrade import Degrader
from entourage.engrave.render.instances import Symbol
from entourage.engrave.render.page import Page, draw_page
from entourage.engrave.scores.parsing import Score
from entourage.io.safe_xml import parse_xml

_SPACE = 1.757299  # millimetres between staff lines at LilyPond's default size
_PATIENCE = {"musicxml2ly": 60.0, "lilypond": 420.0}  # seconds; together well below those of a worker, which draws, too
_ACTIVE = str.maketrans({"#": "♯", "$": "S", "\\": "/", '"': "”", "{": "(", "}": ")", "%": " "})


class LilypondEngraver:
    """Engraves MusicXML by way of `musicxml2ly` and LilyPond's SVG.

    Args:
        options: the size of things.

    Raises:
        ValueError: LilyPond is not installed.
    """

    def __init__(self, options: PageOptions) -> None:
        try:
            import lilypond
        except ImportError as error:
            raise ValueError("LilyPond is not installed; expected: pip install lilypond") from error
        self.options = options
        self._folder = Path(lilypond.executable("lilypond")).parent
        self._reader = LilypondReader(options.interline)

    def engrave(self, score: Score, degrade: Callable[[int], Degrader | None] = lambda _: None) -> Iterator[Page]:
        """The pages of a score, one after the other.

        Args:
            score: what to engrave; MusicXML only.
            degrade: what makes the page of a given number look used, or None.

        Raises:
            ValueError: the score is not MusicXML, or LilyPond cannot engrave it.
        """
        if score.notation != "musicxml":
            raise ValueError(f"{score.name} is {score.notation}; LilyPond takes MusicXML only")
        with tempfile.TemporaryDirectory() as folder:
            for number, path in enumerate(self._typeset(score, Path(folder)), start=1):
                marks, related = self._reader.read(path.read_text(encoding="utf-8"))
                _point_back(related.symbols, score)
                height, width = self.options.height, self.options.width
                yield draw_page(marks, related, height, width, number, degrade(number))

    def _typeset(self, score: Score, folder: Path) -> list[Path]:
        """Runs both programs; returns the pages in order."""
        (folder / "score.xml").write_text(disarm(score.text), encoding="utf-8")
        self._run("musicxml2ly", ["--no-page-layout", "-o", "score.ly", "score.xml"], folder, score)
        text = (folder / "score.ly").read_text(encoding="utf-8")
        tags = (files("entourage.engrave.engines") / "lilypond_tags.ily").read_text(encoding="utf-8")
        version, rest = re.match(r'(\\version "[^"]*")?(.*)', text, re.DOTALL).groups()  # type: ignore[union-attr]
        (folder / "score.ly").write_text(f"{version or ''}\n{self._paper()}\n{tags}\n{rest}", encoding="utf-8")
        self._run("lilypond", ["-s", "-dbackend=svg", "-o", "page", "score.ly"], folder, score)
        pages = sorted(folder.glob("page*.svg"), key=lambda p: int(re.sub(r"\D", "", p.stem) or 1))
        if not pages:
            raise ValueError(f"{score.name}: LilyPond makes no page of it")
        return pages

    def _paper(self) -> str:
        """The page in LilyPond's terms: its staff space is the interline."""
        width, height = (n / self.options.interline * _SPACE for n in (self.options.width, self.options.height))
        margin = self.options.margin / 20 * _SPACE
        size = f'#(set! paper-alist (cons \'("ours" . (cons (* {width:.4f} mm) (* {height:.4f} mm))) paper-alist))'
        sides = " ".join(f"{side}-margin = {margin:.3f}\\mm" for side in ("left", "right", "top", "bottom"))
        return f'{size}\n\\paper {{ #(set-paper-size "ours") {sides} indent = 22\\mm tagline = ##f }}'

    def _run(self, program: str, arguments: list[str], folder: Path, score: Score) -> None:
        path = f"{self._folder}{os.pathsep}{os.environ.get('PATH', '')}"  # musicxml2ly looks for its sister there
        try:
            code, errors = _run_alone([str(self._folder / program), *arguments], folder, path, _PATIENCE[program])
        except subprocess.TimeoutExpired as error:
            raise ValueError(f"{score.name}: {program} took longer than {_PATIENCE[program]:g} s") from error
        if code:
            raise ValueError(f"{score.name}: {program} failed: {(errors.strip().splitlines() or ['no message'])[-1]}")


def _run_alone(command: list[str], folder: Path, path: str, patience: float) -> tuple[int, str]:
    """Runs a program and what it starts in a group of their own, none of which outlives this call."""
    process = subprocess.Popen(
        command,
        cwd=folder,
        env={**os.environ, "PATH": path},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    with process:
        try:
            errors = process.communicate(timeout=patience)[1]
        except BaseException:  # also the end of the worker
            _kill_group(process)
            raise
    return process.returncode, errors.decode(errors="replace")


def _kill_group(process: subprocess.Popen[bytes]) -> None:
    if sys.platform == "win32":  # there are no groups
        process.kill()
    else:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def disarm(text: str) -> str:
    """MusicXML without the characters that mean something to LilyPond.

    `musicxml2ly` copies words of the score into LilyPond's language as they are, and that language can run programs
    (after # or $) and read files (after a backslash). Attributes with such characters, which are colours, are left out.
    """
    root = parse_xml(text.encode())
    etree.strip_tags(root, etree.ProcessingInstruction)
    for element in root.iter(etree.Element):
        element.text = element.text and element.text.translate(_ACTIVE)
        element.tail = element.tail and element.tail.translate(_ACTIVE)
        for name, value in element.attrib.items():
            if value != value.translate(_ACTIVE):
                del element.attrib[name]
    return str(etree.tostring(root, encoding="unicode"))


def _point_back(symbols: list[Symbol], score: Score) -> None:
    """Gives noteheads the id of their note. LilyPond has lost it; onset and pitch, in order, find it again."""
    from entourage.engrave.engines.musicxml_notes import note_ids

    waiting = note_ids(score.text)
    for symbol in symbols:
        if symbol.label.startswith("notehead") and symbol.onset is not None:
            ids = waiting.get((round(symbol.onset, 4), symbol.midi))
            if ids:
                symbol.element = ids.pop(0)
                symbol.notes = (symbol.element,)
