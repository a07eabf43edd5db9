"""Table of music symbol classes: their ids in each class list, SMuFL code points and names in other data sets.

Four class lists share the table. *extended* is that of DeepScoresV2: 136 classes with the category ids of its JSON.
*v1* is that of the first release of DeepScores: 124 classes, of which the thesis counts 118. *muscima* contains the
classes of MUSCIMA++ in DeepScoresV2, whose ids follow those of *extended*. *full* adds to *extended* what DeepScores
does not annotate: bar lines, brackets of groups, volta brackets and short trills. Its ids follow those of *muscima*.

A glyph does not determine a class: a dot is an augmentation, staccato or repeat dot depending on the symbols around it,
so that several classes share a SMuFL code point. `entourage.engrave.annotate.assign_classes` distinguishes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

ClassSet = Literal["extended", "full", "v1", "v1-118", "muscima"]

# Columns: id, name, SMuFL code points, V1 name, MUSCIMA++ name; "-" marks a missing value. Ids up to 136 are those of
# the extended list; higher ones are classes that only the full list has. Rows without an id are classes that only V1
# has. V1 names several extended classes by one name, such as noteheads on lines and in spaces.
_TABLE = """
1   brace                           E000           brace                         brace
2   legerLine                       E022           -                             legerLine
3   repeatDot                       E044           repeatDot                     repeatDot
4   segno                           E047           segno                         segno
5   coda                            E048           coda                          coda
6   clefG                           E050           gClef                         clefG
7   clefCAlto                       E05C           cClefAlto                     clefC
8   clefCTenor                      E05C           cClefTenor                    clefC
9   clefF                           E062           fClef                         clefF
10  clefUnpitchedPercussion         E069           unpitchedPercussionClef1      -
11  clef8                           E07D           clef8                         numeral8
12  clef15                          E07E           clef15                        -
13  timeSig0                        E080           timeSig0                      numeral0
14  timeSig1                        E081           timeSig1                      numeral1
15  timeSig2                        E082           timeSig2                      numeral2
16  timeSig3                        E083           timeSig3                      numeral3
17  timeSig4                        E084           timeSig4                      numeral4
18  timeSig5                        E085           timeSig5                      numeral5
19  timeSig6                        E086           timeSig6                      numeral6
20  timeSig7                        E087           timeSig7                      numeral7
21  timeSig8                        E088           timeSig8                      numeral8
22  timeSig9                        E089           timeSig9                      numeral9
23  timeSigCommon                   E08A           timeSigCommon                 timeSigCommon
24  timeSigCutCommon                E08B           timeSigCutCommon              timeSigCutCommon
25  noteheadBlackOnLine             E0A4           noteheadBlack                 noteheadFullSmall
26  noteheadBlackOnLineSmall        E0A4           noteheadBlackSmall            noteheadFullSmall
27  noteheadBlackInSpace            E0A4           noteheadBlack                 noteheadFullSmall
28  noteheadBlackInSpaceSmall       E0A4           noteheadBlackSmall            noteheadFullSmall
29  noteheadHalfOnLine              E0A3           noteheadHalf                  noteheadHalfSmall
30  noteheadHalfOnLineSmall         E0A3           noteheadHalfSmall             noteheadHalfSmall
31  noteheadHalfInSpace             E0A3           noteheadHalf                  noteheadHalfSmall
32  noteheadHalfInSpaceSmall        E0A3           noteheadHalfSmall             noteheadHalfSmall
33  noteheadWholeOnLine             E0A2           noteheadWhole                 noteheadWhole
34  noteheadWholeOnLineSmall        E0A2           noteheadWholeSmall            noteheadWhole
35  noteheadWholeInSpace            E0A2           noteheadWhole                 noteheadWhole
36  noteheadWholeInSpaceSmall       E0A2           noteheadWholeSmall            noteheadWhole
37  noteheadDoubleWholeOnLine       E0A0,E0A1      noteheadDoubleWhole           -
38  noteheadDoubleWholeOnLineSmall  E0A0,E0A1      noteheadDoubleWholeSmall      -
39  noteheadDoubleWholeInSpace      E0A0,E0A1      noteheadDoubleWhole           -
40  noteheadDoubleWholeInSpaceSmall E0A0,E0A1      noteheadDoubleWholeSmall      -
41  augmentationDot                 E1E7           augmentationDot               augmentationDot
42  stem                            E210           -                             stem
43  tremolo1                        E220           -                             tremoloMark
44  tremolo2                        E221           -                             tremoloMark
45  tremolo3                        E222           -                             tremoloMark
46  tremolo4                        E223           -                             tremoloMark
47  tremolo5                        E224           -                             tremoloMark
48  flag8thUp                       E240           flag8thUp                     flag8thUp
49  flag8thUpSmall                  E240           flag8thUpSmall                flag8thUp
50  flag16thUp                      E242           flag16thUp                    flag16thUp
51  flag32ndUp                      E244           flag32ndUp                    flag32ndUp
52  flag64thUp                      E246           flag64thUp                    flag64thUp
53  flag128thUp                     E248           flag128thUp                   -
54  flag8thDown                     E241           flag8thDown                   flag8thDown
55  flag8thDownSmall                E241           flag8thDownSmall              flag8thDown
56  flag16thDown                    E243           flag16thDown                  flag16thDown
57  flag32ndDown                    E245           flag32ndDown                  flag32ndDown
58  flag64thDown                    E247           flag64thDown                  flag64thDown
59  flag128thDown                   E249           flag128thDown                 -
60  accidentalFlat                  E260           accidentalFlat                accidentalFlat
61  accidentalFlatSmall             E260           accidentalFlatSmall           accidentalFlat
62  accidentalNatural               E261           accidentalNatural             accidentalNatural
63  accidentalNaturalSmall          E261           accidentalNaturalSmall        accidentalNatural
64  accidentalSharp                 E262           accidentalSharp               accidentalSharp
65  accidentalSharpSmall            E262           accidentalSharpSmall          accidentalSharp
66  accidentalDoubleSharp           E263           accidentalDoubleSharp         accidentalDoubleSharp
67  accidentalDoubleFlat            E264           accidentalDoubleFlat          accidentalDoubleFlat
68  keyFlat                         E260           keyFlat                       accidentalFlat
69  keyNatural                      E261           keyNatural                    accidentalNatural
70  keySharp                        E262           keySharp                      accidentalSharp
71  articAccentAbove                E4A0           articAccentAbove              articulationAccent
72  articAccentBelow                E4A1           articAccentBelow              articulationAccent
73  articStaccatoAbove              E4A2           articStaccatoAbove            articulationStaccato
74  articStaccatoBelow              E4A3           articStaccatoBelow            articulationStaccato
75  articTenutoAbove                E4A4           articTenutoAbove              articulationTenuto
76  articTenutoBelow                E4A5           articTenutoBelow              articulationTenuto
77  articStaccatissimoAbove         E4A6,E4A8,E4AA articStaccatissimoAbove       -
78  articStaccatissimoBelow         E4A7,E4A9,E4AB articStaccatissimoBelow       -
79  articMarcatoAbove               E4AC           articMarcatoAbove             articulationMarcatoAbove
80  articMarcatoBelow               E4AD           articMarcatoBelow             articulationMarcatoBelow
81  fermataAbove                    E4C0           fermataAbove                  fermataAbove
82  fermataBelow                    E4C1           fermataBelow                  fermataBelow
83  caesura                         E4D1           caesura                       -
84  restDoubleWhole                 E4E2           restDoubleWhole               -
85  restWhole                       E4E3           restWhole                     restWhole
86  restHalf                        E4E4           restHalf                      restHalf
87  restQuarter                     E4E5           restQuarter                   restQuarter
88  rest8th                         E4E6           rest8th                       rest8th
89  rest16th                        E4E7           rest16th                      rest16th
90  rest32nd                        E4E8           rest32nd                      rest32nd
91  rest64th                        E4E9           rest64th                      rest64th
92  rest128th                       E4EA           rest128th                     -
93  restHNr                         -              -                             numeral
94  dynamicP                        E520           -                             dynamicLetterP
95  dynamicM                        E521           -                             dynamicLetterM
96  dynamicF                        E522           -                             dynamicLetterF
97  dynamicS                        E524           -                             dynamicLetterS
98  dynamicZ                        E525           -                             dynamicLetterZ
99  dynamicR                        E523           -                             dynamicLetterR
100 graceNoteAcciaccaturaStemUp     E560           graceNoteAcciaccaturaStemUp   -
101 graceNoteAppoggiaturaStemUp     E562           graceNoteAppoggiaturaStemUp   -
102 graceNoteAcciaccaturaStemDown   E561           graceNoteAcciaccaturaStemDown graceNoteAcciaccatura
103 graceNoteAppoggiaturaStemDown   E563           graceNoteAppoggiaturaStemDown graceNoteAcciaccatura
104 ornamentTrill                   E566           ornamentTrill                 ornamentTrill
105 ornamentTurn                    E567           ornamentTurn                  -
106 ornamentTurnInverted            E568           ornamentTurnInverted          -
107 ornamentMordent                 E56D           ornamentMordent               -
108 stringsDownBow                  E610           stringsDownBow                -
109 stringsUpBow                    E612           stringsUpBow                  -
110 arpeggiato                      E63C,EAA9      arpeggiato                    arpeggio
111 keyboardPedalPed                E650           keyboardPedalPed              -
112 keyboardPedalUp                 E655           keyboardPedalUp               -
113 tuplet3                         E883           tuplet3                       -
114 tuplet6                         E886           tuplet6                       -
115 fingering0                      ED10           fingering0                    numeral0
116 fingering1                      ED11           fingering1                    numeral1
117 fingering2                      ED12           fingering2                    numeral2
118 fingering3                      ED13           fingering3                    numeral3
119 fingering4                      ED14           fingering4                    numeral4
120 fingering5                      ED15           fingering5                    numeral5
121 slur                            -              -                             slur
122 beam                            -              -                             beam
123 tie                             -              -                             tie
124 restHBar                        E4EE           restHBar                      restHBar
125 dynamicCrescendoHairpin         -              -                             dynamicCrescendoHairpin
126 dynamicDiminuendoHairpin        -              -                             dynamicDiminuendoHairpin
127 tuplet1                         E881           -                             tuple
128 tuplet2                         E882           -                             tuple
129 tuplet4                         E884           -                             tuple
130 tuplet5                         E885           -                             tuple
131 tuplet7                         E887           -                             tuple
132 tuplet8                         E888           -                             tuple
133 tuplet9                         E889           -                             tuple
134 tupletBracket                   -              -                             tupleBracket
135 staff                           -              -                             staff
136 ottavaBracket                   E510           -                             -
-   gClefChange                     E050           gClefChange                   -
-   cClefAltoChange                 E05C           cClefAltoChange               -
-   cClefTenorChange                E05C           cClefTenorChange              -
-   fClefChange                     E062           fClefChange                   -
-   timeSig12                       -              timeSig12                     -
-   timeSig16                       -              timeSig16                     -
-   restMaxima                      E4E0,E9F0      restMaxima                    -
-   restLonga                       E4E1           restLonga                     -
-   dynamicPiano                    E520           dynamicPiano                  -
-   dynamicMezzo                    E521           dynamicMezzo                  -
-   dynamicForte                    E522           dynamicForte                  -
-   dynamicPPPPP                    E528           dynamicPPPPP                  -
-   dynamicPPPP                     E529           dynamicPPPP                   -
-   dynamicPPP                      E52A           dynamicPPP                    -
-   dynamicPP                       E52B           dynamicPP                     -
-   dynamicMP                       E52C           dynamicMP                     -
-   dynamicMF                       E52D           dynamicMF                     -
-   dynamicFF                       E52F           dynamicFF                     -
-   dynamicFFF                      E530           dynamicFFF                    -
-   dynamicFFFF                     E531           dynamicFFFF                   -
-   dynamicFFFFF                    E532           dynamicFFFFF                  -
-   dynamicFortePiano               E534           dynamicFortePiano             -
-   dynamicSforzando1               E536           dynamicSforzando1             -
-   dynamicSforzato                 E539           dynamicSforzato               -
-   dynamicRinforzando2             E53D           dynamicRinforzando2           -
209 barlineSingle                   E030           -                             -
210 barlineDouble                   E031           -                             -
211 barlineFinal                    E032           -                             -
212 barlineDashed                   E036,E037      -                             -
213 barlineSystemic                 -              -                             -
214 repeatLeft                      E040           -                             -
215 repeatRight                     E041           -                             -
216 repeatRightLeft                 E042           -                             -
217 bracket                         E002           -                             -
218 voltaBracket                    -              -                             -
219 ornamentShortTrill              E56C           -                             -
"""

# In the order of the first release, which is that of SMuFL; the position, from 1, is the class id.
_V1 = """
brace repeatDot segno coda gClef cClefAlto cClefTenor fClef unpitchedPercussionClef1 gClefChange cClefAltoChange
cClefTenorChange fClefChange clef8 clef15 timeSig0 timeSig1 timeSig2 timeSig3 timeSig4 timeSig5 timeSig6 timeSig7
timeSig8 timeSig9 timeSig12 timeSig16 timeSigCommon timeSigCutCommon noteheadBlack noteheadBlackSmall noteheadHalf
noteheadHalfSmall noteheadWhole noteheadWholeSmall noteheadDoubleWhole noteheadDoubleWholeSmall augmentationDot
flag8thUp flag8thUpSmall flag16thUp flag32ndUp flag64thUp flag128thUp flag8thDown flag8thDownSmall flag16thDown
flag32ndDown flag64thDown flag128thDown accidentalFlat accidentalFlatSmall accidentalNatural accidentalNaturalSmall
accidentalSharp accidentalSharpSmall accidentalDoubleSharp accidentalDoubleFlat keyFlat keyNatural keySharp
articAccentAbove articAccentBelow articStaccatoAbove articStaccatoBelow articTenutoAbove articTenutoBelow
articStaccatissimoAbove articStaccatissimoBelow articMarcatoAbove articMarcatoBelow fermataAbove fermataBelow
caesura restMaxima restLonga restDoubleWhole restWhole restHalf restQuarter rest8th rest16th rest32nd rest64th
rest128th restHBar dynamicPiano dynamicMezzo dynamicForte dynamicPPPPP dynamicPPPP dynamicPPP dynamicPP dynamicMP
dynamicMF dynamicFF dynamicFFF dynamicFFFF dynamicFFFFF dynamicFortePiano dynamicSforzando1 dynamicSforzato
dynamicRinforzando2 graceNoteAcciaccaturaStemUp graceNoteAppoggiaturaStemUp graceNoteAcciaccaturaStemDown
graceNoteAppoggiaturaStemDown ornamentTrill ornamentTurn ornamentTurnInverted ornamentMordent stringsDownBow
stringsUpBow arpeggiato keyboardPedalPed keyboardPedalUp tuplet3 tuplet6 fingering0 fingering1 fingering2 fingering3
fingering4 fingering5
"""
_NOT_IN_THESIS = (  # the 124 - 118 = 6 classes of V1 that the thesis does not count
    "timeSig12",
    "timeSig16",
    "noteheadDoubleWholeSmall",
    "flag8thUpSmall",
    "flag8thDownSmall",
    "restMaxima",
)

# In the order of DeepScoresV2's second annotation set, whose ids follow those of the first.
_MUSCIMA = """
brace legerLine repeatDot segno coda clefG clefC clefF numeral8 numeral0 numeral1 numeral2 numeral3 numeral4
numeral5 numeral6 numeral7 numeral9 timeSigCommon timeSigCutCommon noteheadFullSmall noteheadHalfSmall noteheadWhole
augmentationDot stem tremoloMark flag8thUp flag16thUp flag32ndUp flag64thUp flag8thDown flag16thDown flag32ndDown
flag64thDown accidentalFlat accidentalNatural accidentalSharp accidentalDoubleSharp accidentalDoubleFlat
articulationAccent articulationStaccato articulationTenuto articulationMarcatoAbove articulationMarcatoBelow
fermataAbove fermataBelow restWhole restHalf restQuarter rest8th rest16th rest32nd rest64th numeral dynamicLetterP
dynamicLetterM dynamicLetterF dynamicLetterS dynamicLetterZ dynamicLetterR graceNoteAcciaccatura ornamentTrill
arpeggio slur beam tie restHBar dynamicCrescendoHairpin dynamicDiminuendoHairpin tuple tupleBracket staff
"""
_FIRST_MUSCIMA_ID = 137

# Dynamics that V1 counts as one symbol: letters to V1 class.
DYNAMICS = {
    "p": "dynamicPiano",
    "m": "dynamicMezzo",
    "f": "dynamicForte",
    "fp": "dynamicFortePiano",
    "sf": "dynamicSforzando1",
    "sfz": "dynamicSforzato",
    "rfz": "dynamicRinforzando2",
    "mp": "dynamicMP",
    "mf": "dynamicMF",
    **{letter * n: f"dynamic{letter.upper() * n}" for letter in "pf" for n in (2, 3, 4, 5)},
}


@dataclass(frozen=True)
class SymbolClass:
    """A class of music symbols: a row of the table.

    Attributes:
        name: name in the full list; in V1 for classes that only V1 has.
        full: id in the full list; that of DeepScoresV2 for classes of the extended list; None if only V1 has the class.
        smufl: code points of the glyphs that can belong to the class.
        v1: name of the symbol in V1, or None.
        muscima: name of the symbol in MUSCIMA++, or None.
    """

    name: str
    full: int | None
    smufl: tuple[int, ...]
    v1: str | None
    muscima: str | None

    @property
    def extended(self) -> int | None:
        """Category id in DeepScoresV2, or None."""
        return self.full if self.full is not None and self.full < _FIRST_MUSCIMA_ID else None


def _read_table() -> dict[str, SymbolClass]:
    classes = {}
    for line in _TABLE.strip().splitlines():
        number, name, codes, v1, muscima = (None if cell == "-" else cell for cell in line.split())
        assert name is not None
        smufl = tuple(int(code, 16) for code in codes.split(",")) if codes else ()
        classes[name] = SymbolClass(name, int(number) if number else None, smufl, v1, muscima)
    return classes


CLASSES: dict[str, SymbolClass] = _read_table()
FULL_IDS: dict[str, int] = {c.name: c.full for c in CLASSES.values() if c.full is not None}
EXTENDED_IDS: dict[str, int] = {c.name: c.extended for c in CLASSES.values() if c.extended is not None}
V1_IDS: dict[str, int] = {name: position for position, name in enumerate(_V1.split(), start=1)}
V1_THESIS_IDS: dict[str, int] = {
    name: position for position, name in enumerate((n for n in V1_IDS if n not in _NOT_IN_THESIS), start=1)
}
MUSCIMA_IDS: dict[str, int] = {name: number for number, name in enumerate(_MUSCIMA.split(), start=_FIRST_MUSCIMA_ID)}


def class_ids(classes: ClassSet) -> dict[str, int]:
    """Return the names and ids of a class list, in ascending order of id.

    Args:
        classes: "extended" (136 classes, ids of DeepScoresV2), "full" (147: those and bar lines, brackets and short
            trills), "v1" (124), "v1-118" (those of the thesis) or "muscima" (72).

    Returns:
        Ids by name.

    Raises:
        ValueError: the list is unknown.
    """
    lists = {"extended": EXTENDED_IDS, "full": FULL_IDS, "v1": V1_IDS, "v1-118": V1_THESIS_IDS, "muscima": MUSCIMA_IDS}
    if classes not in lists:
        raise ValueError(f"class list {classes!r} is unknown; expected one of {', '.join(lists)}")
    return dict(lists[classes])


def muscima_id(name: str) -> int | None:
    """Return the MUSCIMA++ id of an extended class, or None if MUSCIMA++ has no such symbol."""
    muscima = CLASSES[name].muscima
    return None if muscima is None else MUSCIMA_IDS[muscima]


def split_dynamics(letters: str) -> Iterator[tuple[str, slice]]:
    """Split a sequence of dynamic letters into dynamics of V1, from left to right, each as long as possible.

    Args:
        letters: such as "sfp", which is *sf* and *p*.

    Yields:
        The V1 class of each dynamic and the slice of its letters. Letters that start no dynamic are skipped.
    """
    start = 0
    while start < len(letters):
        end = next((end for end in range(len(letters), start, -1) if letters[start:end] in DYNAMICS), start)
        if end > start:
            yield DYNAMICS[letters[start:end]], slice(start, end)
        start = max(end, start + 1)
