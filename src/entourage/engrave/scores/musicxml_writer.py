"""Functions that write MusicXML elements as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

DIVISIONS = 10_080  # divisions of a quarter note: divisible by the lengths of a 128th and of 5-, 7- and 9-tuplets
_STEPS = "CDEFGAB"
_TYPES = {
    Fraction(32): "maxima",
    Fraction(16): "long",
    Fraction(8): "breve",
    Fraction(4): "whole",
    Fraction(2): "half",
    Fraction(1): "quarter",
    Fraction(1, 2): "eighth",
    **{Fraction(4, n): f"{n}{'nd' if n == 32 else 'th'}" for n in (16, 32, 64, 128)},
}


@dataclass(frozen=True)
class Value:
    """A note value: the written length in quarter notes, dots, and the ratio of a tuplet (actual, normal)."""

    written: Fraction
    dots: int = 0
    tuplet: tuple[int, int] = (1, 1)

    @property
    def sounding(self) -> Fraction:
        """Sounding length in quarter notes."""
        return self.written * (2 - Fraction(1, 2**self.dots)) * Fraction(self.tuplet[1], self.tuplet[0])


def pitch(step: int) -> str:
    """Write the natural pitch `step` diatonic steps above C0; 35 is C5."""
    return f"<pitch><step>{_STEPS[step % 7]}</step><octave>{step // 7}</octave></pitch>"


def note(
    steps: Sequence[int] | int,
    value: Value,
    *,
    grace: str = "",
    notations: str = "",
    accidental: str = "",
    stem: str = "",
    beams: Sequence[str] = (),
    tie: str = "",
) -> str:
    """Write a note, a chord (several steps) or a rest (no steps).

    Args:
        steps: pitches, in diatonic steps above C0.
        value: the note value.
        grace: "slash" or "plain" for a grace note.
        notations: content of `<notations>`.
        accidental: accidental of the first note.
        stem: "up", "down" or "".
        beams: "begin", "continue" or "end" of each beam, that of eighths first.
        tie: "start", "stop" or "".

    Returns:
        One `<note>` per step.
    """
    chord = [steps] if isinstance(steps, int) else list(steps)
    texts = []
    for k, step in enumerate(chord or [None]):
        parts = ["<note>"]
        if grace:
            parts.append("<grace slash='yes'/>" if grace == "slash" else "<grace/>")
        if k:
            parts.append("<chord/>")
        parts.append("<rest/>" if step is None else _altered(step, accidental if k == 0 else ""))
        if not grace:
            parts.append(f"<duration>{int(value.sounding * DIVISIONS)}</duration>")
        parts.append(f"<tie type='{tie}'/>" * bool(tie))
        parts.append(f"<voice>1</voice><type>{_TYPES[value.written]}</type>" + "<dot/>" * value.dots)
        parts.append(f"<accidental>{accidental}</accidental>" * bool(accidental and k == 0))
        if value.tuplet != (1, 1):
            actual, normal = value.tuplet
            inside = f"<actual-notes>{actual}</actual-notes><normal-notes>{normal}</normal-notes>"
            parts.append(f"<time-modification>{inside}</time-modification>")
        parts.append(f"<stem>{stem}</stem>" * bool(stem))
        parts += [f"<beam number='{n}'>{beam}</beam>" for n, beam in enumerate(beams, start=1) if k == 0]
        tied = f"<tied type='{tie}'/>" * bool(tie)
        first = (notations if k == 0 else "<arpeggiate/>" * ("<arpeggiate/>" in notations)) + tied
        parts.append(f"<notations>{first}</notations>" * bool(first))
        texts.append("".join([*parts, "</note>"]))
    return "".join(texts)


def _altered(step: int, accidental: str) -> str:
    alter = {"sharp": 1, "flat": -1, "double-sharp": 2, "flat-flat": -2}.get(accidental, 0)
    sign = f"<alter>{alter}</alter>" * bool(alter)
    return pitch(step).replace("</step>", f"</step>{sign}")


def rests(length: Fraction) -> str:
    """Write rests that fill a length in quarter notes, the shortest first."""
    texts: list[str] = []
    for written in sorted((w for w in _TYPES if w <= 4), reverse=True):
        while length >= written:
            texts.insert(0, note((), Value(written)))
            length -= written
    return "".join(texts)


def direction(inside: str, placement: str = "below") -> str:
    """Write a direction, such as a dynamic, a pedal sign or a hairpin."""
    return f"<direction placement='{placement}'><direction-type>{inside}</direction-type></direction>"


def attributes(*, clef: str = "", time: str = "", key: str = "") -> str:
    """Write a change of clef, time or key.

    Clefs are "G2", "G2-1" (an octave lower) or "P" (percussion), times "3/4" or "common". A key is a number of fifths:
    "-1" is one flat; "-1/1" also cancels one flat."""
    parts = []
    if key:
        cancel, _, fifths = key.rpartition("/")
        parts.append(f"<key>{f'<cancel>{cancel}</cancel>' * bool(cancel)}<fifths>{fifths}</fifths></key>")
    if time:
        symbol, beats = {"common": ("common", "4/4"), "cut": ("cut", "2/2")}.get(time, ("", time))
        count, unit = beats.split("/")
        named = f" symbol='{symbol}'" * bool(symbol)
        parts.append(f"<time{named}><beats>{count}</beats><beat-type>{unit}</beat-type></time>")
    if clef:
        sign = "<sign>percussion</sign>" if clef == "P" else f"<sign>{clef[0]}</sign><line>{clef[1]}</line>"
        octave = f"<clef-octave-change>{clef[2:]}</clef-octave-change>" * (len(clef) > 2)
        parts.append(f"<clef>{sign}{octave}</clef>")
    return f"<attributes>{''.join(parts)}</attributes>"


def barline(location: str = "right", *, style: str = "", repeat: str = "", ending: str = "") -> str:
    """Write a bar line.

    Args:
        location: "left" or "right" of its measure.
        style: such as "light-light" or "dashed".
        repeat: "forward" or "backward"; a backward repeat has a final bar line.
        ending: number and end of a volta bracket, such as "1 start" or "1 stop".

    Returns:
        The `<barline>`.
    """
    if repeat == "backward":
        style = "light-heavy"
    number, _, end = ending.partition(" ")
    parts = [f"<bar-style>{style}</bar-style>" * bool(style)]
    parts.append(f"<ending number='{number}' type='{end}'/>" * bool(ending))
    parts.append(f"<repeat direction='{repeat}'/>" * bool(repeat))
    return f"<barline location='{location}'>{''.join(parts)}</barline>"


def measure_rest(length: Fraction) -> str:
    """Write a rest that fills an entire measure."""
    return f"<note><rest measure='yes'/><duration>{int(length * DIVISIONS)}</duration></note>"
