"""Clefs, key signatures and metres of a system, with the places where they are printed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from entourage.detect.options import INTERLINE
from entourage.read.layout.systems import StaffLines, System
from entourage.read.score import Clef
from entourage.read.symbols.glyphs import Glyph

_MIN_CLEF_SCORE = 0.3
_MIN_KEY_SCORE = 0.3
_MIN_DIGIT_SCORE = 0.3
_SIGN_GAP = 1.9 * INTERLINE  # maximum distance between the signs of a key signature
_DIGIT_COLUMN = 0.9 * INTERLINE  # digits of a metre are one above the other up to this distance
_AGREEMENT = 1.6 * INTERLINE  # signatures of the staves of a system are at the same x up to this distance


@dataclass(frozen=True)
class Sign:
    """A clef, key signature or metre on a staff.

    Attributes:
        staff: staff of the system, from 0.
        x0, x1: left and right end.
        clef, key, meter: the sign; two of them are None.
    """

    staff: int
    x0: float
    x1: float
    clef: Clef | None = None
    key: int | None = None
    meter: tuple[int, int, str] | None = None


def find_signs(system: System, glyphs: Sequence[Glyph]) -> list[Sign]:
    """Return the clefs, key signatures and metres of a system, from left to right.

    Args:
        system: the system.
        glyphs: symbols of the page, highest scores first.

    Returns:
        The signs. A key signature or metre that fewer than half of the staves show is left out.
    """
    signs: list[Sign] = []
    keys: list[Sign] = []
    meters: list[Sign] = []
    for k, staff in enumerate(system.staves):
        inside = [g for g in glyphs if _on_staff(staff, g)]
        signs.extend(_clefs(k, staff, inside, glyphs))
        keys.extend(_keys(k, inside))
        meters.extend(_meters(k, staff, inside))
    signs.extend(_agreed(keys, len(system.staves)))
    signs.extend(_agreed(meters, len(system.staves)))
    return sorted(signs, key=lambda sign: sign.x0)


def in_key_signature(glyph: Glyph, system: System, signs: Sequence[Sign]) -> bool:
    """Return whether a symbol is one of the signs of a key signature, and so no accidental of a note.

    Args:
        glyph: a symbol.
        system: the system.
        signs: its clefs, key signatures and metres.
    """
    if not glyph.name.startswith("key"):
        return False
    on = [sign for sign in signs if sign.key is not None and sign.x0 - 2 < glyph.x < sign.x1 + 2]
    return any(_on_staff(system.staves[sign.staff], glyph) for sign in on)


def _on_staff(staff: StaffLines, glyph: Glyph) -> bool:
    inside = staff.left - INTERLINE < glyph.x < staff.right + INTERLINE
    return inside and abs(staff.position(glyph.x, glyph.y)) <= 7


def _clefs(k: int, staff: StaffLines, glyphs: Sequence[Glyph], everywhere: Sequence[Glyph]) -> list[Sign]:
    found: list[Sign] = []
    for glyph in glyphs:
        kind = glyph.name.removesuffix("Change")
        sign = {"clefG": "G", "gClef": "G", "clefF": "F", "fClef": "F", "clefCAlto": "C", "clefCTenor": "C"}
        sign |= {"cClefAlto": "C", "cClefTenor": "C"}
        if kind not in sign or glyph.score < _MIN_CLEF_SCORE:
            continue
        if any(abs((other.x0 + other.x1) / 2 - glyph.x) < 1.5 * INTERLINE for other in found):
            continue
        letter = sign[kind]
        line = {"G": 2, "F": 4}.get(letter, 0)
        if letter == "C":
            line = max(1, min(5, round(staff.position(glyph.x, glyph.y) / 2) + 3))
        octave = 0
        for eight in everywhere:
            if eight.name == "clef8" and abs(eight.x - glyph.x) < INTERLINE and eight.score > 0.4:
                if abs(eight.y - glyph.box[3]) < 1.5 * INTERLINE:
                    octave = -1
                elif abs(eight.y - glyph.box[1]) < 1.5 * INTERLINE:
                    octave = 1
        found.append(Sign(k, float(glyph.box[0]), float(glyph.box[2]), clef=Clef(letter, line, octave)))
    return found


def _keys(k: int, glyphs: Sequence[Glyph]) -> list[Sign]:
    """Return runs of the signs of key signatures."""
    signs: list[Glyph] = []
    for glyph in (g for g in glyphs if g.name in ("keySharp", "keyFlat", "keyNatural") and g.score >= _MIN_KEY_SCORE):
        if all(abs(glyph.x - other.x) > 0.4 * INTERLINE or abs(glyph.y - other.y) > INTERLINE for other in signs):
            signs.append(glyph)
    signs.sort(key=lambda glyph: glyph.x)
    runs: list[list[Glyph]] = []
    for glyph in signs:
        if runs and glyph.box[0] - runs[-1][-1].box[2] < _SIGN_GAP:
            runs[-1].append(glyph)
        else:
            runs.append([glyph])
    found = []
    for run in runs:
        sharps, flats = (sum(1 for g in run if g.name == name) for name in ("keySharp", "keyFlat"))
        key = sharps if sharps >= flats else -flats
        found.append(Sign(k, float(run[0].box[0]), float(run[-1].box[2]), key=max(-7, min(7, key))))
    return found


def _meters(k: int, staff: StaffLines, glyphs: Sequence[Glyph]) -> list[Sign]:
    """Return metres: pairs of numbers, or the signs of common and cut time."""
    found: list[Sign] = []
    digits = [g for g in glyphs if g.name.startswith("timeSig") and g.score >= _MIN_DIGIT_SCORE]
    for glyph in digits:
        if glyph.name in ("timeSigCommon", "timeSigCutCommon"):
            meter = (4, 4, "common") if glyph.name == "timeSigCommon" else (2, 2, "cut")
            found.append(Sign(k, float(glyph.box[0]), float(glyph.box[2]), meter=meter))
    numbers = [g for g in digits if g.name[-1].isdigit()]
    numbers.sort(key=lambda glyph: glyph.x)
    columns: list[list[Glyph]] = []
    for glyph in numbers:
        if columns and glyph.x - max(g.x for g in columns[-1]) < 1.4 * INTERLINE:
            columns[-1].append(glyph)
        else:
            columns.append([glyph])
    for column in columns:
        upper = _number([g for g in column if staff.position(g.x, g.y) > 0.5])
        lower = _number([g for g in column if staff.position(g.x, g.y) < -0.5])
        if upper and lower in (1, 2, 4, 8, 16, 32) and upper <= 32:
            left, right = min(g.box[0] for g in column), max(g.box[2] for g in column)
            found.append(Sign(k, float(left), float(right), meter=(upper, lower, "")))
    return found


def _number(digits: list[Glyph]) -> int:
    """Return the number that digits form from left to right; of two on one place, the better one counts."""
    distinct: list[Glyph] = []
    for digit in sorted(digits, key=lambda glyph: -glyph.score):
        if all(abs(digit.x - other.x) > 0.5 * INTERLINE for other in distinct):
            distinct.append(digit)
    text = "".join(digit.name[-1] for digit in sorted(distinct, key=lambda glyph: glyph.x))
    return int(text) if text else 0


def _agreed(signs: list[Sign], n_staves: int) -> list[Sign]:
    """Return the signs that at least half of the staves have at the same place, one for each staff.

    Staves that show another value there, or none, get the most frequent one.
    """
    groups: list[list[Sign]] = []
    for sign in sorted(signs, key=lambda sign: sign.x0):
        if groups and sign.x0 - groups[-1][0].x0 < _AGREEMENT:
            groups[-1].append(sign)
        else:
            groups.append([sign])
    found: list[Sign] = []
    for group in groups:
        staves = {sign.staff for sign in group}
        if len(staves) * 2 < n_staves:
            continue
        value = Counter((sign.key, sign.meter) for sign in group).most_common(1)[0][0]
        left, right = min(sign.x0 for sign in group), max(sign.x1 for sign in group)
        found.extend(Sign(k, left, right, key=value[0], meter=value[1]) for k in range(n_staves))
    return found
