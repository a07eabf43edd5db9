"""Options of the Group Loss, and the ways to use it that have a name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from entourage import validation
from entourage.validation import check_choice, is_integer, is_number

Similarity = Literal["pearson", "cosine", "gaussian"]
Negatives = Literal["clamp", "shift"]
AnchorChoice = Literal["random", "first"]
Objective = Literal["labels", "agreement"]

_RANGES = {  # within them the loss of any logits is finite in float32
    "temperature": (1e-3, 1e6),
    "sharpness": (1.0, 32.0),  # below 1 the slope at a similarity of 0 is infinite
    "cross_entropy_weight": (0.0, 1e6),
    "proxy_weight": (0.0, 1e6),
    "class_players": (0.0, 1e6),
    "floor": (0.0, 1.0),
    "label_smoothing": (0.0, 0.999),  # all of it would say nothing of the label
}
_MAX_COUNT = 1_000_000  # rounds, anchors, batches


@dataclass(frozen=True)
class GroupLossOptions:
    """What `GroupLoss` is built from; each field is the constructor argument of that name.

    The values are those that did best on held-out classes (`experiments.embed_losses --search`), on a
    `MultiCenterHead`, but for the memory: a loss that remembers must be told by `eval()` when it is not training.
    """

    iterations: int = 1  # rounds of the game
    temperature: float = 1.0  # the prior is softmax(logits / temperature)
    anchors_per_class: int = 1  # samples of each class whose label the game is told
    anchor_choice: AnchorChoice = "random"
    similarity: Similarity = "pearson"
    negatives: Negatives = "clamp"  # what becomes of negative similarities
    sharpness: float = 1.0  # power that similarities are raised to: above 1 the nearest are heard most
    zero_diagonal: bool = True  # nobody supports himself
    objective: Objective = "labels"  # "agreement": the same distribution within a class, whatever it is
    cross_entropy_weight: float = 3.0  # of the plain cross-entropy of the logits
    proxy_weight: float = 0.0  # of the Proxy-Anchor loss of the logits, for cosine classifiers with a scale of 32
    count_anchors: bool = False  # whether the mean over the batch counts anchors, whose own loss is 0
    floor: float = 0.0  # added to a probability before its logarithm is taken
    label_smoothing: float = 0.0  # share of the target that goes to all classes evenly
    class_players: float = 0.0  # how many samples' voices the classifier's row of each class has in the game; 0: none
    memory: int = 0  # how many earlier batches go on playing, labelled

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
            object.__setattr__(self, name, int(value))  # NumPy's numbers are no JSON
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if not is_number(value) or not low <= value <= high:
                raise ValueError(f"{name} is {value!r}; expected a number from {low:g} to {high:g}")
            object.__setattr__(self, name, float(value))


def _original(temperature: float, anchors_per_class: int) -> GroupLossOptions:
    return GroupLossOptions(
        temperature=temperature,
        anchors_per_class=anchors_per_class,
        anchor_choice="first",  # of a batch that the sampler has shuffled
        zero_diagonal=False,  # the text and a comment of the code say otherwise
        cross_entropy_weight=1.0,
        count_anchors=True,
        floor=1e-12,
    )


PRESETS: dict[str, GroupLossOptions] = {
    "default": GroupLossOptions(memory=5),
    "thesis": GroupLossOptions(
        iterations=5,  # the text names no number; this is what the code's game does unless told otherwise
        temperature=1.0,  # nor a temperature
        anchors_per_class=2,
        cross_entropy_weight=0.0,  # Algorithm 1 has the loss of the game alone
    ),
    "original-cub": _original(temperature=24.0, anchors_per_class=2),
    "original-cars": _original(temperature=79.0, anchors_per_class=3),
    "original-sop": _original(temperature=54.0, anchors_per_class=2),
}


def loss_preset(name: str) -> GroupLossOptions:
    """The options of that name; a ValueError lists the names there are."""
    return validation.preset(PRESETS, name)
