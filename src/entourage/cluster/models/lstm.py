"""The network of the appendix: residual bidirectional LSTMs read the set as a sequence.

Its answer depends on the order of the items, and its horizon is that of an LSTM; `attention` has neither limit.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.embedding import MetricBlock
from entourage.cluster.models.options import ModelOptions

DROPOUT = 0.5  # of the original's counting network


class ResidualLSTM(nn.Module):
    """A bidirectional LSTM layer with a residual connection (RBDLSTM).

    Args:
        units: of input and output, half of them for each direction.
    """

    def __init__(self, units: int) -> None:
        super().__init__()
        self.lstm = make_lstm(units, units // 2)

    def forward(self, x: Tensor) -> Tensor:
        """(b, n, units) to the same."""
        output: Tensor = self.lstm(x)[0]
        return x + output


class LSTMNetwork(nn.Module):
    """Subnetworks (b), (c) and (d) of the appendix.

    Args:
        width: dimensions of an item's embedding.
        options: its sizes. With a metric block the LSTMs read rows of distances, so n is fixed to `set_size`.
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
        """What a set of embeddings, shape (b, n, width), falls into. Costs O(n) steps one after the other.

        Raises:
            ValueError: k_max is given and not the one the network was built with, whose outputs it has.
        """
        if k_max not in (None, self.options.k_max):
            raise ValueError(f"k_max is {k_max}; an LSTM network counts to {self.options.k_max}, as it was built")
        # In full precision: step after step is short of time, not of arithmetic, and errors add up over n of them.
        with torch.autocast(z.device.type, enabled=False):
            x = self._distance_rows(self.level(z.float()))  # (b, n, units)
            before = x
            for layer in self.layers:
                before, x = x, layer(x)
            output, _ = self.counter(before)  # (b, n, 2 * recurrent_units); as in the original, of the second-last
            ends = torch.cat([output[:, 0], output[:, -1]], dim=-1)  # (b, 4 * recurrent_units)
            return SetPrediction(self.count(ends).log_softmax(-1), self._assignment(x), x)

    def _distance_rows(self, level: Tensor) -> Tensor:
        if self.metric is None:
            return level
        if level.shape[1] != self.options.set_size:
            raise ValueError(
                f"the set has {level.shape[1]} items; this network reads {self.options.set_size} distances"
            )
        related: Tensor = self.rows(self.metric(level))
        return related

    def _assignment(self, x: Tensor) -> Tensor:
        """P(l | x_i, k), shape (b, n, k_max, k_max)."""
        k_max = self.options.k_max
        scores: Tensor = self.assign(x)  # (b, n, k_max (k_max + 1) / 2)
        k, cluster = torch.tril_indices(k_max, k_max, device=x.device)
        square = scores.new_full((*scores.shape[:2], k_max, k_max), -torch.inf)
        square[..., k, cluster] = scores
        return square.softmax(-1)

    def project(self) -> None:
        """Keeps the matrix of the metric block positive semidefinite."""
        if self.metric is not None:
            self.metric.project()


def make_lstm(inputs: int, units: int) -> nn.LSTM:
    """A bidirectional LSTM layer that begins by remembering: the bias of its forget gates is 1."""
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
