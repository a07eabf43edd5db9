"""How labels become a classifier: the options, and the three ways that have a name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.views import ViewOptions
from entourage.training.images import NO_AUGMENTATION
from entourage.training.options import TrainingOptions
from entourage.validation import preset, validate_counts

PseudoLabelMode = Literal["hard", "soft", "weighted"]


@dataclass(frozen=True)
class AugmentOptions:
    """What `LabelAugmenter` does, besides the game itself."""

    size: int = 160  # side of the images that the network is trained on and asked about
    trainable_layers: Literal["late", "all"] = "late"  # the late half on cached views, or all layers on new ones
    n_neighbors: int | Literal["auto"] = "auto"  # of each image, where the labeller says "auto" too: log2 n + 1
    metric: Literal["cosine", "euclidean"] = "cosine"  # how features compare in the graph: by direction, or as they are
    balance: bool = False  # classes are as frequent as among the given labels: of use where these were drawn fairly
    rounds: int = 4  # at most: features of the newly trained network, a new graph, a new game
    method: Literal["consistency", "labels"] = "consistency"  # "labels" trusts the found labels alone
    # Of the method "labels": as known labels, as distributions, or as labels weighted by confidence.
    pseudo_label_mode: PseudoLabelMode = "weighted"
    pool_labels: bool = False  # of the method "labels": known and pseudo-labels are one set, or known in every batch
    flip: bool = True  # whether a mirror image shows the same thing: photographs say yes, digits and text no
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
    )  # of each round

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
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected {' or '.join(map(repr, known))}")
        if self.training.monitor is not None:  # else the first round would find out when its epoch is over
            raise ValueError(f"monitor is {self.training.monitor!r}; expected None: in a round nothing is measured")

    @classmethod
    def from_preset(cls, name: str) -> AugmentOptions:
        """Return the options of a preset: "default", "thesis" or "original".

        Raises:
            ValueError: there is no preset of that name; the message lists the names.
        """
        return preset(PRESETS, name)

    @property
    def view_options(self) -> ViewOptions:
        """`views`, without mirror images if they are not allowed."""
        return self.views if self.flip else replace(self.views, flip=False)


_THESIS = AugmentOptions(
    size=224,
    trainable_layers="all",
    rounds=1,
    method="labels",
    pseudo_label_mode="hard",
    pool_labels=True,
    views=ViewOptions(weak=NO_AUGMENTATION),  # neither augmentation nor an average is mentioned
    method_options=MethodOptions(unlabelled_batch=64, ema_decay=0.0, freeze_norm=False, head_lr_scale=1.0),
    training=TrainingOptions(epochs=10, optimizer="adam", learning_rate=3e-4),
)

PRESETS: dict[str, AugmentOptions] = {
    "default": AugmentOptions(),
    "thesis": _THESIS,
    "original": replace(
        _THESIS,
        method_options=replace(_THESIS.method_options, unlabelled_batch=8),
        training=replace(_THESIS.training, learning_rate=1e-4),  # not the text's 3e-4
    ),
}
