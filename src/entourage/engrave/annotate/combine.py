"""Symbols made of others: dynamics and time signatures that V1 counts as one, and grace notes as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from entourage.engrave.render.instances import Symbol
from entourage.engrave.render.marks import Group, Mark

LETTERS = {0xE520: "p", 0xE521: "m", 0xE522: "f", 0xE523: "r", 0xE524: "s", 0xE525: "z"}
_WORDS = {"p": "Piano", "m": "Mezzo", "f": "Forte", "fp": "FortePiano", "sf": "Sforzando1", "sfz": "Sforzato"}
_WORDS |= {"rfz": "Rinforzando2", "mp": "MP", "mf": "MF"}
_WORDS |= {letter * n: letter.upper() * n for letter in "pf" for n in (2, 3, 4, 5)}


def combine_dynamics(symbols: Sequence[Symbol], marks: Sequence[Mark]) -> list[Symbol]:
    """Letters that stand together are one dynamic in V1; what V1 has no name for falls into parts that it has."""
    words: dict[Group, list[Symbol]] = {}
    for symbol in symbols:
        if symbol.group.kind == "dynam" and marks[symbol.marks[0]].code in LETTERS:
            words.setdefault(symbol.group, []).append(symbol)
    found = []
    for group, letters in words.items():
        while letters:
            text = "".join(LETTERS[marks[symbol.marks[0]].code] for symbol in letters)
            known = next((n for n in range(len(text), 0, -1) if text[:n] in _WORDS), 0)
            if known:
                together = [i for symbol in letters[:known] for i in symbol.marks]
                found.append(Symbol("", f"dynamic{_WORDS[text[:known]]}", together, group))
            letters = letters[max(known, 1) :]
    return found


def combine_times(symbols: Sequence[Symbol], marks: Sequence[Mark]) -> list[Symbol]:
    """12 and 16 are one symbol in V1, and their digits are none there."""
    digits = [s for s in symbols if s.label.startswith("timeSig") and s.group.kind == "meterSig"]
    found = []
    for first, second in pairwise(digits):
        pair = first.label[-1] + second.label[-1]
        level = abs(marks[first.marks[0]].y - marks[second.marks[0]].y) < 1
        if first.group is second.group and pair in ("12", "16") and level:
            first.v1 = second.v1 = ""
            found.append(Symbol("", f"timeSig{pair}", [*first.marks, *second.marks], first.group))
    return found


def combine_graces(graces: Mapping[Group, list[int]], marks: Sequence[Mark]) -> list[Symbol]:
    """A grace note with a flag of its own is also one symbol, which holds head, stem, flag and stroke.

    Args:
        graces: the marks of each grace note or chord.
        marks: all marks of the page.
    """
    found = []
    for owner, parts in graces.items():
        flags = [i for i in parts if marks[i].group.kind == "flag"]
        if not flags:
            continue
        lines = [marks[i].points for i in parts if marks[i].shape == "line"]
        stroke = any(abs(line[0, 0] - line[-1, 0]) > 1 for line in lines)  # a stem is upright
        name = "Acciaccatura" if stroke else "Appoggiatura"
        label = f"graceNote{name}Stem{'Up' if marks[flags[0]].code % 2 == 0 else 'Down'}"
        found.append(Symbol(label, label, parts, owner))
    return found
