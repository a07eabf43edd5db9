"""Labels that a graph has found: what they say, how sure they are, and what to train on.

Classes as frequent as among the given labels, for the game and for every propagator in its place alike.

How good a graph is, as far as the given labels alone can tell.

One game of a round: features make a graph, and a labeller finds a label for every image over it.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import clone
from torch import Tensor

from entourage.game.graph import Affinity, NeighborGraph
from entourage.game.similarity import normalize_rows
from entourage.label.base import GraphLabeller, check_graph
from entourage.label.baselines import LinearSVMLabeller
from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.options import AugmentOptions, PseudoLabelMode
from entourage.label.targets import Floats
from entourage.label.transduction import GraphTransduction
from entourage.validation import check_choice


@dataclass(frozen=True, eq=False)
class PseudoLabels:
    """A label for every image.

    Attributes:
        codes: the class of each image, shape (n,), -1 where none was found.
        distributions: over the classes, shape (n, m).
        confidence: how sure each label is, in [0, 1], shape (n,); 0 where there is none.
        game_digest: a short text that tells the game they are from from others, where that is known.
    """

    codes: NDArray[np.int64]
    distributions: Floats
    confidence: Floats
    game_digest: str = ""

    def __post_init__(self) -> None:
        n = len(self.codes)
        if self.distributions.ndim != 2 or len(self.distributions) != n or self.confidence.shape != (n,):
            shapes = f"{self.distributions.shape} and confidences of shape {self.confidence.shape}"
            raise ValueError(f"distributions of shape {shapes} for {n} labels; expected ({n}, m) and ({n},)")

    @classmethod
    def from_labeller(cls, labeller: GraphLabeller) -> PseudoLabels:
        """What a fitted labeller found; classes are numbered in the order of its `classes_`. Given labels are sure."""
        codes = labeller.label_distributions_.argmax(axis=1).astype(np.int64)
        codes[labeller.undecided_] = -1
        return cls(codes, labeller.label_distributions_, np.where(labeller.labelled_mask_, 1.0, labeller.confidence_))

    def check(self, n_images: int, n_classes: int) -> None:
        """Refuse labels of other images or other classes."""
        if self.distributions.shape != (n_images, n_classes):
            expected = f"{n_images} images and {n_classes} classes"
            raise ValueError(f"labels were found with distributions of shape {self.distributions.shape} for {expected}")

    def digest(self) -> str:
        """Of labels and game, not of confidences, whose last digits may change from machine to machine."""
        return hashlib.blake2b(self.codes.tobytes() + self.game_digest.encode(), digest_size=8).hexdigest()

    def soft_targets(self) -> torch.Tensor:
        """How probable each class is, shape (n, m), float32: the label as far as it is sure, all others alike."""
        m = self.distributions.shape[1]
        confidence = np.where(self.codes >= 0, np.maximum(self.confidence, 1 / m), 1 / m)  # (n,)
        rest = np.repeat((1 - confidence)[:, None] / (m - 1), m, axis=1)
        rest[np.arange(len(confidence)), self.codes] = confidence
        return torch.from_numpy(rest.astype(np.float32))

    def targets(self, pseudo_label_mode: PseudoLabelMode) -> tuple[torch.Tensor, torch.Tensor]:
        """What to train on.

        Args:
            pseudo_label_mode: "hard" treats every pseudo-label as known, "soft" takes the distribution, "weighted" the
                label with the square of its confidence as weight.

        Returns:
            Distributions, shape (n, m), and weights, shape (n,), float32; a weight is 0 where nothing was found.
        """
        check_choice("pseudo_label_mode", pseudo_label_mode, PseudoLabelMode)
        decided = self.codes >= 0
        one_hot = np.eye(self.distributions.shape[1], dtype=np.float32)[self.codes] * decided[:, None]
        soft = (
            torch.from_numpy(np.asarray(self.distributions, dtype=np.float32)) if pseudo_label_mode == "soft" else None
        )
        weight = self.confidence**2 if pseudo_label_mode == "weighted" else np.ones(len(decided))
        return (
            torch.from_numpy(one_hot) if soft is None else soft,
            torch.from_numpy((weight * decided).astype(np.float32)),
        )


SCALING_STEPS = 20  # of scaling columns and rows in turn; means are then within about one percent of the targets


def fit_labeller(
    labeller: GraphLabeller,
    w: sparse.csr_matrix,
    codes: NDArray[np.int64],
    prior: Floats | None = None,
    *,
    balance: bool = False,
) -> GraphLabeller:
    """Fit a labeller to a graph, and hold what it finds to the frequencies of the given labels if that is asked for.

    The game keeps to them while it is played; the distributions of other labellers are scaled when they are done (much
    as by the class mass normalisation that Zhu, Ghahramani and Lafferty have for harmonic functions). New points hear
    of it from those that were fitted; an SVM, which asks none of them, answers as without.

    Args:
        labeller: it is fitted.
        w: as for `GraphLabeller.fit_graph`.
        codes: labels from 0, -1 where unknown, shape (n,).
        prior: what is known beforehand of each point, shape (n, m), or None.
        balance: whether to.
    """
    if not balance:
        return labeller.fit_graph(w, codes, prior)
    if isinstance(labeller, GraphTransduction):
        labeller.class_priors = "empirical" if labeller.class_priors is None else labeller.class_priors
        return labeller.fit_graph(w, codes, prior)
    labeller.fit_graph(w, codes, prior)
    decided = np.ones(len(codes), dtype=bool)
    decided[labeller.undecided_] = False
    counts = np.bincount(codes[codes >= 0], minlength=len(labeller.classes_))
    x = labeller.label_distributions_.copy()
    x[decided] = scale_to_priors(x[decided], counts / counts.sum())
    return labeller.set_distributions(x)


def scale_to_priors(x: Floats, class_priors: Floats) -> Floats:
    """Distributions whose mean is, as far as they are sure and can be moved, that of the shares.

    Labels that are certain are as frequent as the shares say; distributions that prefer nothing have the same mean
    whatever the shares are. What is held to lies between the two, as sure as the distributions are. Held to the shares
    themselves, those of Poisson learning or of an SVM, which are nearly flat, would all prefer the most frequent class.

    Columns are scaled so that their means reach the targets, then rows so that they sum to 1, in turn. Certainty stays
    certain and what is ruled out stays so.

    Args:
        x: distributions, shape (n, m).
        class_priors: how frequent each class is, shape (m,), summing to 1; a class of share 0 is left alone.
    """
    tiny = np.finfo(np.float64).tiny
    scaled = np.asarray(x, dtype=np.float64)
    target = _target_mean(class_priors, scaled)
    for _ in range(SCALING_STEPS):
        mean = scaled.mean(axis=0)
        scaled = scaled * np.where((mean > tiny) & (class_priors > 0), target / np.maximum(mean, tiny), 1)
        scaled = scaled / np.maximum(scaled.sum(axis=1, keepdims=True), tiny)
    return scaled.astype(x.dtype)


def _target_mean(class_priors: Floats, x: Floats) -> Floats:
    """The mean of distributions as sure as these (n, m) whose labels are as frequent as the shares say, shape (m,)."""
    m = len(class_priors)
    confidence = (m * x.max(axis=1).mean() - 1) / max(m - 1, 1) if len(x) else 1.0  # 1: certain, 0: flat
    return confidence * class_priors + (1 - confidence) / m


FOLDS = 5


def held_out_accuracy(
    labeller: GraphLabeller,
    w: sparse.csr_matrix,
    codes: NDArray[np.int64],
    prior: Floats | None = None,
    *,
    balance: bool = False,
) -> float | None:
    """Cross-validated accuracy on the given labels.

    The given labels are dealt into folds, class by class; the labels of each fold are hidden in turn and found by the
    labeller from the others. A class with a single label keeps it, since nothing could find it.

    Args:
        labeller: unfitted.
        w: the graph, shape (n, n), as `check_graph` gives it.
        codes: labels from 0, -1 where unknown, shape (n,).
        prior: what is known beforehand of each point, shape (n, m), or None.
        balance: see `fit_labeller`; frequencies are those of the labels in sight.

    Returns:
        The share of hidden labels that were found; None if no class has two labels. Costs at most five fits.
    """
    fold = _assign_folds(codes)  # (n,)
    used = [number for number in range(FOLDS) if (fold == number).any()]
    if not used:
        return None
    correct = []
    for number in used:
        hidden = fold == number
        with warnings.catch_warnings():  # that some points are out of reach is of no interest here
            warnings.simplefilter("ignore")
            fitted = fit_labeller(clone(labeller), w, np.where(hidden, -1, codes), prior, balance=balance)
        correct.append(fitted.transduction_[hidden] == codes[hidden])
    return float(np.concatenate(correct).mean())


def count_held_out(codes: NDArray[np.int64]) -> int:
    """How many of the given labels `held_out_accuracy` hides in turn: all, but for those that are alone in a class."""
    return int((_assign_folds(codes) >= 0).sum())


def is_significantly_lower(accuracy: float, reference: float, n_labels: int) -> bool:
    """Whether so many labels are found less well than before by more than chance explains: two standard errors
    of a difference.

    Args:
        accuracy: the share that is found now.
        reference: the share that was found before.
        n_labels: how many were looked for.
    """
    fraction = (reference * n_labels + 1) / (n_labels + 2)  # that all were found does not mean that all would be
    return accuracy < reference - 2 * math.sqrt(2 * fraction * (1 - fraction) / n_labels)


def _assign_folds(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The fold in which each label is hidden, -1 for those that never are; one of each class is always in sight."""
    fold = np.full(len(codes), -1)
    for label in np.unique(codes[codes >= 0]):
        members = np.random.default_rng([int(label), 0]).permutation(np.flatnonzero(codes == label))
        if len(members) > 1:
            fold[members] = np.arange(len(members)) % FOLDS
    return fold


