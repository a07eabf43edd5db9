"""The composer: valid random music in which every class of symbols occurs.

A composed score is a row of figures. Balanced scores hold every figure equally often and little else, so that no class
is more than twenty times as frequent as another. The others are mostly plain melody, like music, and figures strewn in.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np

from entourage.engrave.scores.figures import Bar, Figures
from entourage.engrave.scores.musicxml_writer import DIVISIONS, Value, attributes, note

_CLEFS = ("G2", "F4", "C3", "C4", "P")


def compose(seed: int, index: int, *, balanced: bool = False) -> str:
    """A score as MusicXML.

    Args:
        seed: of all that is random.
        index: of the score; the same seed and index give the same score. Clefs and number of staves go round by it.
        balanced: every figure equally often, and no melody.
    """
    writer = Figures(np.random.default_rng([seed, index, balanced]), _CLEFS[index % 5])
    rounds = [bars for _ in range(2) for bars in writer.round()] if balanced else list(writer.round())
    order = writer.random.permutation(len(rounds))
    figures = [rounds[i] for i in order]
    if not balanced:
        chosen = sorted(writer.random.choice(len(figures), size=len(figures) // 3, replace=False))
        figures = [part for i in chosen for part in (_melody(writer.random, writer.middle), figures[i])]
    bars = [bar for figure in figures for bar in figure]
    return _score(bars, clef=_CLEFS[index % 5], staves=2 if index % 7 == 0 else 1, name=f"Composition {index + 1}")


def _melody(random: np.random.Generator, middle: int) -> list[Bar]:
    """A few measures of quarters, eighths and halves that wander up and down about the middle line."""
    bars = []
    at = int(middle + random.integers(-3, 4))
    for _ in range(int(random.integers(1, 4))):
        content, left = "", Fraction(4)
        while left > 0:
            choice = random.choice(4, p=(0.45, 0.3, 0.15, 0.1))
            value = (Fraction(1), Fraction(1), Fraction(2), Fraction(4))[choice]
            at = int(np.clip(at + random.integers(-2, 3), middle - 7, middle + 7))
            if value > left:
                continue
            if choice == 1:  # a pair of eighths
                pair = (at, int(np.clip(at + random.integers(-2, 3), middle - 7, middle + 7)))
                ends = ("begin", "end")
                eighths = [note(s, Value(Fraction(1, 2)), beams=(b,)) for s, b in zip(pair, ends, strict=True)]
                content += "".join(eighths)
            else:
                content += note(at, Value(value)) if random.random() > 0.1 else note((), Value(value))
            left -= value
        bars.append(Bar(content))
    return bars


def _score(bars: list[Bar], clef: str, staves: int, name: str) -> str:
    """The measures as a score of one part; on two staves the lower one, in the bass, rests."""
    first = attributes(clef=clef, time="common", key="0").replace(
        "<attributes>", f"<attributes><divisions>{DIVISIONS}</divisions>"
    )
    if staves == 2:
        lower = "<clef number='2'><sign>F</sign><line>4</line></clef>"
        first = first.replace("<clef>", "<staves>2</staves><clef number='1'>").replace(
            "</attributes>", f"{lower}</attributes>"
        )
    measures = []
    for number, bar in enumerate(bars, start=1):
        length = int(bar.length * DIVISIONS)
        content = bar.content.replace("<clef>", "<clef number='1'>") if staves == 2 else bar.content
        if staves == 2:
            content += f"<backup><duration>{length}</duration></backup>"
            content += (
                f"<note><rest measure='yes'/><duration>{length}</duration><voice>5</voice><staff>2</staff></note>"
            )
        start = first if number == 1 else ""
        measures.append(f"<measure number='{number}'>{start}{bar.left}{content}{bar.right}</measure>")
    parts = "<part-list><score-part id='P1'><part-name></part-name></score-part></part-list>"
    work = f"<work><work-title>{name}</work-title></work>"
    return f"<score-partwise version='4.0'>{work}{parts}<part id='P1'>{''.join(measures)}</part></score-partwise>"
