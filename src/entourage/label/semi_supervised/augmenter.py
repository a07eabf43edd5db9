"""From a few labels to a classifier, all steps in one: what `entourage label --train` does, for Python."""

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
from entourage.label.semi_supervised.network import ImageNetwork
from entourage.label.semi_supervised.options import AugmentOptions
from entourage.label.semi_supervised.pseudo_labels import check_affinity
from entourage.label.semi_supervised.self_training import run_config, run_directory, self_train
from entourage.label.semi_supervised.views import CachedViews, LiveViews, cache_views
from entourage.label.targets import Targets, fill_missing_labels, initial_distributions, labelled_accuracy, read_targets
from entourage.label.transduction import GraphTransduction

VIEW_CACHE = "views.bin"  # in a run's folder: what the early layers saw


class LabelAugmenter(ClassifierMixin, BaseEstimator):
    """Trains a classifier on few labels and many images (thesis, chapter 3, "Label Generation", and beyond).

    In each round the network's features make a graph, the game labels every image over it, and the network is trained
    on what the game found, each image as far as its label is sure; see `self_train`.

    Args:
        labeller: what labels all images over a graph; by default the game.
        backbone: the network to start from.
        options: everything else; by default those of the preset "default".
        device: where to compute.
        run_dir: a folder for checkpoints; a stopped `fit` continues from it.
        progress: show lines; None: only on a terminal.

    Attributes:
        classifier_: the trained network with its classes.
        classes_: the classes, shape (m,).
        transduction_: a label for every image, shape (n,); -1 (or "" among text) where it is undecided.
        confidence_: how sure each is, shape (n,).
        features_: what the trained network makes of every image, shape (n, d).
        rounds_: what each round came to.
        labeller_: the labeller, fitted to the last graph: what the transduction is from, with all that it tells.

    Example:
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
        backbone: str = "efficientnet-lite1",
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
        """Train.

        Args:
            pixels: decoded images, uint8, shape (n, h, w, 3): see `entourage.data.decode_pixels`; or a list of n
                equally large ones. Or a function that decodes them: it is called when the folder of the run is this
                process's own, and the run there, if there is one, is this one; it may write there.
            y: labels, shape (n,), -1 where unlabelled (among text also "" or None).
            prior: what is known beforehand of each image, shape (n, m), columns in the order of `classes_`, 0 for a
                label the image cannot have; every game starts from it.

        Raises:
            ValueError: something in the options, images or labels is not as it should be, another process is
                training in the folder, or the folder holds another run.
            TypeError: options or labeller are of another kind.
        """
        device = resolve_device(self.device)
        options = AugmentOptions() if self.options is None else self.options
        labeller = GraphTransduction() if self.labeller is None else self.labeller
        _check_types(options, labeller)
        check_affinity(labeller)
        source = pixels if callable(pixels) else stack_images(pixels)
        targets = read_targets(np.asarray(fill_missing_labels(y)))
        prior_matrix = None if prior is None else np.asarray(prior, dtype=np.float64)
        initial_distributions(targets, prior_matrix)  # checks the prior before all images are read
        backbone = load_backbone(self.backbone, "cpu", frozen=False)
        side = (options.size, options.size)
        backbone = replace(backbone, preprocessing=replace(backbone.preprocessing, size=side, crop=1.0))
        body, run_dir = backbone.module, None if self.run_dir is None else Path(self.run_dir)
        config = run_config(backbone.origin, options, labeller, targets, prior_matrix, device)
        with run_directory(run_dir, config) as run:
            live = LiveViews(source() if callable(source) else source, backbone.preprocessing, options.view_options)
            data = SemiSupervisedData(live, targets.codes, len(targets.classes))  # checked before images are read
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
            )
        self.classes_ = targets.classes
        self.transduction_ = targets.decode(result.pseudo_labels.codes)
        self.confidence_ = result.pseudo_labels.confidence
        self.features_ = result.features
        self.rounds_ = result.rounds
        self.labeller_ = _with_class_names(result.labeller, targets)
        classes = [str(name) for name in targets.classes]
        self.classifier_ = _assemble_classifier(result.network, body, backbone, classes, flip=options.view_options.flip)
        return self

    def _cache_views(
        self, backbone: Backbone, live: LiveViews, options: AugmentOptions, device: torch.device
    ) -> tuple[torch.nn.Module, CachedViews]:
        """The late part of the network, and what the early one sees of all images."""
        stem, body = split_backbone(backbone)
        file = None if self.run_dir is None or process_count() > 1 else Path(self.run_dir) / VIEW_CACHE
        return body, cache_views(
            stem, live, device, seed=options.method_options.seed, file=file, progress=self.progress
        )

    def predict(self, images: Images) -> NDArray[np.generic]:
        """The most probable class of each image, one of `classes_`, shape (n,).

        Args:
            images: decoded images as for `fit`, of any size, or image files.

        Raises:
            ValueError: an image cannot be read (`classifier_.predict` sets such files aside), or has another shape.
            TypeError: what is given is neither.
        """
        codes = self.predict_proba(images).argmax(axis=1)
        return np.asarray(self.classes_[codes])

    def predict_proba(self, images: Images) -> NDArray[np.float32]:
        """How probable each class is, shape (n, m), columns in the order of `classes_`; see `predict`."""
        check_is_fitted(self, "classifier_")
        predictions = self.classifier_.predict(images, device=self.device, progress=self.progress)
        if predictions.failures:
            path, reason = predictions.failures[0]
            raise ValueError(f"{path}: cannot be read ({reason}); expected images that can")
        return predictions.probabilities

    def score(self, images: Images, y: ArrayLike, sample_weight: ArrayLike | None = None) -> float:
        """Accuracy on the images that y has a label for; see `predict`."""
        return labelled_accuracy(self.predict(images), y, sample_weight)


def _check_types(options: object, labeller: object) -> None:
    if not isinstance(options, AugmentOptions):
        raise TypeError(f"options is {options!r}; expected AugmentOptions, as AugmentOptions(size=96)")
    if not isinstance(labeller, GraphLabeller):
        raise TypeError(f"labeller is {labeller!r}; expected one of entourage.label, as GraphTransduction()")


def _with_class_names(labeller: GraphLabeller, targets: Targets) -> GraphLabeller:
    """A labeller that was fitted to numbered classes, with the users' own names of them."""
    labeller.set_params(classes=targets.classes)
    labeller.transduction_ = targets.decode(labeller.transduction_.astype(np.int64))  # -1: undecided
    labeller.classes_, labeller._targets = targets.classes, targets
    return labeller


def _assemble_classifier(
    trained: ImageNetwork, body: torch.nn.Module, backbone: Backbone, classes: list[str], *, flip: bool
) -> ImageClassifier:
    """The trained part put back into the whole network; `body` shares the weights of the backbone."""
    body.load_state_dict(trained.body.state_dict())
    network = ImageNetwork(backbone.module, backbone.dim, len(classes))
    network.head.load_state_dict(trained.head.state_dict())
    return ImageClassifier(network.cpu().eval(), backbone.name, classes, backbone.preprocessing, flip)
