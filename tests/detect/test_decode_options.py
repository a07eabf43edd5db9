from __future__ import annotations

from typing import Any

import pytest

from entourage.detect.decode_options import DecodeOptions


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"method": "magic"}, "expected one of peaks, components"),
        ({"cuts": ()}, "expected one or more"),
        ({"cuts": (0.1, 0.5)}, "highest first"),
        ({"most": 0}, "most is 0"),
        ({"overlap": 0.0}, "overlap is 0.0"),
    ],
)
def test_impossible_ways_to_read_are_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        DecodeOptions(**fields)
