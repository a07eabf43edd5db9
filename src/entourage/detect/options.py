"""How objects are read off the detector's maps.

What the detector is taught: options of its maps, and which classes have an energy of their own.

Lengths are pixels of a page whose staff lines are `INTERLINE` pixels apart.

Options of the network and of the losses that it learns by.

All options of a detector together, and as JSON.

Presets: the detector as the thesis describes it, as its code was, and as it measured best here.

Where these differ, the difference is a field with its reason. The code of the thesis also taught energy and box on
maps of an eighth and a sixteenth of the size; that is left out of `original`.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from entourage import validation
from entourage.validation import check_choice, validate_counts

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
    most: int | None = None  # maximum number of objects a page, highest scores first; None: no maximum
    snap: float | None = None  # grid in pixels to which corners are rounded; pages: `InferenceOptions.round_boxes`
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
        validate_counts(self, 1, "least")
        if self.most is not None:
            validate_counts(self, 1, "most", alternative=", or None for no bound")
        if self.snap is not None and not 0 < self.snap < math.inf:
            raise ValueError(f"snap is {self.snap}; expected pixels above 0, or None")
        if self.overlap is not None and not 0 < self.overlap <= 1:
            raise ValueError(f"overlap is {self.overlap}; expected a share in (0, 1], or None")


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
    def box_dim(self) -> int:
        """How many numbers describe a box."""
        return 4 if self.offset else 2


Encoder = Literal["small", "resnet18", "resnet34", "resnet50", "resnet101"]
Decoder = Literal["top-down", "refinenet"]
EnergyLoss = Literal["focal", "bce", "levels"]
BoxLoss = Literal["squared", "smooth"]


@dataclass(frozen=True)
class NetworkOptions:
    """The network. `widths` to `upwards` are for the small encoder and the top-down decoder."""

    encoder: Encoder = "small"  # ResNet-101 in the thesis, twenty times the work
    decoder: Decoder = "top-down"  # RefineNet in the thesis
    widths: tuple[int, ...] = (48, 96, 144, 224, 256, 256)  # channels at strides 2, 4, 8, ...
    blocks: tuple[int, ...] = (1, 2, 3, 3, 2, 2)  # residual blocks there
    upwards: tuple[int, ...] = (64, 96, 128, 128, 128, 128)  # channels of the decoder at the same strides
    hidden: int = 384  # units between the maps and class and box, at the cells that are read; 0: 1 x 1 heads (thesis)
    filters: int = 256  # channels of RefineNet
    chained: bool = True  # each pooling of a chain starts from the one before; the original starts each from the input

    def __post_init__(self) -> None:
        check_choice("encoder", self.encoder, Encoder)
        check_choice("decoder", self.decoder, Decoder)
        if not len(self.widths) == len(self.blocks) == len(self.upwards) >= 2:
            raise ValueError("widths, blocks and upwards differ in length; expected one number each for every stride")
        if self.decoder == "refinenet" and self.encoder == "small":
            raise ValueError("RefineNet refines four maps of a ResNet; expected a resnet encoder")


@dataclass(frozen=True)
class LossOptions:
    """The losses and their weights."""

    weights: tuple[float, float, float] = (1.0, 0.5, 1.0)  # w of energy, class and box
    window: int | None = None  # divide each by its mean over so many steps; None: as it is
    energy: EnergyLoss = "focal"
    alpha: float = 2.0  # focal exponent: how little easy cells count
    beta: float = 4.0  # how little cells next to a centre count
    box: BoxLoss = "smooth"  # squared error (thesis), or absolute error rounded off below `rounding`
    rounding: float = 0.05
    giou: float = 0.5  # weight of 1 - GIoU beside it, which asks thin objects for more precision
    by_energy: bool = True  # cells count for class and box as much as their energy, each object alike
    rarest: float = 3.0  # bound of the weight of rare classes, by inverse root of frequency; 1: all alike

    def __post_init__(self) -> None:
        check_choice("energy", self.energy, EnergyLoss)
        check_choice("box", self.box, BoxLoss)
        if self.window is not None and self.window < 1:
            raise ValueError(f"window is {self.window}; expected 1 or more, or None for no normalisation")
        if self.rarest < 1:
            raise ValueError(f"rarest is {self.rarest}; expected 1 or more")


@dataclass(frozen=True)
class DetectorOptions:
    """All of it together."""

    maps: MapOptions = field(default_factory=MapOptions)
    decode: DecodeOptions = field(default_factory=DecodeOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    loss: LossOptions = field(default_factory=LossOptions)

    def __post_init__(self) -> None:
        if (self.loss.energy == "levels") != (self.maps.energy == "levels"):
            raise ValueError(f"loss {self.loss.energy!r} does not fit energy {self.maps.energy!r}")
        if self.decode.centre == "offset" and not self.maps.offset:
            raise ValueError("the centre is read from offsets that the maps do not hold; expected another centre")

    def to_dict(self) -> dict[str, Any]:
        """As JSON can say it."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DetectorOptions:
        """The options that `to_dict` wrote, be it through JSON, which knows no tuples.

        Raises:
            ValueError: there is a name that no option has, or a value that it cannot have.
        """
        parts = {"maps": MapOptions, "decode": DecodeOptions, "network": NetworkOptions, "loss": LossOptions}
        try:
            return cls(**{part: parts[part](**_tuples(fields)) for part, fields in values.items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"options cannot be read: {error}; expected those of this version") from error


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    def plain(value: Any) -> Any:
        return tuple(plain(one) for one in value) if isinstance(value, list | tuple) else value

    return {name: plain(value) for name, value in values.items()}


@dataclass(frozen=True)
class InferenceOptions:
    """Options of inference on pages of any size.

    Attributes:
        threshold: minimum score of the returned detections; None: `DecodeOptions.threshold` of the detector.
        interline: pixels between staff lines; None: estimated, and a page without staves has no detections.
        max_skew: pages skewed by more degrees are rotated upright first; None: pages are never rotated.
        detect_upside_down: if few staves begin with a clef, detect on the page rotated by 180 degrees as well.
        refine_boxes: on sharp pages, move the edges of boxes to the edges of the ink.
        round_boxes: round the corners of boxes to whole pixels, as in manual annotations.
        untiled_pixels: pages of at most this many pixels at the network's scale are processed in one pass.
        tile_size: height and width of the tiles of larger pages, without their overlap.
        tile_overlap: pixels of context around a tile.
        bfloat16: compute in bfloat16 on a GPU, which changes boxes and scores slightly.
    """

    threshold: float | None = None
    interline: float | None = None
    max_skew: float | None = 5.0
    detect_upside_down: bool = True
    refine_boxes: bool = True
    round_boxes: bool = True
    untiled_pixels: int = 6_000_000
    tile_size: int = 1536
    tile_overlap: int = 576  # context beyond this distance changes the outputs of the network by less than 1e-3
    bfloat16: bool = False

    def __post_init__(self) -> None:
        if self.threshold is not None and not 0 <= self.threshold <= 1:
            raise ValueError(f"threshold is {self.threshold}; expected a score between 0 and 1")
        if self.interline is not None and not 1 <= self.interline <= 1000:
            raise ValueError(f"interline is {self.interline}; expected 1 to 1000 pixels")
        if self.max_skew is not None and not self.max_skew >= 0:  # also rejects NaN
            raise ValueError(f"max_skew is {self.max_skew}; expected 0 degrees or more, or None")
        for name, minimum in (("untiled_pixels", 0), ("tile_size", 1), ("tile_overlap", 0)):
            if not getattr(self, name) >= minimum:
                unit = "pixel" if minimum == 1 else "pixels"
                raise ValueError(f"{name} is {getattr(self, name)}; expected {minimum} {unit} or more")


_THESIS_MAPS = MapOptions(
    stride=1,
    energy="levels",
    surface="cone",
    radius=8.5,
    reach=0.0,
    marker=1.0,
    centred=False,
    size="linear",
    offset=False,
    groups=(),
)
_THESIS_DECODE = DecodeOptions(
    method="components",
    threshold=0.0,
    overlap=None,
    score=False,
    cuts=(0.6,),  # the text leaves the level open; higher ones part more and find less
    centre="mean",
    vote="vote",
    box="mean",
)
_THESIS_NETWORK = NetworkOptions(encoder="resnet101", decoder="refinenet", hidden=0)
_THESIS_LOSS = LossOptions(
    weights=(1.0, 1.0, 1.0), window=5, energy="levels", box="squared", giou=0.0, by_energy=False, rarest=1.0
)
_ORIGINAL = DetectorOptions(
    replace(_THESIS_MAPS, marker=4.5 / 8.5, overlap="last"),  # markers of 17 and of 9 pixels
    replace(_THESIS_DECODE, cuts=(1.5 / 19,), least=4, centre="truncated", box="largest"),  # above level 1 of 19
    replace(_THESIS_NETWORK, chained=False),
    replace(_THESIS_LOSS, weights=(2.0, 1.0, 1.0)),
)

PRESETS: dict[str, DetectorOptions] = {
    "default": DetectorOptions(),
    "thesis": DetectorOptions(_THESIS_MAPS, _THESIS_DECODE, _THESIS_NETWORK, _THESIS_LOSS),
    "original": _ORIGINAL,
}


def preset(name: str) -> DetectorOptions:
    """The options of that name; a ValueError lists the names there are."""
    return validation.preset(PRESETS, name)
