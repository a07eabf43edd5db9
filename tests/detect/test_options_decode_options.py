from __future__ import annotations

from typing import Any

import pytest

from entourage.detect.options import DecodeOptions


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "magic"}, "expected one of peaks, components"),
        ({"cuts": ()}, "expected one or more"),
        ({"cuts": (0.1, 0.5)}, "in descending order"),
        ({"cuts": (2.0,)}, r"cuts are \(2.0,\); expected energies in \[0, 1\)"),
        ({"cuts": (0.5, -0.1)}, "expected energies"),
        ({"cuts": (float("nan"),)}, "expected energies"),
        ({"threshold": float("nan")}, "threshold is nan; expected a score between 0 and 1"),
        ({"threshold": -3}, "threshold is -3; expected a score between 0 and 1"),
        ({"threshold": 1.5}, r"threshold is 1.5; expected a score between 0 and 1"),
        ({"least": -1}, "least is -1; expected a whole number of 1 or more"),
        ({"least": 1.5}, r"least is 1.5; expected a whole number of 1 or more"),
        ({"snap": 0}, "snap is 0; expected more than 0 pixels, or None"),
        ({"snap": -1.0}, r"snap is -1.0; expected more than 0 pixels, or None"),
        ({"snap": float("nan")}, "snap is nan; expected more than 0 pixels, or None"),
        ({"most": 0}, "most is 0; expected a whole number of 1 or more, or None for no maximum"),
        ({"most": 2.5}, r"most is 2.5; expected a whole number of 1 or"),
        ({"overlap": 0.0}, r"overlap is 0.0; expected an IoU in \(0, 1\], or None"),
    ],
)
def test_invalid_options_raise(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DecodeOptions(**fields)
