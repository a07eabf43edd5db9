"""How objects are read off the detector's maps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from entourage.checks import keep_counts
from entourage.choices import check_choice

Method = Literal["peaks", "components"]
Centre = Literal["offset", "mean", "energy", "truncated"]
Vote = Literal["vote", "mean", "peak"]
BoxOf = Literal["peak", "mean", "largest", "class"]


@dataclass(frozen=True)
class DecodeOptions:
    """How objects are read off the maps. `cuts` to `vote` are for components, and so is `box`, but for "class"."""

    method: Method = "peaks"  # the thesis cuts and labels components; peaks part what components join
    threshold: float = 0.05  # least score of what is returned
    overlap: float | None = 0.8  # of two objects of a group that overlap more (IoU), the lesser goes; None: both stay
    most: int | None = (
        None  # objects a page, the best first, for those who compare with detectors that have a bound; None: no bound
    )
    snap: float | None = (
        None  # corners to multiples of so many pixels, for users of the network alone (DetectOptions has it for pages)
    )
    score: bool = True  # energy times class probability; False: 1 for all, as in the thesis and the original
    cuts: tuple[float, ...] = (0.6,)  # energy a component has more of; lower cuts add what touches no component yet
    least: int = 1  # cells in a component
    centre: Centre = "offset"  # offset head, or centre of gravity, or that weighted by energy, or truncated (original)
    vote: Vote = "peak"  # class: majority of cells, mean probability, or that of the cell of highest energy
    box: BoxOf = "peak"  # sides: of the highest cell, mean of cells (thesis), largest (original), cached by class

    def __post_init__(self) -> None:
        check_choice("method", self.method, Method)
        check_choice("centre", self.centre, Centre)
        check_choice("vote", self.vote, Vote)
        check_choice("box", self.box, BoxOf)
        if not 0 <= self.threshold <= 1:  # nor what is no number
            raise ValueError(f"threshold is {self.threshold}; expected a score between 0 and 1")
        if not self.cuts or list(self.cuts) != sorted(self.cuts, reverse=True):
            raise ValueError(f"cuts are {self.cuts}; expected one or more, highest first")
        if not all(0 <= cut < 1 for cut in self.cuts):
            raise ValueError(f"cuts are {self.cuts}; expected energies in [0, 1)")
        keep_counts(self, 1, "least")
        if self.most is not None:
            keep_counts(self, 1, "most", more=", or None for no bound")
        if self.snap is not None and not 0 < self.snap < math.inf:
            raise ValueError(f"snap is {self.snap}; expected pixels above 0, or None")
        if self.overlap is not None and not 0 < self.overlap <= 1:
            raise ValueError(f"overlap is {self.overlap}; expected a share in (0, 1], or None")
