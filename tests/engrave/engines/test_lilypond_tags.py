import pytest

from entourage.engrave.engines.lilypond_tags import (
    barline_symbols,
    number_staves,
    tagged_symbols,
    unlabelled,
    voice_number,
)
from entourage.engrave.render.marks import Group, Mark, Symbol
from entourage.engrave.render.outlines import rectangle

NAMES = ("glyph", "onset", "duration", "pitch", "log", "position", "direction", "grow", "script", "flags", "sign")
NAMES += ("fraction", "style", "text")


def mark(x: float = 0.0, y: float = 0.0) -> Mark:
    return Mark("glyph", rectangle(x, y, 10, 10), Group(), x=x, y=y)


def symbols_of(kind: str, marks: list[Mark], **tags: str) -> list[Symbol]:
    attributes = (
        {f"data-{name}": "" for name in NAMES} | {"data-grace": "0"} | {f"data-{n}": v for n, v in tags.items()}
    )
    return tagged_symbols(Group((kind,)), attributes, list(range(len(marks))), marks)


@pytest.mark.parametrize(
    ("kind", "tags", "label"),
    [
        ("Flag", {"glyph": "flags.d4"}, "flag16thDown"),
        ("Flag", {"glyph": "flags.u3", "grace": "-1/8"}, "flag8thUpSmall"),
        ("Accidental", {"glyph": "accidentals.flatflat"}, "accidentalDoubleFlat"),
        ("Accidental", {"glyph": "accidentals.flat", "grace": "-1/8"}, "accidentalFlatSmall"),
        ("Clef", {"glyph": "clefs.F_change"}, "clefF"),
        ("Clef", {"glyph": "clefs.C", "position": "0"}, "clefCAlto"),
        ("Clef", {"glyph": "clefs.C_change", "position": "2"}, "clefCTenor"),
        ("Rest", {"log": "3"}, "rest8th"),
        ("Rest", {"log": "5"}, "rest32nd"),
        ("Script", {"script": "(feta dstaccato . ustaccato)", "direction": "-1"}, "articStaccatoBelow"),
        ("Script", {"script": "(feta . trill)", "direction": "1"}, "ornamentTrill"),
        ("Hairpin", {"grow": "-1"}, "dynamicDiminuendoHairpin"),
        ("StemTremolo", {"flags": "3"}, "tremolo3"),
        ("SystemStartBrace", {}, "brace"),
        ("SystemStartBracket", {}, "bracket"),
        ("SystemStartBar", {}, "barlineSystemic"),
        ("Script", {"script": "(feta . prall)", "direction": "1"}, "ornamentShortTrill"),
        ("Script", {"script": "(feta . mordent)", "direction": "1"}, "ornamentMordent"),
        ("KeyCancellation", {}, "keyNatural"),
        ("KeySignature", {"sign": "-1/2"}, "keyFlat"),
        ("TimeSignature", {"fraction": "(4 . 4)"}, "timeSigCommon"),
        ("SustainPedal", {"text": "*"}, "keyboardPedalUp"),
    ],
)
def test_tags_determine_the_class(kind: str, tags: dict[str, str], label: str) -> None:
    (symbol,) = symbols_of(kind, [mark()], **tags)
    assert symbol.label == label


def test_digits_and_letters_are_separate_symbols() -> None:
    digits = [mark(0, 10), mark(12, 10), mark(6, 30)]
    assert [s.label for s in symbols_of("TimeSignature", digits, fraction="(12 . 8)")] == [
        "timeSig1",
        "timeSig2",
        "timeSig8",
    ]
    assert [s.label for s in symbols_of("DynamicText", [mark(), mark(20)], text="mf")] == ["dynamicM", "dynamicF"]
    assert [s.label for s in symbols_of("TupletNumber", [mark(), mark(9)], text="12")] == ["tuplet1", "tuplet2"]


def test_times_are_in_quarter_notes() -> None:
    tags = {"onset": "3/8", "duration": "1/4", "pitch": "-1 6 -1/2", "log": "2", "position": "-3"}
    (head,) = symbols_of("NoteHead", [mark()], **tags)
    assert (head.onset, head.duration, head.pitch, head.midi, head.position) == (1.5, 1.0, "Bb3", 58, -3)
    (grace,) = symbols_of("NoteHead", [mark()], **tags, grace="-1/8")
    assert (grace.label, grace.duration) == ("noteheadBlackInSpaceSmall", 0.0)


def test_a_character_without_a_class_does_not_affect_others() -> None:
    three = [mark(), mark(20), mark(40)]
    found = symbols_of("DynamicText", three, text="sfn")
    assert [(s.label, s.marks) for s in found] == [("dynamicS", [0]), ("dynamicF", [1])]
    found = symbols_of("Fingering", three, text="1-2")
    assert [(s.label, s.marks) for s in found] == [("fingering1", [0]), ("fingering2", [2])]
    assert symbols_of("DynamicText", three, text="sf") == []  # the numbers of characters and marks differ


