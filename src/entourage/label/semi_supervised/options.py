"""How labels become a classifier: the options, and the three ways that have a name."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from entourage import validation
from entourage.label.semi_supervised.method import MethodOptions
from entourage.label.semi_supervised.views import ViewOptions
from entourage.training.images import NO_AUGMENTATION
from entourage.training.options import TrainingOptions
from entourage.validation import validate_counts

PseudoLabelMode = Literal["hard", "soft", "weighted"]


@dataclass(frozen=True)
class AugmentOptions:
    """What `LabelAugmenter` does, besides the game itself."""

    size: int = 160  # side of the images that the network is trained on and asked about
    trained: Literal["late", "all"] = "late"  # layers: the late half on kept views, or all of them on ever new ones
    neighbours: int | Literal["auto"] = "auto"  # of each image, where the labeller says "auto" too: log2 n + 1
    metric: Literal["cosine", "euclidean"] = "cosine"  # how features compare in the graph: by direction, or as they are
    balance: bool = False  # classes are as frequent as among the given labels: of use where these were drawn fairly
    rounds: int = 4  # at most: features of the newly trained network, a new graph, a new game
    method: Literal["consistency", "labels"] = "consistency"  # "labels" trusts the found labels alone
    trust: PseudoLabelMode = (
        "weighted"  # of the method "labels": as if given, as distributions, or as far as they are sure
    )
    alike: bool = False  # of the method "labels": given and found labels are one set, or given ones are in every batch
    mirror: bool = True  # whether a mirror image shows the same thing: photographs say yes, digits and text no
    looks: ViewOptions = field(default_factory=ViewOptions)
    batches: MethodOptions = field(default_factory=MethodOptions)
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
        if self.neighbours != "auto":
            validate_counts(self, 1, "neighbours", alternative=", or 'auto'")
        choices: dict[str, tuple[object, ...]] = {
            "metric": ("cosine", "euclidean"),
            "method": ("consistency", "labels"),
            "trained": ("late", "all"),
            "trust": get_args(PseudoLabelMode),
        }
        choices |= dict.fromkeys(("balance", "alike", "mirror"), (True, False))
        for name, known in choices.items():
            if getattr(self, name) not in known:
                raise ValueError(f"{name} is {getattr(self, name)!r}; expected {' or '.join(map(repr, known))}")
        if self.training.monitor is not None:  # else the first round would find out when its epoch is over
            raise ValueError(f"monitor is {self.training.monitor!r}; expected None: in a round nothing is measured")

    @property
    def views(self) -> ViewOptions:
        """`looks`, without mirror images if they are not allowed."""
        return self.looks if self.mirror else replace(self.looks, mirror=False)


_THESIS = AugmentOptions(
    size=224,
    trained="all",
    rounds=1,
    method="labels",
    trust="hard",
    alike=True,
    looks=ViewOptions(weak=NO_AUGMENTATION),  # no augmentation is spoken of
    batches=MethodOptions(unlabelled_batch=64, decay=0.0, freeze_norm=False, head_rate=1.0),  # nor an average
    training=TrainingOptions(epochs=10, optimizer="adam", learning_rate=3e-4),
)

PRESETS: dict[str, AugmentOptions] = {
    "default": AugmentOptions(),
    "thesis": _THESIS,
    "original": replace(
        _THESIS,
        batches=replace(_THESIS.batches, unlabelled_batch=8),
        training=replace(_THESIS.training, learning_rate=1e-4),  # not the text's 3e-4
    ),
}


def preset(name: str) -> AugmentOptions:
    """The options of that name; a ValueError lists the names there are."""
    return validation.preset(PRESETS, name)
