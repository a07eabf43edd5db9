"""The complete network, from items to clusters and their number; its file format; the shipped networks."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

import entourage
from entourage import __version__
from entourage.cluster.models.assignment import SetPrediction
from entourage.cluster.models.attention import AttentionNetwork
from entourage.cluster.models.embedding import MAX_EXACT_COLUMNS, make_embedding
from entourage.cluster.models.lstm import LSTMNetwork
from entourage.cluster.models.options import ModelOptions
from entourage.compute import fork_rng
from entourage.io.files import error_reason
from entourage.io.weights import no_larger_than, write_weights

_EXPECTED = "expected a network saved by `entourage cluster train`"
_KEY = "entourage.cluster"


class ClusterNetwork(nn.Module):
    """An embedding network and a clustering network, trained together.

    Args:
        shape: shape of one item: (columns,) for points, (channels, height, width) for images and spectrograms.
        options: architecture and sizes.

    Attributes:
        shape: shape of one item.
        options: architecture and sizes.
        notes: strings stored with the weights: preset, kind of the items, set size, steps, ...
    """

    def __init__(self, shape: tuple[int, ...], options: ModelOptions) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.options = options
        self.notes: dict[str, str] = {}
        self.embedding = make_embedding(self.shape, options)
        self.clustering: AttentionNetwork | LSTMNetwork
        if options.network == "attention":
            # Tables with more columns are treated as features, not as coordinates.
            points = len(self.shape) == 1 and self.shape[0] <= MAX_EXACT_COLUMNS
            self.clustering = AttentionNetwork(self.embedding.width, options, points=points)
        else:
            self.clustering = LSTMNetwork(self.embedding.width, options)

    def forward(self, x: Tensor, k_max: int | None = None) -> SetPrediction:
        """Cluster sets of items.

        Args:
            x: sets, shape (b, n, *shape).
            k_max: maximum number of clusters; None for that of the options, which is the only one that an LSTM
                supports.

        Returns:
            P(k) and P(l | x_i, k) for all k up to k_max.

        Raises:
            ValueError: the items have another shape, or the network is an LSTM with another k_max.
        """
        if x.shape[2:] != self.shape or x.shape[1] < 2:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (sets, 2 or more items, {self.shape})")
        prediction: SetPrediction = self.clustering(self.embedding(x), k_max)
        return prediction

    def project(self) -> None:
        """Project the metric, if any, onto the positive semidefinite matrices; call it after every training step."""
        self.clustering.project()


def init_network(shape: tuple[int, ...], options: ModelOptions, seed: int) -> ClusterNetwork:
    """Return a network with random weights from a seed; the global random state of torch is unchanged."""
    with fork_rng(seed):
        return ClusterNetwork(shape, options)


def save_network(network: ClusterNetwork, path: str | Path, *, half: bool = False) -> None:
    """Save weights, architecture and notes of a network to a safetensors file.

    Args:
        network: network to save.
        path: output file.
        half: store weights in 16 bits, which halves the file; `load_network` converts them to single precision.
    """
    head = {
        "entourage": __version__,
        "shape": list(network.shape),
        "options": asdict(network.options),
        "notes": network.notes,
    }
    state = network.state_dict()
    if half:  # not buffers: frequencies and statistics need full precision
        state |= {name: state[name].half() for name, _ in network.named_parameters()}
    write_weights(Path(path), state, head, key=_KEY)


def load_network(path: str | Path) -> ClusterNetwork:
    """Load a network saved by `save_network`.

    Args:
        path: safetensors file.

    Returns:
        The network, on the CPU and in evaluation mode.

    Raises:
        ValueError: the file is missing, damaged, or not a clustering network.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file; {_EXPECTED}")
    try:
        with safe_open(path, framework="pt") as file:
            head = json.loads((file.metadata() or {}).get(_KEY, "null"))
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError, ValueError, RecursionError) as error:
        raise ValueError(f"{path}: cannot be read: {error_reason(error)}; {_EXPECTED}") from error
    if head is None:
        raise ValueError(f"{path}: not a clustering network; {_EXPECTED}")
    try:
        shape, options = tuple(head["shape"]), ModelOptions(**head["options"])
        with no_larger_than(state, (*shape, *asdict(options).values())):
            network = ClusterNetwork(shape, options)
        network.load_state_dict(state)
        network.notes = dict(head.get("notes", {}))
    except (KeyError, TypeError, RuntimeError, ValueError, AttributeError) as error:
        reason = error_reason(error)[:200]
        raise ValueError(f"{path}: cannot be loaded: {reason}; expected a network of this version") from error
    return network.eval()


WEIGHTS = Path(entourage.__file__).parent / "weights"
PREFIX = "cluster-"


def find_weights(source: str | Path) -> Path:
    """Return the file of a network.

    Args:
        source: name of a shipped network, or a file. A string is a name first: for a file that is called like a
            shipped network, use `./points` or a Path.

    Raises:
        ValueError: neither a shipped network nor a file.
    """
    if isinstance(source, str) and source in shipped_networks():
        return WEIGHTS / f"{PREFIX}{source}.safetensors"
    if Path(source).is_file():
        return Path(source)
    names = ", ".join(shipped_networks()) or "none"
    raise ValueError(f"model {str(source)!r}: no such file; expected a file, or one of: {names}")


def shipped_networks() -> list[str]:
    """Return the names of the shipped networks."""
    return sorted(file.stem.removeprefix(PREFIX) for file in WEIGHTS.glob(f"{PREFIX}*.safetensors"))
