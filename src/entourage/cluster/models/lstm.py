"""The network of appendix A: residual bidirectional LSTMs process the set as a sequence.

The result depends on the order of the items, and the range of dependencies is that of an LSTM; `attention` has neither
limit.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.embedding import MetricBlock
from entourage.cluster.models.options import ModelOptions

DROPOUT = 0.5  # in the counting network of the original code


class ResidualLSTM(nn.Module):
    """A bidirectional LSTM layer with a residual connection (RBDLSTM).

    Args:
        units: dimension of input and output, half of it for each direction.
    """

    def __init__(self, units: int) -> None:
        super().__init__()
        self.lstm = make_lstm(units, units // 2)

    def forward(self, x: Tensor) -> Tensor:
        """Transform items, shape (b, n, units)."""
        output: Tensor = self.lstm(x)[0]
        return x + output


class LSTMNetwork(nn.Module):
    """Subnetworks (b), (c) and (d) of appendix A.

    Args:
        width: dimension of the embeddings.
        options: sizes of the network. With a metric block the LSTMs process rows of distances, so n is `set_size`.
    """

    def __init__(self, width: int, options: ModelOptions) -> None:
        super().__init__()
        self.options = options
        self.level = nn.Sequential(nn.Linear(width, options.units), nn.LeakyReLU(options.slope))
        self.metric = None
        if options.metric != "none":
            self.metric = MetricBlock(options.units, options.metric)
            self.rows = nn.Linear(options.set_size or 0, options.units)
        self.layers = nn.ModuleList(ResidualLSTM(options.units) for _ in range(options.layers))
        self.assign = nn.Linear(options.units, options.k_max * (options.k_max + 1) // 2)  # k outputs for every k
        self.counter = make_lstm(options.units, options.recurrent_units)
        self.count = _counting_head(options)

    def forward(self, z: Tensor, k_max: int | None = None) -> SetPrediction:
        """Cluster embeddings, shape (b, n, width), in O(n) sequential steps.

        Raises:
            ValueError: k_max is not None and not that of the options, which fixes the number of outputs.
        """
        if k_max not in (None, self.options.k_max):
            raise ValueError(
                f"k_max is {k_max}; expected {self.options.k_max}, as an LSTM network has a fixed number of outputs"
            )
        # In full precision: sequential steps are not limited by arithmetic, and rounding errors accumulate over n.
        with torch.autocast(z.device.type, enabled=False):
            x = self._distance_rows(self.level(z.float()))  # (b, n, units)
            before = x
            for layer in self.layers:
                before, x = x, layer(x)
            output, _ = self.counter(before)  # (b, n, 2 * recurrent_units); input of the last layer, as in the original
            ends = torch.cat([output[:, 0], output[:, -1]], dim=-1)  # (b, 4 * recurrent_units)
            return SetPrediction(self.count(ends).log_softmax(-1), self._assignment(x), x)

    def _distance_rows(self, level: Tensor) -> Tensor:
        if self.metric is None:
            return level
        if level.shape[1] != self.options.set_size:
            raise ValueError(
                f"the set has {level.shape[1]} items; expected {self.options.set_size}, the set size of the network"
            )
        rows: Tensor = self.rows(self.metric(level))
        return rows

    def _assignment(self, x: Tensor) -> Tensor:
        """Compute P(l | x_i, k), shape (b, n, k_max, k_max)."""
        k_max = self.options.k_max
        scores: Tensor = self.assign(x)  # (b, n, k_max (k_max + 1) / 2)
        k, cluster = torch.tril_indices(k_max, k_max, device=x.device)
        square = scores.new_full((*scores.shape[:2], k_max, k_max), -torch.inf)
        square[..., k, cluster] = scores
        return square.softmax(-1)

    def project(self) -> None:
        """Project the matrix of the metric block onto the cone of positive semidefinite matrices."""
        if self.metric is not None:
            self.metric.project()


def make_lstm(inputs: int, units: int) -> nn.LSTM:
    """Return a bidirectional LSTM layer whose forget gates have an initial bias of 1, which retains the state."""
    lstm = nn.LSTM(inputs, units, batch_first=True, bidirectional=True)
    with torch.no_grad():
        for name, bias in lstm.named_parameters():
            if name.startswith("bias_ih"):
                bias[units : 2 * units] = 1  # torch orders the gates input, forget, cell, output
            elif name.startswith("bias_hh"):
                bias[units : 2 * units] = 0  # torch adds the two
    return lstm


def _counting_head(options: ModelOptions) -> nn.Sequential:
    units = 2 * options.recurrent_units
    layers: list[nn.Module] = [nn.Linear(2 * units, units), nn.LeakyReLU(options.slope)]
    if options.regularise_count:
        layers = [nn.BatchNorm1d(2 * units), *layers, nn.BatchNorm1d(units), nn.Dropout(DROPOUT)]
    return nn.Sequential(*layers, nn.Linear(units, options.k_max))
