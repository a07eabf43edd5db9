"""Cross-batch memory: samples of earlier batches, which the Group Loss adds to the graph of a batch."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class LabelledNodes:
    """Samples of earlier batches: `similarity_inputs`, shape (p, d), and labels, shape (p,)."""

    inputs: Tensor
    labels: Tensor


class CrossBatchMemory:
    """Memory of the last batches; their embeddings are not updated when the network changes.

    Args:
        num_batches: number of batches to store.
    """

    def __init__(self, num_batches: int) -> None:
        self._batches: deque[tuple[Tensor, Tensor]] = deque(maxlen=num_batches)

    def add(self, inputs: Tensor, labels: Tensor) -> None:
        """Store a detached copy of a batch, shapes (n, d) and (n,); a full memory drops the oldest batch."""
        self._batches.append((inputs.detach().clone(), labels.clone()))

    def nodes(self, device: torch.device | str) -> LabelledNodes | None:
        """Return all stored samples, oldest first, on a device; None before the first batch."""
        if not self._batches:
            return None
        for index, (inputs, labels) in enumerate(self._batches):  # restored batches are on the CPU
            self._batches[index] = inputs.to(device), labels.to(device)
        return LabelledNodes(*(torch.cat(parts) for parts in zip(*self._batches, strict=True)))

    def limit(self, num_batches: int) -> None:
        """Reduce the number of batches to store."""
        if num_batches < (self._batches.maxlen or 0):
            self._batches = deque(self._batches, maxlen=num_batches)

    def clear(self) -> None:
        """Remove all stored batches; required before training on other data or another network."""
        self._batches.clear()

    def state_dict(self) -> dict[str, Tensor]:
        """Return the tensors that `load_state_dict` restores, by name."""
        return {
            f"{batch}.{name}": value
            for batch, (inputs, labels) in enumerate(self._batches)
            for name, value in (("inputs", inputs), ("labels", labels))
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the result of `state_dict`."""
        self.clear()
        for batch in range(len(state) // 2):
            self._batches.append((state[f"{batch}.inputs"], state[f"{batch}.labels"]))
