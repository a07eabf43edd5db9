"""Scikit-learn estimator that trains an image classifier on few labels: `entourage label --train` in Python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from entourage.backbones.backbone import Backbone
from entourage.backbones.finetuning import split_backbone
from entourage.backbones.registry import load_backbone
from entourage.compute import resolve_device
from entourage.io.progress import process_count
from entourage.label.base import GraphLabeller
from entourage.label.semi_supervised.classifier import ImageClassifier
from entourage.label.semi_supervised.data import Images, PixelArray, SemiSupervisedData, stack_images
from entourage.label.semi_supervised.network import ImageNetwork, compute_outputs
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.pseudo_labels import check_affinity
from entourage.label.semi_supervised.self_training import SelfTrainingResult, run_config, run_directory, self_train
from entourage.label.semi_supervised.student.fit import StudentResult, train_student, use_student
from entourage.label.semi_supervised.student.network import student_backbone
from entourage.label.semi_supervised.views import CachedViews, LiveViews, cache_views
from entourage.label.targets import Targets, fill_missing_labels, initial_distributions, labelled_accuracy, read_targets
from entourage.label.transduction import GraphTransduction

VIEW_CACHE = "views.bin"  # activations of the frozen early layers, in the run directory


class LabelAugmenter(ClassifierMixin, BaseEstimator):
    """Image classifier trained on few labels and many images by self-training over a similarity graph.

    Each round builds a graph of the network's features, labels all images over it, and trains the network on these
    pseudo-labels, weighted by confidence (thesis, chapter 3, "Label Generation"; the thesis has one round). See
    `self_train`. For many images on a GPU, a second network is then trained from random weights, see `train_student`.

    Args:
        labeller: labels all images over a graph; by default `GraphTransduction()`.
        backbone: name of the initial network; of several, the first is trained, and the graph of the first labels is
            that of the features of all.
        options: options of rounds, graph and training; by default the preset "default".
        device: device of all computations.
        run_dir: folder for checkpoints, from which an interrupted `fit` is resumed; None writes nothing.
        progress: show progress; None: only on a terminal.

    Attributes:
        classifier_: the trained network with its classes.
        classes_: the classes, shape (m,).
        transduction_: label of each image, shape (n,); -1 ("" for text labels) where it is undecided.
        confidence_: confidence of each label, shape (n,).
        features_: features of each image by the trained network, or by both networks, shape (n, d).
        rounds_: result of each round.
        student_: result of the second network's training, or None; if it is accepted, `classifier_` is this network.
        labeller_: the labeller fitted to the graph of `features_`; source of `transduction_`.

    Examples:
        >>> import numpy as np
        >>> from entourage import LabelAugmenter
        >>> from entourage.label.semi_supervised import AugmentOptions, MethodOptions
        >>> from entourage.training import TrainingOptions
        >>> pixels = np.zeros((8, 32, 32, 3), dtype=np.uint8)
        >>> pixels[:4, ..., 0] = pixels[4:, ..., 2] = 200  # four red images, four blue ones
        >>> labels = ["red", "", "", "", "blue", "", "", ""]
        >>> options = AugmentOptions(  # a single step, to be fast
        ...     size=32,
        ...     n_neighbors=2,
        ...     rounds=1,
        ...     method_options=MethodOptions(min_steps=1),
        ...     training=TrainingOptions(max_steps=1, workers=0),
        ... )
        >>> augmenter = LabelAugmenter(backbone="efficientnet-lite0", options=options, device="cpu", progress=False)
        >>> augmenter.fit(pixels, labels).transduction_.tolist()
        ['red', 'red', 'red', 'red', 'blue', 'blue', 'blue', 'blue']
    """

    def __init__(
        self,
        labeller: GraphLabeller | None = None,
        backbone: str | Sequence[str] = "efficientnet-lite1",
        options: AugmentOptions | None = None,
        *,
        device: str | torch.device = "auto",
        run_dir: str | Path | None = None,
        progress: bool | None = None,
    ) -> None:
        self.labeller = labeller
        self.backbone = backbone
        self.options = options
        self.device = device
        self.run_dir = run_dir
        self.progress = progress

    def fit(
        self,
        pixels: PixelArray | Sequence[PixelArray] | Callable[[], PixelArray],
        y: ArrayLike,
        prior: ArrayLike | None = None,
    ) -> Self:
        """Label all images and train the classifier.

        Args:
            pixels: decoded images, uint8, shape (n, h, w, 3), see `entourage.data.pixels.decode_pixels`; or a list of n
                images of equal size; or a function that returns such an array. The function is called after `run_dir`
                has been locked and its configuration compared, and may write to that folder.
            y: labels, shape (n,), -1 where unlabelled ("" or None are also accepted among text labels).
            prior: prior distribution of each image, shape (n, m), columns in the order of `classes_`, 0 for excluded
                labels; used in every round.

        Returns:
            The fitted estimator.

        Raises:
            ValueError: the options, images, labels or prior are invalid, another process uses `run_dir`, or it holds a
                run with another configuration.
            TypeError: `options` or `labeller` has the wrong type.
        """
        device = resolve_device(self.device)
        options = AugmentOptions() if self.options is None else self.options
        labeller = GraphTransduction() if self.labeller is None else self.labeller
        _check_types(options, labeller)
        check_affinity(labeller)
        source = pixels if callable(pixels) else stack_images(pixels)
        targets = read_targets(np.asarray(fill_missing_labels(y)))
        prior_matrix = None if prior is None else np.asarray(prior, dtype=np.float64)
        initial_distributions(targets, prior_matrix)  # validate the prior before all images are decoded
        name, *others = [self.backbone] if isinstance(self.backbone, str) else self.backbone
        backbone = _at_size(load_backbone(name, "cpu", frozen=False), options.size)
        more = [_at_size(load_backbone(other, "cpu"), options.size) for other in others]
        body, run_dir = backbone.module, None if self.run_dir is None else Path(self.run_dir)
        origin = " + ".join(one.origin for one in (backbone, *more))
        config = run_config(origin, options, labeller, targets, prior_matrix, device)
        with run_directory(run_dir, config) as run:
            live = LiveViews(source() if callable(source) else source, backbone.preprocessing, options.view_options)
            data = SemiSupervisedData(live, targets.codes, len(targets.classes))  # validates the labels
            run.check(images=live.bank.digest)
            run.commit()
            if options.trainable_layers == "late":
                body, cached = self._cache_views(backbone, live, options, device)
                data = replace(data, views=cached)
            network = ImageNetwork(body, backbone.dim, data.n_classes)
            result = self_train(
                network,
                data,
                labeller,
                options,
                device,
                prior=prior_matrix,
                run_dir=run_dir,
                progress=self.progress,
                more_features={one.origin: self._features(one, live, device) for one in more},
            )
            self.student_: StudentResult | None = None
            if use_student(options, len(data), device):
                self.student_ = train_student(
                    live.bank.values,
                    data,
                    result,
                    labeller,
                    options,
                    device,
                    prior=prior_matrix,
                    run_dir=run_dir,
                    progress=self.progress,
                )
        self._store(result, self.student_, targets)
        classes = [str(name) for name in targets.classes]
        flip = options.view_options.flip
        if self.student_ is not None and self.student_.accepted:
            self.classifier_ = _student_classifier(self.student_, classes, flip=flip)
        else:
            self.classifier_ = _assemble_classifier(result.network, body, backbone, classes, flip=flip)
        return self

    def _store(self, rounds: SelfTrainingResult, student: StudentResult | None, targets: Targets) -> None:
        """Set the attributes of the labels: of the student if it was accepted, otherwise of the last accepted round."""
        result = student if student is not None and student.accepted else rounds
        self.classes_ = targets.classes
        self.transduction_ = targets.decode(result.pseudo_labels.codes)
        self.confidence_ = result.pseudo_labels.confidence
        self.features_ = result.features
        self.rounds_ = rounds.rounds
        self.labeller_ = _with_class_names(result.labeller, targets)

    def _cache_views(
        self, backbone: Backbone, live: LiveViews, options: AugmentOptions, device: torch.device
    ) -> tuple[torch.nn.Module, CachedViews]:
        """Return the late part of the network, and the activations of the early part for all views."""
        stem, body = split_backbone(backbone)
        file = None if self.run_dir is None or process_count() > 1 else Path(self.run_dir) / VIEW_CACHE
        return body, cache_views(
            stem, live, device, seed=options.method_options.seed, file=file, progress=self.progress
        )

    def _features(self, backbone: Backbone, live: LiveViews, device: torch.device) -> torch.Tensor:
        """Return the features of the images by another backbone, shape (n, d)."""
        views = LiveViews(live.bank.values, backbone.preprocessing, live.options)
        return compute_outputs(backbone.module, views, device, progress=self.progress)

    def predict(self, images: Images) -> NDArray[np.generic]:
        """Predict the most probable class of each image.

        Args:
            images: decoded images as for `fit`, of any size, or a list of image files.

        Returns:
            Classes, shape (n,).

        Raises:
            ValueError: an image cannot be read (`classifier_.predict` only reports such files), or the shapes differ.
            TypeError: `images` has another type.
        """
        codes = self.predict_proba(images).argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, images: Images) -> NDArray[np.float32]:
        """Predict class probabilities.

        Args:
            images: see `predict`.

        Returns:
            Probabilities, shape (n, m), columns in the order of `classes_`.
        """
        check_is_fitted(self, "classifier_")
        predictions = self.classifier_.predict(images, device=self.device, progress=self.progress)
        if predictions.failures:
            path, reason = predictions.failures[0]
            raise ValueError(f"{path}: cannot be read ({reason}); expected readable images")
        return predictions.probabilities

    def score(self, images: Images, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Compute the accuracy on the labelled images.

        Args:
            images: see `predict`.
            y: labels, shape (n,), -1 where unlabelled.
            sample_weight: weights of the images, shape (n,).

        Returns:
            The accuracy.
        """
        return labelled_accuracy(self.predict(images), y, sample_weight)