def test_a_sum_of_beats_gives_no_symbols() -> None:
    drawn = [mark(0, 10), mark(12, 10), mark(24, 10), mark(12, 30)]  # 3 + 2 over 8
    assert symbols_of("TimeSignature", drawn, fraction="(5 . 8)") == []


def missing(kind: str, marks: list[Mark], **tags: str) -> list[str]:
    return unlabelled(
        Group((kind,) if kind else ()), {f"data-{n}": v for n, v in tags.items()}, [*range(len(marks))], marks
    )


def test_glyphs_without_a_class_are_listed() -> None:
    area = Mark("area", rectangle(0, 0, 9, 9), Group())
    assert missing("Clef", [mark()], glyph="clefs.C", text="") == ["Clef:clefs.C"]
    assert missing("DynamicText", [mark(), mark()], glyph="", text="n i") == ["DynamicText:ni"] * 2
    assert missing("MetronomeMark", [mark(), area]) == ["MetronomeMark"]
    assert missing("", [mark()]) == ["untagged"]
    assert missing("BarLine", [mark()]) == []
    assert missing("VoltaBracket", [mark()]) == []  # its number


def test_only_signs_and_numbers_of_text_are_listed() -> None:
    def letter(character: str, kind: str) -> Mark:
        return Mark("letter", rectangle(0, 0, 9, 9), Group((kind,)), ord(character))

    words = [letter(c, "TextScript") for c in "in B\u266d"]
    assert missing("TextScript", words) == ["TextScript"]
    assert missing("TupletNumber", [letter("0", "TupletNumber")], text="10") == ["TupletNumber:10"]
    assert missing("TupletNumber", [letter(":", "TupletNumber")], text="3:2") == []


def test_objects_without_a_class_give_no_symbols() -> None:
    assert symbols_of("LyricText", [mark()]) == []
    assert symbols_of("Rest", [mark()], log="-2") == []


def test_staves_are_numbered_within_systems() -> None:
    marks = [mark(0, y) for y in (0, 180, 800, 980, 170)]
    symbols = [Symbol("staff", "", [i], Group()) for i in range(4)] + [Symbol("stem", "", [4], Group())]
    number_staves(symbols, marks, 20.0, {})
    assert [symbol.staff for symbol in symbols] == [1, 2, 1, 2, 2]
    assert [symbol.system for symbol in symbols] == [1, 1, 2, 2, 1]


def test_symbols_belong_to_the_staff_of_their_name_even_if_another_one_is_nearer() -> None:
    marks = [mark(0, y) for y in (0, 180, 800, 980, 170, -40)]
    symbols = [Symbol("staff", "", [i], Group()) for i in range(4)]
    symbols += [Symbol("stem", "", [4], Group()), Symbol("barlineSingle", "", [5], Group())]
    names = {symbol.group: name for symbol, name in zip(symbols, ["1", "2", "1", "2", "1", ""], strict=True)}
    number_staves(symbols, marks, 20.0, names)
    assert [symbol.staff for symbol in symbols] == [1, 2, 1, 2, 1, 1]


@pytest.mark.parametrize(
    ("name", "number"),
    [("PartPOneVoiceFive", 5), ("PartPTwoVoiceOneTwo", 12), ("PartPOneVoiceNone", 0), ("melody", 0), ("", 0)],
)
def test_voices_are_numbered_by_their_names(name: str, number: int) -> None:
    assert voice_number(name) == number


def test_pieces_of_a_bar_line_are_one_symbol_with_its_dots() -> None:
    def line(x: float, y: float, width: float, height: float) -> Mark:
        return Mark("area", rectangle(x, y, width, height), Group(), x=x, y=y)

    marks = [line(100, 0, 2, 80), line(110, 0, 10, 80), line(100, 80, 2, 100), line(110, 80, 10, 100)]
    marks += [Mark("glyph", rectangle(90, y, 6, 6), Group(), x=90, y=y) for y in (25, 45)]
    tags = {"data-onset": "3", "data-voice": ""}
    pieces = {i: (Group(("BarLine",)), tags) for i in range(6)}
    line_symbol, *dots = barline_symbols(pieces, marks, 20.0)
    assert (line_symbol.label, line_symbol.marks, line_symbol.onset) == ("repeatRight", [0, 1, 2, 3, 4, 5], 12)
    assert [(dot.label, dot.marks) for dot in dots] == [("repeatDot", [4]), ("repeatDot", [5])]
