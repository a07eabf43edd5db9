"""Training of the student on the labels of the rounds, and labels of all images over the features of both networks."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from torch import Tensor

from entourage.label.base import GraphLabeller
from entourage.label.semi_supervised.data import SemiSupervisedData
from entourage.label.semi_supervised.network import ImageNetwork, compute_outputs
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.pseudo_labels import (
    GraphFit,
    PseudoLabels,
    build_graph,
    count_held_out,
    fit_graph_labels,
    fit_labeller,
    is_significantly_lower,
    join_features,
)
from entourage.label.semi_supervised.self_training import (
    LABELS_MISMATCH,
    SelfTrainingResult,
    digest_game,
    given_class_priors,
    load_or_store_labels,
)
from entourage.label.semi_supervised.student.network import student_backbone
from entourage.label.semi_supervised.student.options import MIN_IMAGES
from entourage.label.semi_supervised.student.task import Metrics, StudentTask
from entourage.label.semi_supervised.student.views import StudentViews
from entourage.label.semi_supervised.views import ViewOptions
from entourage.label.targets import Floats
from entourage.training.loop import train

CHECKED = 5000  # images on whose graph the agreement is computed
FOLDER = "student"  # name of the run directory


@dataclass(frozen=True, eq=False)
class StudentResult:
    """Result of `train_student`.

    Attributes:
        network: the student, in evaluation mode, on the CPU.
        side: side of its input in pixels.
        features: normalised features of both networks for all images, shape (n, d1 + d2), on the CPU.
        pseudo_labels: a label for every image, over the graph of these features.
        labeller: the labeller fitted to that graph; its classes are numbers.
        predicted: class that the student predicts for every image, shape (n,).
        accepted: whether the held-out accuracy over the graph of the student's features is not significantly lower than
            that of the last accepted round.
        held_out: that accuracy; None if no class has two labels.
        agreement: fraction of images that the student and the game over its features label equally.
        steps: number of steps.
        seconds: time of the training and of the final labels.
    """

    network: ImageNetwork
    side: int
    features: NDArray[np.float32]
    pseudo_labels: PseudoLabels
    labeller: GraphLabeller
    predicted: NDArray[np.int64]
    accepted: bool
    held_out: float | None
    agreement: float
    steps: int
    seconds: float


def train_student(
    pixels: NDArray[np.uint8],
    data: SemiSupervisedData,
    rounds: SelfTrainingResult,
    labeller: GraphLabeller,
    options: AugmentOptions,
    device: torch.device,
    *,
    prior: Floats | None = None,
    run_dir: Path | None = None,
    progress: bool | None = None,
    metrics: Metrics | None = None,
) -> StudentResult:
    """Train a student network from random weights, starting with the labels of the rounds.

    The rounds use features of a pretrained network; the student is trained on the images at their own scale, with new
    views in every step. The training stops early if its agreement with the game over its own features does not
    increase, a criterion that needs no held-out labels.

    Args:
        pixels: decoded images, uint8, shape (n, h, w, 3).
        data: the given labels; its views are those of the rounds.
        rounds: result of the rounds.
        labeller: an unfitted labeller.
        options: `student_options`, and the options of graph and class frequencies.
        device: device of all computations.
        prior: prior of each image, shape (n, m), or None.
        run_dir: folder of the rounds, in which the student has a folder; None writes nothing.
        progress: show progress; None: only on a terminal.
        metrics: further metrics of the network for the log, at every validation.

    Returns:
        The student, and labels over the graph of the features of both networks.
    """
    started = time.perf_counter()
    student, folder = options.student_options, None if run_dir is None else run_dir / FOLDER
    digest = digest_game(rounds.network, data, labeller, options, prior)
    labels, _ = load_or_store_labels(folder, rounds.pseudo_labels, None, digest)
    side = student.side(pixels.shape[1], pixels.shape[2])
    backbone = student_backbone(side, student.method_options.seed)
    views = StudentViews(pixels, backbone.preprocessing, student_views(options))
    network = ImageNetwork(backbone.module, backbone.dim, data.n_classes)
    check = Agreement(views, data, labeller, options, device, prior)
    task = _make_task(network, replace(data, views=views), labels, options, _both(check, metrics))
    task.root_dir = run_dir
    with _fast_convolutions(device):
        result = train(task, student.training, folder, device=device, progress=progress, title="Student")
    trained = ImageNetwork(student_backbone(side).module, backbone.dim, data.n_classes)
    trained.load_state_dict(task.final_model().state_dict())
    outputs = compute_outputs(trained.body, views, device, progress=progress)
    own = fit_graph_labels(outputs, data, labeller, options, prior)
    both = join_features(outputs, torch.from_numpy(rounds.features).to(device))
    final = fit_graph_labels(both, data, labeller, options, prior)
    predicted = _classes(trained, outputs)
    return StudentResult(
        network=trained.cpu().eval(),
        side=side,
        features=both.cpu().numpy(),
        pseudo_labels=final.pseudo_labels,
        labeller=final.labeller,
        predicted=predicted,
        accepted=_is_accepted(own, rounds, data),
        held_out=own.score,
        agreement=float(np.mean(own.pseudo_labels.codes == predicted)),
        steps=result.steps,
        seconds=time.perf_counter() - started,
    )


def use_student(options: AugmentOptions, n_images: int, device: torch.device) -> bool:
    """Return whether a student is trained: `options.student`, or by default for many images on a GPU."""
    if options.student is not None:
        return options.student
    return n_images >= MIN_IMAGES and device.type == "cuda"


def student_views(options: AugmentOptions) -> ViewOptions:
    """Return the options of the student's views, without mirror images if the images have none."""
    views = options.student_options.views
    return views if options.flip else replace(views, flip=False)


