"""Options of `LabelAugmenter` and their presets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.student.options import StudentOptions
from entourage.label.semi_supervised.views import ViewOptions
from entourage.training.images import NO_AUGMENTATION
from entourage.training.options import TrainingOptions
from entourage.validation import preset, validate_counts

PseudoLabelMode = Literal["hard", "soft", "weighted"]


@dataclass(frozen=True)
class AugmentOptions:
    """Options of `LabelAugmenter`, except those of the labeller.

    Attributes:
        size: image size of the network in pixels, for training and prediction.
        trainable_layers: "late" trains the late half of the network on cached views; "all" trains all layers on new
            views in every step.
        n_neighbors: neighbours of each image in the graph if the labeller has "auto"; "auto" for floor(log2 n) + 1.
        metric: "cosine" scales features to length 1 before the graph is built, "euclidean" does not.
        balance: use the class frequencies of the given labels as class priors, if these are a random sample.
        rounds: maximum number of rounds, each with new features, a new graph and new labels.
        method: "consistency" trains with `GraphConsistency`, "labels" with `GraphPseudoLabel`.
        pseudo_label_mode: with method "labels": pseudo-labels as given labels ("hard"), as distributions ("soft") or
            weighted by squared confidence ("weighted").
        pool_labels: with method "labels": given and pseudo-labels are one set; otherwise every batch has additional
            labelled images.
        flip: whether images keep their class when mirrored: True for photographs, False for digits and text.
        views: options of the views.
        method_options: options that all training methods share.
        training: options of the training in each round.
        student: train a second network from random weights after the rounds, see `train_student`; None: for 5,000
            images or more on a GPU.
        student_options: options of the second network.
    """

    size: int = 160
    trainable_layers: Literal["late", "all"] = "late"
    n_neighbors: int | Literal["auto"] = "auto"
    metric: Literal["cosine", "euclidean"] = "cosine"
    balance: bool = False
    rounds: int = 4
    method: Literal["consistency", "labels"] = "consistency"
    pseudo_label_mode: PseudoLabelMode = "weighted"
    pool_labels: bool = False
    flip: bool = True
    views: ViewOptions = field(default_factory=ViewOptions)
    method_options: MethodOptions = field(default_factory=MethodOptions)
    training: TrainingOptions = field(
        default_factory=lambda: TrainingOptions(
            epochs=1,
            learning_rate=8e-5,
            weight_decay=1e-3,
            schedule="cosine",
            warmup_steps=50,
            checkpoint_every=100,  # a round is a single epoch, which on a CPU may take an hour
        )
    )

    student: bool | None = None
    student_options: StudentOptions = field(default_factory=StudentOptions)

    def __post_init__(self) -> None:
        validate_counts(self, 32, "size", alternative=": networks halve their input five times")
        validate_counts(self, 1, "rounds")
        if self.n_neighbors != "auto":
            validate_counts(self, 1, "n_neighbors", alternative=", or 'auto'")
        choices: dict[str, tuple[object, ...]] = {
            "metric": ("cosine", "euclidean"),
            "method": ("consistency", "labels"),
            "trainable_layers": ("late", "all"),
            "pseudo_label_mode": get_args(PseudoLabelMode),
        }
        choices |= dict.fromkeys(("balance", "pool_labels", "flip"), (True, False))
        choices["student"] = (True, False, None)
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected {' or '.join(map(repr, known))}")
        if self.training.monitor is not None:  # otherwise the first round would fail at the end of its epoch
            raise ValueError(f"monitor is {self.training.monitor!r}; expected None: a round has no validation metrics")

    @classmethod
    def from_preset(cls, name: str) -> AugmentOptions:
        """Return the options of a preset.

        Args:
            name: "default", "thesis" or "original".

        Returns:
            The options.

        Raises:
            ValueError: the preset does not exist.
        """
        return preset(PRESETS, name)

    @property
    def view_options(self) -> ViewOptions:
        """`views`, without mirror images if `flip` is False."""
        return self.views if self.flip else replace(self.views, flip=False)


_THESIS = AugmentOptions(
    size=224,
    trainable_layers="all",
    rounds=1,
    method="labels",
    pseudo_label_mode="hard",
    pool_labels=True,
    views=ViewOptions(weak=NO_AUGMENTATION),  # the text mentions neither augmentation nor averaged weights
    method_options=MethodOptions(unlabelled_batch=64, ema_decay=0.0, freeze_norm=False, head_lr_scale=1.0),
    training=TrainingOptions(epochs=10, optimizer="adam", learning_rate=3e-4),
    student=False,
)

PRESETS: dict[str, AugmentOptions] = {
    "default": AugmentOptions(),
    "thesis": _THESIS,
    "original": replace(
        _THESIS,
        method_options=replace(_THESIS.method_options, unlabelled_batch=8),
        training=replace(_THESIS.training, learning_rate=1e-4),  # the text has 3e-4
    ),
}
