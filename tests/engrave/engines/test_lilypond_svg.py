import numpy as np

from entourage.engrave.engines.lilypond import LilypondReader
from entourage.engrave.render.marks import Mark, Symbol

TAGS = (
    "glyph",
    "onset",
    "grace",
    "duration",
    "pitch",
    "log",
    "position",
    "direction",
    "grow",
    "script",
    "flags",
    "sign",
)
TAGS += ("fraction", "style", "text")
HEAD = "M0 0h250v250h-250z"


def grob(kind: str, content: str, **tags: str) -> str:
    data = " ".join(f'data-{name}="{tags.get(name, "0" if name == "grace" else "")}"' for name in TAGS)
    return f'<g class="{kind}" {data}><g transform="translate(10, 20)">{content}</g></g>'


def path(x: float = 0.0, y: float = 0.0) -> str:
    return f'<g transform="translate({x}, {y})"><path transform="scale(0.004, -0.004)" d="{HEAD}"/></g>'


def read(*grobs: str) -> tuple[list[Mark], list[Symbol]]:
    marks, annotated = LilypondReader(20.0).read(f'<svg xmlns="http://www.w3.org/2000/svg">{"".join(grobs)}</svg>')
    return marks, annotated.symbols


def test_noteheads_have_all_attributes() -> None:
    tags = {"onset": "3/8", "duration": "1/4", "pitch": "0 3 1/2", "log": "2", "position": "-3"}
    (mark,), (symbol,) = read(grob("NoteHead", path(), **tags))
    assert (symbol.label, symbol.v1) == ("noteheadBlackInSpace", "noteheadBlack")
    assert (symbol.onset, symbol.duration, symbol.pitch, symbol.midi, symbol.position) == (1.5, 1.0, "F#4", 66, -3)
    low, high = mark.edges[:, :2].min(axis=0), mark.edges[:, :2].max(axis=0)
    np.testing.assert_allclose([*low, *high], [200, 380, 220, 400])  # a staff space, y upwards in the font


def test_unknown_objects_are_marks_but_not_symbols() -> None:
    marks, symbols = read(
        grob("MetronomeMark", path()), grob("LyricText", '<text font-size="2"><tspan>la</tspan></text>')
    )
    assert len(marks) == 3
    assert symbols == []


def test_unknown_glyphs_are_listed() -> None:
    known = grob("NoteHead", path(), log="2")
    unknown = grob("Clef", path(), glyph="clefs.C", position="-4") + grob("BreathingSign", path())
    words = grob("LyricText", '<text font-size="2"><tspan>la</tspan></text>')
    for content, expected in ((known + words, []), (known + words + unknown, ["Clef:clefs.C", "BreathingSign"])):
        _, annotated = LilypondReader(20.0).read(f'<svg xmlns="http://www.w3.org/2000/svg">{content}</svg>')
        assert annotated.unlabelled == expected


def test_staves_are_numbered_within_systems() -> None:
    def staff(y: float) -> str:
        return grob(
            "StaffSymbol",
            f'<g transform="translate(0, {y})"><line stroke-width="0.1" x1="0" x2="50" y1="0" y2="0"/></g>',
        )

    head = grob("NoteHead", path(0, 8), log="1")
    _, symbols = read(staff(0), staff(9), staff(40), staff(49), head)
    assert [s.staff for s in symbols if s.label == "staff"] == [1, 2, 1, 2]
    assert symbols[-1].staff == 2
