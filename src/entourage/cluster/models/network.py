"""The whole network: items in, clusters and their number out; and its file.

The networks that come with the package, by name.
"""

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
from entourage.io.weights import write_weights

_EXPECTED = "expected one that `entourage cluster train` wrote"
_KEY = "entourage.cluster"


class ClusterNetwork(nn.Module):
    """An embedding network and a clustering network, trained together.

    Args:
        shape: of one item: (columns,) for points, (channels, height, width) for images and spectrograms.
        options: the clustering network.

    Attributes:
        shape: as given.
        options: as given.
        notes: what its file says besides: what it was trained on, and how.
    """

    def __init__(self, shape: tuple[int, ...], options: ModelOptions) -> None:
        super().__init__()
        self.shape = tuple(shape)
        self.options = options
        self.notes: dict[str, str] = {}
        self.embedding = make_embedding(self.shape, options)
        self.clustering: AttentionNetwork | LSTMNetwork
        if options.network == "attention":
            points = (
                len(self.shape) == 1 and self.shape[0] <= MAX_EXACT_COLUMNS
            )  # more columns are features rather than places
            self.clustering = AttentionNetwork(self.embedding.width, options, points=points)
        else:
            self.clustering = LSTMNetwork(self.embedding.width, options)

    def forward(self, x: Tensor, k_max: int | None = None) -> SetPrediction:
        """What sets of items, shape (b, n, *shape), fall into, for up to k_max clusters.

        Args:
            x: the sets.
            k_max: fewer clusters than the options' or, if the network reads no order, more; None for as many.

        Raises:
            ValueError: the items have another shape, or the network is an LSTM and was built for another k_max.
        """
        if x.shape[2:] != self.shape or x.shape[1] < 2:
            raise ValueError(f"x has shape {tuple(x.shape)}; expected (sets, 2 or more items, {self.shape})")
        prediction: SetPrediction = self.clustering(self.embedding(x), k_max)
        return prediction

    def project(self) -> None:
        """To be called after every step of training: keeps the metric positive semidefinite, if there is one."""
        self.clustering.project()


def init_network(shape: tuple[int, ...], options: ModelOptions, seed: int) -> ClusterNetwork:
    """A network that has not learned yet, its weights drawn from a seed; torch's own generator stays as it is."""
    with fork_rng(seed):
        return ClusterNetwork(shape, options)


def save_network(network: ClusterNetwork, path: str | Path, *, half: bool = False) -> None:
    """Writes weights, architecture and notes as one safetensors file.

    Args:
        network: what is kept.
        path: the file.
        half: keep weights in 16 bits, which halves the file; what is read is single precision again.
    """
    head = {
        "entourage": __version__,
        "shape": list(network.shape),
        "options": asdict(network.options),
        "notes": network.notes,
    }
    state = network.state_dict()
    if half:  # not buffers: frequencies and statistics need their digits
        state |= {name: state[name].half() for name, _ in network.named_parameters()}
    write_weights(Path(path), state, head, key=_KEY)


def load_network(path: str | Path) -> ClusterNetwork:
    """Reads what `save_network` wrote; the network is on the CPU and in evaluation mode.

    Raises:
        ValueError: the file is missing, damaged, or holds something else.
    """
    path = Path(path)
    if not path.is_file():
        raise ValueError(f"{path}: no such file; expected a network that was trained to cluster")
    try:
        with safe_open(path, framework="pt") as file:
            head = json.loads((file.metadata() or {}).get(_KEY, "null"))
            state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no dict
    except (SafetensorError, OSError, ValueError) as error:
        raise ValueError(f"{path}: cannot be read: {error_reason(error)}; {_EXPECTED}") from error
    if head is None:
        raise ValueError(f"{path}: holds no network that clusters; {_EXPECTED}")
    try:
        network = ClusterNetwork(tuple(head["shape"]), ModelOptions(**head["options"]))
        network.load_state_dict(state)
        network.notes = dict(head.get("notes", {}))
    except (KeyError, TypeError, RuntimeError) as error:
        reason = error_reason(error)[:200]
        raise ValueError(f"{path}: was written by another version of entourage: {reason}") from error
    return network.eval()


WEIGHTS = Path(entourage.__file__).parent / "weights"
PREFIX = "cluster-"


def find_weights(source: str | Path) -> Path:
    """The file of a network: that of a name that comes with the package, or itself.

    A file in the current folder may be called like a network of the package: `./points`, or a Path, names the file.

    Raises:
        ValueError: there is neither such a name nor such a file.
    """
    if isinstance(source, str) and source in shipped_networks():
        return WEIGHTS / f"{PREFIX}{source}.safetensors"
    if Path(source).is_file():
        return Path(source)
    names = ", ".join(shipped_networks()) or "none"
    raise ValueError(f"model {str(source)!r} is no file; expected one, or one of: {names}")


def shipped_networks() -> list[str]:
    """Names of the networks that come with the package."""
    return sorted(file.stem.removeprefix(PREFIX) for file in WEIGHTS.glob(f"{PREFIX}*.safetensors"))
