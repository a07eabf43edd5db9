"""Options of the clustering network and its loss, and the presets.

Differences between the thesis, the original code and the best measured setting are fields.
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
    """Architecture and sizes of a network.

    Attributes:
        network: "attention" or "lstm".
        k_max: maximum number of clusters in a set.
        metric: optional block: distances d_A^2 between embeddings.
        standardise: centre and scale each set of points, so that units and origin have no effect.
        pooled: average feature maps before the fully connected layers: fewer weights, fewer classes needed.
        units: output size of the fully connected layer before the LSTMs, or before the metric block.
        layers: number of residual bidirectional LSTM layers.
        recurrent_units: units of the counting LSTM, per direction.
        slope: negative slope of all LeakyReLUs.
        regularise_count: batch norm and dropout in the counting LSTM network: in the original code, not in the thesis.
        set_size: n, which is fixed if an LSTM processes rows of distances, or None.
        width: dimension of the attention layers.
        depth: number of attention layers.
        heads: number of attention heads.
        frequencies: sines and cosines of the coordinates of points (attention); 0 for none.
        bridges: learned step lengths of minimax paths (attention); 0 for no minimax paths.
        code: dimension of the codes on which clusters are computed (attention).
        rounds: iterations of soft k-means (attention).

    Raises:
        ValueError: a field is out of range, or the fields are not compatible.
    """

    network: Network = "attention"
    k_max: int = 20
    metric: Metric = "none"
    standardise: bool = True
    pooled: bool = True
    units: int = 288
    layers: int = 14
    recurrent_units: int = 128
    slope: float = 0.3
    regularise_count: bool = False
    set_size: int | None = None
    width: int = 192
    depth: int = 8
    heads: int = 8
    frequencies: int = 64
    bridges: int = 4
    code: int = 32
    rounds: int = 2

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
            raise ValueError("set_size is None; expected n, as an LSTM with a metric processes rows of n distances")


@dataclass(frozen=True)
class LossOptions:
    """Weights of the loss terms, relative to L_cc.

    Attributes:
        assignment: lambda, the weight of L_ca.
        center: weight of the centre loss: for 2D points in the original code, not in the thesis.
        pairwise: weight of the pairwise loss on the codes of the attention network.
    """

    assignment: float = 5.0
    center: float = 0.0
    pairwise: float = 1.0


@dataclass(frozen=True)
class Preset:
    """Network and loss of a preset."""

    model: ModelOptions = field(default_factory=ModelOptions)
    loss: LossOptions = field(default_factory=LossOptions)

    def loss_for(self, *, points: bool) -> LossOptions:
        """Return the loss for points, or for other items, for which the original code has no centre loss."""
        return self.loss if points else replace(self.loss, center=0.0)


_LSTM = ModelOptions(network="lstm", k_max=5, standardise=False, pooled=False)

PRESETS: dict[str, Preset] = {
    "default": Preset(),
    "thesis": Preset(_LSTM, LossOptions(pairwise=0.0)),
    "original": Preset(replace(_LSTM, regularise_count=True), LossOptions(pairwise=0.0, center=0.5)),
}


def preset(name: str) -> Preset:
    """Return the preset with this name; a ValueError lists the known names."""
    return validation.preset(PRESETS, name)
