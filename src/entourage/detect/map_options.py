"""What the detector is taught: options of its maps, and which classes have an energy of their own.

Lengths are pixels of a page whose staff lines are `INTERLINE` pixels apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from entourage.choices import check_choice

INTERLINE = 10.0  # pixels between staff lines at which the network works

Energy = Literal["levels", "sigmoid"]
Surface = Literal["cone", "gaussian"]
Overlap = Literal["nearest", "last"]
Size = Literal["linear", "log"]

# Classes whose centres fall upon those of others have an energy channel of their own; all others share the first. The
# names of DeepScores and of MUSCIMA++ stand side by side; those that a class list lacks do no harm.
GROUPS: tuple[tuple[str, ...], ...] = (
    ("stem",),
    ("legerLine", "staffLine", "staffSpace"),
    ("slur", "tie", "brace"),
    (
        "beam",
        "dynamicCrescendoHairpin",
        "dynamicDiminuendoHairpin",
        "tupletBracket",
        "tupleBracket",
        "ottavaBracket",
        "volta",
        *(f"dynamicLetter{letter}" for letter in "FMPRSZ"),  # MUSCIMA++ also has them as characters
    ),
    (  # wholes, whose parts are objects too
        "staff",
        "graceNoteAcciaccaturaStemUp",
        "graceNoteAppoggiaturaStemUp",
        "graceNoteAcciaccaturaStemDown",
        "graceNoteAppoggiaturaStemDown",
        "graceNoteAcciaccatura",
        "ornamentTrill",
        "keySignature",
        "timeSignature",
        "measureSeparator",
        "staffGrouping",
        "repeat",
        "dynamicsText",
        "tempoText",
        "otherText",
        "tuple",
    ),
)


@dataclass(frozen=True)
class MapOptions:
    """What is painted for an object, and at which resolution."""

    stride: int = 2  # pixels of the page to a cell of the maps; the thesis has one cell a pixel
    energy: Energy = "sigmoid"  # a sigmoid, or a softmax over quantised levels as in the thesis
    levels: int = 20  # E_max of the softmax
    surface: Surface = "gaussian"  # how the energy falls off: the thesis' cone, or a bell
    radius: float = 4.0  # at which it has fallen off; 8.5 in the thesis runs notes a third apart together
    reach: float = 0.15  # of a side, where that is longer than the radius: a slur's centre is nowhere in particular
    widest: float = 16.0  # bound of the radius so stretched
    marker: float = 0.75  # share of the radius in which class and box are taught
    centred: bool = True  # full energy in the cell that holds the centre, so that neighbours have a peak each
    overlap: Overlap = "nearest"  # whose class a cell has: the nearest centre's, or the last painted's (original)
    size: Size = "log"  # how the box map holds sides: in pixels (thesis) or log(pixels / interline)
    offset: bool = True  # the box map also holds the way from the cell to the centre, which the thesis does not
    groups: tuple[tuple[str, ...], ...] = GROUPS  # classes with an energy channel of their own; none in the thesis

    def __post_init__(self) -> None:
        check_choice("energy", self.energy, Energy)
        check_choice("surface", self.surface, Surface)
        check_choice("overlap", self.overlap, Overlap)
        check_choice("size", self.size, Size)
        if self.stride < 1:
            raise ValueError(f"stride is {self.stride}; expected 1 or more")
        if self.levels < 2:
            raise ValueError(f"levels is {self.levels}; expected 2 or more")
        if not self.stride * 0.71 <= self.radius <= self.widest:
            raise ValueError(f"radius is {self.radius}; expected {self.stride * 0.71:.2f} to widest ({self.widest})")
        if not 0 < self.marker <= 1:
            raise ValueError(f"marker is {self.marker}; expected a share of the radius in (0, 1]")
        if self.energy == "levels" and self.groups:
            raise ValueError("levels are for one energy surface; expected groups to be empty")

    @property
    def channels(self) -> int:
        """How many energy surfaces there are."""
        return len(self.groups) + 1

    @property
    def sides(self) -> int:
        """How many numbers describe a box."""
        return 4 if self.offset else 2
