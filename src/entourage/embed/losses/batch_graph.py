"""Similarity graph of a batch with class vectors and earlier batches as labelled nodes, and validation of inputs."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from entourage.embed.losses.cross_batch_memory import LabelledNodes
from entourage.embed.losses.options import GroupLossOptions
from entourage.game.similarity import center_rows, clamp, gaussian, normalize_rows, shift

MAX_SCALE = 1e9  # largest distance in units of the batch's largest value: similarity 0, and a square that is finite


@dataclass(frozen=True)
class BatchGraph:
    """Weights of the graph of a batch.

    Attributes:
        w: similarities between the samples of the batch, shape (n, n), non-negative.
        fixed_payoffs: payoffs by labelled nodes outside the batch, shape (n, m), non-negative; None without such nodes.
        inputs: result of `similarity_inputs` for the batch, shape (n, d).
    """

    w: Tensor
    fixed_payoffs: Tensor | None
    inputs: Tensor


def similarity_inputs(embeddings: Tensor, options: GroupLossOptions) -> Tensor:
    """Return rows whose inner products are the similarities, shape (n, d); for a Gaussian kernel, the embeddings."""
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
    """Compute the graph of a batch (thesis, chapter 4, eq. 1 and "Dealing with negative similarities").

    Args:
        embeddings: shape (n, d), float32 or float64.
        num_classes: number of classes m.
        options: similarity, negatives, sharpness, zero_diagonal and class_players are used.
        class_vectors: rows of the classifier as labelled nodes, shape (m, d), or None.
        earlier: samples of p earlier nodes, or None.

    Returns:
        Similarities and payoffs by labelled nodes. Costs O(n (n + m + p) d) time.
    """
    n = len(embeddings)
    inputs = similarity_inputs(embeddings, options)  # (n, d)
    blocks = [_similarity(inputs, None, options)]  # (n, n)
    if class_vectors is not None:
        blocks.append(_similarity(inputs, similarity_inputs(class_vectors.to(inputs), options), options))  # (n, m)
    if earlier is not None:
        blocks.append(_similarity(inputs, earlier.inputs.to(inputs), options))  # (n, p)
    w = blocks[0] if len(blocks) == 1 else torch.cat(blocks, dim=1)
    w = clamp(w) if options.negatives == "clamp" else shift(w)  # one shift for all blocks
    if options.sharpness != 1:
        w = w.pow(options.sharpness)
    fixed_payoffs = None
    if class_vectors is not None:
        fixed_payoffs = options.class_players * w[:, n : n + num_classes]  # (n, m), column h: class vector h
    if earlier is not None:
        # A product, because sums by `index_add` have no fixed order on a GPU and would differ in the last digit.
        memory_payoffs = w[:, -len(earlier.labels) :] @ F.one_hot(earlier.labels.long(), num_classes).to(w)  # (n, m)
        fixed_payoffs = memory_payoffs if fixed_payoffs is None else fixed_payoffs + memory_payoffs
    w = w[:, :n]
    if options.zero_diagonal:
        w = w.masked_fill(torch.eye(n, dtype=torch.bool, device=w.device), 0)
    return BatchGraph(w, fixed_payoffs, inputs)


def _similarity(inputs: Tensor, others: Tensor | None, options: GroupLossOptions) -> Tensor:
    """Compute similarities of a batch to itself, or to others, from their inputs."""
    if options.similarity == "gaussian":
        # The bandwidth is proportional to the scale of the batch, so that both can be divided by it.
        largest = inputs.detach().abs().amax().clamp_min(torch.finfo(inputs.dtype).tiny)
        clamped = None if others is None else (others / largest).clamp(-MAX_SCALE, MAX_SCALE)
        return gaussian(inputs / largest, y=clamped)
    return inputs @ (inputs if others is None else others).T


class NonFiniteInputError(ValueError):
    """Embeddings, logits or class vectors are infinite or NaN, usually because a training diverged."""


def check_types(embeddings: object, logits: object, labels: object) -> None:
    """Check that all inputs are tensors of the expected kind of numbers.

    Raises:
        ValueError: an input is not a tensor or has another type; the message names the first such argument.
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
    """Check the shapes of all inputs, without reading values.

    Args:
        embeddings: expected shape (n, d).
        logits: expected shape (n, m).
        labels: expected shape (n,).
        class_vectors: expected shape (m, d); ignored unless required.
        earlier: samples of earlier batches, expected shape (p, d).
        needs_class_vectors: whether class vectors are required.

    Raises:
        ValueError: a shape does not match; the message names the first such argument.
    """
    if embeddings.ndim != 2 or embeddings.numel() == 0:
        raise ValueError(f"embeddings have shape {tuple(embeddings.shape)}; expected (samples, dimensions), none of 0")
    n, d = embeddings.shape
    if logits.ndim != 2 or len(logits) != n or logits.shape[1] == 0:
        raise ValueError(f"logits have shape {tuple(logits.shape)}; expected ({n}, classes), a row per embedding")
    if labels.shape != (n,):
        raise ValueError(f"labels have shape {tuple(labels.shape)}; expected ({n},), one per embedding")
    if needs_class_vectors and class_vectors is None:
        raise ValueError("class_players is above 0 without class_vectors; expected the classifier's weight")
    if needs_class_vectors and class_vectors is not None and class_vectors.shape != (logits.shape[1], d):
        expected = (logits.shape[1], d)
        raise ValueError(f"class_vectors have shape {tuple(class_vectors.shape)}; expected {expected}, a row per class")
    if earlier is not None and (stored_size := earlier.inputs.shape[1]) != d:
        expectation = f"expected {stored_size}, as in the loss' memory; memory.clear() removes its batches"
        raise ValueError(f"embeddings have {d} dimensions; {expectation}")


def check_values(
    embeddings: Tensor,
    logits: Tensor,
    class_vectors: Tensor | None,
    labels: Tensor,
    sizes: Tensor,
    earlier: LabelledNodes | None,
    per_class: int,
) -> float:
    """Check the values of all inputs with a single synchronisation of the GPU.

    Args:
        embeddings: shape (n, d).
        logits: shape (n, m).
        class_vectors: shape (m, d), or None.
        labels: shape (n,).
        sizes: number of samples of each sample's class in the batch, shape (n,).
        earlier: samples of earlier batches, or None.
        per_class: anchors per class.

    Returns:
        The largest absolute value of the logits.

    Raises:
        NonFiniteInputError: a value is infinite or NaN.
        ValueError: labels are out of range, a class has too few samples, or all samples are anchors.
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
            expectation = "expected finite numbers (has training diverged?)"
            raise NonFiniteInputError(f"{list(tensors)[index // 2]} have values that are not finite; {expectation}")
    m = logits.shape[1]
    if first < 0 or last >= m:
        raise ValueError(f"labels are {first:.0f} to {last:.0f}; expected 0 to {m - 1}, the columns of the logits")
    if memory_labels and memory_labels[0] >= m:
        expectation = (
            f"expected {memory_labels[0] + 1:.0f} or more, as in the memory; memory.clear() removes its batches"
        )
        raise ValueError(f"logits have {m} columns; {expectation}")
    if min_count < per_class:
        smallest = int(labels[sizes.argmin()])
        expectation = f"expected at least {per_class}, one per anchor"
        raise ValueError(f"labels: class {smallest} has {min_count:.0f} samples in the batch; {expectation}")
    if max_count == per_class:
        raise ValueError(f"all samples are anchors; expected a class with more than anchors_per_class = {per_class}")
    return max(abs(bound) for bound in limits[2:4])
