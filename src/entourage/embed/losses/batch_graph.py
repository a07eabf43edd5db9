"""Who is similar to whom: the samples of a batch, class vectors and earlier batches, as players of one game.

What the Group Loss is called with: shapes that fit, values that are finite, labels that exist.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.embed.losses.options import GroupLossOptions
from entourage.game.similarity import center_rows, clamp, gaussian, normalize_rows, shift

MAX_SCALE = 1e9  # in sizes of the batch: whoever is as far away has no similarity to it, and a square that is finite


@dataclass(frozen=True)
class BatchGraph:
    """The payoffs of a batch's game.

    Attributes:
        w: similarities between the samples of the batch, shape (n, n), non-negative.
        field: support by labelled players outside the batch, shape (n, m), non-negative; None where there are none.
        inputs: what of the batch the similarities looked at, shape (n, d), see `similarity_inputs`.
    """

    w: Tensor
    field: Tensor | None
    inputs: Tensor


@dataclass(frozen=True)
class LabelledNodes:
    """Samples of earlier batches, as `similarity_inputs` shows them, with their labels: shapes (p, d) and (p,)."""

    inputs: Tensor
    labels: Tensor


class CrossBatchMemory:
    """The last batches, as players that keep their place while the network moves on.

    Args:
        num_batches: number of batches to store.
    """

    def __init__(self, num_batches: int) -> None:
        self._batches: deque[tuple[Tensor, Tensor]] = deque(maxlen=num_batches)

    def add(self, inputs: Tensor, labels: Tensor) -> None:
        """Keeps a copy of a batch, shapes (n, d) and (n,), without its gradients; the oldest is forgotten."""
        self._batches.append((inputs.detach().clone(), labels.clone()))

    def nodes(self, device: torch.device | str) -> LabelledNodes | None:
        """All that are kept, oldest first; None before the first batch.

        Args:
            device: where they are needed; a checkpoint gives them back on the CPU.
        """
        if not self._batches:
            return None
        for index, (inputs, labels) in enumerate(self._batches):
            self._batches[index] = inputs.to(device), labels.to(device)
        return LabelledNodes(*(torch.cat(parts) for parts in zip(*self._batches, strict=True)))

    def limit(self, num_batches: int) -> None:
        """From now on, keep no more than so many."""
        if num_batches < (self._batches.maxlen or 0):
            self._batches = deque(self._batches, maxlen=num_batches)

    def clear(self) -> None:
        """Forget all, before the loss of other data or of another network is taken."""
        self._batches.clear()

    def state_dict(self) -> dict[str, Tensor]:
        """All that `load_state_dict` needs, by name."""
        return {
            f"{batch}.{name}": value
            for batch, (inputs, labels) in enumerate(self._batches)
            for name, value in (("inputs", inputs), ("labels", labels))
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state_dict` gave."""
        self.clear()
        for batch in range(len(state) // 2):
            self._batches.append((state[f"{batch}.inputs"], state[f"{batch}.labels"]))


def similarity_inputs(embeddings: Tensor, options: GroupLossOptions) -> Tensor:
    """What of embeddings a similarity looks at, shape (n, d): for a correlation the directions of centred rows."""
    if options.similarity == "gaussian":
        return embeddings
    return normalize_rows(center_rows(embeddings) if options.similarity == "pearson" else embeddings)


def batch_similarity(
    embeddings: Tensor,
    num_classes: int,
    options: GroupLossOptions,
    class_vectors: Tensor | None = None,
    earlier: LabelledNodes | None = None,
) -> BatchGraph:
    """The similarities that a batch plays with (thesis, chapter 4, eq. 1 and "Dealing with negative similarities").

    Args:
        embeddings: shape (n, d), float32 or float64.
        num_classes: m, the number of classes.
        options: similarity, negatives, sharpness, zero_diagonal and class_players are looked at.
        class_vectors: the classifier's rows, shape (m, d), if they play.
        earlier: samples of earlier batches, if they play; they are known by their inputs, which are made only once.

    Returns:
        Similarities and the field of labelled players. Costs O(n (n + m + p) d) time.
    """
    n = len(embeddings)
    inputs = similarity_inputs(embeddings, options)  # (n, d)
    blocks = [_similarity(inputs, None, options)]  # (n, n)
    if class_vectors is not None:
        blocks.append(_similarity(inputs, similarity_inputs(class_vectors.to(inputs), options), options))  # (n, m)
    if earlier is not None:
        blocks.append(_similarity(inputs, earlier.inputs.to(inputs), options))  # (n, p)
    w = blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)
    w = clamp(w) if options.negatives == "clamp" else shift(w)  # all of them together: a shift is the same for all
    if options.sharpness != 1:
        w = w.pow(options.sharpness)
    field = None
    if class_vectors is not None:
        field = options.class_players * w[:, n : n + num_classes]  # (n, m), each class vector speaks for its own label
    if earlier is not None:
        # A product, as sums by `index_add` have no fixed order on a GPU, and the last digit would be another each time.
        memory_field = w[:, -len(earlier.labels) :] @ F.one_hot(earlier.labels.long(), num_classes).to(w)  # (n, m)
        field = memory_field if field is None else field + memory_field
    w = w[:, :n]
    if options.zero_diagonal:
        w = w.masked_fill(torch.eye(n, dtype=torch.bool, device=w.device), 0)
    return BatchGraph(w, field, inputs)


