"""Substitution of common symbols by similar rare ones in MusicXML (thesis, chapter 6).

A rare symbol takes the place of one that musicians use in the same way. The context stays realistic, unlike that of a
symbol pasted onto a page, so that a detector learns from it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from lxml import etree

from entourage.compute import derive_seed
from entourage.engrave.scores.musicxml_writer import barline
from entourage.engrave.scores.parsing import Score, parse_score
from entourage.io.safe_formats import parse_xml

Substitution = Callable[[etree._Element, np.random.Generator], None]

# MusicXML tag of a common symbol: tags of the rare symbols that can replace it.
_SUBSTITUTES: dict[str, tuple[str, ...]] = {
    "staccato": ("staccatissimo", "tenuto", "strong-accent"),
    "accent": ("strong-accent", "staccatissimo", "tenuto"),
    "tenuto": ("staccatissimo", "strong-accent"),
    "trill-mark": ("turn", "inverted-turn", "mordent", "inverted-mordent"),
    "turn": ("inverted-turn", "mordent", "inverted-mordent"),
    "breath-mark": ("caesura",),
    "p": ("ppp", "pppp", "ppppp"),
    "pp": ("ppp", "pppp", "ppppp"),
    "f": ("fff", "ffff", "fffff"),
    "ff": ("fff", "ffff", "fffff"),
    "mf": ("sf", "rfz", "fp"),
    "mp": ("fp", "sfz"),
    "sf": ("sfz", "rfz"),
    "sfz": ("rfz",),
    "fz": ("rfz", "sfz"),
}
_BARLINES = (barline(style="light-light"), barline(style="dashed"), barline(repeat="backward"))
_DOUBLED = {"sharp": ("double-sharp", 2), "flat": ("flat-flat", -2)}


def substitute_symbols(score: Score, fraction: float, seed: int) -> Score:
    """Replace some of the common symbols of a score by rare ones.

    Articulations, ornaments and dynamics are renamed to rarer ones; sharps and flats that affect no other note of the
    measure become double; fermatas are inverted; tremolos change the number of strokes; grace notes gain or lose the
    slash; 4/4 and 2/2 are written as signs; bar lines become double, dashed or repeat signs, in all parts.

    Args:
        score: the score; other notations than MusicXML are returned unchanged.
        fraction: fraction of the replaceable symbols that is replaced.
        seed: seed of the random choices, which also depend on the name of the score.

    Returns:
        The changed score.
    """
    if fraction == 0 or score.notation != "musicxml":
        return score
    root = parse_xml(score.text.encode())
    random = np.random.default_rng(derive_seed(seed, "replace", score.name))
    for element in list(root.iter()):
        substitute = _rule(element)
        if substitute is not None and random.random() < fraction:
            substitute(element, random)
    _substitute_barlines(root, fraction, np.random.default_rng(derive_seed(seed, "barlines", score.name)))
    return parse_score(etree.tostring(root, encoding="unicode"), score.name)


def _rule(element: etree._Element) -> Substitution | None:
    """Return the function that replaces an element by a rare one, or None if no rule applies."""
    tag = element.tag
    if not isinstance(tag, str):
        return None
    parent = element.getparent()
    if tag in _SUBSTITUTES and parent is not None and parent.tag in ("articulations", "ornaments", "dynamics"):
        return _rename
    if tag == "accidental" and element.text in _DOUBLED and _affects_no_other_note(element):
        return _double_accidental
    if tag == "time" and (element.findtext("beats"), element.findtext("beat-type")) in (("4", "4"), ("2", "2")):
        return _use_time_symbol
    return {"fermata": _flip_fermata, "tremolo": _change_strokes, "grace": _toggle_slash}.get(tag)


def _substitute_barlines(root: etree._Element, fraction: float, random: np.random.Generator) -> None:
    """Add a bar line other than a single one to some of the measures that specify none."""
    measures = [list(part.iterchildren("measure")) for part in root.iterchildren("part")]
    for parts in zip(*measures, strict=False):
        if random.random() < fraction and not any(part.find("barline") is not None for part in parts):
            chosen = _BARLINES[int(random.integers(len(_BARLINES)))]
            for part in parts:
                part.append(etree.fromstring(chosen))


def _rename(element: etree._Element, random: np.random.Generator) -> None:
    candidates = _SUBSTITUTES[str(element.tag)]
    element.tag = candidates[int(random.integers(len(candidates)))]


def _double_accidental(element: etree._Element, random: np.random.Generator) -> None:
    sign, alter = _DOUBLED[element.text]
    pitch = element.getparent().find("pitch")
    element.text = sign
    alter_element = pitch.find("alter")
    if alter_element is None:
        alter_element = etree.Element("alter")
        pitch.insert(1, alter_element)
    alter_element.text = str(alter)


def _affects_no_other_note(accidental: etree._Element) -> bool:
    """Return whether an accidental affects only its own note: no other note of the measure has its step and octave."""
    note = accidental.getparent()
    if note is None or note.find("pitch") is None:
        return False
    position = (note.findtext("pitch/step"), note.findtext("pitch/octave"))
    others = [n for n in note.getparent().iterchildren("note") if n is not note]
    tied = note.find("tie") is not None
    return not tied and all((n.findtext("pitch/step"), n.findtext("pitch/octave")) != position for n in others)


def _use_time_symbol(element: etree._Element, random: np.random.Generator) -> None:
    element.set("symbol", "common" if element.findtext("beats") == "4" else "cut")


def _flip_fermata(element: etree._Element, random: np.random.Generator) -> None:
    element.set("type", "upright" if element.get("type") == "inverted" else "inverted")


def _change_strokes(element: etree._Element, random: np.random.Generator) -> None:
    if element.get("type", "single") == "single":
        element.text = str(random.integers(1, 6))


def _toggle_slash(element: etree._Element, random: np.random.Generator) -> None:
    element.set("slash", "no" if element.get("slash") == "yes" else "yes")
