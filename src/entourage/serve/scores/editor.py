"""The music before and after a correction: bars and symbols that are copied before they change."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from entourage.read.score import Measure
from entourage.serve.scores.bars import Bar, Music, Symbol, bar_key, bar_to_json, copy_bar, symbol_key
from entourage.serve.scores.pitches import PitchRule, signatures_before
from entourage.serve.scores.rhythm import Frame, solve_bar


class Editor:
    """A correction in the making: the bars and symbols that it changes are copies.

    Args:
        music: the music before the correction; it is not changed.
    """

    def __init__(self, music: Music) -> None:
        self.music = music
        self._bars: dict[tuple[int, int], Bar] = {}
        self._rows: dict[int, list[Bar]] = {}  # all bars of the parts whose number of measures changes
        self._symbols: dict[tuple[int, int], Symbol | None] = {}

    def bar(self, part: int, index: int) -> Bar:
        """Return a bar to change.

        Raises:
            ValueError: there is no such bar.
        """
        if part in self._rows:
            return self._rows[part][index]
        if (part, index) not in self._bars:
            self._bars[part, index] = copy_bar(self.music.bar(part, index))
        return self._bars[part, index]

    def measures(self, part: int) -> list[Measure]:
        """Return the measures of a part as they are now."""
        if part in self._rows:
            return [bar.measure for bar in self._rows[part]]
        return [self._bars.get((part, m), bar).measure for m, bar in enumerate(self.music.bars[part])]

    def n_measures(self, part: int) -> int:
        """Return the number of measures of a part."""
        return len(self._rows.get(part, self.music.bars[part]))

    def replace_bars(self, part: int, start: int, stop: int, bars: Sequence[Bar]) -> None:
        """Replace the bars from `start` to `stop` of a part by another number of bars; later ones get other numbers."""
        shift = len(bars) - (stop - start)
        later = [copy_bar(bar) for bar in self.music.bars[part][stop:]]
        for bar in (*bars[1:], *later):
            bar.measure.number += shift
        self._rows[part] = [*self.music.bars[part][:start], *bars, *later]

    def symbol(self, page: int, index: int) -> Symbol:
        """Return a symbol of a page, from 0, to change.

        Raises:
            ValueError: there is no such symbol.
        """
        row = self.music.symbols[page] if 0 <= page < len(self.music.symbols) else []
        found = row[index] if 0 <= index < len(row) else None
        if found is None:
            raise ValueError(f"symbol: {index} of page {page + 1} does not exist; expected one of the page")
        return found

    def set_symbol(self, page: int, index: int, symbol: Symbol | None) -> None:
        """Set, add or remove (None) a symbol."""
        self._symbols[page, index] = symbol

    @contextmanager
    def pitches(self, part: int, start: int, stop: int) -> Iterator[None]:
        """Correct the pitches of the measures from `start` to `stop` after a change within the block."""
        before = signatures_before(self.measures(part), start)
        copies = [self.bar(part, m).measure for m in range(start, min(stop, self.n_measures(part)))]
        rule = PitchRule(copies, before, self.measures(part)[start - 1] if start else None)
        yield
        rule.update(copies, before)

    def frame(self, part: int, index: int) -> Frame:
        """Return what is valid in a measure."""
        measures = self.measures(part)
        measure = measures[index]
        valid = signatures_before(measures, index)
        valid.enter(measure)
        at_border = index == 0 or index + 1 == len(measures) or measure.repeat_start or measure.right != "regular"
        interline = self.music.interline(measure.page)
        return Frame(self.music.parts[part][1], valid.length, interline, at_border)

    def solve(self, part: int, index: int) -> None:
        """Solve the rhythm of a bar again."""
        solve_bar(self.bar(part, index), self.frame(part, index))

    def changes(self) -> dict[str, Any]:
        """Return the new values by key."""
        values: dict[str, Any] = {bar_key(p, m): bar_to_json(bar) for (p, m), bar in self._bars.items()}
        for part, row in self._rows.items():
            for m in range(max(len(row), len(self.music.bars[part]))):
                values[bar_key(part, m)] = bar_to_json(row[m]) if m < len(row) else None
        for (page, index), symbol in self._symbols.items():
            value = None
            if symbol is not None:
                box = [round(side, 2) for side in symbol.box]
                value = {"name": symbol.name, "score": symbol.score, "box": box}
            values[symbol_key(page, index)] = value
        return values
