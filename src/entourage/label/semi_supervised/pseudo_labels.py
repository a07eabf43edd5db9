"""Pseudo-labels from a graph of features: class priors, cross-validation on the given labels, training targets."""

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
    """Pseudo-labels of n images.

    Attributes:
        codes: class index of each image, shape (n,), -1 where undecided.
        distributions: distributions over the classes, shape (n, m).
        confidence: confidence of each label, in [0, 1], shape (n,); 0 where undecided.
        game_digest: digest of everything that determined the labels (see `digest_game`), or "".
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
        """Return the labels of a fitted labeller, as indices of its `classes_`; given labels have confidence 1."""
        codes = labeller.label_distributions_.argmax(axis=1).astype(np.int64)
        codes[labeller.undecided_] = -1
        confidence = getattr(labeller, "agreement_", labeller.confidence_)  # see `GraphTransduction`
        confidence = np.where(labeller.labelled_mask_, 1.0, np.where(codes >= 0, confidence, 0))
        return cls(codes, labeller.label_distributions_, confidence)

    def check(self, n_images: int, n_classes: int) -> None:
        """Raise ValueError if the number of images or classes differs."""
        if self.distributions.shape != (n_images, n_classes):
            expected = (n_images, n_classes)
            raise ValueError(f"pseudo_labels: distributions of shape {self.distributions.shape}; expected {expected}")

    def digest(self) -> str:
        """Return a digest of labels and game, not of confidences: their last digits depend on the machine."""
        return hashlib.blake2b(self.codes.tobytes() + self.game_digest.encode(), digest_size=8).hexdigest()

    def soft_targets(self) -> torch.Tensor:
        """Return distributions with the confidence at the label and equal values elsewhere, shape (n, m), float32."""
        m = self.distributions.shape[1]
        confidence = np.where(self.codes >= 0, np.maximum(self.confidence, 1 / m), 1 / m)  # (n,)
        rest = np.repeat((1 - confidence)[:, None] / (m - 1), m, axis=1)
        rest[np.arange(len(confidence)), self.codes] = confidence
        return torch.from_numpy(rest.astype(np.float32))

    def targets(self, pseudo_label_mode: PseudoLabelMode) -> tuple[torch.Tensor, torch.Tensor]:
        """Return training targets and their weights.

        Args:
            pseudo_label_mode: "hard" returns the labels with weight 1, "soft" the distributions with weight 1,
                "weighted" the labels with their squared confidence as weight.

        Returns:
            Distributions, shape (n, m), and weights, shape (n,), float32; the weight is 0 where undecided.
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


SCALING_STEPS = 20  # iterations after which the means are within about one percent of the targets


def fit_labeller(
    labeller: GraphLabeller,
    w: sparse.csr_matrix,
    codes: NDArray[np.int64],
    prior: Floats | None = None,
    *,
    balance: bool = False,
) -> GraphLabeller:
    """Fit a labeller to a graph, optionally with the class frequencies of the given labels as class priors.

    The game uses the priors in every iteration. The final distributions of other labellers are scaled to them, similar
    to the class mass normalisation of Zhu, Ghahramani and Lafferty. Predictions of new points change accordingly,
    except those of the SVM, which do not depend on the distributions of the fitted points.

    Args:
        labeller: the labeller to fit.
        w: graph; see `GraphLabeller.fit_graph`.
        codes: class indices, shape (n,), -1 where unlabelled.
        prior: prior distribution of each point, shape (n, m), or None.
        balance: use the class priors.

    Returns:
        The fitted labeller.
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
    """Scale distributions so that the classes of the resulting labels are as frequent as their priors.

    The target of the mean distribution lies between the class priors, reached by one-hot distributions, and the uniform
    distribution, the mean of uniform ones; the mean confidence of x interpolates between them. With the priors
    themselves as target, the nearly uniform distributions of Poisson learning or an SVM would all prefer the most
    frequent class.

    Each iteration scales the columns so that their means equal the target, then the rows so that they sum to 1. One-hot
    rows and zeros do not change.

    Args:
        x: distributions, shape (n, m).
        class_priors: class frequencies, shape (m,), with sum 1; the column of a class with frequency 0 is not scaled.

    Returns:
        Scaled distributions, shape (n, m).
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
    """Interpolate between the uniform distribution and the class priors by the mean confidence of x, shape (m,)."""
    m = len(class_priors)
    confidence = (m * x.max(axis=1).mean() - 1) / max(m - 1, 1) if len(x) else 1.0  # 1: one-hot, 0: uniform
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
    """Compute the accuracy on the given labels by stratified cross-validation.

    Each fold of given labels is hidden in turn and predicted from the others. The only label of a class is never
    hidden, since the class could not be predicted without it.

    Args:
        labeller: an unfitted labeller.
        w: graph, shape (n, n), as returned by `check_graph`.
        codes: class indices, shape (n,), -1 where unlabelled.
        prior: prior distribution of each point, shape (n, m), or None.
        balance: see `fit_labeller`; the priors are the frequencies of the labels that are not hidden.

    Returns:
        The accuracy; None if no class has two labels. Costs at most `FOLDS` fits.
    """
    fold = _assign_folds(codes)  # (n,)
    used = [number for number in range(FOLDS) if (fold == number).any()]
    if not used:
        return None
    correct = []
    for number in used:
        hidden = fold == number
        with warnings.catch_warnings():  # warnings about unreached points do not matter here
            warnings.simplefilter("ignore")
            fitted = fit_labeller(clone(labeller), w, np.where(hidden, -1, codes), prior, balance=balance)
        correct.append(fitted.transduction_[hidden] == codes[hidden])
    return float(np.concatenate(correct).mean())


