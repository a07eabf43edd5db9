"""Composer of random, valid scores in which every symbol class occurs.

A score is a sequence of figures: short passages that each contain certain symbols, such as a clef change or a triplet.
Balanced scores contain every figure equally often and little else, so that no class is more than twenty times as
frequent as another. Other scores are mostly melody, as real music is, with figures interspersed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TypeVar

import numpy as np

from entourage.engrave.scores.musicxml_writer import (
    DIVISIONS,
    Value,
    attributes,
    barline,
    direction,
    measure_rest,
    note,
    rests,
)

_WHOLE = Value(Fraction(4))
_DYNAMICS = ("p", "f", "pp", "ppp", "pppp", "ppppp", "ff", "fff", "ffff", "fffff", "mp", "mf", "fp", "sf", "sfz", "rfz")
_TUPLETS = {  # actual notes: (normal notes, lengths in eighths, for 2 and 3 in quarters; rests are negative)
    3: (2, (2, -1)),
    6: (4, (-3, -3)),
    2: (3, (-1, -1)),
    4: (3, (-3, -1)),
    5: (4, (-4, -1)),
    7: (4, (-4, -3)),
    8: (6, (-4, -4)),
    9: (8, (-6, -3)),
    12: (8, (-6, -6)),
}


@dataclass(frozen=True)
class Bar:
    """A measure in MusicXML: its content, length in quarter notes, and left and right barline."""

    content: str
    length: Fraction = Fraction(4)
    left: str = ""
    right: str = ""


MeasureContent = Callable[[int], str]  # (step of the middle staff line) -> content of a measure of four quarters
BarFactory = Callable[..., Bar]  # (content to prepend, step of the middle staff line) -> measure
Item = TypeVar("Item")


class Figures:
    """Writer of figures, the short passages that scores consist of.

    Args:
        random: generator of all random choices.
        base_clef: clef of the score, such as "G2"; figures that change it return to it.
    """

    def __init__(self, random: np.random.Generator, base_clef: str) -> None:
        self.random = random
        self.base_clef = base_clef
        self.middle = {"G2": 34, "F4": 22, "C3": 28, "C4": 26, "P": 34}[base_clef]  # step of the middle line

    def all_figures(self) -> Iterator[list[Bar]]:
        """Yield every figure once.

        Symbols that accompany notes are distributed over the measures of other figures, because separate measures would
        make ordinary notes and rests too frequent.
        """
        contents = self.shuffled([*self.flags(), *self.tuplets(), self.seconds, self.beamed])
        surrounding = self.shuffled(self.directions())
        graces = self.graces()

        def make_bar(before: str = "", middle: int = self.middle) -> Bar:
            start, end = surrounding.pop() if surrounding else ("", "")
            return Bar(before + start + contents.pop()(middle) + end)

        yield self.clefs(make_bar)
        yield self.meters(make_bar)
        yield [self.long_values(), *self.long_rests(make_bar)]
        yield [make_bar(attributes(key=key)) for key in ("-1", "-1/1", "1/0")]
        yield self.repeated(make_bar)
        yield self.multi_measure_rest()
        yield self.tied()
        for notes in self.ornamented_notes():
            start, end = surrounding.pop() if surrounding else ("", "")
            yield [Bar(start + (graces.pop() if graces else "") + notes + end)]
        while contents:
            yield [make_bar()]

    def random_step(self, line: bool | None = None, middle: int | None = None) -> int:
        """Draw a step near `middle` (default: the middle line); `line` selects steps on lines (True) or in spaces."""
        offset = int(self.random.integers(-3, 4))
        if line is not None and (offset % 2 == 0) != line:
            offset += 1
        return (self.middle if middle is None else middle) + offset

    def ornamented_notes(self) -> Iterator[str]:
        """Yield whole notes, each with an ornament, a bowing or a fingering, and most also with an articulation."""
        names = ("accent", "staccato", "tenuto", "staccatissimo", "strong-accent")
        placements = [(name, place) for name in names for place in ("above", "below")]
        articulations = [f"<articulations><{name} placement='{place}'/></articulations>" for name, place in placements]
        articulations += ["<fermata type='upright'/>", "<fermata type='inverted'/>"]
        articulations.append("<articulations><caesura/></articulations>")
        ornaments = [f"<ornaments><{name}/></ornaments>" for name in ("trill-mark", "turn", "inverted-turn", "mordent")]
        ornaments += [f"<ornaments><tremolo type='single'>{n}</tremolo></ornaments>" for n in range(1, 6)]
        ornaments += [f"<technical><{bow}/></technical>" for bow in ("up-bow", "down-bow")]
        ornaments += [f"<technical><fingering>{n}</fingering></technical>" for n in range(6)]
        articulations += [""] * (len(ornaments) - len(articulations))
        for k, notations in enumerate(zip(self.shuffled(articulations), self.shuffled(ornaments), strict=True)):
            yield note(self.random_step(line=k % 2 == 0), _WHOLE, notations="".join(notations))

    def directions(self) -> list[tuple[str, str]]:
        """Return pairs of directions before and after notes: dynamics, signs, hairpins, pedals and octave lines."""
        pairs = [(direction(f"<dynamics><{name}/></dynamics>"), "") for name in _DYNAMICS]
        pairs.append((direction("<dynamics><other-dynamics>m</other-dynamics></dynamics>"), ""))
        pairs += [(direction("<segno/>", "above"), ""), (direction("<coda/>", "above"), "")]
        stop = direction("<wedge type='stop'/>")
        pairs += [(direction(f"<wedge type='{kind}'/>"), stop) for kind in ("crescendo", "diminuendo")]
        start, end = (direction(f"<pedal type='{end}' sign='yes' line='no'/>") for end in ("start", "stop"))
        pairs.append((start, end))
        start, end = (direction(f"<octave-shift type='{end}' size='8'/>", "above") for end in ("down", "stop"))
        return [*pairs, (start, end)]

    def flags(self) -> list[MeasureContent]:
        """Write notes with each flag and stem direction and all accidentals, completed by rests."""
        signs = self.shuffled(["flat", "natural", "sharp", "double-sharp", "flat-flat", ""])

        def pair(n: int, stems: tuple[str, ...], sign: str) -> MeasureContent:
            value = Value(Fraction(4, n))

            def write(middle: int) -> str:
                at = [self.random_step(middle=middle) for _ in stems]
                first = [note(at[0], value, stem=stems[0], accidental=sign)]
                others = [note(step, value, stem=stem) for step, stem in zip(at[1:], stems[1:], strict=True)]
                return "".join(first + others) + rests(4 - value.sounding * len(stems))

            return write

        both = [pair(n, ("up", "down"), sign) for n, sign in zip((8, 16, 32, 64), signs, strict=False)]
        return [*both, *(pair(128, (stem,), sign) for stem, sign in zip(("up", "down"), signs[4:], strict=True))]

    def tuplets(self) -> list[MeasureContent]:
        """Write tuplets of every number, each with two notes or rests."""

        def tuplet(number: int, normal: int, parts: tuple[int, ...]) -> MeasureContent:
            def write(middle: int) -> str:
                unit = Fraction(1) if number in (2, 3) else Fraction(1, 2)
                texts, length = [], Fraction(0)
                for k, part in enumerate(parts):
                    dots = int(abs(part) % 3 == 0)
                    value = Value(unit * abs(part) * (Fraction(2, 3) if dots else 1), dots, (number, normal))
                    inside = "<tuplet type='start' bracket='yes'/>" if k == 0 else "<tuplet type='stop'/>"
                    steps = (self.random_step(middle=middle),) if part > 0 else ()
                    texts.append(note(steps, value, notations=inside))
                    length += value.sounding
                return "".join(texts) + rests(4 - length)

            return write

        return [tuplet(number, normal, parts) for number, (normal, parts) in _TUPLETS.items()]

    def seconds(self, middle: int) -> str:
        """Write two half notes a second apart on one stem, arpeggiated."""
        low = self.random_step(line=True, middle=middle)
        return note((low, low + 1), Value(Fraction(2), dots=1), notations="<arpeggiate/>") + rests(Fraction(1))

    def beamed(self, middle: int) -> str:
        """Write two eighths under a beam and a slur."""
        low = self.random_step(middle=middle)
        ends = (("begin", "start"), ("end", "stop"))
        slurs = [f"<slur type='{slur}' number='1'/>" for _, slur in ends]
        pair = zip((low, low + 1), ends, slurs, strict=True)
        texts = [note(step, Value(Fraction(1, 2)), beams=(end,), notations=slur) for step, (end, _), slur in pair]
        return "".join(texts) + rests(Fraction(3))

    def graces(self) -> list[str]:
        """Write grace notes of both kinds and stem directions with accidentals, and long ones a second apart."""
        eighth = Value(Fraction(1, 2))
        signs = ("flat", "natural", "sharp", "")
        kinds = [(grace, stem) for grace in ("slash", "plain") for stem in ("up", "down")]
        texts = [
            note(self.random_step(line=k % 2 == 0), eighth, grace=grace, accidental=sign, stem=stem)
            for k, ((grace, stem), sign) in enumerate(zip(kinds, signs, strict=True))
        ]
        for written in (Fraction(2), Fraction(4)):
            low = self.random_step(line=True)
            texts.append(note((low, low + 1), Value(written), grace="plain"))
        return texts

    def long_values(self) -> Bar:
        """Write two breves a second apart, as grace notes and in full size, in a measure of 4/2."""
        low = self.random_step(line=True)
        breve = Value(Fraction(8))
        small = note((low, low + 1), breve, grace="plain")
        return Bar(attributes(time="4/2") + small + note((low, low + 1), breve), Fraction(8))

    def long_rests(self, make_bar: BarFactory) -> list[Bar]:
        """Write a breve, a longa and a maxima rest."""
        bars = [Bar(note((), Value(Fraction(8))), Fraction(8))]
        for length, time in ((16, "16/4"), (32, "32/4")):
            bars.append(Bar(attributes(time=time) + note((), Value(Fraction(length))), Fraction(length)))
        return [*bars, make_bar(attributes(time="common"))]

    def meters(self, make_bar: BarFactory) -> list[Bar]:
        """Write every digit of time signatures, over rests."""
        bars = []
        for time in ("10/8", "12/16", "9/8", "7/8", "5/4", "6/4", "3/4", "cut"):
            count, unit = map(int, ("2/2" if time == "cut" else time).split("/"))
            length = Fraction(4 * count, unit)
            bars.append(Bar(attributes(time=time) + measure_rest(length), length))
        return [*bars, make_bar(attributes(time="common"))]

    def clefs(self, make_bar: BarFactory) -> list[Bar]:
        """Write all clefs and return to the base clef; the notes stay on the staff."""
        bars = []
        for clef in ("F4", "C3", "C4", "P", "G2-1", "G2", "G22", self.base_clef):
            middle = {"F4": 22, "C3": 28, "C4": 26, "G2-1": 27, "G22": 48}.get(clef, 34)
            bars.append(make_bar(attributes(clef=clef), middle))
        return bars

    def multi_measure_rest(self) -> list[Bar]:
        """Write several measures of rest as one multi-measure rest."""
        count = int(self.random.integers(10, 30))
        style = f"<attributes><measure-style><multiple-rest>{count}</multiple-rest></measure-style></attributes>"
        rest = measure_rest(Fraction(4))
        return [Bar(style + rest), *[Bar(rest)] * (count - 1)]

    def tied(self) -> list[Bar]:
        """Write a tie below the staff, on ledger lines."""
        return [Bar(note(self.middle - 6, _WHOLE, tie=end)) for end in ("start", "stop")]

    def repeated(self, make_bar: BarFactory) -> list[Bar]:
        """Write a repeat of two measures."""
        left, right = barline("left", repeat="forward"), barline(repeat="backward")
        return [replace(make_bar(), left=left), replace(make_bar(), right=right)]

    def barlines(self) -> list[Bar]:
        """Write every kind of bar line and a repeat with two endings, over notes with short trills."""
        sides = [
            (barline("left", repeat="forward"), ""),
            (barline("left", ending="1 start"), barline(repeat="backward", ending="1 stop")),
            (barline("left", repeat="forward", ending="2 start"), barline(repeat="backward", ending="2 stop")),
            ("", barline(style="dashed")),
            ("", barline(style="light-light")),
            ("", barline(style="dotted")),
        ]
        trill = "<ornaments><inverted-mordent/></ornaments>"
        notes = (note(self.random_step(line=k % 2 == 0), _WHOLE, notations=trill) for k in range(len(sides)))
        return [Bar(content, left=left, right=right) for content, (left, right) in zip(notes, sides, strict=True)]

    def shuffled(self, items: list[Item]) -> list[Item]:
        """Return a list of the items in random order."""
        return [items[i] for i in self.random.permutation(len(items))]


_CLEFS = ("G2", "F4", "C3", "C4", "P")


def compose(seed: int, index: int, *, balanced: bool = False) -> str:
    """Compose a random score.

    Args:
        seed: seed of all random choices.
        index: number of the score. It selects the clef, and whether there is a second staff or a bracket.
        balanced: include every figure equally often, and no melody.

    Returns:
        MusicXML of one part; equal arguments give equal scores.
    """
    writer = Figures(np.random.default_rng([seed, index, balanced]), _CLEFS[index % 5])
    figures = writer.shuffled([bars for _ in range(2 if balanced else 1) for bars in writer.all_figures()])
    if not balanced:
        inserted = sorted(writer.random.choice(len(figures), size=len(figures) // 3, replace=False))
        figures = [part for i in inserted for part in (_melody(writer.random, writer.middle), figures[i])]
    bars = [bar for figure in figures for bar in figure] + writer.barlines()
    bars.append(Bar(note(writer.random_step(), _WHOLE), right=barline(style="light-heavy")))
    clef, name = _CLEFS[index % 5], f"Composition {index + 1}"
    return _score(bars, clef=clef, staves=2 if index % 7 == 0 else 1, bracket=index % 7 == 3, name=name)


def _melody(random: np.random.Generator, middle: int) -> list[Bar]:
    """Write one to three measures of quarters, eighths and halves: a random walk around the middle staff line."""
    bars = []
    step = int(middle + random.integers(-3, 4))
    for _ in range(int(random.integers(1, 4))):
        content, remaining = "", Fraction(4)
        while remaining > 0:
            choice = random.choice(4, p=(0.45, 0.3, 0.15, 0.1))
            value = (Fraction(1), Fraction(1), Fraction(2), Fraction(4))[choice]
            step = int(np.clip(step + random.integers(-2, 3), middle - 7, middle + 7))
            if value > remaining:
                continue
            if choice == 1:  # a pair of eighths
                pair = (step, int(np.clip(step + random.integers(-2, 3), middle - 7, middle + 7)))
                ends = ("begin", "end")
                eighths = [note(s, Value(Fraction(1, 2)), beams=(b,)) for s, b in zip(pair, ends, strict=True)]
                content += "".join(eighths)
            else:
                content += note(step, Value(value)) if random.random() > 0.1 else note((), Value(value))
            remaining -= value
        bars.append(Bar(content))
    return bars


def _score(bars: list[Bar], clef: str, staves: int, bracket: bool, name: str) -> str:
    """Join measures to a score of one part; a second staff, in the bass clef, contains rests."""
    first = attributes(clef=clef, time="common", key="0")
    first = first.replace("<attributes>", f"<attributes><divisions>{DIVISIONS}</divisions>")
    if staves == 2:
        lower = "<clef number='2'><sign>F</sign><line>4</line></clef>"
        first = first.replace("<clef>", "<staves>2</staves><clef number='1'>")
        first = first.replace("</attributes>", f"{lower}</attributes>")
    measures = []
    for number, bar in enumerate(bars, start=1):
        length = int(bar.length * DIVISIONS)
        content = bar.content.replace("<clef>", "<clef number='1'>") if staves == 2 else bar.content
        if staves == 2:
            duration = f"<duration>{length}</duration>"
            content += f"<backup>{duration}</backup>"
            content += f"<note><rest measure='yes'/>{duration}<voice>5</voice><staff>2</staff></note>"
        start = first if number == 1 else ""
        measures.append(f"<measure number='{number}'>{start}{bar.left}{content}{bar.right}</measure>")
    parts = "<score-part id='P1'><part-name></part-name></score-part>"
    if bracket:
        start = "<part-group number='1' type='start'><group-symbol>bracket</group-symbol></part-group>"
        parts = f"{start}{parts}<part-group number='1' type='stop'/>"
    parts = f"<part-list>{parts}</part-list>"
    work = f"<work><work-title>{name}</work-title></work>"
    return f"<score-partwise version='4.0'>{work}{parts}<part id='P1'>{''.join(measures)}</part></score-partwise>"
