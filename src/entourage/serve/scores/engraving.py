"""Engraving of the systems of a score, each alone, so that a corrected measure is shown again at once."""

from __future__ import annotations

import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from entourage.read.formats.musicxml import to_musicxml
from entourage.read.score import Clef, Measure, Part, Score

_OPTIONS = {
    "breaks": "none",
    "adjustPageHeight": True,
    "adjustPageWidth": True,
    "pageWidth": 60000,
    "pageHeight": 60000,
    "scale": 40,
    "svgViewBox": True,
    "svgRemoveXlink": True,
    "xmlIdChecksum": True,
    "header": "none",
    "footer": "none",
    **{f"pageMargin{side}": 30 for side in ("Left", "Right", "Top", "Bottom")},
}
_ELEMENT = re.compile(r'<g id="(?P<id>[^"]*)" class="(?P<class>[^"]*)"')
_STYLE = re.compile(r"<style[^>]*>.*?</style>|<desc>.*?</desc>", re.DOTALL)
_INLINE = re.compile(r' style="[^"]*"')
_INDENT = re.compile(r">\s+<")


@dataclass(frozen=True)
class System:
    """Consecutive measures on one line of a page.

    Attributes:
        page: page, from 0.
        first, last: positions of its measures in the score.
    """

    page: int
    first: int
    last: int


def systems_of(score: Score) -> list[System]:
    """Return the systems of a score in order."""
    measures = score.parts[0].measures if score.parts else []
    starts = [m for m, measure in enumerate(measures) if m == 0 or measure.new_system]
    ends = [*starts[1:], len(measures)] if starts else []
    return [System(measures[a].page - 1, a, b - 1) for a, b in zip(starts, ends, strict=True)]


class Engraver:
    """Engraves systems with Verovio; methods may be called from several threads.

    Verovio keeps its fonts for each thread: in others than that of its toolkit, spacing differs. It has its own thread.
    """

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="verovio")
        self._toolkit: Any = self._thread.submit(_load_toolkit).result()

    def engrave(self, score: Score, system: System) -> str:
        """Engrave a system.

        Args:
            score: the music.
            system: one of its systems.

        Returns:
            An `<svg>` element without styles. Measures have the attribute data-m, their position in the score; notes
            and rests have data-note: part, measure, chord and note, from 0 and joined by "-"; the note of a rest is 0.
        """
        excerpt, ids = _excerpt(score, system)
        svg = self._thread.submit(self._render, to_musicxml(excerpt, ids)).result()
        return _clean(svg, system.first)

    def _render(self, musicxml: str) -> str:
        return str(self._toolkit.renderToSVG(1)) if self._toolkit.loadData(musicxml) else ""


def _load_toolkit() -> Any:
    import verovio  # a compiled library that only the engraving needs

    verovio.enableLog(verovio.LOG_OFF)
    toolkit = verovio.toolkit(False)
    toolkit.setResourcePath(str(Path(verovio.__file__).parent / "data"))
    toolkit.setOptions(_OPTIONS)
    return toolkit


def _excerpt(score: Score, system: System) -> tuple[Score, dict[int, str]]:
    """Return the measures of a system with what is valid at their beginning, and the ids of their notes."""
    parts, ids = [], {}
    for p, part in enumerate(score.parts):
        measures = [replace(measure, new_system=False) for measure in part.measures[system.first : system.last + 1]]
        _add_signatures(part, system.first, measures[0])
        parts.append(Part(part.name if system.first == 0 else "", part.n_staves, measures))
        for m, measure in enumerate(measures, start=system.first):
            for c, chord in enumerate(measure.chords):
                for k, note in enumerate(chord.notes or [chord]):
                    ids[id(note)] = f"n{p}-{m}-{c}-{k}"
    return Score(parts, [], ""), ids


def _add_signatures(part: Part, first: int, measure: Measure) -> None:
    """Give the first measure of a system the clefs, the key and the metre that are valid there."""
    clefs, key, meter = {staff: Clef() for staff in range(1, part.n_staves + 1)}, 0, None
    for earlier in part.measures[:first]:
        key = key if earlier.key is None else earlier.key
        meter = meter if earlier.meter is None else earlier.meter
        clefs |= {staff: clef for staff, _, clef in sorted(earlier.clefs, key=_staff_and_time)}
    here = {staff: clef for staff, time, clef in measure.clefs if time == 0}
    later = [entry for entry in measure.clefs if entry[1] > 0]
    measure.clefs = [(staff, Fraction(0), clef) for staff, clef in (clefs | here).items()] + later
    measure.key = key if measure.key is None else measure.key
    if measure.meter is None and meter is not None:
        measure.meter = (*meter[:2], "hidden")


def _staff_and_time(entry: tuple[int, Fraction, Clef]) -> tuple[int, Fraction]:
    return entry[:2]


def _clean(svg: str, first: int) -> str:
    """Remove styles, which the page forbids, and replace ids by the attributes of measures and notes."""
    number = first - 1

    def attributes(match: re.Match[str]) -> str:
        nonlocal number
        kinds: Sequence[str] = match["class"].split()
        if "measure" in kinds:
            number += 1
            return f'<g class="measure" data-m="{number}"'
        if re.fullmatch(r"n\d+-\d+-\d+-\d+", match["id"]):
            return f'<g class="{match["class"]}" data-note="{match["id"][1:]}"'
        return f'<g class="{match["class"]}"'

    return _INDENT.sub("><", _ELEMENT.sub(attributes, _INLINE.sub("", _STYLE.sub("", svg))))