def count_held_out(codes: NDArray[np.int64]) -> int:
    """Return the number of given labels that `held_out_accuracy` hides: all except the only label of a class."""
    return int((_assign_folds(codes) >= 0).sum())


def is_significantly_lower(accuracy: float, reference: float, n_labels: int) -> bool:
    """Return whether an accuracy is lower than a reference by more than two standard errors of the difference.

    Args:
        accuracy: the accuracy.
        reference: the accuracy to compare with.
        n_labels: number of labels of both accuracies.
    """
    fraction = (reference * n_labels + 1) / (n_labels + 2)  # add-one smoothing: the variance is positive at accuracy 1
    return accuracy < reference - 2 * math.sqrt(2 * fraction * (1 - fraction) / n_labels)


def _assign_folds(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the cross-validation fold of each label; -1 for labels that are never hidden, one per class or more."""
    fold = np.full(len(codes), -1)
    for label in np.unique(codes[codes >= 0]):
        members = np.random.default_rng([int(label), 0]).permutation(np.flatnonzero(codes == label))
        if len(members) > 1:
            fold[members] = np.arange(len(members)) % FOLDS
    return fold


class GraphFit(NamedTuple):
    """Result of `fit_graph_labels`.

    Attributes:
        pseudo_labels: a label for every image.
        score: cross-validated accuracy on the given labels, over the same graph; None if no class has two labels.
        labeller: the fitted labeller; its classes are class indices.
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
        features: features, shape (n, d), on the device of the computation.
        data: the given labels; the images are not read.
        labeller: an unfitted labeller; a clone of it is fitted.
        options: `metric`, `n_neighbors` and `balance` are used.
        prior: prior distribution of each image, shape (n, m), or None.

    Returns:
        The labels, their cross-validated accuracy and the fitted labeller.
    """
    graph = build_graph(features, labeller, options)  # once, for all folds and the final fit
    configured = clone(labeller).set_params(classes=np.arange(data.n_classes), device=str(features.device))
    score = held_out_accuracy(configured, graph, data.codes, prior, balance=options.balance)
    fitted = fit_labeller(clone(configured), graph, data.codes, prior, balance=options.balance)
    return GraphFit(PseudoLabels.from_labeller(fitted), score, fitted)


def join_features(*features: Tensor) -> Tensor:
    """Scale the features of several networks to length 1 each, and put them side by side.

    Args:
        features: each of shape (n, d_i).

    Returns:
        Features, shape (n, d_1 + d_2 + ...); the squared distances of two points are the sums of those of the networks.
    """
    return torch.cat([normalize_rows(one) for one in features], dim=1)


def build_graph(features: Tensor, labeller: GraphLabeller, options: AugmentOptions) -> sparse.csr_matrix:
    """Build the graph of a labeller, shape (n, n), according to its arguments.

    For a linear SVM, which uses no graph, return the features instead, shape (n, d).
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
    """Return the affinity of a labeller; raise ValueError for "precomputed", as every round builds a new graph."""
    if labeller.affinity == "precomputed":
        expected = "expected one that builds a graph of features, which are new in every round"
        raise ValueError(f"affinity of {type(labeller).__name__} is 'precomputed'; {expected}")
    return labeller.affinity
