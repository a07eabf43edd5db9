"""What the Group Loss is called with: shapes that fit, values that are finite, labels that exist."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from entourage.embed.losses.players import LabelledPlayers


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
    earlier: LabelledPlayers | None,
    *,
    needs_vectors: bool,
) -> None:
    """Refuse what can be told without a look at any value.

    Args:
        embeddings: expected shape (n, d).
        logits: expected shape (n, m).
        labels: expected shape (n,).
        class_vectors: expected shape (m, d) if they are needed; otherwise not looked at.
        earlier: samples of earlier batches, expected shape (p, d).
        needs_vectors: whether class vectors play.

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
    if needs_vectors and class_vectors is None:
        raise ValueError("class_players is above 0 but no class_vectors were given; expected the classifier's weight")
    if needs_vectors and class_vectors is not None and class_vectors.shape != (logits.shape[1], d):
        expected = (logits.shape[1], d)
        raise ValueError(f"class_vectors have shape {tuple(class_vectors.shape)}; expected {expected}, a row a class")
    if earlier is not None and earlier.portraits.shape[1] != d:
        known = earlier.portraits.shape[1]
        raise ValueError(
            f"embeddings have {d} dimensions; expected {known}, as the batches in the loss' memory have; "
            "memory.clear() forgets them"
        )


def check_values(
    embeddings: Tensor,
    logits: Tensor,
    class_vectors: Tensor | None,
    labels: Tensor,
    sizes: Tensor,
    earlier: LabelledPlayers | None,
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
    given = {"embeddings": embeddings, "logits": logits}
    if class_vectors is not None:
        given["class_vectors"] = class_vectors
    with torch.no_grad():
        values = torch.stack([end for one in given.values() for end in one.aminmax()])
        counts = [*labels.long().aminmax(), *sizes.aminmax()]
        counts += [] if earlier is None else [earlier.labels.max()]
        seen: list[float] = torch.cat([values.double(), torch.stack(counts)]).tolist()
    ends, (first, last, fewest, most, *remembered) = seen[: len(values)], seen[len(values) :]
    for place, end in enumerate(ends):
        if not math.isfinite(end):
            name = list(given)[place // 2]
            raise NonFiniteInputError(
                f"{name} have values that are not finite; expected finite numbers (has training diverged?)"
            )
    m = logits.shape[1]
    if first < 0 or last >= m:
        raise ValueError(f"labels go from {first:.0f} to {last:.0f}; expected 0 to {m - 1}, as the logits have columns")
    if remembered and remembered[0] >= m:
        raise ValueError(
            f"logits have {m} columns; expected {remembered[0] + 1:.0f} or more, as the memory has classes; "
            "memory.clear() forgets them"
        )
    if fewest < per_class:
        lone = int(labels[sizes.argmin()])
        raise ValueError(
            f"class {lone} has {fewest:.0f} samples in the batch; expected at least {per_class}, one for each anchor"
        )
    if most == per_class:
        raise ValueError(f"all samples are anchors; expected a class with more than anchors_per_class = {per_class}")
    return max(abs(end) for end in ends[2:4])
