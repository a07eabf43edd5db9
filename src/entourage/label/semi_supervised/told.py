"""Methods with one number of their own that matters most: how much a difference weighs, or how sure is sure."""

from __future__ import annotations

from typing import Any, ClassVar

from entourage.checks import is_number
from entourage.label.semi_supervised.examples import Examples
from entourage.label.semi_supervised.method import Method, MethodOptions
from entourage.label.semi_supervised.network import ImageNetwork

THRESHOLD = 0.95  # Pseudo-Label's first version trusted every answer; later comparisons of it have this


class WeightedMethod(Method):
    """A method whose disagreement has a weight.

    Args:
        network, examples, options: as for `Method`.
        weight: of the difference, when it has grown; None: the `usual` one.

    Attributes:
        usual: what is of use to the method where labels are few.
    """

    usual: ClassVar[float]

    def __init__(
        self,
        network: ImageNetwork,
        examples: Examples,
        options: MethodOptions | None = None,
        *,
        weight: float | None = None,
    ) -> None:
        super().__init__(network, examples, options)
        self.weight = self.usual if weight is None else weight
        if not is_number(self.weight) or not self.weight >= 0:
            raise ValueError(f"weight is {weight!r}; expected 0 or more")

    def describe(self) -> dict[str, Any]:
        """With the weight."""
        return {**super().describe(), "weight": self.weight}


class SureMethod(Method):
    """A method that believes answers it is sure of.

    Args:
        network, examples, options: as for `Method`.
        threshold: how sure an answer must be.
    """

    def __init__(
        self,
        network: ImageNetwork,
        examples: Examples,
        options: MethodOptions | None = None,
        *,
        threshold: float = THRESHOLD,
    ) -> None:
        super().__init__(network, examples, options)
        if not is_number(threshold) or not 0 <= threshold <= 1:
            raise ValueError(f"threshold is {threshold!r}; expected a share of 0 to 1")
        self.threshold = threshold

    def describe(self) -> dict[str, Any]:
        """With the threshold."""
        return {**super().describe(), "threshold": self.threshold}
