"""Options of a network that clusters, of its loss and of its training, and the presets that have a name.

Where the thesis, the original code and what measured best here differ, the difference is a field with its reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from entourage import validation
from entourage.validation import check_choice

Network = Literal["attention", "lstm"]
Metric = Literal["none", "euclidean", "diagonal", "full"]


@dataclass(frozen=True)
class ModelOptions:
    """The network. `width` to `recurrent_units` describe one of the two kinds each."""

    network: Network = "attention"
    k_max: int = 20  # the most clusters it can find in one set
    metric: Metric = "none"  # the optional block: distances d_A^2 between embeddings, explicitly
    standardise: bool = True  # centre and scale each set of points: the result then does not depend on their units
    pooled: bool = True  # average what the convolutions see before it is embedded: fewer weights, fewer classes needed
    units: int = 288  # the fully connected layer that brings all embeddings to one size (LSTM)
    layers: int = 14  # residual bidirectional LSTM layers
    recurrent_units: int = 128  # of the LSTM that counts, a direction
    slope: float = 0.3  # of all LeakyReLUs
    regularise_count: bool = False  # batch norm and dropout in the counting network: in the code, not in the text
    set_size: int | None = None  # n, which the LSTM must know beforehand if it reads rows of distances
    width: int = 192  # of the attention layers
    depth: int = 8  # how many there are
    heads: int = 8
    frequencies: int = 64  # sines and cosines of the coordinates of points; 0 for none
    bridges: int = 4  # ways to measure how items hang together through others; 0 for none
    code: int = 32  # dimensions of the space in which clusters are far apart
    rounds: int = 2  # of soft k-means that follow the seeds

    def __post_init__(self) -> None:
        check_choice("network", self.network, Network)
        check_choice("metric", self.metric, Metric)
        for name in ("k_max", "units", "layers", "recurrent_units", "width", "depth", "heads", "code"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 1 or more")
        for name in ("frequencies", "bridges", "rounds"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; expected 0 or more")
        if self.units % 2:
            raise ValueError(f"units is {self.units}; expected an even number, half for each direction")
        if self.width % self.heads:
            raise ValueError(f"width is {self.width}; expected a multiple of the {self.heads} heads")
        if self.network == "lstm" and self.metric != "none" and self.set_size is None:
            raise ValueError("an LSTM reads a row of distances to all n items; set set_size to n")


@dataclass(frozen=True)
class LossOptions:
    """Weights of the terms beside L_cc, whose weight is 1."""

    assignment: float = 5.0  # lambda, of L_ca
    center: float = 0.0  # of the centre loss, which the original has for 2D points and the thesis does not mention
    pairwise: float = 1.0  # of the opinion on pairs that the attention network forms before it clusters


@dataclass(frozen=True)
class Preset:
    """All of it together."""

    model: ModelOptions = field(default_factory=ModelOptions)
    loss: LossOptions = field(default_factory=LossOptions)

    def loss_for(self, *, points: bool) -> LossOptions:
        """The loss for points or for other items, of which the original code knows no centres."""
        return self.loss if points else replace(self.loss, center=0.0)


_LSTM = ModelOptions(network="lstm", k_max=5, standardise=False, pooled=False)

PRESETS: dict[str, Preset] = {
    "default": Preset(),
    "thesis": Preset(_LSTM, LossOptions(pairwise=0.0)),
    "original": Preset(replace(_LSTM, regularise_count=True), LossOptions(pairwise=0.0, center=0.5)),
}


def preset(name: str) -> Preset:
    """The options of that name; a ValueError lists the names there are."""
    return validation.preset(PRESETS, name)
