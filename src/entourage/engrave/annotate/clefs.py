"""Clefs: which clef a glyph is, and where the number of an octave clef begins."""

from __future__ import annotations

from entourage.engrave.render.outlines import Edges, rings, split_at

CLEFS = {  # code point: (clef, number on it)
    **{0xE050: ("clefG", ""), 0xE051: ("clefG", "clef15"), 0xE052: ("clefG", "clef8")},
    **{0xE053: ("clefG", "clef8"), 0xE054: ("clefG", "clef15"), 0xE07A: ("clefG", "")},
    **{0xE05C: ("clefC", ""), 0xE05D: ("clefC", "clef8"), 0xE07B: ("clefC", "")},
    **{0xE062: ("clefF", ""), 0xE063: ("clefF", "clef15"), 0xE064: ("clefF", "clef8")},
    **{0xE065: ("clefF", "clef8"), 0xE066: ("clefF", "clef15"), 0xE07C: ("clefF", "")},
    **{0xE069: ("clefUnpitchedPercussion", ""), 0xE06A: ("clefUnpitchedPercussion", "")},
}
CHANGES = {"clefG": "gClefChange", "clefF": "fClefChange"}  # what V1 calls a clef within a line
CHANGES |= {"clefCAlto": "cClefAltoChange", "clefCTenor": "cClefTenorChange"}
# Where an outline above, or below, is not the clef's own any more, in ems from its line.
_REACH = {"clefG": (-1.0, 0.53), "clefF": (-0.22, 0.49), "clefCAlto": (-0.49, 0.49), "clefCTenor": (-0.49, 0.49)}
_TALL = 0.235  # ems of the digits


def clef_class(code: int, position: int, lines: int = 5) -> str:
    """The class of a clef, or nothing if it has none, as soprano, mezzo-soprano and baritone clefs.

    Args:
        code: its code point.
        position: of its line, in steps above the middle of the staff.
        lines: how many lines the staff has.
    """
    name, _ = CLEFS.get(code, ("", ""))
    if name != "clefC":
        return name
    return {3: "clefCAlto", 4: "clefCTenor"}.get((position + lines - 1) // 2 + 1, "")


def split_clef(edges: Edges, clef: str, y: float, scale: float) -> tuple[Edges, Edges]:
    """An octave clef is one glyph but two symbols: it is cut where the number begins.

    That is just beyond the holes of an 8; a 15 has none, but all digits are about as tall.

    Args:
        edges: the outline in pixels, shape (n, 4).
        clef: its class.
        y: of its line.
        scale: pixels an em.

    Returns:
        The outlines of the clef and of its number.
    """
    above, below = (y + reach * scale for reach in _REACH[clef])
    heights = [(ring[:, 1].min(), ring[:, 1].max()) for ring in rings(edges)]
    top, bottom = min(low for low, _ in heights), max(high for _, high in heights)
    tall = _TALL * scale
    if bottom - below > above - top:  # the number hangs below
        beyond = [low for low, _ in heights if low > below]
        upper, lower = split_at(edges, min(beyond) - tall / 8 if beyond else bottom - tall)
        return upper, lower
    beyond = [high for _, high in heights if high < above]
    upper, lower = split_at(edges, max(beyond) + tall / 8 if beyond else top + tall)
    return lower, upper
