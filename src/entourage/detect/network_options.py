"""Options of the network and of the losses that it learns by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from entourage.choices import check_choice

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
