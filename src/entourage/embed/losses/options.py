"""Options and presets of the Group Loss."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from entourage import validation
from entourage.validation import check_choice, is_integer, is_number

Similarity = Literal["pearson", "cosine", "gaussian"]
Negatives = Literal["clamp", "shift"]
AnchorChoice = Literal["random", "first"]
Objective = Literal["labels", "agreement"]

_RANGES = {  # the loss of any logits is finite in float32 within these ranges
    "temperature": (1e-3, 1e6),
    "sharpness": (1.0, 32.0),  # below 1 the derivative at a similarity of 0 is infinite
    "cross_entropy_weight": (0.0, 1e6),
    "proxy_weight": (0.0, 1e6),
    "class_players": (0.0, 1e6),
    "floor": (0.0, 1.0),
    "label_smoothing": (0.0, 0.999),  # at 1 the target would not depend on the label
}
_MAX_COUNT = 1_000_000  # iterations, anchors, batches


@dataclass(frozen=True)
class GroupLossOptions:
    """Options of `GroupLoss`.

    The defaults gave the best Recall@1 on held-out classes with a `MultiCenterHead`
    (`experiments.embed_losses --search`), except that the memory is off: it requires `eval()` outside training.

    Attributes:
        iterations, temperature, anchors_per_class, anchor_choice, similarity, negatives, sharpness, zero_diagonal,
            objective, cross_entropy_weight, proxy_weight, count_anchors, floor, label_smoothing, class_players,
            memory: the arguments of `GroupLoss`, which documents them.

    Raises:
        ValueError: an option is out of range.
    """

    iterations: int = 1
    temperature: float = 1.0
    anchors_per_class: int = 1
    anchor_choice: AnchorChoice = "random"
    similarity: Similarity = "pearson"
    negatives: Negatives = "clamp"
    sharpness: float = 1.0
    zero_diagonal: bool = True
    objective: Objective = "labels"
    cross_entropy_weight: float = 3.0
    proxy_weight: float = 0.0
    count_anchors: bool = False
    floor: float = 0.0
    label_smoothing: float = 0.0
    class_players: float = 0.0  # weight of the class vectors as labelled nodes, in samples per class
    memory: int = 0

    def __post_init__(self) -> None:
        for name, choices in (
            ("anchor_choice", AnchorChoice),
            ("similarity", Similarity),
            ("negatives", Negatives),
            ("objective", Objective),
        ):
            check_choice(name, getattr(self, name), choices)
        for name in ("zero_diagonal", "count_anchors"):
            value = getattr(self, name)
            if not isinstance(value, bool):
                raise ValueError(f"{name} is {value!r}; expected True or False")
        for name in ("iterations", "anchors_per_class", "memory"):
            value = getattr(self, name)
            if not is_integer(value) or not 0 <= value <= _MAX_COUNT:
                raise ValueError(f"{name} is {value!r}; expected a whole number from 0 to {_MAX_COUNT:,}")
            object.__setattr__(self, name, int(value))  # json.dumps rejects NumPy's integers
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not is_number(value) or not low <= value <= high:
                raise ValueError(f"{name} is {value!r}; expected a number from {low:g} to {high:g}")
            object.__setattr__(self, name, float(value))


def _original(temperature: float, anchors_per_class: int) -> GroupLossOptions:
    return GroupLossOptions(
        temperature=temperature,
        anchors_per_class=anchors_per_class,
        anchor_choice="first",  # the sampler has shuffled the batch
        zero_diagonal=False,  # unlike the thesis and a comment in the original code
        cross_entropy_weight=1.0,
        count_anchors=True,
        floor=1e-12,
    )


PRESETS: dict[str, GroupLossOptions] = {
    "default": GroupLossOptions(memory=5),
    "thesis": GroupLossOptions(
        iterations=5,  # not given in the thesis; default of the original code's dynamics
        temperature=1.0,  # not given in the thesis
        anchors_per_class=2,
        cross_entropy_weight=0.0,  # not part of Algorithm 1
    ),
    "original-cub": _original(temperature=24.0, anchors_per_class=2),
    "original-cars": _original(temperature=79.0, anchors_per_class=3),
    "original-sop": _original(temperature=54.0, anchors_per_class=2),
}


def loss_preset(name: str) -> GroupLossOptions:
    """Return the options of a preset; the ValueError for an unknown name lists the presets."""
    return validation.preset(PRESETS, name)