def _at_size(backbone: Backbone, size: int) -> Backbone:
    """Return a backbone for square images of a size, without cropping."""
    return replace(backbone, preprocessing=replace(backbone.preprocessing, size=(size, size), crop=1.0))


def _check_types(options: object, labeller: object) -> None:
    if not isinstance(options, AugmentOptions):
        raise TypeError(f"options is {options!r}; expected AugmentOptions, such as AugmentOptions(size=96)")
    if not isinstance(labeller, GraphLabeller):
        raise TypeError(f"labeller is {labeller!r}; expected one of entourage.label, such as GraphTransduction()")


def _with_class_names(labeller: GraphLabeller, targets: Targets) -> GraphLabeller:
    """Replace the class codes of a fitted labeller by the classes."""
    labeller.set_params(classes=targets.classes)
    labeller.transduction_ = targets.decode(labeller.transduction_.astype(np.int64))  # -1: undecided
    labeller.classes_, labeller._targets = targets.classes, targets
    return labeller


def _student_classifier(student: StudentResult, classes: list[str], *, flip: bool) -> ImageClassifier:
    backbone = student_backbone(student.side)
    return ImageClassifier(student.network, backbone.name, classes, backbone.preprocessing, flip)


def _assemble_classifier(
    trained: ImageNetwork, body: torch.nn.Module, backbone: Backbone, classes: list[str], *, flip: bool
) -> ImageClassifier:
    """Load the trained weights into the complete network; `body` shares its weights with the backbone."""
    body.load_state_dict(trained.body.state_dict())
    network = ImageNetwork(backbone.module, backbone.dim, len(classes))
    network.head.load_state_dict(trained.head.state_dict())
    return ImageClassifier(network.cpu().eval(), backbone.name, classes, backbone.preprocessing, flip)