class GraphFit(NamedTuple):
    """What a game came to.

    Attributes:
        pseudo_labels: a label for every image.
        score: how well given labels that were hidden are found over the same graph; None if no class has two.
        labeller: fitted; its classes are numbered as those of the data are.
    """

    pseudo_labels: PseudoLabels
    score: float | None
    labeller: GraphLabeller


def fit_graph_labels(
    features: Tensor,
    data: SemiSupervisedData,
    labeller: GraphLabeller,
    options: AugmentOptions,
    prior: Floats | None = None,
) -> GraphFit:
    """Label all images over the graph of their features.

    Args:
        features: shape (n, d), on the device where the game is played.
        data: the labels that are known; images are not looked at.
        labeller: unfitted; it is left so.
        options: how features compare, how many neighbours a labeller gets that leaves it open, and whether classes
            are held to the frequencies of the given labels.
        prior: what is known beforehand of each image, shape (n, m), or None.
    """
    graph = build_graph(features, labeller, options)  # once, for all folds and the game itself
    configured = clone(labeller).set_params(classes=np.arange(data.n_classes), device=str(features.device))
    score = held_out_accuracy(configured, graph, data.codes, prior, balance=options.balance)
    fitted = fit_labeller(clone(configured), graph, data.codes, prior, balance=options.balance)
    return GraphFit(PseudoLabels.from_labeller(fitted), score, fitted)