class Agreement:
    """Agreement of a network with the game over the graph of its own features, on some of the images.

    Both label the same images from the same given labels. They agree where the network's classes are groups of its
    features that contain the right given labels; a network that fits wrong labels one by one has no such groups.

    Args:
        views: views of all images.
        data: the given labels.
        labeller: an unfitted labeller.
        options: options of the graph.
        device: device of all computations.
        prior: prior of each image, or None.
    """

    def __init__(
        self,
        views: StudentViews,
        data: SemiSupervisedData,
        labeller: GraphLabeller,
        options: AugmentOptions,
        device: torch.device,
        prior: Floats | None = None,
    ) -> None:
        rng = np.random.default_rng(options.student_options.method_options.seed)
        given, others = data.labelled, rng.permutation(np.flatnonzero(data.codes < 0))
        rows = np.sort(np.concatenate([given, others[: max(CHECKED - len(given), len(given))]]))
        self.views = StudentViews(views.bank.values[rows], views.preprocessing, views.options)
        self.codes = data.codes[rows]
        self.prior = None if prior is None else prior[rows]
        self.labeller = clone(labeller).set_params(classes=np.arange(data.n_classes), device=str(device))
        self.options = options
        self.device = device

    def __call__(self, network: ImageNetwork) -> Mapping[str, float]:
        """Return the fraction of unlabelled images with equal labels, by the name "agreement"."""
        features = compute_outputs(network.body, self.views, self.device, progress=False)
        w = build_graph(features, self.labeller, self.options)
        fitted = fit_labeller(clone(self.labeller), w, self.codes, self.prior, balance=self.options.balance)
        equal = fitted.transduction_ == _classes(network, features)
        unlabelled = self.codes < 0
        return {"agreement": float(equal[unlabelled].mean()) if unlabelled.any() else 1.0}


@torch.no_grad()
def _classes(network: ImageNetwork, features: Tensor) -> NDArray[np.int64]:
    """Return the most probable class of each row of features, shape (n,)."""
    network.head.to(features.device)
    return np.asarray(network.head(features).argmax(dim=1).cpu().numpy(), dtype=np.int64)


def _both(first: Metrics, second: Metrics | None) -> Metrics:
    return first if second is None else lambda network: {**first(network), **second(network)}


def _make_task(
    network: ImageNetwork,
    data: SemiSupervisedData,
    labels: PseudoLabels,
    options: AugmentOptions,
    metrics: Metrics,
) -> StudentTask:
    """Return the task, with the class frequencies of the given labels or of those of the rounds."""
    student = options.student_options
    counts = np.bincount(labels.codes[labels.codes >= 0], minlength=data.n_classes) + 1.0
    found = torch.from_numpy((counts / counts.sum()).astype(np.float32))
    task = StudentTask(
        network,
        data,
        student.method_options,
        pseudo_labels=labels,
        class_priors=given_class_priors(data).float() if options.balance else found,
        training=student.training,
        metrics=metrics,
    )
    task.mismatch_messages = {"task.pseudo_labels": LABELS_MISMATCH, **task.mismatch_messages}
    return task


def _is_accepted(own: GraphFit, rounds: SelfTrainingResult, data: SemiSupervisedData) -> bool:
    """Return whether the held-out accuracy is not significantly lower than that of the last accepted round."""
    before = [one.held_out for one in rounds.rounds if one.accepted and one.held_out is not None]
    if own.score is None or not before:
        return True
    return not is_significantly_lower(own.score, before[-1], count_held_out(data.codes))


@contextmanager
def _fast_convolutions(device: torch.device) -> Iterator[None]:
    """Let cuDNN select its fastest algorithms, since all batches have one shape."""
    if device.type != "cuda":
        yield
        return
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False, allow_tf32=True):
        yield
