from __future__ import annotations

from typing import Any

import pytest

from entourage.detect.options import LossOptions, NetworkOptions


@pytest.mark.parametrize(
    ("kind", "fields", "message"),
    [
        (NetworkOptions, {"widths": (8, 8)}, "differ in length; expected one value per stride in each"),
        (NetworkOptions, {"decoder": "refinenet"}, "expected a resnet encoder"),
        (LossOptions, {"energy": "hinge"}, "expected one of focal, bce, levels"),
        (LossOptions, {"window": 0}, "window is 0; expected 1 or more, or None for"),
        (LossOptions, {"rarest": 0.5}, r"rarest is 0.5; expected 1 or more"),
    ],
)
def test_invalid_options_raise(kind: Any, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        kind(**fields)