def build_graph(features: Tensor, labeller: GraphLabeller, options: AugmentOptions) -> sparse.csr_matrix:
    """The graph that a labeller plays on: as its own arguments say, shape (n, n).

    A linear SVM, which looks at no neighbours, gets the features themselves in its place, shape (n, d).
    """
    affinity = check_affinity(labeller)
    points = normalize_rows(features) if options.metric == "cosine" else features
    if isinstance(labeller, LinearSVMLabeller):
        return sparse.csr_matrix(points.cpu().numpy())
    graph = NeighborGraph(
        points,
        options.n_neighbors if labeller.n_neighbors == "auto" else labeller.n_neighbors,
        affinity=affinity,
        squared=labeller.squared,
        negatives=labeller.negatives,
        symmetrize=labeller.symmetrize,
        normalize=labeller.normalize,
    )
    return check_graph(graph.w, labeller.negatives)[0]


def check_affinity(labeller: GraphLabeller) -> Affinity:
    """The affinity of a labeller's graph; one that expects a graph from outside is refused, as each round makes one."""
    if labeller.affinity == "precomputed":
        raise ValueError(
            f"affinity of {type(labeller).__name__} is 'precomputed'; expected one that makes a graph of features, "
            "as these are new in every round"
        )
    return labeller.affinity
