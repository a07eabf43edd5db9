"""Scores that are open in the browser: their music, corrections, engravings and scans."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any

from entourage.io.files import error_reason
from entourage.read.formats.score_json import score_from_dict
from entourage.read.score import Measure, Score
from entourage.serve.scans import Scans, confirmed_source
from entourage.serve.scores.bars import Bar, Music, bar_key, music_from_values, to_values
from entourage.serve.scores.detections import read_page_symbols
from entourage.serve.scores.engraving import Engraver, systems_of
from entourage.serve.scores.history import Entry, History
from entourage.serve.scores.playback import playback_of
from entourage.serve.store import ConflictError

_SIGNATURES = ("key", "meter", "clefs")
_UNSURE = 0.5  # confidence below which a measure is shown as unsure


@dataclass(frozen=True)
class Place:
    """A score of a reading, or a page of detections.

    Attributes:
        name: name of its files without suffix, or of the page.
        folder: output folder of `entourage read` or `entourage detect run`.
        is_detected: whether it is a page of detections.
    """

    name: str
    folder: Path
    is_detected: bool = False

    @property
    def file_name(self) -> str:
        """Name of its files without suffix."""
        return self.name.replace("/", "_").replace("\\", "_")


def _read(place: Place) -> tuple[Score, dict[str, Any], str]:
    """Return the score of a place, its values, and a digest of what was read.

    Raises:
        ValueError: it cannot be read.
    """
    if place.is_detected:
        score, found = read_page_symbols(place.folder, place.name)
        return score, to_values(score, [found]), _digest(json.dumps(found).encode())
    path = place.folder / f"{place.name}.json"
    try:
        content = path.read_bytes()
        fields = json.loads(content)
        score = score_from_dict(fields)
        values = to_values(score, [page.get("symbols", []) for page in fields["pages"]])
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error_reason(error)}; expected the JSON of a score") from error
    return score, values, _digest(content)


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=8).hexdigest()


class OpenScore:
    """A score with its corrections. Methods may be called from several threads.

    Args:
        place: the score.
        folders: folders whose scans may be shown.
        engraver: returns the engraver, which is shared.

    Raises:
        ValueError: the score cannot be read.
    """

    def __init__(self, place: Place, folders: Sequence[Path], engraver: Callable[[], Engraver]) -> None:
        self.place, self._engraver = place, engraver
        score, values, digest = _read(place)
        log = place.folder / "serve" / f"{place.file_name}-{digest}.jsonl"
        self.history = History(log, values)
        self.music = music_from_values(score, self.history.values)
        self.scans = Scans([confirmed_source(page.source, [place.folder, *folders]) for page in score.pages])
        self.systems = systems_of(score)
        self._lock = threading.RLock()
        self._changed_in = [0] * len(self.systems)  # version in which each system changed
        self._engravings: dict[int, tuple[int, str]] = {}

    @property
    def version(self) -> int:
        """Number of changes so far."""
        return self.history.version

    def edit(self, body: Mapping[str, Any], seen: int) -> Entry | None:
        """Make a correction; it is on disk when this returns.

        Args:
            body: the correction; see `entourage.serve.scores.edits`.
            seen: version of the score that it is based on.

        Returns:
            The change; None if nothing changes.

        Raises:
            ConflictError: the same place was changed meanwhile.
            ValueError: the correction is not valid.
        """
        from entourage.serve.scores.edits import make_edit  # loads torch, after the score is shown

        with self._lock:
            if seen < self.version:
                self._check_place(body, seen)
            description, values = make_edit(self.music, body)
            return self._follow(self.history.edit(description, values, seen))

    def undo(self, seen: int) -> Entry | None:
        """Take back the last correction; see `History.undo`."""
        with self._lock:
            return self._follow(self.history.undo(seen))

    def redo(self, seen: int) -> Entry | None:
        """Make the last correction that was taken back again; see `History.redo`."""
        with self._lock:
            return self._follow(self.history.redo(seen))

    def _check_place(self, body: Mapping[str, Any], seen: int) -> None:
        """Check that the measure of a correction is the one that the user saw."""
        part, measure = body.get("part", 0), body.get("measure")
        if isinstance(part, int) and isinstance(measure, int):
            self.history.check_unchanged({bar_key(part, measure): None}, seen)
        elif seen != self.version:
            raise ConflictError(f"version is {seen}, but another page has made changes; expected {self.version}")

    def _follow(self, entry: Entry | None) -> Entry | None:
        """Let music and engravings follow a change."""
        if entry is None:
            return None
        for key, (_, after) in entry.changes.items():
            self.music.apply(key, after)
        self.systems = systems_of(self.music.score)
        for key, (before, after) in entry.changes.items():
            kind, _, index = key.split("/")
            if kind == "bar" and (before is None or after is None):
                self._changed_in = [entry.version] * len(self.systems)
            elif kind == "bar":
                at = next(k for k, system in enumerate(self.systems) if system.first <= int(index) <= system.last)
                has_new_signs = any(before["measure"].get(n) != after["measure"].get(n) for n in _SIGNATURES)
                for k in range(at, len(self.systems) if has_new_signs else at + 1):
                    self._changed_in[k] = entry.version
        return entry

    @contextmanager
    def snapshot(self) -> Iterator[Music]:
        """Return the music; it does not change within the block."""
        with self._lock:
            yield self.music

    def state(self) -> dict[str, Any]:
        """Return what the page shows of the score as a whole."""
        with self._lock:
            systems = [
                {"page": s.page, "first": s.first, "last": s.last, "version": v}
                for s, v in zip(self.systems, self._changed_in, strict=True)
            ]
            history = self.history
            return {
                "name": self.place.name,
                "title": self.music.title,
                "version": history.version,
                "canUndo": history.can_undo,
                "canRedo": history.can_redo,
                "parts": [{"name": name, "staves": staves} for name, staves in self.music.parts],
                "pages": [
                    {"width": p.width, "height": p.height, "message": p.message, "hasScan": s is not None}
                    for p, s in zip(self.music.pages, self.scans.sources, strict=True)
                ],
                "systems": systems,
                "measures": [self._measure(m) for m in range(len(self.music.bars[0]) if self.music.bars else 0)],
            }

    def _measure(self, index: int) -> list[Any]:
        """Return page, box, number, system, reasons and confidence of a measure of all parts."""
        bars = [row[index].measure for row in self.music.bars]
        boxes = [box for measure in bars for box in measure.boxes]
        sides = [min, min, max, max]
        box = [round(side(box[k] for box in boxes), 1) for k, side in enumerate(sides)] if boxes else None
        names = [name for name, _ in self.music.parts]
        problems = [(name, measure.problem) for name, measure in zip(names, bars, strict=True) if measure.problem]
        reasons = [problem if len(names) == 1 else f"{name}: {problem}" for name, problem in problems]
        confidence = min(measure.confidence for measure in bars)
        state = "marked" if reasons else "unsure" if confidence < _UNSURE else "sure"
        return [bars[0].page - 1, box, bars[0].number, bars[0].system, "; ".join(reasons), round(confidence, 3), state]

    def page(self, page: int) -> dict[str, Any]:
        """Return notes, rests and symbols of a page, from 0.

        Raises:
            ValueError: there is no such page.
        """
        with self._lock:
            if not 0 <= page < len(self.music.pages):
                raise ValueError(f"page: is {page}; expected 0 to {len(self.music.pages) - 1}")
            notes = [
                row
                for p, bars in enumerate(self.music.bars)
                for m, bar in enumerate(bars)
                if bar.measure.page == page + 1
                for row in _notes(p, m, bar)
            ]
            symbols = [
                [k, symbol.name, round(symbol.score, 3), symbol.box]
                for k, symbol in enumerate(self.music.symbols[page])
                if symbol is not None
            ]
            return {"version": self.version, "notes": notes, "symbols": symbols}

    def measure(self, index: int) -> list[dict[str, Any]]:
        """Return the signatures of a measure of each part.

        Raises:
            ValueError: there is no such measure.
        """
        with self._lock:
            return [_signs(self.music.bar(p, index).measure) for p in range(len(self.music.parts))]

    def engraving(self, system: int) -> tuple[int, str]:
        """Return the version and the engraving of a system.

        Raises:
            ValueError: there is no such system.
        """
        if not 0 <= system < len(self.systems):
            raise ValueError(f"system: is {system}; expected 0 to {len(self.systems) - 1}")
        with self._lock:
            version = self._changed_in[system]
            known = self._engravings.get(system)
            if known is None or known[0] != version:
                known = (version, self._engraver().engrave(self.music.score, self.systems[system]))
                self._engravings[system] = known
            return known

    def playback(self) -> dict[str, Any]:
        """Return tones and the path of the cursor; see `playback_of`."""
        with self._lock:
            return {"version": self.version, **playback_of(self.music.score)}


def _notes(part: int, index: int, bar: Bar) -> list[list[Any]]:
    """Return target, box, description and details of the notes and rests of a bar."""
    rows: list[list[Any]] = []
    for c, entry in enumerate(bar.entries):
        chord = entry.chord
        details = {
            "value": chord.value,
            "dots": chord.dots,
            "tuplet": chord.tuplet,
            "voice": (chord.voice - 1) % 4 + 1,
            "staff": chord.staff,
            "grace": chord.grace,
            "fixed": entry.mark.fixed,
        }
        for k, note in enumerate(chord.notes):
            name = str(note.pitch)
            own = {"pitch": name, "accidental": note.accidental, "tied": note.tied_to, "symbol": note.symbol}
            rows.append([[part, index, c, k], note.box, details | own])
        if not chord.notes:
            rows.append([[part, index, c, 0], chord.box, details | {"pitch": "", "symbol": chord.symbol}])
    return rows


def _signs(measure: Measure) -> dict[str, Any]:
    clefs = [[staff, float(time), clef.sign, clef.line, clef.octave] for staff, time, clef in measure.clefs]
    return {"key": measure.key, "meter": measure.meter, "clefs": clefs}


class ReadingSession:
    """The scores of a folder that `entourage read` wrote, or the pages of `entourage detect run`.

    Args:
        folder: the folder.
        names: names of its scores or pages.
        sources: folders or files whose scans may be shown.
        is_detected: whether the folder has pages of detections.
    """

    def __init__(
        self, folder: Path, names: Sequence[str], sources: Sequence[Path] = (), *, is_detected: bool = False
    ) -> None:
        self.folder, self.names, self._sources, self.is_detected = folder, list(names), list(sources), is_detected
        self._open: dict[int, OpenScore] = {}
        self._lock, self._engraver_lock = threading.Lock(), threading.Lock()
        self._engraver: Engraver | None = None

    def engraver(self) -> Engraver:
        """Return the engraver of all scores, which is loaded when it is first asked for."""
        with self._engraver_lock:
            if self._engraver is None:
                self._engraver = Engraver()
            return self._engraver

    def score(self, number: int) -> OpenScore:
        """Return a score, which is opened when it is first asked for.

        Args:
            number: position in `names`.

        Raises:
            ValueError: there is no such score, or it cannot be read.
        """
        if not 0 <= number < len(self.names):
            raise ValueError(f"score: is {number}; expected 0 to {len(self.names) - 1}")
        with self._lock:
            if number not in self._open:
                place = Place(self.names[number], self.folder, self.is_detected)
                self._open[number] = OpenScore(place, self._sources, self.engraver)
            return self._open[number]

    def prepare(self) -> None:
        """Load in the background what the first correction and the first engraving need."""

        def load() -> None:
            if not self.is_detected:
                self.engraver()
            import_module("entourage.serve.scores.edits")

        threading.Thread(target=load, name="prepare", daemon=True).start()
