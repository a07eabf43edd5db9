"""The network that scores candidate partitions of a table, with all other candidates as context.

A candidate is described by its features. Attention among the candidates has a bias from their agreement: a partition
that methods of different assumptions find is more likely to be right than one that a single method finds.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from entourage.io.files import error_reason
from entourage.io.weights import no_larger_than, write_weights

KEY = "entourage.cluster.tables"
PAIR_FEATURES = 5
IMPOSSIBLE = -1e4  # logit of padding


@dataclass(frozen=True)
class ScorerOptions:
    """Sizes of the scorer.

    Attributes:
        features: features of a candidate.
        width: dimension of the attention layers.
        depth: number of attention layers.
        heads: number of attention heads.
        dropout: fraction of activations that are dropped in training.
    """

    features: int
    width: int = 128
    depth: int = 4
    heads: int = 8
    dropout: float = 0.1


@dataclass(frozen=True)
class Scores:
    """Output of the scorer.

    Attributes:
        count: logits of the number of clusters; P(k) is the sum of their softmax over candidates of k, shape (b, m).
        quality: logits of the expected adjusted Rand index, shape (b, m).
        choice: logits of the probability that no candidate is better, shape (b, m).
    """

    count: Tensor
    quality: Tensor
    choice: Tensor


class PartitionScorer(nn.Module):
    """Score the candidate partitions of tables; equivariant to permutations of the candidates.

    Args:
        options: sizes.
    """

    mean: Tensor
    scale: Tensor

    def __init__(self, options: ScorerOptions) -> None:
        super().__init__()
        self.options = options
        self.register_buffer("mean", torch.zeros(options.features))
        self.register_buffer("scale", torch.ones(options.features))
        width = options.width
        self.lift = nn.Sequential(nn.Linear(options.features, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.relation = nn.Sequential(nn.Linear(PAIR_FEATURES, 24), nn.GELU())
        self.layers = nn.ModuleList(ScorerLayer(width, options.heads, options.dropout) for _ in range(options.depth))
        self.norm = nn.LayerNorm(width)
        self.out = nn.Linear(width, 3)

    def forward(self, values: Tensor, agreement: Tensor, k: Tensor, mask: Tensor) -> Scores:
        """Score candidates.

        Args:
            values: features, shape (b, m, features).
            agreement: adjusted Rand index of all pairs, shape (b, m, m).
            k: number of clusters of each candidate, shape (b, m).
            mask: False for padding, shape (b, m).

        Returns:
            Logits, shape (b, m) each. Costs O(b m^2 (width + heads)) time and memory per layer.
        """
        return self.score(self.encode(values, agreement, k, mask), mask)

    def encode(self, values: Tensor, agreement: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        """Return the representation of each candidate before the output layer, shape (b, m, width)."""
        x = self.lift(((values - self.mean) / self.scale).clamp(-6, 6))  # (b, m, width)
        log_k = k.clamp_min(1).to(x).log()
        difference = log_k.unsqueeze(1) - log_k.unsqueeze(2)  # (b, m, m)
        step = (k.unsqueeze(1) - k.unsqueeze(2)).to(x)
        pairs = torch.stack(
            [agreement, agreement.square(), difference, difference.abs(), (step == 0).to(x)], dim=-1
        )  # (b, m, m, PAIR_FEATURES)
        relations = self.relation(pairs)
        padding = torch.where(mask, 0.0, IMPOSSIBLE).to(x)[:, None, None]  # (b, 1, 1, m)
        for layer in self.layers:
            x = layer(x, relations, padding)
        encoded: Tensor = self.norm(x)
        return encoded

    def score(self, encoded: Tensor, mask: Tensor) -> Scores:
        """Return the logits of encoded candidates, shape (b, m, width)."""
        logits = self.out(encoded).float().masked_fill(~mask.unsqueeze(-1), IMPOSSIBLE)
        return Scores(*logits.unbind(-1))


class ScorerLayer(nn.Module):
    """Multi-head attention with a bias from relations of candidates, and a feed-forward layer, both residual."""

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads = heads
        self.dropout = nn.Dropout(dropout)
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project = nn.Linear(width, 3 * width)
        self.bias = nn.Linear(24, heads)
        self.merge = nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, relations: Tensor, padding: Tensor) -> Tensor:
        """Transform candidates, shape (b, m, width), given relations (b, m, m, 24) and a bias (b, 1, 1, m)."""
        query, key, value = self.project(self.before(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        bias = self.bias(relations).permute(0, 3, 1, 2) + padding  # (b, heads, m, m)
        attended = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        x = x + self.dropout(self.merge(attended.transpose(1, 2).flatten(2)))
        output: Tensor = x + self.dropout(self.feed(self.between(x)))
        return output


def count_log_probabilities(logits: Tensor, k: Tensor, k_max: int) -> Tensor:
    """Return log P(k) for k = 1 to k_max, shape (b, k_max), from logits of candidates, shape (b, m).

    Numbers of clusters without any candidate have the probability exp(IMPOSSIBLE).
    """
    log = F.log_softmax(logits, dim=-1)
    of_k = k.unsqueeze(-1) == torch.arange(1, k_max + 1, device=k.device)  # (b, m, k_max)
    return torch.where(of_k, log.unsqueeze(-1), IMPOSSIBLE).logsumexp(1)


def save_scorer(scorer: PartitionScorer, path: Path, notes: dict[str, str] | None = None) -> None:
    """Save weights in 16 bits, with options and notes, to a safetensors file."""
    state = scorer.state_dict()
    state |= {name: state[name].half() for name, _ in scorer.named_parameters()}  # not the scale of the features
    write_weights(path, state, {"options": asdict(scorer.options), "notes": notes or {}}, key=KEY)


def load_scorer(path: Path) -> PartitionScorer:
    """Load a scorer saved by `save_scorer`, on the CPU and in evaluation mode.

    Raises:
        ValueError: the file is missing, damaged, or not a scorer of partitions.
    """
    try:
        with safe_open(path, framework="pt") as file:
            header = json.loads((file.metadata() or {}).get(KEY, "null"))
            state = {name: file.get_tensor(name).float() for name in list(file.keys())}
        options = ScorerOptions(**header["options"])
        with no_larger_than(state, asdict(options).values()):
            scorer = PartitionScorer(options)
        scorer.load_state_dict(state)
    except (SafetensorError, OSError, ValueError, KeyError, TypeError, RuntimeError, RecursionError) as error:
        raise ValueError(f"{path}: not a scorer of partitions: {error_reason(error)}; expected its weights") from error
    return scorer.eval()
