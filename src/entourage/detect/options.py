"""Options of the detector: maps, decoding, network, losses and inference, with their presets.

The presets are "default", "thesis" (the text of the thesis) and "original" (its published code). Each difference
between them is a field, with its reason. Only the auxiliary losses of the original code, on maps of 1/8 and 1/16 of the
size, are not implemented.

Lengths are in pixels of a page whose staff lines are `INTERLINE` pixels apart.
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
    """Options of decoding maps to objects.

    `cuts`, `least`, `centre`, `vote` and all values of `box` except "class" apply to `method="components"` only.

    Attributes:
        method: objects are the "peaks" of the energy, or the connected "components" above a threshold, as in the
            thesis. Components merge adjacent noteheads, such as those of a third; peaks separate them.
        threshold: minimum score of an object.
        overlap: if two objects of the same group overlap with a higher IoU than this, the one with the lower score is
            removed; None: no object is removed.
        most: maximum number of objects per page, highest scores first; None: no maximum.
        snap: grid in pixels to which corners are rounded; None: not rounded. See also `InferenceOptions.round_boxes`.
        score: the score is energy times class probability; False: it is 1, as in the thesis and its code.
        cuts: energy thresholds of components, in descending order; lower ones only add components that overlap none of
            the higher ones.
        least: minimum number of cells of a component.
        centre: how the centre of an object is computed: from the "offset" in the box map, or as the centroid of its
            cells: their "mean", weighted by "energy", or "truncated" to whole pixels (original).
        vote: how the class of an object is chosen: by majority "vote" of its cells, by their "mean" probability, or at
            the "peak".
        box: how width and height of an object are chosen: those at the "peak", the "mean" of its cells (thesis), the
            "largest" of its cells (original), or the typical ones of its "class".
    """

    method: Method = "peaks"
    threshold: float = 0.05
    overlap: float | None = 0.8
    most: int | None = None
    snap: float | None = None
    score: bool = True
    cuts: tuple[float, ...] = (0.6,)
    least: int = 1
    centre: Centre = "offset"
    vote: Vote = "peak"
    box: BoxOf = "peak"

    def __post_init__(self) -> None:
        check_choice("method", self.method, Method)
        check_choice("centre", self.centre, Centre)
        check_choice("vote", self.vote, Vote)
        check_choice("box", self.box, BoxOf)
        if not 0 <= self.threshold <= 1:  # also rejects NaN
            raise ValueError(f"threshold is {self.threshold}; expected a score between 0 and 1")
        if not self.cuts or list(self.cuts) != sorted(self.cuts, reverse=True):
            raise ValueError(f"cuts are {self.cuts}; expected one or more in descending order")
        if not all(0 <= cut < 1 for cut in self.cuts):
            raise ValueError(f"cuts are {self.cuts}; expected energies in [0, 1)")
        validate_counts(self, 1, "least")
        if self.most is not None:
            validate_counts(self, 1, "most", alternative=", or None for no maximum")
        if self.snap is not None and not 0 < self.snap < math.inf:
            raise ValueError(f"snap is {self.snap}; expected more than 0 pixels, or None")
        if self.overlap is not None and not 0 < self.overlap <= 1:
            raise ValueError(f"overlap is {self.overlap}; expected an IoU in (0, 1], or None")


INTERLINE = 10.0  # pixels between staff lines on the pages that the network processes

Energy = Literal["levels", "sigmoid"]
Surface = Literal["cone", "gaussian"]
Overlap = Literal["nearest", "last"]
Size = Literal["linear", "log"]

# Classes whose centres often coincide with those of others have separate energy channels; all other classes share the
# first. The groups contain names of DeepScores and of MUSCIMA++; names that the class list lacks have no effect.
GROUPS: tuple[tuple[str, ...], ...] = (
    ("stem",),
    ("legerLine", "staffLine", "staffSpace"),
    ("slur", "tie", "brace", "bracket"),
    (
        "beam",
        "dynamicCrescendoHairpin",
        "dynamicDiminuendoHairpin",
        "tupletBracket",
        "tupleBracket",
        "ottavaBracket",
        "volta",
        "voltaBracket",
        *(f"dynamicLetter{letter}" for letter in "FMPRSZ"),  # MUSCIMA++ also annotates them as characters
    ),
    (  # objects that consist of other objects
        "staff",
        *(f"barline{kind}" for kind in ("Single", "Double", "Final", "Dashed", "Systemic")),
        *("repeatLeft", "repeatRight", "repeatRightLeft"),
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
    """Options of the energy, class and box maps.

    Attributes:
        stride: pixels of the page per cell of the maps; 1 in the thesis.
        energy: "sigmoid", or "levels": a softmax over quantised energy, as in the thesis.
        levels: number of levels of the softmax, E_max of the thesis.
        surface: energy by distance from the centre: a "cone", as in the thesis, or a "gaussian".
        radius: distance beyond which the energy is 0; with 8.5, as in the thesis, the noteheads of a third merge.
        reach: the radius along an axis is this fraction of the width or height if that is more than `radius`, because
            the centre of a long object, such as a slur, is less precisely defined.
        widest: maximum radius.
        marker: fraction of the radius within which class and box are trained.
        centred: whether the cell that contains the centre has full energy, so that adjacent objects have separate
            peaks.
        overlap: the class of a cell is that of the "nearest" centre, or of the "last" object drawn (original).
        size: the box map contains width and height in pixels ("linear", thesis) or log(pixels / interline) ("log").
        offset: the box map also contains the offset from the cell to the centre; not in the thesis.
        groups: classes with a separate energy channel, by channel; none in the thesis.
    """

    stride: int = 2
    energy: Energy = "sigmoid"
    levels: int = 20
    surface: Surface = "gaussian"
    radius: float = 4.0
    reach: float = 0.15
    widest: float = 16.0
    marker: float = 0.75
    centred: bool = True
    overlap: Overlap = "nearest"
    size: Size = "log"
    offset: bool = True
    groups: tuple[tuple[str, ...], ...] = GROUPS

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
            raise ValueError(f"marker is {self.marker}; expected a fraction of the radius in (0, 1]")
        if self.energy == "levels" and self.groups:
            raise ValueError("groups: not supported by energy 'levels'; expected groups to be empty")

    @property
    def channels(self) -> int:
        """Number of energy channels: one for each of `groups`, and one for all other classes."""
        return len(self.groups) + 1

    @property
    def box_dim(self) -> int:
        """Number of channels of the box map."""
        return 4 if self.offset else 2


Encoder = Literal["small", "resnet18", "resnet34", "resnet50", "resnet101"]
Decoder = Literal["top-down", "refinenet"]
EnergyLoss = Literal["focal", "bce", "levels"]
BoxLoss = Literal["squared", "smooth"]


@dataclass(frozen=True)
class NetworkOptions:
    """Options of the encoder, the decoder and the heads.

    Attributes:
        encoder: "small", or a ResNet; ResNet-101 in the thesis costs twenty times as much.
        decoder: "top-down", or "refinenet", as in the thesis.
        widths: channels of the small encoder at strides 2, 4, 8, ...
        blocks: residual blocks of the small encoder at each stride.
        upwards: channels of the top-down decoder at each stride.
        hidden: hidden units of the class and box heads, which are evaluated at selected cells only; 0: 1 x 1
            convolutions, as in the thesis.
        filters: channels of RefineNet.
        chained: each pooling of RefineNet has the output of the preceding one as input; False: the input of the chain
            (original).
    """

    encoder: Encoder = "small"
    decoder: Decoder = "top-down"
    widths: tuple[int, ...] = (48, 96, 144, 224, 256, 256)
    blocks: tuple[int, ...] = (1, 2, 3, 3, 2, 2)
    upwards: tuple[int, ...] = (64, 96, 128, 128, 128, 128)
    hidden: int = 384
    filters: int = 256
    chained: bool = True

    def __post_init__(self) -> None:
        check_choice("encoder", self.encoder, Encoder)
        check_choice("decoder", self.decoder, Decoder)
        if not len(self.widths) == len(self.blocks) == len(self.upwards) >= 2:
            raise ValueError("widths, blocks and upwards differ in length; expected one value per stride in each")
        if self.decoder == "refinenet" and self.encoder == "small":
            raise ValueError("encoder is 'small'; expected a resnet encoder for decoder 'refinenet'")


@dataclass(frozen=True)
class LossOptions:
    """Options of the losses of energy, class and box.

    Attributes:
        weights: weights w of the energy, class and box losses.
        window: each loss is divided by its mean over this many steps; None: not divided.
        energy: "focal", "bce" (binary cross-entropy) or "levels" (cross-entropy of quantised energy, thesis).
        alpha: exponent of the focal loss that reduces the weight of cells that are predicted correctly.
        beta: exponent of the focal loss that reduces the weight of cells near a centre.
        box: "squared" error (thesis) or "smooth" absolute error, which is quadratic below `rounding`.
        rounding: see `box`.
        giou: weight of the term 1 - GIoU in the box loss, which penalises errors of thin objects more than the other
            term.
        by_energy: in the class and box losses, weight the cells of an object by their energy, and all objects equally.
        rarest: maximum weight of a rare class; weights are proportional to 1 / sqrt(frequency). 1: equal weights.
    """

    weights: tuple[float, float, float] = (1.0, 0.5, 1.0)
    window: int | None = None
    energy: EnergyLoss = "focal"
    alpha: float = 2.0
    beta: float = 4.0
    box: BoxLoss = "smooth"
    rounding: float = 0.05
    giou: float = 0.5
    by_energy: bool = True
    rarest: float = 3.0

    def __post_init__(self) -> None:
        check_choice("energy", self.energy, EnergyLoss)
        check_choice("box", self.box, BoxLoss)
        if self.window is not None and self.window < 1:
            raise ValueError(f"window is {self.window}; expected 1 or more, or None for no normalisation")
        if self.rarest < 1:
            raise ValueError(f"rarest is {self.rarest}; expected 1 or more")


@dataclass(frozen=True)
class DetectorOptions:
    """All options of a detector, which are stored in the header of its weights.

    Attributes:
        maps: energy, class and box maps.
        decode: decoding of maps to objects.
        network: the network.
        loss: the losses.

    Raises:
        ValueError: the parts are incompatible.
    """

    maps: MapOptions = field(default_factory=MapOptions)
    decode: DecodeOptions = field(default_factory=DecodeOptions)
    network: NetworkOptions = field(default_factory=NetworkOptions)
    loss: LossOptions = field(default_factory=LossOptions)

    def __post_init__(self) -> None:
        if (self.loss.energy == "levels") != (self.maps.energy == "levels"):
            energies = f"loss.energy is {self.loss.energy!r} and maps.energy {self.maps.energy!r}"
            raise ValueError(f"{energies}; expected both 'levels', or neither")
        if self.decode.centre == "offset" and not self.maps.offset:
            raise ValueError(
                "decode.centre is 'offset' and maps.offset False; expected another centre, or maps with offsets"
            )

    def to_dict(self) -> dict[str, Any]:
        """Return the options as nested dicts of values that JSON can represent."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> DetectorOptions:
        """Restore the options from the result of `to_dict`, also after a conversion to JSON and back.

        Args:
            values: nested dicts; lists become tuples, because JSON has no tuples.

        Returns:
            The options.

        Raises:
            ValueError: an option is unknown or has an invalid value.
        """
        parts = {"maps": MapOptions, "decode": DecodeOptions, "network": NetworkOptions, "loss": LossOptions}
        try:
            return cls(**{part: parts[part](**_tuples(fields)) for part, fields in values.items()})
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"options: {error}; expected the options of this version") from error