def _similarity(inputs: Tensor, others: Tensor | None, options: GroupLossOptions) -> Tensor:
    """Similarities of a batch to itself or to others, by their inputs."""
    if options.similarity == "gaussian":
        # Its bandwidth grows with the batch, so that only the size of others in comparison with it matters.
        largest = inputs.detach().abs().amax().clamp_min(torch.finfo(inputs.dtype).tiny)
        clamped = None if others is None else (others / largest).clamp(-MAX_SCALE, MAX_SCALE)
        return gaussian(inputs / largest, y=clamped)
    return inputs @ (inputs if others is None else others).T


class NonFiniteInputError(ValueError):
    """Embeddings, logits or class vectors are infinite or not a number: most often a training has diverged."""


def check_types(embeddings: object, logits: object, labels: object) -> None:
    """Refuse what is no tensor, or none of the right kind of numbers.

    Raises:
        ValueError: names the first.
    """
    for name, value in (("embeddings", embeddings), ("logits", logits), ("labels", labels)):
        if not isinstance(value, Tensor):
            raise ValueError(f"{name} are a {type(value).__name__}; expected a tensor")
        if name != "labels" and not value.is_floating_point():
            raise ValueError(f"{name} have type {value.dtype}; expected floating point numbers")
        if name == "labels" and (value.is_floating_point() or value.is_complex() or value.dtype == torch.bool):
            raise ValueError(f"labels have type {value.dtype}; expected integers")


def check_shapes(
    embeddings: Tensor,
    logits: Tensor,
    labels: Tensor,
    class_vectors: Tensor | None,
    earlier: LabelledNodes | None,
    *,
    needs_class_vectors: bool,
) -> None:
    """Refuse what can be told without a look at any value.

    Args:
        embeddings: expected shape (n, d).
        logits: expected shape (n, m).
        labels: expected shape (n,).
        class_vectors: expected shape (m, d) if they are needed; otherwise not looked at.
        earlier: samples of earlier batches, expected shape (p, d).
        needs_class_vectors: whether class vectors play.

    Raises:
        ValueError: names the first that does not fit.
    """
    if embeddings.ndim != 2 or embeddings.numel() == 0:
        raise ValueError(f"embeddings have shape {tuple(embeddings.shape)}; expected (samples, dimensions), none of 0")
    n, d = embeddings.shape
    if logits.ndim != 2 or len(logits) != n or logits.shape[1] == 0:
        raise ValueError(f"logits have shape {tuple(logits.shape)}; expected ({n}, classes), a row an embedding")
    if labels.shape != (n,):
        raise ValueError(f"labels have shape {tuple(labels.shape)}; expected ({n},), one an embedding")
    if needs_class_vectors and class_vectors is None:
        raise ValueError("class_players is above 0 but no class_vectors were given; expected the classifier's weight")
    if needs_class_vectors and class_vectors is not None and class_vectors.shape != (logits.shape[1], d):
        expected = (logits.shape[1], d)
        raise ValueError(f"class_vectors have shape {tuple(class_vectors.shape)}; expected {expected}, a row a class")
    if earlier is not None and earlier.inputs.shape[1] != d:
        stored_size = earlier.inputs.shape[1]
        raise ValueError(
            f"embeddings have {d} dimensions; expected {stored_size}, as the batches in the loss' memory have; "
            "memory.clear() forgets them"
        )


def check_values(
    embeddings: Tensor,
    logits: Tensor,
    class_vectors: Tensor | None,
    labels: Tensor,
    sizes: Tensor,
    earlier: LabelledNodes | None,
    per_class: int,
) -> float:
    """Refuse values that no loss can be made of, in a single look at all: a GPU is waited for once, not at each.

    Args:
        embeddings: shape (n, d).
        logits: shape (n, m).
        class_vectors: shape (m, d), if they play.
        labels: shape (n,).
        sizes: how many samples of the batch are of the class of each, shape (n,).
        earlier: samples of earlier batches, if they play.
        per_class: anchors in each class.

    Returns:
        The largest logit, whatever its sign.

    Raises:
        ValueError: names the first that is wrong.
    """
    tensors = {"embeddings": embeddings, "logits": logits}
    if class_vectors is not None:
        tensors["class_vectors"] = class_vectors
    with torch.no_grad():
        values = torch.stack([bound for one in tensors.values() for bound in one.aminmax()])
        counts = [*labels.long().aminmax(), *sizes.aminmax()]
        counts += [] if earlier is None else [earlier.labels.max()]
        bounds: list[float] = torch.cat([values.double(), torch.stack(counts)]).tolist()
    limits, (first, last, min_count, max_count, *memory_labels) = bounds[: len(values)], bounds[len(values) :]
    for index, bound in enumerate(limits):
        if not math.isfinite(bound):
            name = list(tensors)[index // 2]
            raise NonFiniteInputError(
                f"{name} have values that are not finite; expected finite numbers (has training diverged?)"
            )
    m = logits.shape[1]
    if first < 0 or last >= m:
        raise ValueError(f"labels go from {first:.0f} to {last:.0f}; expected 0 to {m - 1}, as the logits have columns")
    if memory_labels and memory_labels[0] >= m:
        raise ValueError(
            f"logits have {m} columns; expected {memory_labels[0] + 1:.0f} or more, as the memory has classes; "
            "memory.clear() forgets them"
        )
    if min_count < per_class:
        smallest = int(labels[sizes.argmin()])
        raise ValueError(
            f"class {smallest} has {min_count:.0f} samples in the batch; "
            f"expected at least {per_class}, one for each anchor"
        )
    if max_count == per_class:
        raise ValueError(f"all samples are anchors; expected a class with more than anchors_per_class = {per_class}")
    return max(abs(bound) for bound in limits[2:4])
