"""The similarity graph of a session, stored so that a folder opens at once the next time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse

from entourage.game.graph import NeighborGraph
from entourage.io.files import atomic_path
from entourage.io.fingerprint import fingerprint
from entourage.io.safe_formats import READ_ERRORS, read_npz
from entourage.label.base import as_tensor
from entourage.label.transduction import PRESETS

_OPTIONS = ("n_neighbors", "affinity", "squared", "symmetrize", "normalize")


def load_or_build(path: Path, features: NDArray[Any], arguments: Mapping[str, Any]) -> sparse.csr_matrix:
    """Return the graph that `GraphTransduction` builds for features, from a file if it holds this graph.

    Args:
        path: the file; it is written if it is missing or of other features.
        features: shape (n, d).
        arguments: keyword arguments of `GraphTransduction`.

    Returns:
        Similarities, shape (n, n).
    """
    options = {name: arguments.get(name, PRESETS["default"][name]) for name in _OPTIONS}
    digest = fingerprint(features, repr(sorted(options.items())))
    stored = _load(path, digest, len(features))
    if stored is not None:
        return stored
    device = torch.device("cpu")
    graph = NeighborGraph(as_tensor(features).to(device), negatives="error", **options).w
    with atomic_path(path) as temporary:
        np.savez(temporary, digest=digest, data=graph.data, indices=graph.indices, indptr=graph.indptr)
    return graph


def _load(path: Path, digest: str, n: int) -> sparse.csr_matrix | None:
    if not path.exists():
        return None
    try:
        arrays = read_npz(path)
        if str(arrays["digest"]) != digest:
            return None
        graph = sparse.csr_matrix((arrays["data"], arrays["indices"], arrays["indptr"]), shape=(n, n))
        graph.check_format()
    except (*READ_ERRORS, KeyError):  # a damaged file is replaced
        return None
    return graph