def _tuples(values: dict[str, Any]) -> dict[str, Any]:
    """Convert lists in nested dicts and lists to tuples."""

    def convert(value: Any) -> Any:
        return tuple(map(convert, value)) if isinstance(value, list | tuple) else value

    return {name: convert(value) for name, value in values.items()}


@dataclass(frozen=True)
class InferenceOptions:
    """Options of inference on pages of any size.

    Attributes:
        threshold: minimum score of the returned detections; None: `DecodeOptions.threshold` of the detector.
        interline: pixels between staff lines; None: estimated, and a page without staves has no detections.
        max_skew: skew, in degrees, above which a page is straightened first; None: pages are never straightened.
        detect_upside_down: if few staves begin with a clef, detect on the page rotated by 180 degrees as well.
        refine_boxes: on sharp pages, move the edges of boxes to the edges of the ink.
        round_boxes: round the corners of boxes to whole pixels, as in manual annotations.
        untiled_pixels: pages of at most this many pixels at the network's scale are processed in one pass.
        tile_size: height and width of the tiles of larger pages, without their overlap.
        tile_overlap: pixels of context around a tile.
        bfloat16: compute in bfloat16, which changes boxes and scores slightly; None: on processors with instructions
            for it, where it takes half the time or less, but not on GPUs, where the network takes little of the time.
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
    bfloat16: bool | None = None

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
    cuts=(0.6,),  # not stated in the text; higher thresholds separate more objects and detect fewer
    centre="mean",
    vote="vote",
    box="mean",
)
_THESIS_NETWORK = NetworkOptions(encoder="resnet101", decoder="refinenet", hidden=0)
_THESIS_LOSS = LossOptions(
    weights=(1.0, 1.0, 1.0), window=5, energy="levels", box="squared", giou=0.0, by_energy=False, rarest=1.0
)
_ORIGINAL = DetectorOptions(
    replace(_THESIS_MAPS, marker=4.5 / 8.5, overlap="last"),  # markers of 17 and 9 pixels
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
    """Return the options of a preset by name.

    Args:
        name: "default", "thesis" or "original".

    Returns:
        The options.

    Raises:
        ValueError: the preset does not exist; the message lists all names.
    """
    return validation.preset(PRESETS, name)
